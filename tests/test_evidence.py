"""Evidence: parts that add up to the logit that was given, and what happens without them."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from scipy.special import expit

import polyseme
from polyseme._validation import InputError
from polyseme.calibration import logit
from polyseme.datasets.toy import THEMES
from polyseme.evidence import tag_parts
from polyseme.members import Members, Shape

# A label of every kind; the last two are new.
LABELS = ("apple", "oak", "tram", "owl", "jellyfish", "lighthouse")


def words():
    """Vectors of the toy world's words by their themes, and of one word more."""
    found = {}
    for place, theme in enumerate(THEMES.values()):
        for label in theme:
            found[label] = found.get(label, np.zeros(5)) + np.eye(5)[place]
    return found | {"lighthouse": found["sea"]}


@pytest.fixture(scope="module")
def tagger(toy_tagger, tmp_path_factory):
    """The toy tagger, which has met one new label in documents and one by name."""
    folder = tmp_path_factory.mktemp("evidence") / "model"
    toy_tagger.save(folder)
    grown = polyseme.load(folder)
    grown.add_documents([("sea", "sand", "jellyfish"), ("wave", "jellyfish")])
    grown.add_labels(["lighthouse"], words())
    assert grown.kinds_[-2:].tolist() == ["oov", "oov"]
    return grown


def asked(world, form, place):
    """Give what is known of a test item: features, tags, or both."""
    theme = THEMES[world.themes_test[place]]
    return {
        "features": (world.X_test[place], None),
        "both": (world.X_test[place], theme[1:3]),
        "tags": (None, theme[1:3]),
    }[form]


FORMS = ("features", "both", "tags")
forms = pytest.mark.parametrize("form", FORMS)


def halves(tagger, x, tags):
    """Give features' code, probable tags and their share, by the space's own functions."""
    space = tagger.space_
    table = np.isin(np.asarray(tagger.store_.labels), tags or ())[None].astype(float)
    given = sp.csr_matrix(table[:, : tagger.store_.n_learned])
    if x is None:
        ordered = given[:, space.order_].toarray().astype(np.float32)
        return np.zeros((1, space.n_dimensions)), ordered, 1.0
    direct, probable = space.views(x[None], given)
    return direct, probable, space.context


def logit_of(tagger, direct, probable, share, column, *, of_items):
    """Read one label from two halves, votes included."""
    space, store = tagger.space_, tagger.store_
    context = space.encode_tags(np.asarray(probable, dtype=np.float32))
    code = np.asarray((1 - share) * direct + share * context, dtype=np.float32)
    readout = tagger._of_items if of_items else tagger._of_tags
    found = float((code @ readout.weights[:, column] + readout.intercepts[column])[0])
    if of_items and column < store.n_learned:
        found += space.priming * float(logit(store.votes(space.points(code))[0, column]))
    return found


# ------------------------------------------------------------------ parts


@forms
@pytest.mark.parametrize("label", LABELS)
def test_parts_add_up_to_the_logit_that_the_tagger_gave(tagger, world, form, label):
    for place in (0, 2, 4):
        x, tags = asked(world, form, place)
        if label in (tags or ()):
            continue
        found = tagger.explain(x, label, tags=tags)
        assert found.label == label and len(found.tags) <= 5
        scores = tagger.predict_proba(
            None if x is None else x[None], None if tags is None else [tags]
        )
        given = scores[0, list(tagger.classes_).index(label)]
        assert found.probability == pytest.approx(given, abs=1e-9)
        assert expit(found.logit) == pytest.approx(given, abs=1e-9)
        total = (
            found.frequency
            + found.features
            + sum(one.part for one in found.tags)
            + found.other_tags
            + found.known
        )
        assert total == pytest.approx(found.logit, abs=1e-9)
        assert sum(part for _, part in found.parts()) == pytest.approx(found.logit, abs=1e-9)


def test_evidence_is_printed_as_lines_that_add_up(tagger, world):
    found = tagger.explain(world.X_test[0], LABELS[0], k=3)
    *lines, last = str(found).splitlines()
    parts = [float(line.split()[0]) for line in lines]
    assert len(parts) == len(found.parts()) and sum(parts) == pytest.approx(found.logit, abs=0.05)
    assert last.endswith(f"{LABELS[0]} ({found.kind}) has the probability {found.probability:.2f}")


@forms
@pytest.mark.parametrize("label", LABELS)
def test_what_is_left_is_the_logit_where_nothing_is_known(tagger, world, form, label):
    """The rest is not whatever is missing: it is the same for all items, and it is that logit."""
    space, store, column = tagger.space_, tagger.store_, list(tagger.classes_).index(label)
    of_items = form != "tags"
    average = np.zeros((1, len(space.order_)), dtype=np.float32)
    readout, share = tagger._of_tags, 1.0
    if of_items:
        readout, share = tagger._of_items, space.context
        average[0, : space.n_seen_] = space.mean_tags_
    code = share * space.encode_tags(average)[0].astype(np.float64)
    if of_items:
        code += (1 - share) * space.mean_code_
    wanted = float(code @ readout.weights[:, column] + readout.intercepts[column])
    if of_items and column < store.n_learned:
        held = store.counts[column] / len(store.ids)
        wanted += space.priming * np.log(held / (1 - held))
    for place in range(5):
        x, tags = asked(world, form, place)
        if label in (tags or ()):
            with pytest.raises(InputError, match=f"'{label}' is among the tags that are given"):
                tagger.explain(x, label, tags=tags)
            continue
        found = tagger.explain(x, label, tags=tags)
        assert found.frequency == pytest.approx(wanted, abs=2e-4)


