"""The concept space: codes, readouts, calibration, and labels that turn up later."""

from __future__ import annotations

import json

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import expit

from polyseme import ConceptSpace, SpacePlan
from polyseme.base.validation import InputError, NotFittedError
from polyseme.documents.corpus import LabelCorpus
from polyseme.documents.label_sets import training_tables
from polyseme.documents.toy import toy_world
from polyseme.space import concept_space, space_fit, votes
from polyseme.space.calibration import PRECISIONS
from polyseme.space.concept_space import SLOPES
from polyseme.space.features import standardise
from polyseme.space.space_fit import prepare_training
from polyseme.space.votes import TEMPERATURE, Voters, mix
from polyseme.storage.model_file import read_model, write_model

PLAN = SpacePlan(hidden=16, code=12, document_batch=24, item_batch=16, probable_batch=8)
N_HOMELY = 505


@pytest.fixture(scope="module")
def tables(world):
    """Return the toy world as a space takes it, its new labels last."""
    corpus = LabelCorpus.from_documents(world.documents)
    label_sets = LabelCorpus.from_documents(world.label_sets)
    labels = (*label_sets.labels, *world.oov)
    return training_tables(corpus, label_sets, labels)


@pytest.fixture(scope="module")
def fitted(world, tables, tiny_space):
    documents, *further_tables = tables
    return tiny_space(random_state=0).fit(documents, world.X, *further_tables)


@pytest.fixture(scope="module")
def without_path(world, tables, tiny_space):
    """A space whose logits are those of its members alone."""
    documents, *further_tables = tables
    return tiny_space(random_state=0, linear=0).fit(documents, world.X, *further_tables)


@pytest.fixture(scope="module")
def homely():
    """Return items whose documents are all that there are: documents and features."""
    home_world = toy_world(n_documents=N_HOMELY, random_state=1)
    return sp.csr_matrix(
        LabelCorpus.from_documents(home_world.documents).matrix, dtype=float
    ), home_world.X


@pytest.fixture(scope="module")
def at_home(homely, tiny_space):
    """A space of members alone; there are so few items that all of them are references."""
    alone = {"priming": 0, "linear": 0, "members_per_fold": 2}
    return tiny_space(random_state=0, n_steps=80, **alone).fit(*homely)


def small(seed=0, n=30, n_labels=6):
    rng = np.random.default_rng(seed)
    is_tagged = rng.random((n, n_labels)) < 0.5
    table = is_tagged.astype(float)
    table[:, 0] = 1 - table[:, 1]
    X = rng.normal(size=(n, 3))
    return sp.csr_matrix(table), X


def small_space(**parameters):
    settings = {"n_folds": 2, "members_per_fold": 1, "n_steps": 8, "plan": PLAN, "random_state": 0}
    return ConceptSpace(**(settings | parameters))


def side_by_side(codes):
    """Return codes (n_members, n, code) of all members as rows."""
    return np.concatenate(list(codes), axis=1)


def changed(fitted, **values):
    """Return a copy of a fitted space with other parameters."""
    config, arrays = fitted.get_state()
    parameters = config["parameters"] | values
    return ConceptSpace.from_state(config | {"parameters": parameters}, arrays)


def mean_logits(fitted, codes):
    """Return the mean of members' logits, member by member, in the order of columns."""
    member_codes = np.split(codes, len(fitted.members_), axis=1)
    member_logits = []
    for number, codes_of_member in enumerate(member_codes):
        member = fitted.members_.select(slice(number, number + 1))
        (logits,) = member.read(codes_of_member[None])
        member_logits.append(logits.astype(np.float64))
    mean = np.mean(member_logits, axis=0)
    columns = np.argsort(fitted.order_)
    return mean[:, columns]


# ------------------------------------------------------------------ codes


def test_labels_of_items_come_first_in_the_order_of_members(fitted, world):
    corpus = LabelCorpus.from_documents(world.label_sets)
    labels = (*corpus.labels, *world.oov)
    assert sorted(fitted.order_) == list(range(len(labels)))
    ordered_labels = [labels[column] for column in fitted.order_]
    seen = ordered_labels[: fitted.n_seen_]
    unseen = ordered_labels[fitted.n_seen_ :]
    assert set(seen) == set().union(*world.documents)
    assert set(unseen) == set(world.unseen)


