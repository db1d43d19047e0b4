"""Reproduce experiments: run those without a record, then write the report of all.

In: names of tables and figures. Out: records, tables, and one page with all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from polyseme.base.validation import InputError, check_number, unknown_name
from polyseme.storage.atomic_files import mark_folder
from polyseme_experiments import EXPERIMENTS, SEED
from polyseme_experiments.datasets import known_specs
from polyseme_experiments.embedding_cache import clear_cache
from polyseme_experiments.figures import get_experiment
from polyseme_experiments.figures.base import Experiment, Results
from polyseme_experiments.records import Record, RecordStore
from polyseme_experiments.report.page import Section, facts_of, write_report
from polyseme_experiments.runner import Run, make_tasks, model_config, run_config, run_tasks
from polyseme_experiments.sampling import RunConfig

TITLE = "polyseme: the paper's evaluation, reproduced"


def reproduce(
    names: Sequence[str],
    config: RunConfig,
    *,
    trials: int = 3,
    out: str | Path | None = None,
    workers: int = 2,
    fresh: bool = False,
    from_records: bool = False,
    log: Callable[[str], None] = lambda line: None,
) -> list[Section]:
    """Run tables and figures of the paper and write the report.

    Parameters
    ----------
    names : sequence of str
        From `EXPERIMENTS`; "all" stands for all of them.
    config : RunConfig
        What all runs have in common; its cache is the folder's own.
    trials : int
        Trials of each experiment; the comparison over label splits has ten at the least.
    out : str or Path, optional
        The folder to write to: new, empty, or one of results before; see `folder_of`. Runs that
        are recorded there with the same configuration are not run again.
    workers : int
        Processes, one thread each.
    fresh : bool
        Run again what is recorded already.
    from_records : bool
        Run nothing: make tables and the report of the records in `out`, without any data.
    log : callable
        Takes a line about each step.

    Returns
    -------
    list of Section
        Of the experiments asked for. The folder holds `records/*.jsonl`, `tables/*.csv`,
        `README.md` with `figures/*.svg`, and `report.html`, which show every experiment that is
        complete there.
    """
    wanted = _experiments(names)
    check_number("trials", trials, owner="reproduce", low=1, whole=True)
    check_number("workers", workers, owner="reproduce", low=1, whole=True)
    folder = folder_of(out, config)
    cache = folder / "cache"
    config = replace(config, cache=str(cache))
    if config.pictures is not None:  # looking at pictures already writes to the cache
        mark_folder(folder, "results")
    if not from_records:
        store = RecordStore(folder / "records", mend=True)
        runs: list[Run] = []
        for experiment in wanted:
            runs += experiment.runs(trials, quick=config.quick)
        runs = list(dict.fromkeys(runs))  # experiments share runs
        missing = []
        for run in runs:
            if fresh or store.find(*run, run_config(run, config)) is None:
                missing.append(run)
        n_recorded = len(runs) - len(missing)
        if n_recorded > 0:
            log(f"{n_recorded} runs are recorded already; {len(missing)} to go")
    mark_folder(folder, "results")
    if not from_records:
        cache.mkdir(parents=True, exist_ok=True)
        if fresh:
            clear_cache(cache)
        tasks = make_tasks(missing)
        run_tasks(tasks, config, folder / "records", n_jobs=workers, log=log)
    return _publish(wanted, config, trials, folder, log)


def folder_of(out: str | Path | None, config: RunConfig) -> Path:
    """Return the folder to write to: the one that is named, or one for each kind of data."""
    if out is not None:
        return Path(out)
    if config.quick:
        return Path("results-quick")
    if config.pictures is not None:
        return Path("results-pictures")
    return Path("results")


def _experiments(names: Sequence[str]) -> list[Experiment]:
    """Return the experiments by name, each once, in the order of the report."""
    choices = ("all", *EXPERIMENTS)
    for name in sorted(names):
        if name not in choices:
            raise unknown_name("experiment", name, choices)
    if not names:
        raise InputError(f"Name what to reproduce: all, {', '.join(EXPERIMENTS)}.")
    chosen = EXPERIMENTS if "all" in names else names
    experiments = []
    for name in EXPERIMENTS:
        if name in chosen:
            experiments.append(get_experiment(name))
    return experiments


def _publish(
    wanted: Sequence[Experiment],
    config: RunConfig,
    trials: int,
    folder: Path,
    log: Callable[[str], None],
) -> list[Section]:
    """Write the report of every complete experiment; return the sections of the wanted ones."""
    store = RecordStore(folder / "records")
    names = {experiment.name for experiment in wanted}
    sections: list[Section] = []
    headlines: list[str] = []
    left_out: list[str] = []
    used: dict[Run, Record] = {}
    for name in EXPERIMENTS:
        experiment = get_experiment(name)
        runs = experiment.runs(trials, quick=config.quick)
        records: dict[Run, Record] = {}
        for run in runs:
            record = store.find(*run, model_config(run, config))
            if record is not None:
                records[run] = record
        n_missing = len(runs) - len(records)
        if n_missing > 0:
            if name in names:
                raise InputError(
                    f"'{folder}' lacks {n_missing} of the {len(runs)} runs of "
                    f"'{name}' with {trials} trials and seed {config.seed}; run it first."
                )
            if records:
                left_out.append(name)
            continue
        used |= records
        command = command_of(name, config, trials)
        results = Results(records.values(), command)
        sections.append(experiment.section(results))
        headline = experiment.headline(results)
        if headline:
            headlines.append(headline)
    if left_out:
        log(
            f"the report leaves out {', '.join(left_out)}: recorded in part, but not for all of "
            f"{trials} trials with seed {config.seed}"
        )
    is_complete = len(sections) == len(EXPERIMENTS)
    report_names = "all" if is_complete else " ".join(section.name for section in sections)
    facts = facts_of(
        list(used.values()),
        summary="\n\n".join(headlines),
        command=command_of(report_names, config, trials),
        titles={name: spec.title for name, spec in known_specs().items()},
    )
    write_report(folder, sections, title=TITLE, facts=facts)
    return [section for section in sections if section.name in names]


def command_of(names: str, config: RunConfig, trials: int) -> str:
    """Return the command line that makes something again."""
    words = ["polyseme reproduce", names]
    words.append("--quick" if config.quick else f'--data "$POLYSEME_DATA" --trials {trials}')
    if config.seed != SEED:
        words.append(f"--seed {config.seed}")
    if config.pictures is not None:
        words.append("--pictures FOLDER")
    if config.preset != "default":
        words.append(f"--preset {config.preset}")
    return " ".join(words)