def test_the_features_part_is_what_they_say_beyond_the_average(tagger, world):
    space = tagger.space_
    for label in LABELS:
        column = list(tagger.classes_).index(label)
        direct, _, _ = halves(tagger, world.X_test[1], None)
        weights = tagger._of_items.weights[:, column]
        wanted = (1 - space.context) * (direct[0] - space.mean_code_) @ weights
        found = tagger.explain(world.X_test[1], label)
        assert found.features == pytest.approx(wanted, abs=1e-5)
    assert tagger.explain(None, "apple", tags=["oven"]).features == 0


def test_the_part_of_known_tag_sets_is_their_votes_beyond_the_usual(tagger, world):
    space, store = tagger.space_, tagger.store_
    point = space.points(space.item_codes(world.X_test[:1]))
    for label in LABELS:
        found = tagger.explain(world.X_test[0], label)
        column = list(tagger.classes_).index(label)
        if column >= store.n_learned:
            assert found.known == 0, "documents of new labels have spoken already"
            continue
        share = store.votes(point)[0, column]
        held = store.counts[column] / len(store.ids)
        wanted = logit(np.array(share)) - np.log(held / (1 - held))
        assert found.known == pytest.approx(space.priming * wanted, abs=1e-4)
    assert tagger.explain(None, "apple", tags=["oven"]).known == 0


def random_members(seed=0):
    shape = Shape(n_labels=6, n_outputs=6, n_features=0, hidden=8, code=5)
    draws = torch.Generator().manual_seed(seed)
    sizes = (0, 6 * 8 + 8 + 8 * 5 + 5, 5 * 6 + 6)
    return Members(shape, *(torch.randn(2, n, generator=draws) for n in sizes))


@pytest.mark.parametrize("seed", range(5))
def test_parts_of_tags_are_integrated_gradients(seed):
    """Go the straight way in many small steps, and see what each tag changes by itself."""
    members, rng = random_members(seed), np.random.default_rng(seed)
    weights = rng.normal(size=10)
    start, end = rng.random(6).astype(np.float32), rng.random(6).astype(np.float32)
    end[2] = start[2]

    def logits(rows):
        codes = members.encode_documents(torch.from_numpy(rows.astype(np.float32)))
        return np.concatenate([codes[0], codes[1]], axis=1).astype(np.float64) @ weights

    n_steps, small = 2000, 1e-2
    way = start + (np.arange(n_steps)[:, None] + 0.5) / n_steps * (end - start)
    wanted = np.zeros(6)
    for tag in range(6):
        aside = small * np.eye(6)[tag]
        slopes = (logits(way + aside) - logits(way - aside)) / (2 * small)
        wanted[tag] = slopes.mean() * (end - start)[tag]
    found = tag_parts(members, weights, start, end)
    change = (logits(end[None]) - logits(start[None]))[0]
    assert found.sum() == pytest.approx(change, abs=1e-5)
    assert np.abs(wanted).max() > 0.1 and found[2] == 0
    # Kinks of rectified units are the difference between 64 places and 2000.
    np.testing.assert_allclose(found, wanted, atol=0.02 * np.abs(wanted).max())


def test_tags_that_do_not_move_have_no_part():
    members, place = random_members(), np.full(6, 0.3, dtype=np.float32)
    assert not tag_parts(members, np.ones(10), place, place).any()


# ------------------------------------------------------------------ without a tag


@forms
@pytest.mark.parametrize("label", LABELS)
def test_without_is_the_change_when_a_tag_is_put_back_to_its_average(tagger, world, form, label):
    column, space = list(tagger.classes_).index(label), tagger.space_
    for place in (1, 3):
        x, tags = asked(world, form, place)
        found = tagger.explain(x, label, k=3, tags=tags)
        direct, probable, share = halves(tagger, x, tags)
        of_items = x is not None
        before = logit_of(tagger, direct, probable, share, column, of_items=of_items)
        assert before == pytest.approx(found.logit, abs=1e-5)
        for one in found.tags:
            at = space.order_.tolist().index(list(tagger.classes_).index(one.tag))
            assert one.probability == pytest.approx(float(probable[0, at]), abs=1e-6)
            changed = probable.copy()
            changed[0, at] = space.mean_tags_[at] if of_items and at < space.n_seen_ else 0
            after = logit_of(tagger, direct, changed, share, column, of_items=of_items)
            assert one.without == pytest.approx(after - before, abs=1e-5)


def test_tags_are_named_by_the_size_of_their_parts(tagger, world):
    every = tagger.explain(world.X_test[0], "phone", k=100)
    sizes = [abs(one.part) for one in every.tags]
    assert sizes == sorted(sizes, reverse=True) and len(sizes) == tagger.space_.n_seen_
    assert every.other_tags == pytest.approx(0, abs=1e-9)
    point = tagger.points(world.X_test[:1])[0]
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
