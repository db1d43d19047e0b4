"""Several processes that train one network: the same network as one process trains."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from polyseme import ConceptEmbedding, load
from polyseme._validation import InputError
from polyseme.published.nn.pairs import Batch
from polyseme.published.nn.plan import TrainingPlan
from polyseme.published.nn.processes import Processes, training_processes

SCRIPT = """
import os, sys
import numpy as np
from test_processes import fitted

embedding = fitted(checkpoint=sys.argv[2])
state = embedding.network_.state_dict()
np.savez(sys.argv[1] + os.environ["RANK"], **{name: state[name].numpy() for name in state})
unseeded = fitted(random_state=None).network_.state_dict()
np.save(sys.argv[1] + "unseeded" + os.environ["RANK"], unseeded["output.weight"].numpy())
"""


def documents():
    """Make documents of two themes."""
    generator = np.random.default_rng(0)
    themes = [
        ["apple", "phone", "screen", "charger", "app"],
        ["apple", "pie", "oven", "sugar", "kitchen"],
    ]
    return [
        {themes[row % 2][place] for place in generator.permutation(5)[:3]} for row in range(150)
    ]


def fitted(**parameters):
    """Train on them, on one thread."""
    torch.set_num_threads(1)
    plan = TrainingPlan(batch_size=31, max_epochs=4, min_epochs=1, min_steps=3)
    embedding = ConceptEmbedding(6, (8,), training=plan, **({"random_state": 3} | parameters))
    return embedding.fit(documents())


def weights_by(n_processes, folder, checkpoint):
    """Train under torchrun; give the weights of process 0, and of all without a seed."""
    script, out = folder / "script.py", folder / "weights"
    script.write_text(SCRIPT, "utf-8")
    settings = os.environ | {
        "PYTHONPATH": str(Path(__file__).parent),
        "OMP_NUM_THREADS": "1",
        "CUDA_VISIBLE_DEVICES": "",
    }
    call = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node"]
    call += [str(n_processes), str(script), str(out), str(checkpoint)]
    done = subprocess.run(call, env=settings, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr[-2000:]
    unseeded = [np.load(folder / f"weightsunseeded{rank}.npy") for rank in range(n_processes)]
    return np.load(folder / "weights0.npz"), unseeded


@pytest.mark.slow
def test_two_processes_train_the_network_of_one(tmp_path):
    together, unseeded = weights_by(2, tmp_path, tmp_path / "checkpoint")
    alone = fitted().network_.state_dict()
    assert set(together) == set(alone)
    for name, value in alone.items():
        np.testing.assert_allclose(together[name], value.numpy(), atol=2e-4, err_msg=name)
    # What process 0 left behind serves whoever goes on, alone or together.
    again = fitted(checkpoint=tmp_path / "checkpoint").network_.state_dict()
    for name in alone:
        np.testing.assert_array_equal(again[name].numpy(), together[name])
    # Without a seed all take the first one's.
    np.testing.assert_array_equal(*unseeded)


@pytest.mark.parametrize("world", [1, 2, 3, 7])
def test_every_pair_has_one_process(world):
    batch = Batch(np.arange(10), np.arange(10) + 100, np.arange(10) % 3 == 0)
    parts = [Processes(rank, world).share(batch) for rank in range(world)]
    pairs = sorted(tuple(one) for part in parts for one in part.label_ids.reshape(-1, 2).tolist())
    assert pairs == [(0, 1), (2, 3), (4, 5), (6, 7), (8, 9)]
    for part in parts:
        np.testing.assert_array_equal(part.document_ids, part.label_ids + 100)
        np.testing.assert_array_equal(part.positive, part.label_ids % 3 == 0)


def test_alone_there_is_nothing_to_join(monkeypatch):
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    with training_processes("cpu") as processes:
        assert (processes.rank, processes.world) == (0, 1)
        values = torch.ones(3)
        assert processes.summed(values) is values
        assert torch.equal(processes.agree(values), torch.ones(3))
    assert not torch.distributed.is_initialized()


def test_a_world_without_an_address_is_refused(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.delenv("RANK", raising=False)
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    with pytest.raises(InputError, match="WORLD_SIZE is 2 but RANK, MASTER_ADDR"):
        fitted()


@pytest.mark.slow
def test_the_command_under_torchrun_writes_one_model_and_says_it_once(tmp_path):
    lines = [json.dumps({"labels": sorted(one)}) for one in documents()]
    (tmp_path / "documents.jsonl").write_text("\n".join(lines) + "\n", "utf-8")
    call = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    call += ["-m", "polyseme", "fit", str(tmp_path / "model"), "--epochs", "2"]
    call += ["-d", str(tmp_path / "documents.jsonl"), "--preset", "paper", "--components", "4"]
    settings = os.environ | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(call, env=settings, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.split() == [str(tmp_path / "model")]
    assert done.stderr.count("from 150 documents") == 1
    assert len(load(tmp_path / "model").classes_) == 9
    assert not (tmp_path / "model.checkpoint").exists()


def test_a_rank_without_a_world_means_nothing(tmp_path):
    lines = [json.dumps({"labels": sorted(one)}) for one in documents()[:40]]
    (tmp_path / "documents.jsonl").write_text("\n".join(lines) + "\n", "utf-8")
    call = [sys.executable, "-m", "polyseme", "fit", str(tmp_path / "model"), "--epochs", "1"]
    call += ["-d", str(tmp_path / "documents.jsonl"), "--preset", "paper", "--components", "4"]
    settings = os.environ | {"RANK": "1", "OMP_NUM_THREADS": "1"}
    settings.pop("WORLD_SIZE", None)
    done = subprocess.run(call, env=settings, capture_output=True, text=True, timeout=120)
    assert done.stdout.split() == [str(tmp_path / "model")], done.stderr[-500:]
