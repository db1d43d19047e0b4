"""What has to be run, in which pieces, and in which order.

In: runs that are asked for. Out: tasks, one for each concept space and one for each trial; a trial
waits for its concept spaces, which several trials may share.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from polyseme._validation import InputError
from polyseme_experiments.draws import Conditions, checksums, chosen_pair
from polyseme_experiments.methods import get_method
from polyseme_experiments.records import config_hash, make_record
from polyseme_experiments.settings import get_setting
from polyseme_experiments.trials import Trial

SPACE_COST = 40.0


class Run(NamedTuple):
    """One method in one trial of a setting: the unit that a record tells of."""

    setting: str
    method: str
    trial: int


class Space(NamedTuple):
    """A concept space: which setting and partition of its documents it is learned from."""

    setting: str
    partition: int
    n_components: int


@dataclass(frozen=True)
class Task:
    """A piece of work for one process.

    Attributes
    ----------
    setting : str
    trial : int
    space : int, optional
        Learn the concept space of so many dimensions and leave it for others.
    methods : tuple of str
        Run these, in this order.
    gives, needs : tuple of Space
        What it leaves, and what must be there before it starts.
    """

    setting: str
    trial: int
    space: int | None = None
    methods: tuple[str, ...] = ()
    gives: tuple[Space, ...] = ()
    needs: tuple[Space, ...] = ()

    @property
    def title(self) -> str:
        """Say what it is about."""
        return f"{self.setting}, trial {self.trial}"

    @property
    def cost(self) -> float:
        """Give about how many seconds it takes."""
        spaces = SPACE_COST if self.space is not None else 0.0
        return spaces + sum(get_method(name).cost for name in self.methods)


def run_config(run: Run, conditions: Conditions) -> dict[str, Any]:
    """Give everything that decides a run's result."""
    corpora, data = _data(run.setting, conditions)
    method = get_method(run.method).config(conditions)
    told = {"corpora": corpora, "data": data, "method": method}
    return model_config(run, conditions) | told


def model_config(run: Run, conditions: Conditions) -> dict[str, Any]:
    """Give what decides a run's result beside the data, which need not be at hand."""
    setting, method = get_setting(run.setting), get_method(run.method)
    config = {
        "setting": setting.config(),
        "trial": run.trial,
        "seed": conditions.seed,
        "quick": conditions.quick,
    }
    with contextlib.suppress(InputError):  # of some methods word vectors are a part, and not here
        config["method"] = method.config(conditions)
    return config | ({"preset": conditions.preset} if method.dimensions else {})


@lru_cache(maxsize=64)
def _data(setting: str, conditions: Conditions) -> tuple[tuple[str, str], dict[str, str]]:
    """Give a setting's corpora and their digests."""
    found = get_setting(setting)
    return chosen_pair(found, conditions), checksums(found, conditions)


def make_tasks(runs: Iterable[Run]) -> list[Task]:
    """Group runs into tasks, concept spaces first.

    Parameters
    ----------
    runs : iterable of Run
        What has not been run yet.

    Returns
    -------
    list of Task
        In the order in which they should start.
    """
    by_trial: dict[tuple[str, int], list[str]] = {}
    for run in runs:
        by_trial.setdefault((run.setting, run.trial), []).append(run.method)
    spaces: dict[Space, Task] = {}
    trials = []
    for (name, trial), methods in by_trial.items():
        setting = get_setting(name)
        needs = tuple(
            Space(setting.spaces_of or name, setting.partition(trial), d)
            for d in dict.fromkeys(d for method in methods for d in get_method(method).dimensions)
        )
        for space in needs:
            spaces.setdefault(space, Task(name, trial, space.n_components, gives=(space,)))
        trials.append(Task(name, trial, methods=tuple(methods), needs=needs))
    ordered: list[Task] = []
    waiting = dict(spaces)
    for task in trials:
        ordered += [waiting.pop(space) for space in task.needs if space in waiting]
        ordered.append(task)
    return ordered


def perform(task: Task, conditions: Conditions) -> Iterator[tuple[str, Any]]:
    """Do a task's work; tell what begins ("start", text) and what is done ("record", record).

    Parameters
    ----------
    task : Task
    conditions : Conditions

    Yields
    ------
    (str, object)
        Messages for the process that keeps the records.
    """
    trial = Trial(get_setting(task.setting), task.trial, conditions)
    if task.space is not None:
        yield "start", f"{task.title}: concept space of {task.space} dimensions"
        trial.space(task.space)
        yield "space", dict(trial.seconds)
    for name in task.methods:
        method = get_method(name)
        yield "start", f"{task.title}: {method.title}"
        start, before = time.perf_counter(), trial.spent
        metrics, audited, used = _observed(trial, name)
        own = time.perf_counter() - start - (trial.spent - before)
        config = run_config(Run(task.setting, name, task.trial), conditions)
        yield (
            "record",
            make_record(
                setting=task.setting,
                method=name,
                trial=task.trial,
                seed=conditions.seed,
                config=config,
                seconds=own + sum(used.values()),
                parts=used,
                facts=trial.facts() | {"audit": audited},
                metrics=metrics,
            ),
        )


def _observed(trial: Trial, method: str) -> tuple[dict[str, Any], dict[str, Any], dict[str, float]]:
    """Run a method; give metrics, audit, and the shared parts it asked for with their seconds."""
    trial.asked.clear()
    metrics, audited = get_method(method).run(trial)
    return metrics, audited, {name: trial.seconds[name] for name in sorted(trial.asked)}


def digest_of(run: Run, conditions: Conditions) -> str:
    """Give the digest by which a record of this run is recognised."""
    return config_hash(run_config(run, conditions))