@pytest.mark.parametrize("given_tags", [False, True], ids=["features", "features and tags"])
def test_the_code_of_an_item_is_its_features_and_its_probable_tags(
    without_path, tables, world, given_tags
):
    tags = tables.documents[100:125] if given_tags else None
    features = standardise(world.X_test, without_path.mean_, without_path.scale_)
    direct = side_by_side(without_path.members_.encode_items(features))
    probable = np.zeros((25, len(without_path.order_)), dtype=np.float32)
    seen = mean_logits(without_path, direct)[:, without_path.order_[: without_path.n_seen_]]
    probable[:, : without_path.n_seen_] = expit(seen)
    if tags is not None:
        probable[tags[:, without_path.order_].toarray() > 0] = 1
        assert probable[:, without_path.n_seen_ :].any(), "unseen tags may be given"
    else:
        assert not probable[:, without_path.n_seen_ :].any(), "unseen tags are never guessed"
    context = side_by_side(without_path.members_.encode_documents(probable))
    for share in (0.0, 0.3, 0.5, 1.0):
        item_codes = changed(without_path, context=share).item_codes(world.X_test, tags)
        assert item_codes.dtype == np.float32
        assert item_codes.shape == (25, without_path.n_dimensions)
        expected = (1 - share) * direct + share * context
        assert_allclose(item_codes, expected, atol=1e-5)
    view = without_path.encode_items(world.X_test, tags)
    assert_allclose(view.direct, direct, atol=1e-6)
    assert_allclose(view.probable, probable, atol=1e-5)
    expected_codes = without_path.item_codes(world.X_test, tags)
    assert_array_equal(view.codes, expected_codes)


def test_the_code_of_a_document_is_that_of_its_tags(without_path, tables):
    rows = tables.documents[:9]
    ordered = rows[:, without_path.order_].toarray().astype(np.float32)
    wanted = side_by_side(without_path.members_.encode_documents(ordered))
    assert_allclose(without_path.encode_documents(rows), wanted, atol=1e-5)


@pytest.mark.parametrize("n", [25, 0])
def test_codes_in_blocks_are_codes_at_once(fitted, tables, world, monkeypatch, n):
    tags = tables.documents[:n]

    def coded():
        items = fitted.item_codes(world.X_test[:n], tags)
        return items, fitted.encode_documents(tags), fitted.document_points(tags)

    wanted = coded()
    monkeypatch.setattr(concept_space, "_BLOCK_ROWS", 7)
    for codes, at_once in zip(coded(), wanted, strict=True):
        assert len(codes) == n
        assert_allclose(codes, at_once, atol=1e-5)


def test_points_are_directions_on_the_principal_axes(without_path, tables):
    codes = without_path.encode_documents(tables.documents)
    centred = codes - codes.mean(axis=0)
    assert_allclose(without_path.document_mean_.ravel(), codes.mean(axis=0), atol=1e-5)
    for number, scatter in enumerate(without_path.document_scatter_):
        size = without_path.plan_.code
        wanted = np.cov(codes[:, number * size : (number + 1) * size].T, bias=True)
        assert_allclose(scatter, wanted, atol=1e-4)
    placed = centred @ without_path.axes_
    wanted = placed / np.linalg.norm(placed, axis=1, keepdims=True)
    assert_allclose(without_path.points(codes), wanted, atol=1e-4)
    assert_allclose(without_path.document_points(tables.documents), wanted, atol=1e-4)
    # Axes are orthonormal, sorted, and hold nearly everything there is.
    expected = np.eye(placed.shape[1])
    assert_allclose(without_path.axes_.T @ without_path.axes_, expected, atol=1e-4)
    spread = placed.var(axis=0)
    assert (np.diff(spread) < 1e-4).all()
    assert spread[0] > 3 * spread[5]
    assert spread.sum() > 0.95 * centred.var(axis=0).sum()


# ------------------------------------------------------------------ readouts


