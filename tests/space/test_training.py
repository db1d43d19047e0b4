"""The joint training, member by member and all at once: who sees what, and the same bits always."""

from __future__ import annotations

import re
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from numpy.testing import assert_allclose, assert_array_equal

from polyseme import ConceptSpace, SpacePlan
from polyseme.base.validation import InputError, PolysemeWarning
from polyseme.space import training
from polyseme.space.calibration import pool_targets, sigmoid
from polyseme.space.features import standardise
from polyseme.space.space_fit import prepare_training
from polyseme.space.trainer_gpu import GpuLearner
from polyseme.space.training import HeldOutPredictions, SpaceTraining
from polyseme.storage.model_file import MODEL_FILE, read_model, write_model

N_LABEL_SETS = 40
N_ITEMS = 36
PLAN = SpacePlan(hidden=16, code=12, document_batch=24, item_batch=16, probable_batch=8)
# Learns this world in a few dozen steps.
QUICK = replace(PLAN, hidden=32, code=32, learning_rates=(0.02, 0.02, 0.02))
DOCUMENTS_ALONE = {"X": None, "item_documents": None, "n_label_sets": N_LABEL_SETS + N_ITEMS}
# Members take their steps together on a GPU, or as there without a graph on the processor.
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU here")
TOGETHER = ["together", pytest.param("cuda", marks=needs_gpu)]


def little_world(seed=0):
    """Documents that are all different, the last ones those of items, which are no label sets.

    Labels 0 to 3 are topics, 4 to 6 go with the first three and are never on items, the others
    tell documents apart.
    """
    generator = np.random.default_rng(seed)
    n_documents = N_LABEL_SETS + N_ITEMS
    topics = np.arange(n_documents) % 4
    topic_rows = np.eye(4)[topics]
    item_rows = topic_rows[N_LABEL_SETS:]
    numbers = generator.choice(512, n_documents, replace=False)
    table = np.zeros((n_documents, 16))
    table[:, :4] = topic_rows
    table[:N_LABEL_SETS, 4:7] = topic_rows[:N_LABEL_SETS, :3]
    table[:, 7:] = numbers[:, None] >> np.arange(9) & 1
    noise = generator.normal(size=(N_ITEMS, 4))
    return {
        "documents": sp.csr_matrix(table),
        "n_label_sets": N_LABEL_SETS,
        "X": item_rows + 0.2 * noise,
        "item_documents": np.arange(N_LABEL_SETS, n_documents),
    }


def prepared(n_steps=12, n_folds=3, plan=None, **world):
    """Return data and a plan as a space makes them, with two members a fold."""
    world = {"groups": None} | little_world() | world
    space = ConceptSpace(n_folds=n_folds, n_steps=n_steps, random_state=0)
    data, seed = prepare_training(space, **world)
    shortened = replace(
        plan or PLAN,
        n_folds=n_folds,
        members_per_fold=2,
        n_steps=n_steps,
        round_steps=n_steps // 4,
    )
    return data, shortened, seed


def made(way="alone", n_steps=12, plan=None, share=(0, 1), **world):
    """Return a training whose members take their steps alone, together, or on a GPU."""
    device = "cuda" if way == "cuda" else "cpu"
    run = SpaceTraining(*prepared(n_steps, plan=plan, **world), device, share=share)
    if way == "together":
        run.learners = [GpuLearner(run, slice(None))]
    return run


def trained(exchange=None, **options):
    run = made(**options)
    run.run(exchange)
    run.members = run.members.to("cpu")
    return run


def standardised(data, rows=slice(None)):
    return standardise(data.X[rows], data.mean, data.scale)


def mean_logits(run):
    """Return the members' mean logits by the features of items."""
    features = torch.from_numpy(standardised(run.data))
    codes = run.members.encode_items(features)
    return run.members.read(codes).mean(dim=0).numpy()


def finds_topics(run):
    """Return how often the topic of an item is found among the four."""
    topic_logits = mean_logits(run)[:, :4]
    topics = np.arange(N_ITEMS) % 4
    return (topic_logits.argmax(axis=1) == topics).mean()


def finds_context(run, columns):
    """Return for the first three topics whether the label of each is found among three."""
    tags = torch.zeros(3, run.data.n_labels)
    tags[:, :3] = torch.eye(3)
    codes = run.members.encode_documents(tags)
    logits = run.members.read(codes).mean(dim=0).numpy()
    best = logits[:, columns].argmax(axis=1)
    return best.tolist() == [0, 1, 2]


def row_by_bytes(table):
    """Return the number of each row, found by its bytes."""
    return {row.tobytes(): number for number, row in enumerate(table)}


def assert_columns(table, column):
    """Check that every column of a table is the given one."""
    assert_allclose(table, np.broadcast_to(column[:, None], table.shape), rtol=1e-5)


