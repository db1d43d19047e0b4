"""Runs of experiments: what decides their results, and how they are shared out among processes.

In: runs. Out: records, each written as soon as its run ends. joblib schedules tasks: one
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

from polyseme.base.machine import one_thread
from polyseme.base.validation import InputError, PolysemeWarning
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
    methods: tuple[str, ...] = ()  # none where a space is learned
    n_components: int | None = None  # of the space


def run_config(run: Run, config: RunConfig) -> dict[str, Any]:
    """Return everything that decides a run's result.

    Its hash stands in records: a key that is renamed or added makes every record count as missing.
    """
    corpora, checksums = _data(run.setting, config)
    method = get_method(run.method)
    described = model_config(run, config)
    described["corpora"] = corpora
    described["data"] = checksums
    described["method"] = method.config(config)
    return described


def model_config(run: Run, config: RunConfig) -> dict[str, Any]:
    """Return what decides a run's result beside the data, which need not be at hand."""
    setting = get_setting(run.setting)
    method = get_method(run.method)
    described = {
        "setting": setting.config(),
        "trial": run.trial,
        "seed": config.seed,
        "quick": config.quick,
    }
    # Some methods need word vectors, which may not be at hand.
    with contextlib.suppress(InputError):
        described["method"] = method.config(config)
    if method.dimensions:
        described["preset"] = config.preset
    return described


@lru_cache(maxsize=64)
def _data(setting: str, config: RunConfig) -> tuple[tuple[str, str], dict[str, str]]:
    """Return the names of a setting's two corpora, and their digests by name."""
    pair = chosen_pair(get_setting(setting), config)
    checksums = {}
    for dataset in load_pair(get_setting(setting), config):
        checksums[dataset.name] = dataset.checksum
    return pair, checksums


def make_tasks(runs: Iterable[Run]) -> list[Task]:
    """Group runs into tasks: each concept space that they need, then each trial.

    A space is learned once for all trials on the same partition of the documents, also of settings
    that share theirs (`spaces_of`).
    """
    methods_by_trial: dict[tuple[str, int], list[str]] = {}
    spaces: dict[tuple[str, int, int], Task] = {}
    for run in runs:
        methods = methods_by_trial.setdefault((run.setting, run.trial), [])
        methods.append(run.method)
        setting = get_setting(run.setting)
        owner = setting.spaces_of or setting.name
        partition = setting.partition(run.trial)
        for n_components in get_method(run.method).dimensions:
            task = Task(run.setting, run.trial, n_components=n_components)
            spaces.setdefault((owner, partition, n_components), task)

    tasks = list(spaces.values())
    for (name, trial), methods in methods_by_trial.items():
        tasks.append(Task(name, trial, tuple(methods)))
    return tasks


def run_tasks(
    tasks: list[Task],
    config: RunConfig,
    records: Path,
    *,
    n_jobs: int = 1,
    log: Callable[[str], None] | None = None,
) -> None:
    """Run tasks, several at a time, in processes of one thread each; one job runs in this process.

    The configuration should have a cache, so that trials find the concept spaces. Records are
    written to the folder `records`; `log` takes a line for each task that is done.
    """
    start = time.monotonic()
    n_runs = sum(len(task.methods) for task in tasks)
    n_done = 0
    n_processes = max(1, min(n_jobs, len(tasks)))
    parallel = joblib.Parallel(
        n_jobs=n_processes,
        return_as="generator_unordered",
        batch_size=1,
    )
    perform_later = joblib.delayed(perform)
    results = parallel(perform_later(task, config, records) for task in tasks)
    try:
        for number, (task, seconds) in enumerate(results, start=1):
            n_done += len(task.methods)
            elapsed = time.monotonic() - start
            remaining = elapsed * (len(tasks) - number) / number
            remaining_time = timedelta(seconds=round(remaining))
            content = f"{len(task.methods)} runs" if task.methods else "concept space"
            if log is not None:
                log(
                    f"[{n_done}/{n_runs}] {task.setting}, trial {task.trial}: {content}, "
                    f"{seconds:.0f} s; about {remaining_time} left"
                )
    except TerminatedWorkerError:
        raise InputError(
            "A process died (out of memory, or killed); run the same command again to go on, with "
            "--workers 1 if memory is short."
        ) from None


def perform(task: Task, config: RunConfig, records: Path) -> tuple[Task, float]:
    """Run a task in this process and return it with the seconds it took."""
    start = time.perf_counter()
    # One thread, so that no figure depends on the number of processes.
    with one_thread(), warnings.catch_warnings():
        warnings.simplefilter("ignore", PolysemeWarning)
        setting = get_setting(task.setting)
        trial = Trial(setting, task.trial, config)
        if task.n_components is not None:
            trial.space(task.n_components)
        store = RecordStore(records, mend=True)
        for method in task.methods:
            record = run_method(trial, method)
            store.add(record)
    seconds = time.perf_counter() - start
    return task, seconds


def run_method(trial: Trial, name: str) -> Record:
    """Run a method in a trial and return its record."""
    trial.used.clear()
    start = time.perf_counter()
    spent_before = trial.spent
    metrics, audit_facts = get_method(name).run(trial)
    elapsed = time.perf_counter() - start
    # Shared parts of the trial count with the seconds that they took when they were learned.
    method_seconds = elapsed - (trial.spent - spent_before)
    shared_seconds = {shared: trial.seconds[shared] for shared in sorted(trial.used)}
    seconds = method_seconds + sum(shared_seconds.values())
    config = run_config(Run(trial.setting.name, name, trial.number), trial.config)
    return {
        "setting": trial.setting.name,
        "method": name,
        "trial": trial.number,
        "seed": trial.config.seed,
        "config_hash": config_hash(config),
        "config": config,
        "seconds": round(seconds, 2),
        "parts": {shared: round(value, 2) for shared, value in shared_seconds.items()},
        **environment(),
        **trial.facts(),
        "audit": audit_facts,
        "metrics": metrics,
    }
