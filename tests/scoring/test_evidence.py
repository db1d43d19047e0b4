"""Evidence: parts that add up to the logit that was given, and what happens without them."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose
from scipy.special import expit

import polyseme
from polyseme.base.validation import InputError
from polyseme.scoring.evidence import integrated_gradients
from polyseme.space.calibration import logit
from polyseme.space.concept_space import EncodedFeatures
from polyseme.space.members import Members, Shape

# A label of every kind; the last two are new.
LABELS = ("apple", "oak", "tram", "owl", "jellyfish", "beach")


@pytest.fixture(scope="module")
def tagger(world, tiny_space, theme_words, tmp_path_factory):
    """A tagger with a linear path, which met one new label in documents and one by name."""
    folder = tmp_path_factory.mktemp("evidence") / "model"
    grown = polyseme.ZeroShotTagger(space=tiny_space(linear=0.4), random_state=0)
    grown.fit(world.X, world.documents, world.label_sets, label_sets_only=True).save(folder)
    grown = polyseme.load(folder)
    grown.add_documents([("sea", "sand", "jellyfish"), ("wave", "jellyfish")])
    grown.add_labels(["beach"], theme_words)
    kinds = grown.kinds_[-2:].tolist()
    assert kinds == ["oov", "oov"]
    return grown


def views(tagger, x, tags):
    """What is known of an item, by the space's own functions, and the share of its tags."""
    space = tagger.space_
    table = np.isin(np.asarray(tagger.store_.labels), tags or ())[None].astype(float)
    tag_matrix = sp.csr_matrix(table[:, : tagger.store_.n_learned])
    if x is None:
        ordered = tag_matrix[:, space.order_].toarray().astype(np.float32)
        direct = np.zeros((1, space.members_.n_dimensions))
        coordinates = np.zeros((1, space.linear_.n_coordinates))
        return EncodedFeatures(
            space.encode_documents(tag_matrix), direct, ordered, coordinates
        ), 1.0
    return space.encode_items(x[None], tag_matrix), space.context


@pytest.mark.parametrize("form", ["features", "both", "tags"])
@pytest.mark.parametrize("label", LABELS)
def test_parts_are_what_each_says_beyond_the_average_and_add_up(tagger, world, form, label):
    space = tagger.space_
    store = tagger.store_
    column = list(tagger.classes_).index(label)
    of_items = form != "tags"
    readout = tagger._scorer.item_readout if of_items else tagger._scorer.tag_readout
    weights = readout.weights[:, column]
    voted = of_items and column < store.n_learned
    frequency = store.counts[column] / len(store.ids) if voted else 0.5
    prior_logit = np.log(frequency / (1 - frequency))
    average = np.zeros((1, len(space.order_)), dtype=np.float32)
    if of_items:
        average[0, : space.n_seen_] = space.mean_tags_

    def read(view, votes=None):
        """Read the label from an item's view, with votes or those of its own code."""
        probable = np.asarray(view.probable, dtype=np.float32)
        context = space.encode_context(probable)
        composed = (1 - share) * view.direct + share * context
        code = np.hstack([composed, view.coordinates]).astype(np.float32)
        if votes is None and voted:
            probabilities = store.vote_shares(space.points(code))[0, column]
            votes = float(logit(probabilities))
        priming = space.priming * votes if voted else 0.0
        return float((code @ weights)[0] + readout.intercepts[column]) + priming, votes

    for place in range(5):
        theme = world.themes[world.themes_test[place]]
        x = world.X_test[place] if of_items else None
        tags = None if form == "features" else theme[1:3]
        if label in (tags or ()):
            with pytest.raises(InputError, match=f"'{label}' is among the tags that are given"):
                tagger.explain(x, label, tags=tags)
            continue
        evidence = tagger.explain(x, label, tags=tags)
        scores = tagger.predict_proba(x if x is None else x[None], tags if tags is None else [tags])
        assert evidence.label == label
        assert len(evidence.tags) <= 5
        assert evidence.probability == pytest.approx(scores[0, column], abs=1e-9)
        assert expit(evidence.logit) == pytest.approx(scores[0, column], abs=1e-9)
        of_tags = sum(tag.part for tag in evidence.tags) + evidence.other_tags
        total = evidence.frequency + evidence.features + of_tags + evidence.known
        assert total == pytest.approx(evidence.logit, abs=1e-9)
        contributions = [contribution for _, contribution in evidence.parts()]
        assert sum(contributions) == pytest.approx(evidence.logit, abs=1e-9)

        view, share = views(tagger, x, tags)
        before, votes = read(view)
        assert evidence.logit == pytest.approx(before, abs=1e-5)
        # What is left is the logit where nothing is known, the same for all items.
        start = view._replace(probable=average)
        if of_items:
            n_members_dimensions = space.members_.n_dimensions
            start = start._replace(
                direct=space.mean_code_[None, :n_members_dimensions],
                coordinates=space.mean_code_[None, n_members_dimensions:],
            )
        assert evidence.frequency == pytest.approx(read(start, prior_logit)[0], abs=2e-4)
        change = [(1 - share) * (view.direct - start.direct), view.coordinates - start.coordinates]
        assert evidence.features == pytest.approx(np.hstack(change)[0] @ weights, abs=1e-5)
        wanted = space.priming * (votes - prior_logit) if voted else 0
        assert evidence.known == pytest.approx(wanted, abs=1e-4)
        for tag in evidence.tags:
            tag_column = list(tagger.classes_).index(tag.tag)
            position = space.order_.tolist().index(tag_column)
            assert tag.probability == pytest.approx(float(view.probable[0, position]), abs=1e-6)
            changed = view.probable.copy()
            changed[0, position] = average[0, position]
            less = read(view._replace(probable=changed))[0]
            assert tag.without == pytest.approx(less - before, abs=1e-5)


