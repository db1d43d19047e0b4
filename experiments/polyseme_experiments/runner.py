"""Runs of experiments: what decides their results, and how they are shared out among processes.

In: runs to do. Out: records, each written as soon as its run is done. joblib schedules tasks: one
for each concept space that trials share, which leaves it in the cache, then one for each trial.
"""

from __future__ import annotations

import contextlib
import time
import warnings
from collections.abc import Callable, Iterable
from datetime import timedelta
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import joblib
from joblib.externals.loky.process_executor import TerminatedWorkerError

from polyseme._threads import one_thread
from polyseme._validation import InputError, PolysemeWarning
from polyseme_experiments.methods import get_method
from polyseme_experiments.records import Record, RecordStore, config_hash, environment
from polyseme_experiments.sampling import RunConfig, chosen_pair, load_pair
from polyseme_experiments.settings import get_setting
from polyseme_experiments.trials import Trial


class Run(NamedTuple):
    """One method in one trial of a setting: what a record is about."""

    setting: str
    method: str
    trial: int


class Task(NamedTuple):
    """A piece of work for one process: learn a concept space, or run methods in a trial."""

    setting: str
    trial: int
    methods: tuple[str, ...] = ()
    n_components: int | None = None


def run_config(run: Run, config: RunConfig) -> dict[str, Any]:
    """Return everything that decides a run's result."""
    corpora, checksums = _data(run.setting, config)
    method = get_method(run.method).config(config)
    return model_config(run, config) | {"corpora": corpora, "data": checksums, "method": method}


def model_config(run: Run, config: RunConfig) -> dict[str, Any]:
    """Return what decides a run's result beside the data, which need not be at hand."""
    setting, method = get_setting(run.setting), get_method(run.method)
    described = {
        "setting": setting.config(),
        "trial": run.trial,
        "seed": config.seed,
        "quick": config.quick,
    }
    with contextlib.suppress(InputError):  # of some methods word vectors are a part, and not here
        described["method"] = method.config(config)
    return described | ({"preset": config.preset} if method.dimensions else {})


@lru_cache(maxsize=64)
def _data(setting: str, config: RunConfig) -> tuple[tuple[str, str], dict[str, str]]:
    """Return a setting's corpora and their digests."""
    pair = chosen_pair(get_setting(setting), config)
    datasets = load_pair(get_setting(setting), config)
    return pair, {one.name: one.checksum for one in datasets}


def make_tasks(runs: Iterable[Run]) -> list[Task]:
    """Group runs into tasks: each concept space that they need, then each trial."""
    trials: dict[tuple[str, int], list[str]] = {}
    spaces: dict[tuple[str, int, int], Task] = {}
    for run in runs:
        trials.setdefault((run.setting, run.trial), []).append(run.method)
        setting = get_setting(run.setting)
        owner, partition = setting.spaces_of or setting.name, setting.partition(run.trial)
        for d in get_method(run.method).dimensions:
            task = Task(run.setting, run.trial, n_components=d)
            spaces.setdefault((owner, partition, d), task)
    return [*spaces.values(), *(Task(*key, tuple(names)) for key, names in trials.items())]


def run_tasks(
    tasks: list[Task],
    config: RunConfig,
    records: Path,
    *,
    n_jobs: int = 1,
    log: Callable[[str], None] | None = None,
) -> None:
    """Do tasks, several at a time, in processes of one thread each; 1 works in this one.

    The configuration should have a cache, so that trials find the concept spaces. Records are
    written to the folder `records`; `log` takes a line for each task that is done.
    """
    start = time.monotonic()
    n_runs, n_done = sum(len(task.methods) for task in tasks), 0
    parallel = joblib.Parallel(
        n_jobs=max(1, min(n_jobs, len(tasks))), return_as="generator_unordered", batch_size=1
    )
    results = parallel(joblib.delayed(perform)(task, config, records) for task in tasks)
    try:
        for number, (task, seconds) in enumerate(results, start=1):
            n_done += len(task.methods)
            left = (time.monotonic() - start) * (len(tasks) - number) / number
            what = f"{len(task.methods)} runs" if task.methods else "concept space"
            if log is not None:
                log(
                    f"[{n_done}/{n_runs}] {task.setting}, trial {task.trial}: {what}, "
                    f"{seconds:.0f} s; about {timedelta(seconds=round(left))} left"
                )
    except TerminatedWorkerError:
        raise InputError(
            "A process died (out of memory, or killed); run the same command again to go on, with "
            "--workers 1 if memory is short."
        ) from None


def perform(task: Task, config: RunConfig, records: Path) -> tuple[Task, float]:
    """Do a task's work in this process; give the task and its seconds."""
    start = time.perf_counter()
    # One thread, so that no figure depends on the number of processes.
    with one_thread(), warnings.catch_warnings():
        warnings.simplefilter("ignore", PolysemeWarning)
        trial = Trial(get_setting(task.setting), task.trial, config)
        if task.n_components is not None:
            trial.space(task.n_components)
        store = RecordStore(records, mend=True)
        for method in task.methods:
            store.add(run_method(trial, method))
    return task, time.perf_counter() - start


def run_method(trial: Trial, name: str) -> Record:
    """Run a method in a trial and give its record."""
    trial.used.clear()
    start, before = time.perf_counter(), trial.spent
    metrics, audited = get_method(name).run(trial)
    own = time.perf_counter() - start - (trial.spent - before)
    parts = {part: trial.seconds[part] for part in sorted(trial.used)}
    config = run_config(Run(trial.setting.name, name, trial.number), trial.config)
    return {
        "setting": trial.setting.name,
        "method": name,
        "trial": trial.number,
        "seed": trial.config.seed,
        "config_hash": config_hash(config),
        "config": config,
        "seconds": round(own + sum(parts.values()), 2),
        "parts": {part: round(seconds, 2) for part, seconds in parts.items()},
        **environment(),
        **trial.facts(),
        "audit": audited,
        "metrics": metrics,
    }
