"""Reproduce experiments: what is missing is run, what is there is kept, the report is written.

In: names of tables and figures. Out: records, tables, and one page with all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from polyseme._validation import InputError, check_number, unknown_name
from polyseme.datasets import known_specs
from polyseme.io.folders import mark_folder
from polyseme_experiments import EXPERIMENTS, SEED
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
    if config.pictures is not None:  # what is made of them is kept there from the first look on
        mark_folder(folder, "results", adopt=_is_former)
    if not from_records:
        store = RecordStore(folder / "records", mend=True)
        every = (run for one in wanted for run in one.runs(trials, quick=config.quick))
        runs = list(dict.fromkeys(every))
        missing = [
            run for run in runs if fresh or store.find(*run, run_config(run, config)) is None
        ]
        if len(missing) < len(runs):
            log(f"{len(runs) - len(missing)} runs are recorded already; {len(missing)} to go")
    mark_folder(folder, "results", adopt=_is_former)
    if not from_records:
        cache.mkdir(parents=True, exist_ok=True)
        if fresh:
            clear_cache(cache)
        run_tasks(make_tasks(missing), config, folder / "records", n_jobs=workers, log=log)
    return _publish(wanted, config, trials, folder, log)


def _is_former(folder: Path) -> bool:
    """Return whether a folder without a mark holds records and what is made of them alone."""
    made = {"records", "tables", "figures", "cache", "README.md", "report.html"}
    names = {path.name for path in folder.iterdir()}
    if not names <= made or not (folder / "records").is_dir():
        return False
    if "README.md" in names and TITLE not in (folder / "README.md").read_text("utf-8", "replace"):
        return False
    RecordStore(folder / "records").check()
    return True


def folder_of(out: str | Path | None, config: RunConfig) -> Path:
    """Return the folder to write to: the one that is named, or one for each kind of data."""
    if out is not None:
        return Path(out)
    pictures = "results" if config.pictures is None else "results-pictures"
    return Path("results-quick" if config.quick else pictures)


def _experiments(names: Sequence[str]) -> list[Experiment]:
    """Return the experiments by name, each once, in the order of the report."""
    for name in sorted({*names} - {"all", *EXPERIMENTS}):
        raise unknown_name("experiment", name, ("all", *EXPERIMENTS))
    if not names:
        raise InputError(f"Name what to reproduce: all, {', '.join(EXPERIMENTS)}.")
    return [get_experiment(name) for name in EXPERIMENTS if "all" in names or name in names]


def _publish(
    wanted: Sequence[Experiment],
    config: RunConfig,
    trials: int,
    folder: Path,
    log: Callable[[str], None],
) -> list[Section]:
    """Write the report of everything that is complete; give the sections asked for."""
    store = RecordStore(folder / "records")
    names = {experiment.name for experiment in wanted}
    sections: list[Section] = []
    headlines: list[str] = []
    left_out: list[str] = []
    used: dict[Run, Record] = {}
    for name in EXPERIMENTS:
        experiment = get_experiment(name)
        runs = experiment.runs(trials, quick=config.quick)
        stored = ((run, store.find(*run, model_config(run, config))) for run in runs)
        records = {run: record for run, record in stored if record is not None}
        if len(records) < len(runs):
            if name in names:
                raise InputError(
                    f"'{folder}' lacks {len(runs) - len(records)} of the {len(runs)} runs of "
                    f"'{name}' with {trials} trials and seed {config.seed}; run it first."
                )
            left_out += [name] if records else []
            continue
        used |= records
        results = Results(records.values(), command_of(name, config, trials))
        sections.append(experiment.section(results))
        headlines.append(experiment.headline(results))
    if left_out:
        log(
            f"the report leaves out {', '.join(left_out)}: recorded in part, but not for all of "
            f"{trials} trials with seed {config.seed}"
        )
    everything = "all" if len(sections) == len(EXPERIMENTS) else " ".join(s.name for s in sections)
    facts = facts_of(
        list(used.values()),
        summary="\n\n".join(line for line in headlines if line),
        command=command_of(everything, config, trials),
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