def test_evidence_is_printed_as_lines_that_add_up(tagger, world):
    evidence = tagger.explain(world.X_test[0], LABELS[0], k=3)
    *lines, last = str(evidence).splitlines()
    contributions = [float(line.split()[0]) for line in lines]
    expected_n_parts = len(evidence.parts())
    assert len(contributions) == expected_n_parts
    assert sum(contributions) == pytest.approx(evidence.logit, abs=0.05)
    assert last.endswith(
        f"{LABELS[0]} ({evidence.kind}) has the probability {evidence.probability:.2f}"
    )


@pytest.mark.parametrize("seed", range(5))
def test_parts_of_tags_are_integrated_gradients(seed):
    """Go the straight way in many small steps, and see what each tag changes by itself."""
    rng = np.random.default_rng(seed)
    draw = rng.standard_normal
    sizes = (0, 6 * 8 + 8 + 8 * 5 + 5, 5 * 6 + 6)
    shape = Shape(n_labels=6, n_outputs=6, n_features=0, hidden=8, code=5)
    members = Members(shape, *(draw((2, n), dtype=np.float32) for n in sizes))
    weights = rng.normal(size=10)
    start = rng.random(6).astype(np.float32)
    end = rng.random(6).astype(np.float32)
    end[2] = start[2]

    def logits(rows):
        codes = members.encode_documents(rows.astype(np.float32))
        return np.concatenate([codes[0], codes[1]], axis=1).astype(np.float64) @ weights

    n_steps, small = 2000, 1e-2
    way = start + (np.arange(n_steps)[:, None] + 0.5) / n_steps * (end - start)
    wanted = np.zeros(6)
    for tag in range(6):
        aside = small * np.eye(6)[tag]
        slopes = (logits(way + aside) - logits(way - aside)) / (2 * small)
        wanted[tag] = slopes.mean() * (end - start)[tag]
    contributions = integrated_gradients(members, weights, start, end)
    change = (logits(end[None]) - logits(start[None]))[0]
    assert contributions.sum() == pytest.approx(change, abs=1e-5)
    assert np.abs(wanted).max() > 0.1
    assert contributions[2] == 0
    # Kinks of rectified units are the difference between 64 places and 2000.
    atol = 0.02 * np.abs(wanted).max()
    assert_allclose(contributions, wanted, atol=atol)
    assert not integrated_gradients(members, weights, start, start).any(), "nothing moves"


def test_tags_are_named_by_the_size_of_their_parts(tagger, world):
    every = tagger.explain(world.X_test[0], "phone", k=100)
    sizes = [abs(tag.part) for tag in every.tags]
    assert sizes == sorted(sizes, reverse=True)
    assert len(sizes) == tagger.space_.n_seen_
    assert every.other_tags == pytest.approx(0, abs=1e-9)
    point = tagger.space_.points(tagger.transform(world.X_test[:1]))[0]
    column = list(tagger.classes_).index("phone")
    nearest = tagger.store_.nearest(point, column, 100)
    assert every.neighbours == nearest
    few = tagger.explain(world.X_test[0], "phone", k=2)
    assert few.tags == every.tags[:2]
    assert few.neighbours == every.neighbours[:2]
    assert few.other_tags == pytest.approx(sum(tag.part for tag in every.tags[2:]))


def test_given_tags_speak_for_what_goes_with_them(tagger):
    evidence = tagger.explain(None, "sand", tags=["sea", "towel"])
    tags = {evidence_tag.tag for evidence_tag in evidence.tags}
    assert tags == {"sea", "towel"}
    for evidence_tag in evidence.tags:
        assert evidence_tag.part > 0 > evidence_tag.without
        assert evidence_tag.probability == 1
    against = tagger.explain(None, "oven", tags=["sea", "towel"])
    assert all(evidence_tag.part < 0 for evidence_tag in against.tags)