def assert_same_bits(groups, expected_groups):
    for group, expected in zip(groups, expected_groups, strict=True):
        array = np.asarray(group)
        assert np.isfinite(array).all()
        assert_array_equal(array, np.asarray(expected))


@pytest.fixture(scope="module")
def whole():
    return trained()


# ------------------------------------------------------------------ the same bits


@pytest.mark.parametrize("n_threads", [1, 4])
def test_the_number_of_threads_changes_no_bit(whole, monkeypatch, n_threads):
    monkeypatch.setattr(training, "n_cores", lambda: n_threads)
    run = trained()
    assert run.n_threads == n_threads
    assert_same_bits(run.members.groups, whole.members.groups)
    assert run.history == whole.history


def test_sparse_tables_change_no_bit(whole, monkeypatch):
    monkeypatch.setattr(training, "_DENSE_BYTES", 0)
    run = trained()
    assert run.dense is None
    assert_same_bits(run.members.groups, whole.members.groups)
    assert run.history == whole.history


def train_in_shares(n_shares, **world):
    """Train shares of the members in threads that exchange their answers."""
    answers = {}
    barrier = threading.Barrier(n_shares, timeout=60)

    def exchange(answers_of_share):
        """Collect the answers of all shares, and return them to each."""
        answers.update(answers_of_share)
        barrier.wait()
        answers_of_all = dict(answers)
        barrier.wait()
        return answers_of_all

    def train_share(share):
        return trained(share=(share, n_shares), exchange=exchange, **world)

    with ThreadPoolExecutor(n_shares) as pool:
        return list(pool.map(train_share, range(n_shares)))


def test_shares_of_members_train_apart_to_the_same_bits(whole):
    runs = train_in_shares(3)
    for share, run in enumerate(runs):
        assert run.member_numbers.tolist() == list(range(share, 6, 3))
        expected = [group[share::3] for group in whole.members.groups]
        assert_same_bits(run.members.groups, expected)
    for number, losses in enumerate(whole.history):
        for name, loss in losses.items():
            losses_of_shares = [run.history[number][name] for run in runs]
            assert np.mean(losses_of_shares) == pytest.approx(loss)


# ------------------------------------------------------------------ checkpoints


def space_of(folder=None, n_steps=12, **parameters):
    settings = {"n_folds": 2, "plan": PLAN, "random_state": 0}
    return ConceptSpace(n_steps=n_steps, checkpoint=folder, **(settings | parameters))


def interrupted_after(n_rounds):
    def progress(done, total, losses):
        if done == n_rounds:
            raise KeyboardInterrupt

    return progress


@pytest.fixture(scope="module")
def finished():
    return space_of().fit(**little_world()).get_state()


@pytest.mark.parametrize("n_rounds", [1, 3, 4])
def test_an_interrupted_fit_goes_on_to_the_same_bits(finished, tmp_path, n_rounds):
    world = little_world()
    run = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        space_of(run).fit(**world, progress=interrupted_after(n_rounds))
    rounds = []
    resumed = space_of(run)
    resumed.fit(**world, progress=lambda done, total, losses: rounds.append((done, total)))
    expected_rounds = [(number, 4) for number in range(n_rounds + 1, 5)]
    assert rounds == expected_rounds, "what was done is not done again"
    config, arrays = resumed.get_state()
    expected_config, expected_arrays = finished
    assert config == expected_config
    for name, expected in expected_arrays.items():
        assert_array_equal(arrays[name], expected, err_msg=name)


