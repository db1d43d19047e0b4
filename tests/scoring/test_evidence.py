"""Evidence: parts that add up to the logit that was given, and what happens without them."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
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
    assert grown.kinds_[-2:].tolist() == ["oov", "oov"]
    return grown


def views(tagger, x, tags):
    """What is known of an item, by the space's own functions, and the share of its tags."""
    space = tagger.space_
    table = np.isin(np.asarray(tagger.store_.labels), tags or ())[None].astype(float)
    given = sp.csr_matrix(table[:, : tagger.store_.n_learned])
    if x is None:
        ordered = given[:, space.order_].toarray().astype(np.float32)
        direct = np.zeros((1, space.members_.n_dimensions))
        coordinates = np.zeros((1, space.linear_.n_coordinates))
        return EncodedFeatures(space.encode_documents(given), direct, ordered, coordinates), 1.0
    return space.encode_items(x[None], given), space.context


@pytest.mark.parametrize("form", ["features", "both", "tags"])
@pytest.mark.parametrize("label", LABELS)
def test_parts_are_what_each_says_beyond_the_average_and_add_up(tagger, world, form, label):
    space, store, column = tagger.space_, tagger.store_, list(tagger.classes_).index(label)
    of_items = form != "tags"
    readout = tagger._scorer.of_items if of_items else tagger._scorer.of_tags
    weights, voted = readout.weights[:, column], of_items and column < store.n_learned
    held = store.counts[column] / len(store.ids) if voted else 0.5
    usual = np.log(held / (1 - held))
    average = np.zeros((1, len(space.order_)), dtype=np.float32)
    if of_items:
        average[0, : space.n_seen_] = space.mean_tags_

    def read(view, votes=None):
        """Read the label from an item's view, with votes or those of its own code."""
        context = space.encode_context(np.asarray(view.probable, dtype=np.float32))
        composed = (1 - share) * view.direct + share * context
        code = np.hstack([composed, view.coordinates]).astype(np.float32)
        if votes is None and voted:
            votes = float(logit(store.vote_shares(space.points(code))[0, column]))
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
        found = tagger.explain(x, label, tags=tags)
        scores = tagger.predict_proba(x if x is None else x[None], tags if tags is None else [tags])
        assert found.label == label and len(found.tags) <= 5
        assert found.probability == pytest.approx(scores[0, column], abs=1e-9)
        assert expit(found.logit) == pytest.approx(scores[0, column], abs=1e-9)
        of_tags = sum(one.part for one in found.tags) + found.other_tags
        total = found.frequency + found.features + of_tags + found.known
        assert total == pytest.approx(found.logit, abs=1e-9)
        assert sum(part for _, part in found.parts()) == pytest.approx(found.logit, abs=1e-9)

        view, share = views(tagger, x, tags)
        before, votes = read(view)
        assert found.logit == pytest.approx(before, abs=1e-5)
        # What is left is the logit where nothing is known, the same for all items.
        start = view._replace(probable=average)
        if of_items:
            n_members_dimensions = space.members_.n_dimensions
            start = start._replace(
                direct=space.mean_code_[None, :n_members_dimensions],
                coordinates=space.mean_code_[None, n_members_dimensions:],
            )
        assert found.frequency == pytest.approx(read(start, usual)[0], abs=2e-4)
        moved = [(1 - share) * (view.direct - start.direct), view.coordinates - start.coordinates]
        assert found.features == pytest.approx(np.hstack(moved)[0] @ weights, abs=1e-5)
        wanted = space.priming * (votes - usual) if voted else 0
        assert found.known == pytest.approx(wanted, abs=1e-4)
        for one in found.tags:
            at = space.order_.tolist().index(list(tagger.classes_).index(one.tag))
            assert one.probability == pytest.approx(float(view.probable[0, at]), abs=1e-6)
            changed = view.probable.copy()
            changed[0, at] = average[0, at]
            less = read(view._replace(probable=changed))[0]
            assert one.without == pytest.approx(less - before, abs=1e-5)


def test_evidence_is_printed_as_lines_that_add_up(tagger, world):
    found = tagger.explain(world.X_test[0], LABELS[0], k=3)
    *lines, last = str(found).splitlines()
    parts = [float(line.split()[0]) for line in lines]
    assert len(parts) == len(found.parts()) and sum(parts) == pytest.approx(found.logit, abs=0.05)
    assert last.endswith(f"{LABELS[0]} ({found.kind}) has the probability {found.probability:.2f}")


@pytest.mark.parametrize("seed", range(5))
def test_parts_of_tags_are_integrated_gradients(seed):
    """Go the straight way in many small steps, and see what each tag changes by itself."""
    rng = np.random.default_rng(seed)
    drawn = rng.standard_normal
    sizes = (0, 6 * 8 + 8 + 8 * 5 + 5, 5 * 6 + 6)
    shape = Shape(n_labels=6, n_outputs=6, n_features=0, hidden=8, code=5)
    members = Members(shape, *(drawn((2, n), dtype=np.float32) for n in sizes))
    weights = rng.normal(size=10)
    start, end = rng.random(6).astype(np.float32), rng.random(6).astype(np.float32)
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
    found = integrated_gradients(members, weights, start, end)
    change = (logits(end[None]) - logits(start[None]))[0]
    assert found.sum() == pytest.approx(change, abs=1e-5)
    assert np.abs(wanted).max() > 0.1 and found[2] == 0
    # Kinks of rectified units are the difference between 64 places and 2000.
    np.testing.assert_allclose(found, wanted, atol=0.02 * np.abs(wanted).max())
    assert not integrated_gradients(members, weights, start, start).any(), "nothing moves"


def test_tags_are_named_by_the_size_of_their_parts(tagger, world):
    every = tagger.explain(world.X_test[0], "phone", k=100)
    sizes = [abs(one.part) for one in every.tags]
    assert sizes == sorted(sizes, reverse=True) and len(sizes) == tagger.space_.n_seen_
    assert every.other_tags == pytest.approx(0, abs=1e-9)
    point = tagger.space_.points(tagger.transform(world.X_test[:1]))[0]
    nearest = tagger.store_.nearest(point, list(tagger.classes_).index("phone"), 100)
    assert every.neighbours == nearest
    few = tagger.explain(world.X_test[0], "phone", k=2)
    assert few.tags == every.tags[:2] and few.neighbours == every.neighbours[:2]
    assert few.other_tags == pytest.approx(sum(one.part for one in every.tags[2:]))


def test_given_tags_speak_for_what_goes_with_them(tagger):
    found = tagger.explain(None, "sand", tags=["sea", "towel"])
    assert {one.tag for one in found.tags} == {"sea", "towel"}
    assert all(one.part > 0 > one.without and one.probability == 1 for one in found.tags)
    against = tagger.explain(None, "oven", tags=["sea", "towel"])
    assert all(one.part < 0 for one in against.tags)
