"""The training step written out by hand, against the tape; sparse descriptors, dense ones."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
import torch

import polyseme.published.descriptors
from polyseme._shifted import ShiftedRows
from polyseme.published.descriptors import LabelDescriptor
from polyseme.published.nn.checkpoint import TrainingCheckpoint
from polyseme.published.nn.losses import WEIGHTINGS, reduce_loss
from polyseme.published.nn.moments import moments_of, put_moments
from polyseme.published.nn.networks import ConceptNetwork
from polyseme.published.nn.pairs import Batch
from polyseme.published.nn.plan import TrainingPlan
from polyseme.published.nn.runners import LOOK_EVERY
from polyseme.published.nn.staging import LossSettings, Stager
from polyseme.published.nn.stopping import error_free_score
from polyseme.published.nn.training import ConceptTrainer

N_TOPICS = 5
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA card here")


def documents(n=120, n_labels=30, seed=0):
    """Draw documents with one label at the least; the first holds every label."""
    generator = np.random.default_rng(seed)
    held = generator.random((n, n_labels)) < 0.1
    held[np.arange(n), generator.integers(0, n_labels, n)] = True
    held[0] = True
    held[1] = np.arange(n_labels) == 3
    return sp.csr_matrix(held)


def histograms(n, seed=1):
    """Draw contexts; two of them are the same."""
    drawn = np.random.default_rng(seed).dirichlet(np.ones(N_TOPICS), n).astype(np.float32)
    drawn[3] = drawn[2]
    return drawn


def trainer(
    matrix=None,
    *,
    descriptors=None,
    weighting="balanced",
    hidden=(20, 15),
    dtype=torch.float64,
    device="cpu",
    seed=0,
    **plan,
):
    """Make a trainer with known constants."""
    matrix = documents() if matrix is None else matrix
    if descriptors is None:
        descriptors = LabelDescriptor().fit(matrix).descriptors_
    drawn = torch.Generator().manual_seed(seed)
    network = ConceptNetwork(descriptors, N_TOPICS, hidden, 10, drawn, dtype)
    return ConceptTrainer(
        network,
        matrix,
        histograms(matrix.shape[0]),
        TrainingPlan(**{"batch_size": 64} | plan),
        LossSettings(weighting, 0.6, 3.0, 0.5, 0.7),
        np.random.default_rng(seed),
        device=device,
    )


def drawn_batch(tested, seed=1):
    """Give the first batch of an epoch."""
    return next(tested.sampler.epoch(np.random.default_rng(seed)))


def by_tape(tested, batch, *, reduction="mean", siamese=True):
    """Give the gradient of every parameter by automatic differentiation, and both losses."""
    tested.network.zero_grad(set_to_none=True)
    prediction, distance = tested.batch_losses(batch)
    combined = prediction + tested.loss.distance_weight * distance if siamese else prediction
    reduce_loss(combined, reduction).backward()
    slopes = {name: part.grad.clone() for name, part in tested.network.named_parameters()}
    return slopes, [float(part.detach().sum()) for part in (prediction, distance)]


def by_hand(tested, batch, *, reduction="mean", siamese=True):
    """Give the same by the step."""
    share = 2.0 / len(batch.label_ids) if reduction == "mean" else 1.0
    given = tested.runner.stager.one(batch, share=share, siamese=siamese)
    values = tested.gradient.compute(given, look=True)
    return {name: part.clone() for name, part in tested.gradient.weights.views.items()}, values


def assert_same(found, expected, tolerance):
    """Compare gradients by name, relative to the largest entry of each."""
    for name, slope in expected.items():
        most = float(slope.abs().max())
        np.testing.assert_allclose(
            found[name], slope, rtol=0, atol=tolerance * max(most, 1e-30), err_msg=name
        )


@pytest.mark.parametrize("weighting", WEIGHTINGS)
@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("siamese", [True, False])
@pytest.mark.parametrize("hidden", [(), (20,), (20, 15)])
def test_the_step_has_the_gradient_of_the_tape(weighting, reduction, siamese, hidden):
    tested = trainer(weighting=weighting, hidden=hidden)
    batch = drawn_batch(tested)
    expected, losses = by_tape(tested, batch, reduction=reduction, siamese=siamese)
    found, values = by_hand(tested, batch, reduction=reduction, siamese=siamese)
    assert_same(found, expected, 1e-12)
    np.testing.assert_allclose(values, losses, rtol=1e-10)


EVERY = np.ones(8, dtype=bool)
BATCHES = {
    "one label all over": Batch(np.full(8, 3), np.array([0, 1] * 4), EVERY),
    "one document all over": Batch(np.arange(8), np.zeros(8, dtype=np.int64), EVERY),
    "both sides the same": Batch(np.repeat(np.arange(4), 2), np.repeat([0, 1, 4, 5], 2), EVERY),
    "the same context": Batch(np.arange(8) % 4, np.array([2, 3] * 4), EVERY),
    "negatives only": Batch(np.arange(8), np.array([1, 5, 6, 7] * 2), ~EVERY),
    "a single pair": Batch(np.array([3, 9]), np.array([1, 1]), np.array([True, False])),
}


@pytest.mark.parametrize("weighting", WEIGHTINGS)
@pytest.mark.parametrize("name", BATCHES)
def test_odd_batches_have_the_gradient_of_the_tape(name, weighting):
    tested = trainer(weighting=weighting)
    expected, losses = by_tape(tested, BATCHES[name])
    found, values = by_hand(tested, BATCHES[name])
    assert_same(found, expected, 1e-10)
    np.testing.assert_allclose(values, losses, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("factor", [1e-12, 1e-3, 30.0, 1e4])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-9), (torch.float32, 2e-3)])
def test_tiny_and_saturating_weights_have_the_gradient_of_the_tape(factor, dtype, tolerance):
    tested = trainer(dtype=dtype)
    tested.weights.mul_(factor)
    batch = drawn_batch(tested)
    # Between codes that coincide but for rounding, the way apart is rounding too.
    siamese = factor > 1
    found = by_hand(tested, batch, siamese=siamese)[0]
    expected = by_tape(tested, batch, siamese=siamese)[0]
    assert all(torch.isfinite(slope).all() for slope in found.values())
    # Activations carry an absolute error of the last digit: what is tiny beside the rest is not
    # told apart from nothing.
    most = max(float(slope.abs().max()) for slope in expected.values())
    least = max(tolerance * most, 8 * torch.finfo(dtype).eps)
    for name, slope in expected.items():
        np.testing.assert_allclose(found[name], slope, rtol=0, atol=least, err_msg=name)


@pytest.mark.parametrize("scale", [0.0, 1e-12, 1e12])
def test_descriptors_of_any_size_have_the_gradient_of_the_tape(scale):
    plain = LabelDescriptor().fit(documents()).descriptors_
    tested = trainer(descriptors=plain.astype(np.float64) * scale)
    batch = drawn_batch(tested)
    assert_same(by_hand(tested, batch)[0], by_tape(tested, batch)[0], 1e-9)


def test_many_steps_leave_the_weights_of_plain_adam():
    tested, plain = trainer(), trainer()
    optimizer = torch.optim.Adam(plain.network.parameters(), lr=1e-3)
    for number, batch in enumerate(tested.sampler.epoch(np.random.default_rng(2))):
        look = number % LOOK_EVERY == 0
        values = tested.runner.step(batch, tested.optimizer, siamese=True, look=look)
        assert (values is not None) == look
        optimizer.zero_grad()
        prediction, distance = plain.batch_losses(batch)
        (prediction + plain.loss.distance_weight * distance).mean().backward()
        optimizer.step()
    np.testing.assert_allclose(tested.weights, plain.weights, rtol=1e-7, atol=1e-9)


def test_mixed_precision_is_close_and_only_where_it_is_asked_for():
    tested = trainer(dtype=torch.float32, precision="mixed")
    batch = drawn_batch(tested)
    expected, losses = by_tape(tested, batch)
    found, values = by_hand(tested, batch)
    assert_same(found, expected, 0.05)
    np.testing.assert_allclose(values, losses, rtol=0.02)
    single = by_hand(trainer(dtype=torch.float32), batch)[0]
    assert_same(single, expected, 1e-5)
    assert any(not torch.equal(single[name], found[name]) for name in found)


def test_an_epoch_ends_after_the_most_steps():
    tested = trainer(max_steps=3, max_epochs=2, batch_size=16)
    taken = []
    step = tested.runner.step
    tested.runner.step = lambda *given, **named: taken.append(1) or step(*given, **named)
    tested.run()
    assert len(taken) == 6
    assert np.isfinite([record["loss"] for record in tested.state.history]).all()


@pytest.mark.parametrize("n_parts", [1, 3])
def test_what_an_optimiser_remembers_can_be_handed_on(n_parts):
    generator = torch.Generator().manual_seed(0)
    start = torch.randn(7, generator=generator)
    slopes = torch.randn(6, 7, generator=generator)

    def optimiser(values, n_parts):
        parts = [torch.nn.Parameter(part) for part in values.chunk(n_parts)]
        return torch.optim.Adam(parts, lr=0.1)

    def step(optimizer, slope):
        parts = optimizer.param_groups[0]["params"]
        for part, gradient in zip(parts, slope.chunk(len(parts)), strict=True):
            part.grad = gradient
        optimizer.step()

    whole = start.clone()
    undisturbed = optimiser(whole, 1)
    for slope in slopes:
        step(undisturbed, slope)
    values = start.clone()
    first = optimiser(values, 1)
    assert moments_of(first) == {}
    for slope in slopes[:3]:
        step(first, slope)
    middle, kept = values.clone(), moments_of(first)
    second = optimiser(values, n_parts)
    step(second, slopes[5])  # what it remembers of this is forgotten
    for _ in range(2):
        put_moments(second, {})
        assert all(not value.any() for value in moments_of(second).values())
        put_moments(second, kept)
    third = optimiser(values, n_parts)
    put_moments(third, kept)
    for going_on in (second, third):
        values.copy_(middle)
        for slope in slopes[3:]:
            step(going_on, slope)
        np.testing.assert_allclose(values, whole, rtol=1e-6)


# --- laid out for many steps at once, as a card takes them -----------------------------------


def test_steps_laid_out_together_are_those_laid_out_one_by_one():
    # A document with every label has no negative examples, and its batch another size.
    tested = trainer(documents()[1:], dtype=torch.float32)
    # The last batch is smaller.
    batches = list(tested.sampler.epoch(np.random.default_rng(4)))[:-1]
    assert len(batches) > 3
    settings = {"share": 0.1, "siamese": True}
    stager, n = tested.runner.stager, len(batches[0].label_ids)
    # As a card takes them: filled up to one size, in a column beyond the labels.
    spare = Stager(tested.matrix, tested.contexts, tested.loss, spare=True)
    capacity = spare.most(batches) + 9
    assert len({spare.most([batch]) for batch in batches}) > 1
    steps = spare.many(batches, capacity, **settings)
    for number, batch in enumerate(batches):
        expected = tested.gradient.compute(stager.one(batch, **settings), look=True)
        slopes = tested.gradient.weights.gradient.clone()
        given = spare.views(steps.whole[number], steps.other[number], n)
        assert given.width == 64 > tested.network.n_labels
        found = tested.gradient.compute(given, look=True)
        np.testing.assert_allclose(found, expected, rtol=1e-5)
        np.testing.assert_allclose(tested.gradient.weights.gradient, slopes, atol=1e-6)


@needs_gpu
@pytest.mark.parametrize("precision", ["single", "mixed"])
def test_a_card_trains_the_same_network(precision):
    plan = {"max_epochs": 3, "min_steps": 40, "precision": precision}
    here = trainer(dtype=torch.float32, **plan)
    there = trainer(dtype=torch.float32, device="cuda", **plan)
    here.run()
    there.run()
    tolerance = 2e-3 if precision == "single" else 5e-2
    np.testing.assert_allclose(there.weights.cpu(), here.weights, atol=tolerance)
    for one, other in zip(here.state.history, there.state.history, strict=True):
        assert one["loss"] == pytest.approx(other["loss"], rel=0.05)


@needs_gpu
def test_graphs_take_the_steps_that_would_be_taken_one_by_one():
    graphs, plain = (trainer(dtype=torch.float32, device="cuda") for _ in range(2))
    batches = list(graphs.sampler.epoch(np.random.default_rng(4)))
    losses, n_pairs = graphs.runner.run(iter(batches * 4), graphs.optimizer, siamese=True)
    expected = super(type(plain.runner), plain.runner).run(
        iter(batches * 4), plain.optimizer, siamese=True
    )
    assert n_pairs == expected[1]
    np.testing.assert_allclose(losses, expected[0], rtol=1e-4)
    np.testing.assert_allclose(graphs.weights.cpu(), plain.weights.cpu(), atol=1e-5)


# --- sparse descriptors ----------------------------------------------------------------------


@pytest.fixture
def sparse_from_ten(monkeypatch):
    """Describe ten labels or more by sparse rows, however many pairs meet."""
    monkeypatch.setattr(polyseme.published.descriptors, "_MANY_LABELS", 10)
    monkeypatch.setattr(polyseme.published.descriptors, "_FEW_PAIRS", 1.0)


@pytest.mark.parametrize("scaling", ["l2+std", "l2", "max", "none"])
@pytest.mark.parametrize("keep_diagonal", [True, False])
def test_sparse_descriptors_are_the_dense_ones(scaling, keep_diagonal, monkeypatch):
    matrix = sp.csr_matrix(sp.hstack([documents(), sp.csr_matrix((120, 2), dtype=bool)]))
    described = LabelDescriptor(scaling=scaling, keep_diagonal=keep_diagonal)
    dense = described.fit(matrix).descriptors_
    monkeypatch.setattr(polyseme.published.descriptors, "_MANY_LABELS", 10)
    monkeypatch.setattr(polyseme.published.descriptors, "_FEW_PAIRS", 1.0)
    sparse = described.fit(matrix).descriptors_
    assert isinstance(dense, np.ndarray)
    assert isinstance(sparse, ShiftedRows)
    assert sparse.shape == dense.shape
    np.testing.assert_allclose(sparse.toarray(), dense, atol=2e-6 * np.abs(dense).max())
    assert not sparse.toarray()[-2:].any(), "labels without a document"


def test_a_constant_column_of_sparse_descriptors_stays_small(sparse_from_ten):
    # Label 0 stands alone in as many documents as each other one: columns hardly vary.
    matrix = sp.csr_matrix(np.tile(np.eye(12, dtype=bool), (5, 1)))
    matrix = sp.csr_matrix(sp.vstack([matrix, np.ones((1, 12), dtype=bool)]))
    described = LabelDescriptor().fit(matrix).descriptors_
    assert isinstance(described, ShiftedRows)
    assert np.abs(described.toarray()).max() < 10


def test_sparse_products_are_the_dense_ones():
    generator = np.random.default_rng(0)
    rows = sp.random(40, 17, 0.2, format="csr", dtype=np.float32, random_state=0)
    used = (generator.random(40) < 0.8).astype(np.float32)
    shifted = ShiftedRows(rows, generator.standard_normal(17).astype(np.float32), used)
    dense = torch.from_numpy(shifted.toarray()).double()
    weights = torch.from_numpy(generator.standard_normal((17, 6)).astype(np.float32))
    empty = ShiftedRows(sp.csr_matrix((40, 17), dtype=np.float32), shifted.shift, used)
    for chosen in (None, np.array([5, 0, 39, 5]), np.array([], dtype=np.int64)):
        part = dense if chosen is None else dense[chosen]
        found = shifted.times(weights, chosen)
        np.testing.assert_allclose(found, part @ weights.double(), atol=1e-5)
        values = torch.from_numpy(generator.standard_normal((len(part), 6)).astype(np.float32))
        out = torch.full((17, 6), torch.nan)
        shifted.transposed_times(values, out, chosen)
        np.testing.assert_allclose(out, part.T @ values.double(), atol=1e-5)
        nothing = torch.from_numpy(empty.toarray()).double()
        nothing = nothing if chosen is None else nothing[chosen]
        np.testing.assert_allclose(
            empty.times(weights, chosen), nothing @ weights.double(), atol=1e-5
        )


def test_steps_on_sparse_descriptors_are_those_on_dense_ones(sparse_from_ten):
    described = LabelDescriptor().fit(documents()).descriptors_
    assert isinstance(described, ShiftedRows)
    sparse = trainer(descriptors=described, dtype=torch.float32)
    dense = trainer(descriptors=described.toarray(), dtype=torch.float32)
    batch = drawn_batch(sparse)
    assert_same(by_hand(sparse, batch)[0], by_tape(dense, batch)[0], 1e-5)
    ids, contexts = torch.arange(30), sparse.contexts[:30]
    with torch.no_grad():
        expected = dense.network.encode(ids, contexts)
        for inputs in (None, sparse.network.label_inputs()):
            found = sparse.network.encode(ids, contexts, inputs)
            np.testing.assert_allclose(found, expected, atol=1e-6)
        sparse.network.lay_out()
        found = sparse.network.encode(ids, contexts)
    assert sparse.network.shifted is None
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_a_checkpoint_serves_sparse_and_dense_descriptors_alike(sparse_from_ten, tmp_path):
    described = LabelDescriptor().fit(documents()).descriptors_
    plan = {"max_epochs": 2, "dtype": torch.float32}
    here = trainer(descriptors=described, **plan)
    here.run(lambda current, record: TrainingCheckpoint(tmp_path / "c", "x").write(current, 0))
    there = trainer(descriptors=described, seed=5, **plan)
    there.network.lay_out()
    TrainingCheckpoint(tmp_path / "c", "x").restore(there)
    assert torch.equal(there.weights, here.weights)
    assert len(there.state.history) == 2


def test_held_out_documents_are_scored_block_by_block(monkeypatch):
    tested = trainer(dtype=torch.float32)
    known, asked = tested.matrix[:80], tested.matrix[80:]
    contexts = tested.contexts.numpy()

    def score(**settings):
        found = error_free_score(known, contexts[:80], asked, contexts[80:], **settings)
        return found(tested.network)

    whole = score()
    monkeypatch.setattr("polyseme.published.nn.stopping._AT_A_TIME", 7)
    assert score() == pytest.approx(whole, rel=1e-9)
    fewer = score(most=20)
    assert 0 < fewer < 1 and fewer != whole
