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
from hypothesis import given
from hypothesis import strategies as st

from polyseme import ConceptSpace, SpacePlan, training
from polyseme._validation import InputError, PolysemeWarning
from polyseme.gpu_training import GpuLearner
from polyseme.persistence import read_model, write_model
from polyseme.steps import read_columns
from polyseme.training import Answers, SpaceTraining, pool_targets, standardise

N_LABEL_SETS, N_ITEMS = 40, 36
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
    rng = np.random.default_rng(seed)
    m = N_LABEL_SETS + N_ITEMS
    topics = np.arange(m) % 4
    table = np.zeros((m, 16))
    table[:, :4] = np.eye(4)[topics]
    table[:N_LABEL_SETS, 4:7] = np.eye(4)[topics[:N_LABEL_SETS], :3]
    table[:, 7:] = rng.choice(512, m, replace=False)[:, None] >> np.arange(9) & 1
    X = np.eye(4)[topics[N_LABEL_SETS:]] + 0.2 * rng.normal(size=(N_ITEMS, 4))
    of_items = {"X": X, "item_documents": np.arange(N_LABEL_SETS, m)}
    return {"documents": sp.csr_matrix(table), "n_label_sets": N_LABEL_SETS, **of_items}


def prepared(n_steps=12, n_folds=3, plan=None, **world):
    """Return data and a plan as a space makes them, with two members a fold."""
    world = little_world() | world
    space = ConceptSpace(n_folds=n_folds, n_steps=n_steps, random_state=0)
    data, seed = space.prepare(**({"groups": None} | world))
    changed = replace(
        plan or PLAN, n_folds=n_folds, members_per_fold=2, n_steps=n_steps, round_steps=n_steps // 4
    )
    return data, changed, seed


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


def by_features(run):
    """Return what members say of labels, on average, by the features of items."""
    features = torch.from_numpy(standardised(run.data))
    return run.members.read(run.members.encode_items(features)).mean(dim=0).numpy()


def finds_topics(run):
    """Return how often the topic of an item is found among the four."""
    return (by_features(run)[:, :4].argmax(axis=1) == np.arange(N_ITEMS) % 4).mean()


def finds_context(run, columns):
    """Return for the first three topics whether the label of each is found among three."""
    tags = torch.zeros(3, run.data.n_labels)
    tags[:, :3] = torch.eye(3)
    read = run.members.read(run.members.encode_documents(tags)).mean(dim=0).numpy()
    return read[:, columns].argmax(axis=1).tolist() == [0, 1, 2]


def assert_same_bits(groups, others):
    for group, other in zip(groups, others, strict=True):
        assert np.isfinite(np.asarray(group)).all()
        np.testing.assert_array_equal(np.asarray(group), np.asarray(other))


@pytest.fixture(scope="module")
def whole():
    return trained()


# ------------------------------------------------------------------ the same bits


@pytest.mark.parametrize(
    ("name", "value"), [("n_cores", lambda: 1), ("n_cores", lambda: 4), ("_DENSE_BYTES", 0)]
)
def test_threads_and_sparse_tables_change_no_bit(whole, monkeypatch, name, value):
    monkeypatch.setattr(training, name, value)
    again = trained()
    assert again.n_threads == value() if name == "n_cores" else again.dense is None
    assert_same_bits(again.members.groups, whole.members.groups)
    assert again.history == whole.history


def test_shares_of_members_train_apart_to_the_same_bits(whole):
    n_shares, answers = 3, {}
    meeting = threading.Barrier(n_shares, timeout=60)

    def exchange(mine):
        """Collect what all shares answer, and give it to each of them."""
        answers.update(mine)
        meeting.wait()
        everybody = dict(answers)
        meeting.wait()
        return everybody

    with ThreadPoolExecutor(n_shares) as pool:
        shares = [(share, n_shares) for share in range(n_shares)]
        done = list(pool.map(lambda share: trained(share=share, exchange=exchange), shares))
    for share, run in enumerate(done):
        assert run.numbers.tolist() == list(range(share, 6, n_shares))
        parts = [group[share::n_shares] for group in whole.members.groups]
        assert_same_bits(run.members.groups, parts)
    for number, losses in enumerate(whole.history):
        for name, loss in losses.items():
            of_shares = [run.history[number][name] for run in done]
            assert np.mean(of_shares) == pytest.approx(loss)


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
    with pytest.raises(KeyboardInterrupt):
        space_of(tmp_path / "run").fit(**world, progress=interrupted_after(n_rounds))
    told = []
    again = space_of(tmp_path / "run")
    again.fit(**world, progress=lambda done, total, losses: told.append((done, total)))
    assert told == [(one, 4) for one in range(n_rounds + 1, 5)], "what was done is not done again"
    config, arrays = again.get_state()
    assert config == finished[0]
    for name, array in finished[1].items():
        np.testing.assert_array_equal(arrays[name], array, err_msg=name)