def test_one_readout_gives_the_mean_of_members_logits(without_path, tables, world):
    for codes in (
        without_path.item_codes(world.X_test),
        without_path.encode_documents(tables.documents[:20]),
    ):
        readout = without_path.readout(of_items=False)
        raw = mean_logits(without_path, codes)
        assert_allclose(codes @ readout.weights + readout.intercepts, raw, atol=1e-5)
        calibration = without_path.calibration_
        place = np.argsort(without_path.order_)
        of_items = without_path.readout()
        slopes = calibration.slopes[place]
        intercepts = calibration.intercepts[place]
        wanted = (1 - without_path.priming) * slopes * raw + intercepts
        assert_allclose(codes @ of_items.weights + of_items.intercepts, wanted, atol=1e-4)
    assert set(without_path.calibration_.slopes[: without_path.n_seen_]) == {SLOPES[0]}
    assert set(without_path.calibration_.slopes[without_path.n_seen_ :]) == {SLOPES[1]}


# ------------------------------------------------------------------ folds


def test_groups_stay_in_one_fold():
    documents, X = small(n=40)
    groups = np.arange(40) % 13

    def folds(groups):
        space = small_space(n_folds=4)
        data, _ = prepare_training(space, documents, X, None, groups, None)
        return data.folds

    def folds_per_group(folds):
        return [len(np.unique(folds[groups == group])) for group in range(13)]

    together = folds(groups)
    free = folds(None)
    assert len(np.unique(together)) == 4
    assert max(folds_per_group(together)) == 1
    assert max(folds_per_group(free)) > 1
    of_three_groups = folds(groups % 3)
    assert np.unique(of_three_groups).tolist() == [0, 1, 2], "no more folds than groups"


@pytest.mark.parametrize(
    ("n_items", "groups"), [(1, None), (30, np.zeros(30, dtype=np.int64))], ids=["item", "group"]
)
def test_one_item_or_one_group_promises_no_precision(n_items, groups):
    documents, X = small()
    space = small_space().fit(documents, X[:n_items], np.arange(n_items), groups=groups)
    with pytest.raises(InputError, match=r"^A precision is learned on .* or there is but one\.$"):
        space.threshold(0.5)
    assert not len(space.held_out_sample_.weights)
    readout = space.readout()
    assert np.isfinite(space.item_codes(X) @ readout.weights + readout.intercepts).all()
    new = space.readout_of_documents(
        space.encode_documents(documents), documents[:, :1], np.ones(1) / 2
    )
    assert np.isfinite(new[0].weights).all()
    assert np.isfinite(new[0].intercepts).all()


def test_one_document_is_enough_to_be_fitted():
    space = small_space().fit(sp.csr_matrix([[1.0, 1.0]]), np.ones((1, 2)), np.zeros(1, dtype=int))
    assert np.isfinite(space.points(space.item_codes(np.zeros((3, 2))))).all()


# ------------------------------------------------------------------ calibration


def members_of(fitted, fold):
    """Return the members that have not seen a fold."""
    per_fold = fitted.plan_.members_per_fold
    return fitted.members_.select(slice(fold * per_fold, (fold + 1) * per_fold))


def held_out_probabilities(fitted):
    """Return what members say of reference items that they have not seen, in their own order."""
    codes, folds, _ = fitted.held_out_sample_
    probabilities = np.empty((len(codes), len(fitted.order_)))
    for row, fold in enumerate(folds):
        mine = codes[row].reshape(-1, 1, fitted.plan_.code)
        logits = members_of(fitted, fold).read(mine).mean(axis=0)[0]
        probabilities[row] = logits[: probabilities.shape[1]]
    return expit(probabilities * fitted.calibration_.slopes + fitted.calibration_.intercepts)


def test_labels_are_expected_as_often_as_documents_hold_them(at_home, homely):
    counts = homely[0].toarray().sum(axis=0)
    expected_priors = (counts + 0.5) / (N_HOMELY + 1)
    assert_allclose(at_home.priors_, expected_priors)
    probabilities = held_out_probabilities(at_home)
    weights = at_home.held_out_sample_.weights
    mean = weights @ probabilities / weights.sum()
    expected_mean = at_home.priors_[at_home.order_]
    assert_allclose(mean, expected_mean, atol=1e-5)