DAMAGES = {
    "cut": lambda data: data[: len(data) // 2],
    "a digit of the digest": lambda data: re.sub(
        rb'(sha256[\\":]+)[0-9a-f]{2}', rb"\g<1>00", data, count=1
    ),
    "a bit of the weights": lambda data: data[:-100] + bytes([data[-100] ^ 1]) + data[-99:],
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_checkpoint_causes_a_warning_and_is_learned_again(finished, tmp_path, damage):
    world = little_world()
    run = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        space_of(run).fit(**world, progress=interrupted_after(1))
    file = run / MODEL_FILE
    damaged = DAMAGES[damage](file.read_bytes())
    file.write_bytes(damaged)
    space = space_of(run)
    with pytest.warns(PolysemeWarning, match="The training begins anew"):
        space.fit(**world)
    _, arrays = space.get_state()
    _, expected_arrays = finished
    for name, expected in expected_arrays.items():
        assert_array_equal(arrays[name], expected, err_msg=name)
    config, _ = read_model(run, "training")
    assert config["round"] == 4


@pytest.mark.parametrize("damage", [*DAMAGES, "none", "not ours"])
def test_a_model_is_never_taken_for_a_checkpoint_whatever_its_state(tmp_path, damage):
    run = tmp_path / "run"
    write_model(run, "tagger", {"seed": 1}, {"a": np.ones(20)})
    file = run / MODEL_FILE
    content = file.read_bytes()
    if damage in DAMAGES:
        content = DAMAGES[damage](content)
    elif damage == "not ours":
        content = b"mine"
    file.write_bytes(content)
    with pytest.raises(InputError, match=r"model.safetensors' is (a 'tagger'|not a polyseme)"):
        space_of(run).fit(**little_world())
    assert file.read_bytes() == content


def test_an_interrupted_fit_without_a_seed_keeps_the_one_it_drew(tmp_path):
    world = little_world()
    run = tmp_path / "run"
    interrupted = space_of(run, random_state=None)
    with pytest.raises(KeyboardInterrupt):
        interrupted.fit(**world, progress=interrupted_after(2))
    config, _ = read_model(run, "training")
    space = space_of(run, random_state=None)
    _, seed = prepare_training(space, **world, groups=None)
    assert seed == config["seed"]
    resumed = space.fit(**world)
    assert len(resumed.history_) == 4
    assert resumed.history_[:2] == config["history"]


CHANGES = {
    "documents": lambda world: world["documents"][::-1],
    "X": lambda world: world["X"] + 1e-9,
    "item_documents": lambda world: world["item_documents"][::-1],
    "n_label_sets": lambda world: 76,
    "groups": lambda world: np.arange(76) // 2,
    "n_steps": lambda world: 16,
    "n_folds": lambda world: 3,
    "plan": lambda world: replace(PLAN, hidden=8),
    "random_state": lambda world: 1,
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_checkpoint_of_anything_else_is_refused(tmp_path, name):
    world = little_world() | {"groups": None}
    run = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        space_of(run).fit(**world, progress=interrupted_after(1))
    changed_value = CHANGES[name](world)
    parameters = {}
    if name in world:
        world[name] = changed_value
    else:
        parameters[name] = changed_value
    space = space_of(run, **parameters)
    with pytest.raises(InputError, match="belongs to other data or parameters; remove it"):
        space.fit(**world)


def run_with_states(run):
    """Train, and return what `set_state` takes after each round."""
    states = []

    def record():
        states.append((run.get_state(), run.round, list(run.history)))

    run.run(after=record)
    return states


def test_a_round_together_ends_in_a_state_that_members_alone_go_on_with():
    alone = made(n_steps=80, plan=QUICK)
    _, (state, number, history), *_ = run_with_states(alone)
    together = made("together", 80, QUICK)
    together.set_state(state, number, history)
    (learner,) = together.learners
    for name, moments in learner.optimizer.get_state().items():
        rows = moments.numpy()
        assert_array_equal(rows, state[f"optimizer.{name}"])
        assert len(np.unique(rows, axis=0)) == len(together.members), "each its own"
    resumed = made(n_steps=80, plan=QUICK)
    resumed.set_state(together.get_state(), number, history)
    resumed.run()
    assert_same_bits(resumed.members.groups, alone.members.groups)


@pytest.mark.parametrize("way", TOGETHER)
def test_a_training_together_goes_on_from_the_end_of_a_round_to_the_same_bits(way):
    uninterrupted = made(way, 80, QUICK)
    _, state, *_ = run_with_states(uninterrupted)
    resumed = made(way, 80, QUICK)
    resumed.set_state(*state)
    resumed.run()
    groups = [group.cpu() for group in resumed.members.groups]
    expected_groups = [group.cpu() for group in uninterrupted.members.groups]
    assert_same_bits(groups, expected_groups)
    assert resumed.history == uninterrupted.history


# ------------------------------------------------------------------ who sees what


class Watched:
    """Draws the batches of four rounds and notes what every member looks at."""

    def __init__(self, way, exchange=None):
        run = made(way)
        self.data = run.data
        self.batches = []
        self.document_rows = row_by_bytes(run.data.documents.toarray())
        self.item_rows = row_by_bytes(standardised(run.data))
        for run.round in range(4):
            items = run._begin_round(exchange)
            for learner in run.learners:
                learner.batches.begin(items)
                for _ in range(10):
                    self.note(learner, run.round)

    def note(self, learner, number):
        """Draw a batch and note the part of each member."""
        batch = learner.batches.draw()
        for place in range(len(learner.members)):
            member = learner.batches.first_number + place
            self.batches.append((member, number, self.seen(batch, place)))

    def seen(self, batch, place):
        """Copy a member's part of a batch, with the numbers of its documents and items."""
        arrays = {}
        for name in ("targets", "weights", "tags", "features"):
            tensor = getattr(batch, name)[place]
            arrays[name] = tensor.cpu().numpy().copy()
        documents = arrays["targets"][: PLAN.document_batch, : self.data.n_labels]
        arrays["documents"] = [self.document_rows[row.tobytes()] for row in documents]
        arrays["items"] = [self.item_rows[row.tobytes()] for row in arrays["features"]]
        arrays["dropout"] = [float(factors[place].mean()) for factors in batch.dropout]
        return arrays


@pytest.fixture(scope="module", params=["alone", *TOGETHER])
def watched(request):
    return Watched(request.param)


def test_a_member_never_sees_its_fold_and_all_the_rest(watched):
    data = watched.data
    item_folds = data.folds[data.item_documents]
    for member in range(6):
        fold = member // 2
        documents = set()
        items = set()
        for number, _, seen in watched.batches:
            if number == member:
                documents.update(seen["documents"])
                items.update(seen["items"])
        expected = set(np.flatnonzero(data.folds != fold))
        assert documents == expected
        assert items == set(np.flatnonzero(item_folds != fold))


def test_all_members_draw_differently(watched):
    first_documents = {}
    for member, _, seen in watched.batches:
        first_documents.setdefault(member, tuple(seen["documents"]))
    assert len(set(first_documents.values())) == 6


def test_only_label_sets_teach_unseen_labels(watched):
    n_seen = watched.data.n_seen
    n_labels = watched.data.n_labels
    assert n_labels - n_seen == 3
    assert watched.data.n_outputs == n_labels + 1
    for _, _, seen in watched.batches:
        is_label_set = np.array(seen["documents"]) < N_LABEL_SETS
        assert is_label_set.any()
        assert not is_label_set.all()
        weights = seen["weights"][:24]
        assert (weights[:, :n_seen] > 0).all()
        assert (weights[is_label_set, n_seen:n_labels] > 0).all()
        assert not weights[~is_label_set, n_seen:].any()


def test_no_tag_is_made_up(watched):
    n_labels = watched.data.n_labels
    for _, _, seen in watched.batches:
        tags = seen["tags"][:24]
        truth = seen["targets"][:24, :n_labels]
        assert np.isin(tags, [0, 1]).all()
        assert (tags <= truth).all()


def test_the_last_output_is_whether_a_document_has_any_unseen_label(watched):
    n_seen = watched.data.n_seen
    n_labels = watched.data.n_labels
    for _, _, seen in watched.batches:
        targets = seen["targets"][:24]
        truth = targets[:, n_seen:n_labels]
        assert_array_equal(targets[:, n_labels], truth.max(axis=1))


def test_tags_are_hidden_at_the_rates_of_the_plan(watched):
    n_seen = watched.data.n_seen
    n_labels = watched.data.n_labels
    seen_rates = []
    unseen_rates = []
    for _, _, seen in watched.batches:
        tags = seen["tags"][:24]
        truth = seen["targets"][:24, :n_labels]
        shown_share = tags[:, :n_seen].sum() / truth[:, :n_seen].sum()
        seen_rates.append(1 - shown_share)
        holding = truth[:, n_seen:].any(axis=1)
        has_unseen_tag = tags[holding, n_seen:].any(axis=1)
        unseen_rates.append(1 - has_unseen_tag.mean())
    assert np.mean(seen_rates) == pytest.approx(PLAN.hidden_tags / 2, abs=0.02)
    # All of them are hidden at that rate, and one alone at the rate of any tag beside it.
    rate = PLAN.unseen_hidden + (1 - PLAN.unseen_hidden) * PLAN.hidden_tags / 2
    assert np.mean(unseen_rates) == pytest.approx(rate, abs=0.03)


def test_dropout_keeps_the_mean(watched):
    factors = [seen["dropout"] for _, _, seen in watched.batches]
    assert_allclose(np.mean(factors, axis=0), 1, atol=0.01)


def test_the_first_round_aims_at_true_seen_labels_only(watched):
    data = watched.data
    n_items = PLAN.item_batch
    truth = data.documents[data.item_documents].toarray()
    for _, number, seen in watched.batches:
        targets = seen["targets"][-n_items:]
        item_weights = seen["weights"][-n_items:]
        true_rows = truth[seen["items"]]
        expected = true_rows[:, : data.n_seen]
        assert_array_equal(targets[:, : data.n_seen], expected)
        assert not item_weights[:, data.n_labels :].any()
        unseen_weights = item_weights[:, data.n_seen : data.n_labels]
        tag_weights = seen["weights"][24:-n_items]
        if number == 0:
            assert not unseen_weights.any()
            assert not tag_weights.any(), "by tags when all have answered"
        else:
            assert (unseen_weights > 0).all()
            assert tag_weights.any()


def numbered_answer(answer, number):
    """Return an answer that is the same number for every item and label."""
    unseen = np.full_like(answer.unseen, (number + 1) / 10)
    seen = np.full_like(answer.seen, float(number))
    return HeldOutPredictions(unseen, seen, answer.pool)


@pytest.mark.parametrize("way", ["alone", *TOGETHER])
def test_items_are_aimed_at_the_answers_of_their_own_folds_members(way):
    sizes_of_rounds = []

    def exchange(answers):
        """Let every member answer a number of its own."""
        sizes_of_rounds.append({number: len(answer.seen) for number, answer in answers.items()})
        return {number: numbered_answer(answer, number) for number, answer in answers.items()}

    watched = Watched(way, exchange)
    data = watched.data
    n_tags = PLAN.probable_batch
    folds = data.folds[data.item_documents]
    fold_sizes = np.bincount(folds)
    expected = [{number: fold_sizes[number // 2] for number in range(6)}] * 3
    assert sizes_of_rounds == expected

    mean_answers = folds * 2 + 0.5  # of a fold's two members
    for _, number, seen in watched.batches:
        if number == 0:
            continue
        answers = mean_answers[seen["items"]]
        unseen_answers = (answers + 1) / 10
        by_tags, by_features = np.split(seen["targets"][24:, data.n_seen :], [n_tags])
        assert_columns(by_tags, unseen_answers[:n_tags])
        assert_columns(by_features, unseen_answers)
        seen_tags, unseen_tags = np.split(seen["tags"][24:, : data.n_labels], [data.n_seen], axis=1)
        assert_columns(seen_tags, sigmoid(answers[:n_tags]))
        assert not unseen_tags.any(), "unseen tags are nobody's guess"
        # Items that probably hold unseen labels stand for those that were left out.
        weights = seen["weights"][24 + n_tags :, 0] * (1 - unseen_answers)
        assert_allclose(weights, weights[0], rtol=1e-5)


def test_members_answer_with_their_own_probabilities(whole):
    data = whole.data
    n_seen = data.n_seen
    features = standardised(data)
    truth = data.documents[data.item_documents].toarray().astype(np.float32)
    truth[:, n_seen:] = 0
    folds = data.folds[data.item_documents]
    no_pool = np.zeros(0, dtype=np.int64)
    answers = whole.predict_held_out(
        features,
        truth[:, :n_seen],
        folds,
        no_pool,
    )
    assert sorted(answers) == list(range(6))
    for number, (unseen, seen, _) in answers.items():
        rows = folds == number // 2
        member = whole.members.select(slice(number, number + 1))
        tag_codes = member.encode_documents(torch.from_numpy(truth[rows]))
        (tag_logits,) = member.read(tag_codes).numpy()
        expected = sigmoid(tag_logits[:, n_seen:])
        assert_allclose(unseen, expected, rtol=1e-4)
        item_codes = member.encode_items(torch.from_numpy(features[rows]))
        (item_logits,) = member.read(item_codes).numpy()
        assert_allclose(seen, item_logits[:, :n_seen], rtol=1e-4, atol=1e-5)


# ------------------------------------------------------------------ sizes


def test_where_items_do_not_fit_every_round_draws_some():
    generator = np.random.default_rng(0)
    table = (generator.random((700, 6)) < 0.4).astype(float)
    world = {
        "documents": sp.csr_matrix(table),
        "X": generator.normal(size=(700, 3)),
        "item_documents": None,
        "n_label_sets": 700,
        "plan": replace(PLAN, memory_mb=0.001),
    }
    empty = HeldOutPredictions(
        np.zeros((1, 0), np.float32),
        np.zeros((1, 6), np.float32),
        np.zeros((0, 6), np.float32),
    )

    def rows_of_rounds(share):
        run = made(share=share, **world)
        rounds = []
        for run.round in range(2):
            items = run._begin_round(lambda answers: dict.fromkeys(range(6), empty))
            rows = items.rows.tolist()
            assert len(set(rows)) == 512
            expected = standardised(run.data, items.rows)
            assert_array_equal(items.features, expected)
            assert_array_equal(items.targets, table[items.rows])
            rounds.append(rows)
        return rounds

    first_round, second_round = rows_of_rounds((0, 1))
    assert first_round != second_round
    for share in ((0, 2), (1, 2)):
        assert rows_of_rounds(share) == [first_round, second_round]


def test_weights_of_labels_grow_with_their_rarity(watched):
    assert PLAN.rarity > 0
    priors = watched.data.priors()
    variances = priors * (1 - priors)
    rarity = variances**-PLAN.rarity
    assert rarity.max() > 1.05 * rarity.min()
    weights = watched.data.label_weights(PLAN.rarity)
    expected = rarity / rarity.mean()
    assert_allclose(weights, expected, rtol=1e-6)


def test_rare_labels_count_more(watched):
    data = watched.data
    n_items = PLAN.item_batch
    n_seen = data.n_seen
    label_weights = data.label_weights(PLAN.rarity)[:n_seen]
    document_weights = PLAN.seen_weight * label_weights / (24 * data.n_outputs)
    item_weights = label_weights / (n_items * data.n_outputs)
    for _, number, seen in watched.batches:
        of_documents = seen["weights"][:24, :n_seen]
        expected = np.tile(document_weights, (24, 1))
        assert_allclose(of_documents, expected, rtol=1e-5)
        factors = seen["weights"][-n_items:, :n_seen] / item_weights
        assert_columns(factors, factors[:, 0])
        if number == 0:
            assert_allclose(factors, 1, rtol=1e-5)


@pytest.mark.parametrize("way", ["alone", *TOGETHER])
@pytest.mark.parametrize(
    ("n_steps", "label_block", "world", "context"),
    [
        (80, 2048, {}, slice(13, 16)),
        (160, 8, {}, slice(13, 16)),
        (80, 2048, DOCUMENTS_ALONE, slice(4, 7)),
    ],
    ids=["items", "some labels", "documents alone"],
)
def test_topics_and_the_context_of_unseen_labels_are_learned(
    way, n_steps, label_block, world, context
):
    changed_plan = replace(QUICK, label_block=label_block)
    run = trained(way=way, n_steps=n_steps, plan=changed_plan, **world)
    assert finds_context(run, context)
    if world:
        assert run.members.items.shape[1] == 0
        assert [losses["items"] for losses in run.history] == [0] * 4
        return
    assert finds_topics(run) == 1
    if label_block == 2048:  # the loss of some labels depends on which they are
        first_loss = run.history[0]["documents"]
        last_loss = run.history[-1]["documents"]
        most = 0.9 if way == "alone" else 1
        assert last_loss < most * first_loss
    if way == "alone":  # unseen labels are found by features too, though no item ever carried one
        topics = np.arange(N_ITEMS) % 4
        with_context = topics < 3
        context_logits = mean_logits(run)[with_context, 13:16]
        assert_array_equal(context_logits.argmax(axis=1), topics[with_context])


def test_one_long_document_makes_no_table_of_all():
    table = np.eye(60, 50)
    table[0] = 1
    documents = sp.csr_matrix(table)
    world = DOCUMENTS_ALONE | {"documents": documents, "n_label_sets": 60}
    run = made("together", 8, **world)
    batches = run.learners[0].batches
    assert batches.labels.numel() < 200
    rows_of_members = torch.arange(60).expand(len(run.members), -1)
    tags = batches._tags_of(rows_of_members)
    assert_array_equal(tags[0].numpy(), table)


def test_features_are_cut_off_where_they_are_wild():
    features = np.array([[1e9, 3.0, -1e9]])
    mean = np.array([0.0, 1.0, 0.0])
    scale = np.array([1.0, 4.0, 1.0])
    scaled = standardise(features, mean, scale)
    assert scaled.tolist() == [[20.0, 0.5, -20.0]]
    assert scaled.dtype == np.float32


# ------------------------------------------------------------------ priors of labels


def test_priors_of_unseen_labels_rest_on_label_sets():
    data, _, _ = prepared()
    table = data.documents.toarray()
    n_seen = data.n_seen
    priors = data.priors()
    seen_counts = table[:, :n_seen].sum(axis=0)
    expected = (seen_counts + 0.5) / 77
    assert_allclose(priors[:n_seen], expected)
    unseen = table[:N_LABEL_SETS, n_seen:]
    any_unseen = unseen.any(axis=1)
    unseen_counts = [*unseen.sum(axis=0), any_unseen.sum()]
    assert_allclose(priors[n_seen:], np.add(unseen_counts, 0.5) / 41)


# ------------------------------------------------------------------ forms of features


def test_sparse_features_give_the_codes_of_dense_ones():
    world = little_world()
    X = np.where(world["X"] > 0.1, world["X"], 0.0)
    sparse_X = sp.csr_matrix(X)
    dense = space_of().fit(**(world | {"X": X}))
    sparse = space_of().fit(**(world | {"X": sparse_X}))
    codes = dense.item_codes(X)
    assert codes.std() > 0.1
    assert_allclose(sparse.item_codes(sparse_X), codes, atol=1e-4)
    assert_allclose(dense.item_codes(sparse_X), codes, atol=1e-6)


# ------------------------------------------------------------------ items without tags

N_POOL = 30
POOL_TOPICS = np.arange(N_POOL) % 4


def pool_world(verdicts=False, sparse=False):
    """Items of the same topics without tags, and verdicts on two of them and on a tagged one."""
    generator = np.random.default_rng(5)
    noise = generator.normal(size=(N_POOL, 4))
    pool = np.eye(4)[POOL_TOPICS] + 0.2 * noise
    X = little_world()["X"]
    if sparse:
        X = sp.csr_matrix(np.where(X > 0.1, X, 0.0))
        pool = sp.csr_matrix(np.where(pool > 0.1, pool, 0.0))
    world = {"X": X, "pool": pool}
    if verdicts:
        table = np.zeros((N_ITEMS + N_POOL, 16))
        table[N_ITEMS, 4] = 1
        table[N_ITEMS + 1, 5] = -1
        table[0, 6] = -1
        world["verdicts"] = sp.csr_matrix(table)
    return world


@pytest.fixture(scope="module")
def pooled():
    return trained(**pool_world(verdicts=True))


@pytest.mark.parametrize("n", [40, 5000])
def test_each_label_is_expected_in_the_pool_as_often_as_in_documents(n):
    generator = np.random.default_rng(0)
    noise = generator.normal(size=(n, 70))
    label_means = generator.normal(size=70)
    logits = (2 * noise + 4 * label_means).astype(np.float32)
    priors = generator.uniform(0.03, 0.6, 70)
    soft = pool_targets(logits, priors, 0.0)
    hard = pool_targets(logits, priors, 1.0)
    tolerance = 0.002 if n == 40 else 0.02
    assert_allclose(soft.mean(axis=0), priors, atol=tolerance)
    assert_array_equal(hard.sum(axis=0), np.round(priors * n))
    for label_logits, is_target in zip(logits.T, hard.T == 1, strict=True):
        assert label_logits[is_target].min() >= label_logits[~is_target].max()
    half_hard = pool_targets(logits, priors, 0.5)
    expected = (soft + hard) / 2
    assert_allclose(half_hard, expected, atol=1e-6)


def test_a_label_that_nothing_should_have_stays_soft():
    logits = np.linspace(-3, 3, 20, dtype=np.float32)
    priors = np.array([0.01])
    targets = pool_targets(logits[:, None], priors, 0.5)
    assert targets.mean() == pytest.approx(0.01, abs=1e-3)
    steps = np.diff(targets[:, 0])
    assert (steps > 0).all()


@pytest.mark.parametrize("way", ["alone", *TOGETHER])
def test_a_member_learns_from_the_pool_of_other_folds_only_and_when_it_has_begun(way):
    run = made(way, plan=replace(PLAN, pool_from=0.5, pool_weight=2.0), **pool_world())
    data = run.data
    features = standardise(data.pool, data.mean, data.scale)
    rows = row_by_bytes(features)
    seen_rows = {number: set() for number in range(6)}
    pool_sizes = []

    def exchange(answers):
        pool_sizes.append({number: len(answer.pool) for number, answer in answers.items()})
        return answers

    for run.round in range(4):
        items = run._begin_round(exchange)
        begun = run.round >= 2
        assert items.has_pool_targets == begun
        assert (items.weights[N_ITEMS:] == 2.0 * begun).all()
        for learner in run.learners:
            learner.batches.begin(items)
            n_items = learner.batches.n_items
            for _ in range(20):
                batch = learner.batches.draw()
                if not begun and way == "alone":
                    assert batch.features.shape[1] == n_items
                    continue
                pool_features = batch.features[:, n_items:].cpu().numpy()
                weights = batch.weights[:, -pool_features.shape[1] :]
                assert bool(weights[..., : data.n_labels].any()) == begun
                first_number = learner.batches.first_number
                for number, member_features in enumerate(pool_features, first_number):
                    seen_rows[number] |= {rows[row.tobytes()] for row in member_features}

    for number in range(6):
        expected = np.flatnonzero(data.pool_folds != number // 2)
        assert seen_rows[number] == set(expected)
    fold_sizes = np.bincount(data.pool_folds)
    assert pool_sizes[0] == dict.fromkeys(range(6), 0)
    assert pool_sizes[-1] == {number: fold_sizes[number // 2] for number in range(6)}


@pytest.fixture
def with_verdicts():
    """A training with verdicts, and the columns of the three."""
    plan = replace(PLAN, verdict_weight=7.0, rarity=0.0)
    run = made(plan=plan, **pool_world(verdicts=True))
    verdicts = run.data.verdicts.toarray()
    columns = [int(np.flatnonzero(verdicts[row])[0]) for row in (0, 36, 37)]
    return run, columns


@pytest.mark.parametrize("number", [0, 2])
def test_verdicts_take_the_place_of_guesses(with_verdicts, number):
    run, (first, second, third) = with_verdicts
    for run.round in range(0, number + 1, 2):
        items = run._begin_round(None)
    assert items.targets[0, first] == -1
    if number:
        assert items.targets[36, second] == 2
        assert items.targets[37, third] == -1
    guesses = np.delete(items.targets, [0, 36, 37], axis=0)
    assert (guesses >= 0).all()
    assert (guesses <= 1).all()


def test_verdicts_weigh_more(with_verdicts):
    run, (_, second, third) = with_verdicts
    for run.round in (0, 2):
        items = run._begin_round(None)
    verdict_by_features = {
        items.features[36].tobytes(): (second, 1.0),
        items.features[37].tobytes(): (third, 0.0),
    }
    batches = run.learners[0].batches
    batches.begin(items)
    n_met = 0
    for _ in range(60):
        batch = batches.draw()
        assert batch.targets.min() >= 0
        assert batch.targets.max() <= 1
        features = batch.features[0].numpy()
        targets = batch.targets[0, -len(features) :]
        weights = batch.weights[0, -len(features) :]
        for row in range(batches.n_items, len(features)):
            verdict = verdict_by_features.get(features[row].tobytes())
            if verdict is None:
                continue
            n_met += 1
            column, target = verdict
            assert targets[row, column] == target
            weight = weights[row, column] * batches.n_pool * run.data.n_outputs
            assert weight == pytest.approx(7.0, rel=1e-5)
    assert n_met


def test_shares_of_members_learn_from_a_pool_to_the_same_bits(pooled):
    runs = train_in_shares(2, **pool_world(verdicts=True))
    for share, run in enumerate(runs):
        expected = [group[share::2] for group in pooled.members.groups]
        assert_same_bits(run.members.groups, expected)


@pytest.mark.parametrize("n_rounds", [1, 2, 3])
def test_an_interrupted_fit_with_a_pool_goes_on_to_the_same_bits(tmp_path, n_rounds):
    world = little_world() | pool_world(verdicts=True)
    _, expected = space_of().fit(**world).get_state()
    run = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        space_of(run).fit(**world, progress=interrupted_after(n_rounds))
    _, arrays = space_of(run).fit(**world).get_state()
    assert arrays.keys() == expected.keys()
    assert_same_bits(arrays.values(), expected.values())


@pytest.mark.parametrize("changed", ["pool", "verdicts", "none"])
def test_a_checkpoint_with_another_pool_or_other_verdicts_is_refused(tmp_path, changed):
    world = little_world() | pool_world(verdicts=True)
    run = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        space_of(run).fit(**world, progress=interrupted_after(1))
    if changed == "pool":
        world["pool"] = world["pool"] + 1
    elif changed == "verdicts":
        world["verdicts"] = -world["verdicts"]
    else:
        world |= {"pool": None, "verdicts": None}
    with pytest.raises(InputError, match="belongs to other data"):
        space_of(run).fit(**world)


def test_without_a_pool_its_settings_change_no_bit(whole):
    plan = replace(
        PLAN,
        pool_from=0.9,
        pool_weight=9.0,
        pool_hard=0.1,
        pool_steps=5.0,
        verdict_weight=9.0,
    )
    run = trained(plan=plan)
    assert_same_bits(run.members.groups, whole.members.groups)
    assert run.history == whole.history


def test_a_pool_and_verdicts_each_change_what_is_learned(whole, pooled):
    without_verdicts = trained(**pool_world())
    weights = set()
    for run in (whole, without_verdicts, pooled):
        weights.add(run.members.items.numpy().tobytes())
    assert len(weights) == 3


def test_a_sparse_pool_gives_the_codes_of_a_dense_one():
    world = little_world() | pool_world(sparse=True)
    sparse = space_of().fit(**world)
    pool = world["pool"].toarray()
    dense_world = world | {"X": world["X"].toarray(), "pool": pool}
    dense = space_of().fit(**dense_world)
    codes = dense.item_codes(pool)
    assert codes.std() > 0.1
    assert_allclose(sparse.item_codes(world["pool"]), codes, atol=1e-4)


@pytest.mark.parametrize(("n", "n_pool"), [(700, 100), (100, 700), (700, 700)])
def test_where_items_do_not_fit_some_of_the_pool_are_drawn(n, n_pool):
    generator = np.random.default_rng(0)
    table = (generator.random((n, 6)) < 0.4).astype(float)
    run = made(
        plan=replace(PLAN, memory_mb=0.001),
        documents=sp.csr_matrix(table),
        X=generator.normal(size=(n, 3)),
        item_documents=None,
        n_label_sets=n,
        pool=generator.normal(size=(n_pool, 3)),
    )
    rounds = []
    for run.round in range(2):
        items = run._begin_round(None)
        n_items = len(items.rows)
        pool_rows = items.pool_rows.tolist()
        assert n_items + len(pool_rows) == 512
        assert len(pool_rows) >= 100
        assert len(set(pool_rows)) == len(pool_rows)
        expected = standardise(run.data.pool[pool_rows], run.data.mean, run.data.scale)
        assert_array_equal(items.features[n_items:], expected)
        rounds.append(pool_rows)
    first_round, second_round = rounds
    assert (first_round == second_round) == (n_pool == 100)


@pytest.mark.parametrize("way", ["alone", *TOGETHER])
def test_unseen_labels_of_pool_items_are_learned(way):
    run = trained(way=way, n_steps=160, plan=QUICK, **pool_world(verdicts=True))
    features = standardise(run.data.pool, run.data.mean, run.data.scale)
    codes = run.members.encode_items(torch.from_numpy(features))
    logits = run.members.read(codes).mean(dim=0).numpy()
    assert np.isfinite(logits).all()
    with_context = POOL_TOPICS < 3
    best = logits[with_context, 13:16].argmax(axis=1)
    assert (best == POOL_TOPICS[with_context]).mean() > 0.9