DAMAGES = {
    "cut": lambda data: data[: len(data) // 2],
    "a digit of the digest": lambda data: re.sub(
        rb'(sha256[\\":]+)[0-9a-f]{2}', rb"\g<1>00", data, count=1
    ),
    "a bit of the weights": lambda data: data[:-100] + bytes([data[-100] ^ 1]) + data[-99:],
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_training_whose_checkpoint_is_damaged_begins_anew_with_a_warning(
    finished, tmp_path, damage
):
    world = little_world()
    file = tmp_path / "run" / "model.safetensors"
    with pytest.raises(KeyboardInterrupt):
        space_of(tmp_path / "run").fit(**world, progress=interrupted_after(1))
    file.write_bytes(DAMAGES[damage](file.read_bytes()))
    with pytest.warns(PolysemeWarning, match="The training begins anew"):
        again = space_of(tmp_path / "run").fit(**world)
    for name, array in finished[1].items():
        np.testing.assert_array_equal(again.get_state()[1][name], array, err_msg=name)
    config, _ = read_model(tmp_path / "run", "training")
    assert config["round"] == 4


@pytest.mark.parametrize("damage", [*DAMAGES, "none", "not ours"])
def test_a_model_is_never_taken_for_a_checkpoint_whatever_its_state(tmp_path, damage):
    write_model(tmp_path / "run", "tagger", {"seed": 1}, {"a": np.ones(20)})
    file = tmp_path / "run" / "model.safetensors"
    content = file.read_bytes()
    if damage in DAMAGES:
        content = DAMAGES[damage](content)
    elif damage == "not ours":
        content = b"mine"
    file.write_bytes(content)
    with pytest.raises(InputError, match=r"model.safetensors' is (a 'tagger'|not a polyseme)"):
        space_of(tmp_path / "run").fit(**little_world())
    assert file.read_bytes() == content


def test_an_interrupted_fit_without_a_seed_keeps_the_one_it_drew(tmp_path):
    world, progress = little_world(), interrupted_after(2)
    with pytest.raises(KeyboardInterrupt):
        space_of(tmp_path / "run", random_state=None).fit(**world, progress=progress)
    config, _ = read_model(tmp_path / "run", "training")
    space = space_of(tmp_path / "run", random_state=None)
    assert space.prepare(**world, groups=None)[1] == config["seed"]
    resumed = space.fit(**world)
    assert len(resumed.history_) == 4 and resumed.history_[:2] == config["history"]


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
    with pytest.raises(KeyboardInterrupt):
        space_of(tmp_path / "run").fit(**world, progress=interrupted_after(1))
    change = {name: CHANGES[name](world)}
    other, parameters = (world | change, {}) if name in world else (world, change)
    with pytest.raises(InputError, match="belongs to other data or parameters; remove it"):
        space_of(tmp_path / "run", **parameters).fit(**other)


def test_a_round_together_ends_in_a_state_that_members_alone_go_on_with():
    alone, kept = made(n_steps=80, plan=QUICK), []
    alone.run(after=lambda: kept.append((alone.get_state(), alone.round, list(alone.history))))
    other, back = made("together", 80, QUICK), made(n_steps=80, plan=QUICK)
    other.set_state(*kept[1])
    (learner,) = other.learners
    for name, moments in learner.optimizer.get_state().items():
        np.testing.assert_array_equal(moments.numpy(), kept[1][0][f"optimizer.{name}"])
        assert len({row.tobytes() for row in moments.numpy()}) == len(other.members), "each its own"
    back.set_state(other.get_state(), *kept[1][1:])
    back.run()
    assert_same_bits(back.members.groups, alone.members.groups)


@pytest.mark.parametrize("way", TOGETHER)
def test_a_training_together_goes_on_from_the_end_of_a_round_to_the_same_bits(way):
    (whole, other), kept = (made(way, 80, QUICK) for _ in range(2)), []
    whole.run(after=lambda: kept.append((whole.get_state(), whole.round, list(whole.history))))
    other.set_state(*kept[1])
    other.run()
    assert_same_bits(*([group.cpu() for group in run.members.groups] for run in (whole, other)))
    assert whole.history == other.history


# ------------------------------------------------------------------ who sees what


class Watched:
    """Draws the batches of four rounds and notes what every member looks at."""

    def __init__(self, way, exchange=None):
        run = made(way)
        self.data, self.batches = run.data, []
        tables = run.data.documents.toarray(), standardised(run.data)
        self.names = [{row.tobytes(): place for place, row in enumerate(rows)} for rows in tables]
        for run.round in range(4):
            items = run._begin_round(exchange)
            for learner in run.learners:
                learner.batches.begin(items)
                for _ in range(10):
                    batch = learner.batches.draw()
                    for place in range(len(learner.members)):
                        number = learner.batches.number + place
                        self.batches.append((number, run.round, self.seen(batch, place)))

    def seen(self, batch, place):
        """Copy a member's part of a batch, with the numbers of its documents and items."""
        names = ("targets", "weights", "tags", "features")
        parts = {name: getattr(batch, name)[place].cpu().numpy().copy() for name in names}
        rows = parts["targets"][: PLAN.document_batch, : self.data.n_labels]
        parts["documents"] = [self.names[0][row.tobytes()] for row in rows]
        parts["items"] = [self.names[1][row.tobytes()] for row in parts["features"]]
        parts["dropout"] = [float(factors[place].mean()) for factors in batch.dropout]
        return parts


@pytest.fixture(scope="module", params=["alone", *TOGETHER])
def watched(request):
    return Watched(request.param)


def test_a_member_never_sees_its_fold_and_all_the_rest(watched):
    data = watched.data
    for member in range(6):
        fold = member // 2
        mine = [seen for number, _, seen in watched.batches if number == member]
        documents = {row for seen in mine for row in seen["documents"]}
        items = {row for seen in mine for row in seen["items"]}
        assert documents == set(np.flatnonzero(data.folds != fold))
        assert items == set(np.flatnonzero(data.folds[data.item_documents] != fold))
    first = {number: seen["documents"] for number, _, seen in reversed(watched.batches)}
    assert len({tuple(drawn) for drawn in first.values()}) == 6, "all draw differently"


def test_only_label_sets_tell_of_unseen_labels(watched):
    n, n_seen, n_labels = 24, watched.data.n_seen, watched.data.n_labels
    assert n_labels - n_seen == 3 and watched.data.n_outputs == n_labels + 1
    for _, _, seen in watched.batches:
        told, weights = np.array(seen["documents"]) < N_LABEL_SETS, seen["weights"][:n]
        assert 0 < told.sum() < n and (weights[:, :n_seen] > 0).all()
        assert (weights[told, n_seen:n_labels] > 0).all() and not weights[~told, n_seen:].any()


def test_hidden_tags_are_aimed_at_and_no_tag_is_made_up(watched):
    n, n_seen, n_labels = 24, watched.data.n_seen, watched.data.n_labels
    hidden, unseen_at_all = [], []
    for _, _, seen in watched.batches:
        tags, truth = seen["tags"][:n], seen["targets"][:n, :n_labels]
        assert ((tags == 0) | (tags == 1)).all() and (tags <= truth).all()
        hidden.append(1 - tags[:, :n_seen].sum() / truth[:, :n_seen].sum())
        holding = truth[:, n_seen:].any(axis=1)
        unseen_at_all.append(1 - tags[holding, n_seen:].any(axis=1).mean())
        some = seen["targets"][:n, n_labels]
        np.testing.assert_array_equal(some, truth[:, n_seen:].max(axis=1))
    assert np.mean(hidden) == pytest.approx(PLAN.hidden_tags / 2, abs=0.02)
    # All of them are hidden at that rate, and one alone at the rate of any tag beside it.
    rate = PLAN.unseen_hidden + (1 - PLAN.unseen_hidden) * PLAN.hidden_tags / 2
    assert np.mean(unseen_at_all) == pytest.approx(rate, abs=0.03)
    kept = np.mean([seen["dropout"] for _, _, seen in watched.batches], axis=0)
    np.testing.assert_allclose(kept, 1, atol=0.01)


def test_the_first_round_aims_at_true_seen_labels_only(watched):
    data, n, n_items = watched.data, 24, PLAN.item_batch
    truth = data.documents[data.item_documents].toarray()
    for _, number, seen in watched.batches:
        targets, weights = seen["targets"][-n_items:], seen["weights"][-n_items:]
        wanted = truth[seen["items"]][:, : data.n_seen]
        np.testing.assert_array_equal(targets[:, : data.n_seen], wanted)
        soft = weights[:, data.n_seen : data.n_labels]
        assert (soft > 0).all() if number else not soft.any()
        assert not weights[:, data.n_labels :].any()
        assert seen["weights"][n:-n_items].any() == bool(number), "by tags when all have answered"


@pytest.mark.parametrize("way", ["alone", *TOGETHER])
def test_items_are_aimed_at_what_their_own_folds_members_say(way):
    asked = []

    def exchange(answers):
        """Let every member say a number of its own."""
        asked.append({number: len(answer.seen) for number, answer in answers.items()})
        return {
            number: Answers(
                np.full_like(answer.unseen, (number + 1) / 10),
                np.full_like(answer.seen, float(number)),
                answer.pool,
            )
            for number, answer in answers.items()
        }

    watched = Watched(way, exchange)
    data, n, n_tags = watched.data, 24, PLAN.probable_batch
    folds = data.folds[data.item_documents]
    sizes = np.bincount(folds)
    assert asked == [{number: sizes[number // 2] for number in range(6)}] * 3
    mean = folds * 2 + 0.5  # of a fold's two members
    for _, number, seen in watched.batches:
        if number == 0:
            continue
        said = mean[seen["items"]][:, None]
        for targets in np.split(seen["targets"][n:], [n_tags]):  # by tags, then by features
            wanted = (said[: len(targets)] + 1) / 10 * np.ones((1, 4))
            np.testing.assert_allclose(targets[:, data.n_seen :], wanted, rtol=1e-5)
        tags = seen["tags"][n:]
        wanted = 1 / (1 + np.exp(-said[:n_tags])) * np.ones((1, data.n_seen))
        np.testing.assert_allclose(tags[:, : data.n_seen], wanted, rtol=1e-5)
        assert not tags[:, data.n_seen :].any(), "unseen tags are nobody's guess"
        # Items that probably hold unseen labels stand for those that were left out.
        weights = seen["weights"][n + n_tags :, 0] * (1 - (said[:, 0] + 1) / 10)
        np.testing.assert_allclose(weights, weights[0], rtol=1e-5)


def test_members_answer_with_their_own_probabilities(whole):
    data = whole.data
    features = standardised(data)
    true = data.documents[data.item_documents][:, : data.n_seen].toarray()
    folds = data.folds[data.item_documents]
    found = whole.answers(features, true, folds, np.zeros(0, dtype=np.int64))
    assert sorted(found) == list(range(6))
    for number, (unseen, seen, _) in found.items():
        rows = folds == number // 2
        member = whole.members.select(slice(number, number + 1))
        tags = np.zeros((rows.sum(), data.n_labels), dtype=np.float32)
        tags[:, : data.n_seen] = true[rows]
        read = member.read(member.encode_documents(torch.from_numpy(tags)))[0].numpy()
        np.testing.assert_allclose(unseen, 1 / (1 + np.exp(-read[:, data.n_seen :])), rtol=1e-4)
        by_features = member.encode_items(torch.from_numpy(features[rows]))
        np.testing.assert_allclose(
            seen, member.read(by_features)[0, :, : data.n_seen].numpy(), rtol=1e-4, atol=1e-5
        )


# ------------------------------------------------------------------ sizes


def test_where_items_do_not_fit_every_round_draws_some():
    rng, drawn = np.random.default_rng(0), []
    table = (rng.random((700, 6)) < 0.4).astype(float)
    world = {"documents": sp.csr_matrix(table), "X": rng.normal(size=(700, 3))}
    world |= {"item_documents": None, "n_label_sets": 700, "plan": replace(PLAN, memory_mb=0.001)}
    none = np.zeros((0, 6), np.float32)
    silent = Answers(np.zeros((1, 0), np.float32), np.zeros((1, 6), np.float32), none)
    for share in ((0, 1), (0, 2), (1, 2)):
        run = made(share=share, **world)
        drawn.append([])
        for run.round in range(2):
            items = run._begin_round(lambda answers: dict.fromkeys(range(6), silent))
            assert len(set(items.rows.tolist())) == 512
            np.testing.assert_array_equal(items.features, standardised(run.data, items.rows))
            np.testing.assert_array_equal(items.targets, table[items.rows])
            drawn[-1].append(items.rows.tolist())
    assert drawn[0] == drawn[1] == drawn[2] and drawn[0][0] != drawn[0][1]


@pytest.mark.parametrize("most", [3, 5, 8])
def test_labels_that_are_there_are_read_first_and_the_others_are_stood_for(most):
    targets = torch.zeros(2, 3, 10)
    targets[0, 1, 2] = targets[1, 0, 7] = targets[0, 0, 7] = 1
    targets[0, 2, 4] = 0.9
    targets[0, 2, 5] = 0.3
    counted = torch.zeros(10)
    for seed in range(400):
        drawn = torch.rand(10, generator=torch.Generator().manual_seed(seed))
        there = (targets > 0.5).flatten(0, -2).any(dim=0)
        columns, factors = read_columns(there, drawn, most)
        assert len(set(columns.tolist())) == most and {2, 4, 7} <= set(columns.tolist())
        counted[columns] += factors
    # Over the steps every label counts as if all were read.
    counted = counted / 400
    np.testing.assert_allclose(counted[[2, 4, 7]], 1)
    if most > 3:
        np.testing.assert_allclose(counted, 1, atol=0.35)
    fewer, factors = read_columns((targets > 0.5).flatten(0, -2).any(dim=0), torch.rand(10), 2)
    assert set(fewer.tolist()) <= {2, 4, 7} and factors.tolist() == [1.5, 1.5]


def test_rare_labels_count_more(watched):
    data, n, n_items, n_seen = watched.data, 24, PLAN.item_batch, watched.data.n_seen
    rare = (data.priors() * (1 - data.priors())) ** -PLAN.rarity
    assert PLAN.rarity > 0 and rare.max() > 1.05 * rare.min()
    rare = rare / rare.mean()
    np.testing.assert_allclose(data.label_weights(PLAN.rarity), rare, rtol=1e-6)
    for _, number, seen in watched.batches:
        documents, items = seen["weights"][:n, :n_seen], seen["weights"][-n_items:, :n_seen]
        wanted = np.tile(PLAN.seen_weight * rare[:n_seen] / (n * data.n_outputs), (n, 1))
        np.testing.assert_allclose(documents, wanted, rtol=1e-5)
        wanted = rare[:n_seen] / (n_items * data.n_outputs)
        by_item = items / wanted
        np.testing.assert_allclose(by_item, by_item[:, :1].repeat(n_seen, axis=1), rtol=1e-5)
        if number == 0:
            np.testing.assert_allclose(by_item, 1, rtol=1e-5)


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
    run = trained(way=way, n_steps=n_steps, plan=replace(QUICK, label_block=label_block), **world)
    assert finds_context(run, context)
    if world:
        assert run.members.items.shape[1] == 0
        assert [losses["items"] for losses in run.history] == [0] * 4
        return
    assert finds_topics(run) == 1
    if label_block == 2048:  # the loss of some labels depends on which they are
        first, last = (run.history[place]["documents"] for place in (0, -1))
        assert last < (0.9 if way == "alone" else 1) * first
    if way == "alone":  # unseen labels are found by features too, though no item ever carried one
        topics = np.arange(N_ITEMS) % 4
        found = by_features(run)[topics < 3, 13:16]
        assert (found.argmax(axis=1) == topics[topics < 3]).all()


def test_one_long_document_makes_no_table_of_all():
    table = np.eye(60, 50)
    table[0] = 1
    world = DOCUMENTS_ALONE | {"documents": sp.csr_matrix(table), "n_label_sets": 60}
    run = made("together", 8, **world)
    batches = run.learners[0].batches
    assert batches.labels.numel() < 200
    rows = batches._tags_of(torch.arange(60)[None].expand(len(run.members), -1))
    np.testing.assert_array_equal(rows[0].numpy(), table)


def test_features_are_cut_off_where_they_are_wild():
    found = standardise(
        np.array([[1e9, 3.0, -1e9]]), np.array([0.0, 1.0, 0.0]), np.array([1.0, 4.0, 1.0])
    )
    assert found.tolist() == [[20.0, 0.5, -20.0]] and found.dtype == np.float32


# ------------------------------------------------------------------ the plan


@pytest.mark.parametrize(
    ("n_documents", "hidden", "batch"),
    [(499, 128, 96), (500, 256, 96), (38_400, 256, 96), (38_401, 256, 192), (10**8, 256, 3072)],
)
def test_units_and_batches_follow_the_number_of_documents(n_documents, hidden, batch):
    plan = SpacePlan().sized(n_documents)
    assert (plan.hidden, plan.code) == (hidden, hidden)
    times = batch // 96
    assert plan.document_batch == batch
    assert (plan.item_batch, plan.probable_batch) == (64 * times, 32 * times)


@pytest.mark.parametrize(("n_documents", "folds", "factor"), [(20_000, 5, 1), (20_001, 3, 1.5)])
def test_with_many_documents_there_are_fewer_members_with_higher_rates(n_documents, folds, factor):
    plan = SpacePlan().sized(n_documents)
    assert plan.n_folds == folds
    assert np.divide(plan.learning_rates, SpacePlan().learning_rates) == pytest.approx(
        np.full(3, factor)
    )


def test_a_shortened_plan_has_fewer_steps_at_higher_rates():
    plan = SpacePlan(n_steps=400, round_steps=100)
    short = plan.shortened(100)
    assert (short.n_steps, short.round_steps) == (100, 25)
    factors = np.divide(short.learning_rates, plan.learning_rates)
    assert factors == pytest.approx(np.full(3, 4**0.375))
    assert plan.shortened(400) == plan.shortened(1000) == plan


@pytest.mark.parametrize(
    ("n_items", "shares"), [(7999, (1, 1, 1, 1)), (8000, (1 / 3, 0.5, 1, 3 / 7))]
)
def test_many_tagged_items_are_trained_with_less_dropout(n_items, shares):
    plan = SpacePlan()
    wanted = [share * rate for share, rate in zip(shares, plan.dropout, strict=True)]
    assert plan.sized(10_000, n_items).dropout == pytest.approx(wanted)
    assert ConceptSpace().planned(10_000, n_items).dropout == pytest.approx(wanted)


@given(st.integers(1, 10**8), st.integers(0, 10**7), st.integers(1, 5000))
def test_a_sized_plan_goes_over_documents_3_to_100_times(n_documents, n_items, n_steps):
    plan = SpacePlan(n_steps=n_steps).sized(n_documents).within(n_documents, n_items)
    one_pass = max(n_documents / plan.document_batch, 1)
    if n_documents >= SpacePlan().document_batch:
        assert 3.5 * one_pass - 1 <= plan.n_steps <= 100 * one_pass
    assert plan.n_steps == n_steps or plan.n_steps in (int(3.5 * one_pass), int(100 * one_pass))
    assert 1 <= plan.document_batch <= n_documents
    assert 1 <= plan.probable_batch <= plan.item_batch <= max(n_items, 1)
    assert plan.n_rounds >= min(4, plan.n_steps)
    assert (plan.n_rounds - 1) * plan.round_steps < plan.n_steps <= plan.n_rounds * plan.round_steps


def test_rates_rise_over_a_tenth_of_the_steps_and_fall_by_half_a_cosine():
    factors = [SpacePlan(n_steps=100).rate_factor(number) for number in range(100)]
    assert np.argmax(factors) == 9 and np.diff(factors)[:9].min() > 0 > np.diff(factors)[9:].max()
    assert factors[0] == pytest.approx(0.1)
    assert factors[50] == pytest.approx(0.5) and 0 < factors[99] < 0.001
    assert SpacePlan(n_steps=1).rate_factor(0) == 1


def test_priors_of_unseen_labels_rest_on_label_sets():
    data, _, _ = prepared()
    table, n_seen, priors = data.documents.toarray(), data.n_seen, data.priors()
    told = table[:N_LABEL_SETS, n_seen:]
    told = np.column_stack([told, told.any(axis=1)])
    np.testing.assert_allclose(priors[:n_seen], (table[:, :n_seen].sum(axis=0) + 0.5) / 77)
    np.testing.assert_allclose(priors[n_seen:], (told.sum(axis=0) + 0.5) / 41)


# ------------------------------------------------------------------ forms of features


def test_sparse_features_give_the_codes_of_dense_ones():
    world = little_world()
    X = np.where(world["X"] > 0.1, world["X"], 0.0)
    dense = space_of().fit(**(world | {"X": X}))
    sparse = space_of().fit(**(world | {"X": sp.csr_matrix(X)}))
    codes = dense.item_codes(X)
    assert codes.std() > 0.1
    np.testing.assert_allclose(sparse.item_codes(sp.csr_matrix(X)), codes, atol=1e-4)
    np.testing.assert_allclose(dense.item_codes(sp.csr_matrix(X)), codes, atol=1e-6)


# ------------------------------------------------------------------ items without tags

N_POOL = 30
POOL_TOPICS = np.arange(N_POOL) % 4


def pool_world(verdicts=False, sparse=False):
    """Items of the same topics without tags, and verdicts on two of them and on a tagged one."""
    rng = np.random.default_rng(5)
    pool = np.eye(4)[POOL_TOPICS] + 0.2 * rng.normal(size=(N_POOL, 4))
    X = little_world()["X"]
    if sparse:
        X, pool = (sp.csr_matrix(np.where(table > 0.1, table, 0.0)) for table in (X, pool))
    world = {"X": X, "pool": pool}
    if verdicts:
        said = np.zeros((N_ITEMS + N_POOL, 16))
        said[N_ITEMS, 4], said[N_ITEMS + 1, 5], said[0, 6] = 1, -1, -1
        world["verdicts"] = sp.csr_matrix(said)
    return world


@pytest.fixture(scope="module")
def pooled():
    return trained(**pool_world(verdicts=True))


@pytest.mark.parametrize("n", [40, 5000])
def test_each_label_is_expected_in_the_pool_as_often_as_in_documents(n):
    rng = np.random.default_rng(0)
    logits = (2 * rng.normal(size=(n, 70)) + 4 * rng.normal(size=70)).astype(np.float32)
    priors = rng.uniform(0.03, 0.6, 70)
    soft, hard = (pool_targets(logits, priors, share) for share in (0.0, 1.0))
    np.testing.assert_allclose(soft.mean(axis=0), priors, atol=0.002 if n == 40 else 0.02)
    np.testing.assert_array_equal(hard.sum(axis=0), np.round(priors * n))
    for column in range(70):
        among = hard[:, column] == 1
        assert logits[among, column].min() >= logits[~among, column].max()
    np.testing.assert_allclose(pool_targets(logits, priors, 0.5), (soft + hard) / 2, atol=1e-6)


def test_a_label_that_nothing_should_have_stays_soft():
    logits = np.linspace(-3, 3, 20, dtype=np.float32)[:, None]
    found = pool_targets(logits, np.array([0.01]), 0.5)
    assert found.mean() == pytest.approx(0.01, abs=1e-3) and (np.diff(found[:, 0]) > 0).all()


@pytest.mark.parametrize("way", ["alone", *TOGETHER])
def test_a_member_learns_from_the_pool_of_other_folds_only_and_when_it_has_begun(way):
    run = made(way, plan=replace(PLAN, pool_from=0.5, pool_weight=2.0), **pool_world())
    data, features = run.data, standardise(run.data.pool, run.data.mean, run.data.scale)
    names = {row.tobytes(): place for place, row in enumerate(features)}
    seen, asked = {}, []

    def exchange(answers):
        asked.append({number: len(one.pool) for number, one in answers.items()})
        return answers

    for run.round in range(4):
        items = run._begin_round(exchange)
        begun = run.round >= 2
        assert items.pooled == begun and (items.weights[N_ITEMS:] == 2.0 * begun).all()
        for learner in run.learners:
            learner.batches.begin(items)
            n_items = learner.batches.n_items
            for _ in range(20):
                batch = learner.batches.draw()
                if not begun and way == "alone":
                    assert batch.features.shape[1] == n_items
                    continue
                rows = batch.features[:, n_items:].cpu().numpy()
                weights = batch.weights[:, -rows.shape[1] :]
                assert bool(weights[..., : data.n_labels].any()) == begun
                for place, drawn in enumerate(rows):
                    places = {names[row.tobytes()] for row in drawn}
                    seen.setdefault(learner.batches.number + place, set()).update(places)
    for number, places in seen.items():
        assert places == set(np.flatnonzero(data.pool_folds != number // 2))
    sizes = np.bincount(data.pool_folds)
    assert asked[0] == dict.fromkeys(range(6), 0)
    assert asked[-1] == {number: sizes[number // 2] for number in range(6)}


def test_verdicts_take_the_place_of_guesses_and_weigh_more():
    run = made(plan=replace(PLAN, verdict_weight=7.0, rarity=0.0), **pool_world(verdicts=True))
    columns = [int(np.flatnonzero(run.data.verdicts.toarray()[row])[0]) for row in (0, 36, 37)]
    for run.round in (0, 2):
        items = run._begin_round(None)
        assert items.targets[0, columns[0]] == -1
        if run.round:
            assert items.targets[36, columns[1]] == 2 and items.targets[37, columns[2]] == -1
        guesses = np.delete(items.targets, [0, 36, 37], axis=0)
        assert (guesses >= 0).all() and (guesses <= 1).all()
    batches = run.learners[0].batches
    batches.begin(items)
    told = {items.features[36].tobytes(): (columns[1], 1.0)}
    told[items.features[37].tobytes()] = (columns[2], 0.0)
    met = 0
    for _ in range(60):
        batch = batches.draw()
        n_read, n_pool = batch.features.shape[1], batches.n_pool
        for place in range(batches.n_items, n_read):
            column, target = told.get(batch.features[0, place].numpy().tobytes(), (None, None))
            if column is not None:
                met += 1
                row = place - n_read
                assert batch.targets[0, row, column] == target
                weight = batch.weights[0, row, column] * n_pool * run.data.n_outputs
                assert weight == pytest.approx(7.0, rel=1e-5)
        assert batch.targets.min() >= 0 and batch.targets.max() <= 1
    assert met


def test_shares_of_members_learn_from_a_pool_to_the_same_bits(pooled):
    answers, meeting = {}, threading.Barrier(2, timeout=60)

    def exchange(mine):
        answers.update(mine)
        meeting.wait()
        everybody = dict(answers)
        meeting.wait()
        return everybody

    world = pool_world(verdicts=True)
    with ThreadPoolExecutor(2) as threads:
        done = list(
            threads.map(lambda one: trained(share=(one, 2), exchange=exchange, **world), range(2))
        )
    for share, run in enumerate(done):
        parts = [group[share::2] for group in pooled.members.groups]
        assert_same_bits(run.members.groups, parts)


@pytest.mark.parametrize("n_rounds", [1, 2, 3])
def test_an_interrupted_fit_with_a_pool_goes_on_to_the_same_bits(tmp_path, n_rounds):
    world = little_world() | pool_world(verdicts=True)
    whole = space_of().fit(**world).get_state()[1]
    with pytest.raises(KeyboardInterrupt):
        space_of(tmp_path / "run").fit(**world, progress=interrupted_after(n_rounds))
    again = space_of(tmp_path / "run").fit(**world).get_state()[1]
    assert whole.keys() == again.keys()
    assert_same_bits(whole.values(), again.values())


@pytest.mark.parametrize("changed", ["pool", "verdicts", "none"])
def test_a_checkpoint_with_another_pool_or_other_verdicts_is_refused(tmp_path, changed):
    world = little_world() | pool_world(verdicts=True)
    with pytest.raises(KeyboardInterrupt):
        space_of(tmp_path / "run").fit(**world, progress=interrupted_after(1))
    others = {"pool": {"pool": world["pool"] + 1}, "verdicts": {"verdicts": -world["verdicts"]}}
    others["none"] = {"pool": None, "verdicts": None}
    with pytest.raises(InputError, match="belongs to other data"):
        space_of(tmp_path / "run").fit(**(world | others[changed]))


def test_without_a_pool_what_is_said_of_pools_changes_no_bit(whole):
    plan = replace(PLAN, pool_from=0.9, pool_weight=9.0, pool_hard=0.1, verdict_weight=9.0)
    again = trained(plan=replace(plan, pool_steps=5.0))
    assert_same_bits(again.members.groups, whole.members.groups)
    assert again.history == whole.history


def test_a_pool_and_verdicts_each_change_what_is_learned(whole, pooled):
    alone = trained(**pool_world())
    others = (whole.members.items, pooled.members.items, alone.members.items)
    assert len({group.numpy().tobytes() for group in others}) == 3


def test_a_sparse_pool_gives_the_codes_of_a_dense_one():
    world = little_world() | pool_world(sparse=True)
    sparse = space_of().fit(**world)
    tables = {name: world[name].toarray() for name in ("X", "pool")}
    dense = space_of().fit(**(world | tables))
    codes = dense.item_codes(tables["pool"])
    assert codes.std() > 0.1
    np.testing.assert_allclose(sparse.item_codes(world["pool"]), codes, atol=1e-4)


@pytest.mark.parametrize(("n", "n_pool"), [(700, 100), (100, 700), (700, 700)])
def test_where_items_do_not_fit_some_of_the_pool_are_drawn(n, n_pool):
    rng = np.random.default_rng(0)
    table = (rng.random((n, 6)) < 0.4).astype(float)
    world = {"documents": sp.csr_matrix(table), "X": rng.normal(size=(n, 3))}
    world |= {"item_documents": None, "n_label_sets": n, "pool": rng.normal(size=(n_pool, 3))}
    run, drawn = made(plan=replace(PLAN, memory_mb=0.001), **world), []
    for run.round in range(2):
        items = run._begin_round(None)
        assert len(items.rows) + len(items.pool_rows) == 512 and len(items.pool_rows) >= 100
        assert len(set(items.pool_rows.tolist())) == len(items.pool_rows)
        np.testing.assert_array_equal(
            items.features[len(items.rows) :],
            standardise(run.data.pool[items.pool_rows], run.data.mean, run.data.scale),
        )
        drawn.append(items.pool_rows.tolist())
    assert (drawn[0] == drawn[1]) == (n_pool == 100)


@pytest.mark.parametrize("way", ["alone", *TOGETHER])
def test_unseen_labels_of_pool_items_are_learned(way):
    run = trained(way=way, n_steps=160, plan=QUICK, **pool_world(verdicts=True))
    features = standardise(run.data.pool, run.data.mean, run.data.scale)
    codes = run.members.encode_items(torch.from_numpy(features))
    read = run.members.read(codes).mean(dim=0).numpy()
    assert np.isfinite(read).all()
    found = read[POOL_TOPICS < 3, 13:16].argmax(axis=1)
    assert (found == POOL_TOPICS[POOL_TOPICS < 3]).mean() > 0.9