def test_reference_codes_are_those_of_members_that_had_not_seen_the_item(at_home, homely):
    """Build the reference again, item by item."""
    documents, X = homely
    second_space = ConceptSpace(n_folds=3, members_per_fold=2, n_steps=80, random_state=0)
    data, _ = prepare_training(second_space, documents, X, np.arange(N_HOMELY), None, None)
    codes, folds, weights = at_home.held_out_sample_
    assert folds.tolist() == data.folds.tolist()
    assert len(weights) == N_HOMELY
    assert at_home.plan_.members_per_fold == 2
    features = standardise(X, at_home.mean_, at_home.scale_)
    for row in range(0, N_HOMELY, 37):
        mine = members_of(at_home, folds[row])
        direct = mine.encode_items(features[row : row + 1])
        seen = mine.read(direct)[..., : at_home.n_seen_].mean(axis=0)
        tags = np.zeros((1, len(at_home.order_)), dtype=np.float32)
        tags[:, : at_home.n_seen_] = expit(seen)
        wanted = 0.5 * direct + 0.5 * mine.encode_documents(tags)
        assert_allclose(codes[row], wanted.ravel(), atol=1e-5)


def test_thresholds_rise_with_precision_and_keep_it(at_home, homely):
    least = [at_home.threshold(float(precision)) for precision in PRECISIONS]
    assert (np.diff(least) >= 0).all()
    assert 0 <= least[0] < least[-1] <= 1
    weights = at_home.held_out_sample_.weights
    probabilities = held_out_probabilities(at_home)[:, : at_home.n_seen_]
    truth = homely[0].toarray()[:, at_home.order_[: at_home.n_seen_]]
    for goal in (0.5, 0.6):
        suggested = probabilities >= at_home.threshold(goal) - 1e-6
        counted = weights[:, None] * suggested
        assert (counted * truth).sum() / counted.sum() >= goal - 1e-3
        assert suggested.any()


def test_what_evidence_starts_from_are_means_over_items(at_home, homely):
    _, direct, probable, _ = at_home.encode_items(homely[1])
    assert_allclose(at_home.mean_code_, direct.mean(axis=0), atol=1e-5)
    # Probable tags by members that had not seen the item are about those by all.
    everybodys = probable.mean(axis=0)[: at_home.n_seen_]
    assert_allclose(at_home.mean_tags_, everybodys, atol=0.03)


def test_all_documents_but_its_own_vote_for_an_item_that_is_held_out(monkeypatch):
    # In blocks; axes are learned from as many.
    monkeypatch.setattr(space_fit, "_BLOCK_DOCUMENTS", 7)
    n = 20
    documents = sp.csr_matrix(np.hstack([np.eye(n), np.ones((n, 1))]))
    X = np.random.default_rng(0).normal(size=(n, 3))
    space = small_space().fit(documents, X, np.arange(n))
    data, _ = prepare_training(small_space(), documents, X, np.arange(n), None, None)
    calibration = space_fit.SpaceCalibration(space, data)
    code = space.plan_.code
    for fold in (0, 1):
        rows = np.flatnonzero(data.folds == fold)
        codes = space.item_codes(X[rows])[:, fold * code : (fold + 1) * code]
        votes = calibration.held_out_votes(fold, np.ascontiguousarray(codes), rows)
        votes = votes[:, np.argsort(space.order_)]
        for place, row in enumerate(rows):
            assert votes[place, row] == 0
            assert votes[place, n] == pytest.approx(1)
            assert (np.delete(votes[place], row) > 0).all()


@pytest.mark.parametrize("n", [29, 31])
def test_items_whose_documents_are_not_said_must_be_as_many(n):
    documents, X = small()
    with pytest.raises(InputError, match=rf"{n} items and 30 documents; say with `item_documents`"):
        small_space().fit(documents, np.resize(X, (n, X.shape[1])), np.arange(28))
    assert np.array_equal(
        small_space().fit(documents, X).priors_,
        small_space().fit(documents, X, np.arange(30)).priors_,
    )


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_matrix], ids=["dense", "sparse"])
def test_large_constants_are_constant_and_small_spreads_are_spreads(kind):
    rng = np.random.default_rng(0)
    spread = 1e6 + 0.01 * rng.normal(size=500)
    X = np.column_stack([np.full(500, 123456.7), spread, np.zeros(500)])
    documents = sp.csr_matrix(np.ones((500, 1)))
    space = small_space(n_steps=1).fit(documents, kind(X))
    assert_allclose(space.mean_, X.mean(axis=0))
    assert_allclose(space.scale_, [1, spread.std(), 1], rtol=1e-6)


# ------------------------------------------------------------------ labels that turn up later


def test_directions_of_new_labels_are_those_of_discriminant_analysis(fitted, tables):
    rng = np.random.default_rng(0)
    codes = fitted.encode_documents(tables.documents[:12])
    holding = (rng.random((12, 3)) < 0.5).astype(float)
    frequencies = np.array([0.01, 0.2, 0.7])
    new, raw = fitted.readout_of_documents(codes, sp.csr_matrix(holding), frequencies)
    n_holding = holding.sum(axis=0)
    slopes = 0.5 + 0.5 * concept_space._PRIOR_HOLDERS / (n_holding + concept_space._PRIOR_HOLDERS)
    assert_allclose(new.weights, raw.weights * slopes)
    n_members, size = fitted.document_mean_.shape
    for label in range(3):
        mine = holding[:, label] > 0
        bias = []
        n = mine.sum()
        for member, mean in enumerate(fitted.document_mean_):
            member_slice = slice(member * size, (member + 1) * size)
            scatter = fitted.document_scatter_[member]
            gap = codes[mine, member_slice].astype(np.float64).mean(axis=0) - mean
            gap *= n / (n + concept_space._PRIOR_HOLDERS)
            ridge = (
                (concept_space._RIDGE + concept_space._RIDGE_DOCUMENTS / n)
                * np.trace(scatter)
                / size
                * np.eye(size)
            )
            direction = np.linalg.inv(scatter + ridge) @ gap
            assert_allclose(raw.weights[member_slice, label], direction / n_members, atol=1e-8)
            bias.append(-direction @ (mean + 0.5 * gap))
        wanted = np.mean(bias) + np.log(frequencies[label] / (1 - frequencies[label]))
        assert raw.intercepts[label] == pytest.approx(wanted)


def mean_on_reference(fitted, readout):
    """Return how often reference items are expected to have labels of a readout."""
    codes, folds, weights = fitted.held_out_sample_
    n_members = len(fitted.members_)
    per_fold = fitted.plan_.members_per_fold
    width = per_fold * fitted.plan_.code
    logits = [
        codes[row] @ readout.weights[fold * width : (fold + 1) * width] * n_members / per_fold
        for row, fold in enumerate(folds)
    ]
    return weights @ expit(np.array(logits) + readout.intercepts) / weights.sum()


def test_new_labels_are_as_common_on_reference_items_as_is_expected(fitted, tables):
    codes = fitted.encode_documents(tables.documents[:12])
    holding = sp.csr_matrix(np.eye(12)[:, :3])
    frequencies = np.array([0.01, 0.2, 0.7])
    new, _ = fitted.readout_of_documents(codes, holding, frequencies)
    assert_allclose(mean_on_reference(fitted, new), frequencies, atol=1e-5)
    likeness = np.eye(fitted.n_seen_)[:2]
    named, _ = fitted.readout_of_names(likeness)
    assert_allclose(mean_on_reference(fitted, named), fitted.typical_frequency, atol=1e-5)


def test_a_name_is_read_as_the_seen_labels_it_is_like(without_path, world, tables):
    rng = np.random.default_rng(0)
    likeness = np.vstack([np.eye(without_path.n_seen_)[4], rng.random(without_path.n_seen_)])
    named, raw = without_path.readout_of_names(likeness)
    plain = without_path.readout(of_items=False).weights[
        :, without_path.order_[: without_path.n_seen_]
    ]
    for readout in (named, raw):
        expected_weights = SLOPES[0] * plain @ likeness.T
        assert_allclose(readout.weights, expected_weights, atol=1e-10)
    # Where a document is average, nothing is known but how common labels are.
    average = without_path.document_mean_.ravel()
    typical = np.exp(np.mean(np.log(without_path.priors_)))
    assert without_path.typical_frequency == pytest.approx(typical)
    wanted = np.log(typical / (1 - typical))
    assert_allclose(average @ raw.weights + raw.intercepts, wanted, atol=1e-6)


# ------------------------------------------------------------------ votes


@pytest.mark.parametrize("most", [1, 15, 2**23])
@pytest.mark.parametrize("counted", [False, True])
def test_votes_equal_a_plain_loop(monkeypatch, most, counted):
    monkeypatch.setattr(votes, "_BLOCK_VOTES", most)
    rng = np.random.default_rng(0)
    points, document_points = (rng.normal(size=(n, 4)).astype(np.float32) for n in (5, 7))
    documents = (rng.random((7, 3)) < 0.5).astype(float)
    counts = rng.integers(1, 5, 7)
    left_out = np.array([0, -1, 3, 6, -1])
    for points_ in (points, document_points):
        points_ /= np.linalg.norm(points_, axis=1, keepdims=True)
    voters = Voters.of(document_points, sp.csr_matrix(documents), counts if counted else None)
    shares = voters.shares(points, left_out if counted else None)
    for row in range(5):
        strength = np.array(
            [
                np.exp(float(points[row] @ document_point) / TEMPERATURE)
                for document_point in document_points
            ]
        )
        if counted:
            strength *= counts * (np.arange(7) != left_out[row])
        expected = strength @ documents / strength.sum()
        assert_allclose(shares[row], expected, rtol=1e-4)


def test_without_known_documents_nobody_votes():
    nobody = Voters.of(np.ones((0, 3), np.float32), sp.csr_matrix((0, 4)))
    points = np.ones((2, 3), np.float32)
    shares = nobody.shares(points)
    assert shares.shape == (2, 4)
    assert not shares.any()


def test_votes_have_their_share_in_logits():
    logits = np.array([[1.0, -2.0]])
    votes = np.array([[0.5, 0.0]])
    wanted = [[0.7, -1.4 + 0.3 * np.log(1e-6)]]
    assert_allclose(mix(logits, votes, 0.3), wanted, rtol=1e-5)
    assert mix(logits, votes, 0.0) is logits


# ------------------------------------------------------------------ state and manners


@pytest.mark.parametrize("kind", ["items", "documents alone"])
def test_a_space_comes_back_without_pickle(fitted, world, tables, tmp_path, kind):
    documents = tables.documents
    before = fitted if kind == "items" else small_space().fit(documents)
    config, arrays = before.get_state()
    assert json.loads(json.dumps(config)) == config
    kinds = {array.dtype.kind for array in arrays.values()}
    assert kinds <= {"f", "i"}
    write_model(tmp_path / "space", "space", config, arrays)
    loaded = ConceptSpace.from_state(*read_model(tmp_path / "space", "space"))
    assert loaded.plan_ == before.plan_
    assert loaded.plan == before.plan
    assert loaded.get_state()[0] == config
    for name, array in loaded.get_state()[1].items():
        assert_array_equal(array, arrays[name], err_msg=name)
    assert_array_equal(loaded.encode_documents(documents), before.encode_documents(documents))
    assert_array_equal(loaded.readout().weights, before.readout().weights)
    if kind == "items":
        codes = before.item_codes(world.X_test)
        assert_array_equal(loaded.item_codes(world.X_test), codes)
        assert loaded.threshold(0.3) == before.threshold(0.3)


def test_same_seed_same_bits_and_every_round_is_reported():
    documents, X = small()
    reports = []

    def progress(done, total, losses):
        reports.append((done, total, set(losses)))

    codes = [
        small_space(random_state=seed).fit(documents, X, progress=progress).item_codes(X)
        for seed in (0, 0, 1)
    ]
    expected_reports = 3 * [(done, 4, {"documents", "items"}) for done in (1, 2, 3, 4)]
    assert reports == expected_reports
    assert_array_equal(codes[0], codes[1])
    assert not np.allclose(codes[0], codes[2])


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *[("n_folds", 1), ("members_per_fold", 0), ("n_steps", 0)],
        *[("context", 1.5), ("priming", -0.1), ("linear", -1.0), ("device", "abacus")],
    ],
)
def test_a_bad_parameter_is_named_before_any_training(name, value, monkeypatch):
    monkeypatch.setattr(space_fit.SpaceTraining, "run", lambda *_: pytest.fail("trained"))
    space = small_space(**{name: value})
    documents, X = small()
    with pytest.raises(InputError, match=f"`{name}` of `ConceptSpace`"):
        space.fit(documents, X)


def test_asking_before_fit_says_so():
    with pytest.raises(NotFittedError, match="This ConceptSpace is not fitted yet"):
        ConceptSpace().item_codes(np.zeros((1, 2)))
