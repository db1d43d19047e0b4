"""Run experiments: what is missing is run, what is there is kept, and the report is written.

In: names of tables and figures. Out: records, tables, and one page with all of them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from polyseme._validation import InputError, check_number, unknown_name
from polyseme.datasets import SPECS
from polyseme_experiments.draws import Conditions
from polyseme_experiments.experiment import Experiment, Results
from polyseme_experiments.figures import get_experiment
from polyseme_experiments.names import EXPERIMENTS, SEED
from polyseme_experiments.progress import Display
from polyseme_experiments.records import Record, RecordStore
from polyseme_experiments.rendering.facts import facts_of
from polyseme_experiments.rendering.report import (
    Section,
    write_markdown,
    write_report,
    write_tables,
)
from polyseme_experiments.schedule import Run, digest_of, make_tasks, model_config
from polyseme_experiments.spaces import SpaceStore
from polyseme_experiments.workers import work

TITLE = "polyseme: the paper's evaluation, reproduced"


def reproduce(
    names: Sequence[str] = ("all",),
    data: str | Path | None = None,
    *,
    trials: int = 3,
    seed: int = SEED,
    quick: bool = False,
    preset: str = "default",
    pictures: str | Path | None = None,
    out: str | Path | None = None,
    workers: int = 2,
    fresh: bool = False,
    from_records: bool = False,
    say: Callable[[str], None] | None = None,
    terminal: bool = False,
) -> list[Section]:
    """Run tables and figures of the paper and write the report.

    Parameters
    ----------
    names : sequence of str
        From `EXPERIMENTS`; "all" stands for all of them.
    data : str or Path, optional
        The folder that holds the corpora; by default the environment variable POLYSEME_DATA.
    trials : int
        Trials of each experiment; the comparison over label splits has ten at the least.
    seed : int
        Trial t draws its labels with seed + t. Splits of seeds 0 to 9 were looked at while
        methods were built, so the default begins after them.
    quick : bool
        Samples of our own making and short trainings: shows that everything runs, in minutes.
    preset : {"default", "paper"}
        How the concept space is trained.
    pictures : str or Path, optional
        A folder of one's own pictures for the experiments on pictures, in place of the emoji: with
        `tags.jsonl` (or .csv), or XMP files beside the pictures.
    out : str or Path, optional
        The folder to write to; by default `results`, `results-quick`, or `results-pictures` with
        one's own pictures. Runs that are recorded
        there with the same configuration are not run again.
    workers : int
        Processes, one thread each.
    fresh : bool
        Run again what is recorded already.
    from_records : bool
        Run nothing: make tables and the report of the records in `out`, without any data.
    say : callable, optional
        Takes a line about each step.
    terminal : bool
        Whether to draw progress bars on standard error.

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
    folder = default_folder(out, quick=quick, pictures=pictures is not None)
    conditions = Conditions(
        None if data is None else os.fspath(data),
        seed,
        quick,
        preset,
        str(folder / "cache"),
        None if pictures is None else os.fspath(pictures),
    )
    store = RecordStore(folder / "records")
    if not from_records:
        runs = list(dict.fromkeys(run for one in wanted for run in one.runs(trials, quick=quick)))
        missing = _missing(runs, store, conditions, fresh=fresh)
        tasks = make_tasks(missing)
        _make_folder(folder / "cache")
        if fresh:
            SpaceStore(conditions).clear()
        shown = Display(
            tasks,
            n_known=len(runs) - len(missing),
            n_workers=workers,
            say=say,
            terminal=terminal,
        )
        with shown:
            for worker, task, kind, content in work(tasks, conditions, workers) if tasks else ():
                if kind == "record":
                    store.add(content)
                shown.tell(worker, task, kind, content)
    return _publish(wanted, store, conditions, trials, folder, say or (lambda line: None))


def default_folder(out: str | Path | None, *, quick: bool, pictures: bool = False) -> Path:
    """Give the folder to write to: the one that is named, or one for each kind of data."""
    if out is not None:
        return Path(out)
    return Path("results-quick" if quick else "results-pictures" if pictures else "results")


def _make_folder(folder: Path) -> None:
    """Make a folder, or say in one sentence why it cannot be made."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"Nothing can be written to '{folder}': {error.strerror}; name another folder with "
            "--out."
        ) from None


def _experiments(names: Iterable[str]) -> list[Experiment]:
    """Give the experiments by name, each once, in the order of the report."""
    asked = set(names)
    for name in sorted(asked - {"all"}):
        if name not in EXPERIMENTS:
            raise unknown_name("experiment", name, ("all", *EXPERIMENTS))
    if not asked:
        raise InputError(f"Name what to reproduce: all, {', '.join(EXPERIMENTS)}.")
    return [get_experiment(name) for name in EXPERIMENTS if "all" in asked or name in asked]


def _missing(
    runs: Sequence[Run], store: RecordStore, conditions: Conditions, *, fresh: bool
) -> list[Run]:
    """Give the runs that no record with this configuration tells of."""
    if fresh:
        return list(runs)
    return [
        run for run in runs if store.find(*run, conditions.seed, digest_of(run, conditions)) is None
    ]


def _publish(
    wanted: Sequence[Experiment],
    store: RecordStore,
    conditions: Conditions,
    trials: int,
    folder: Path,
    say: Callable[[str], None],
) -> list[Section]:
    """Write the report of everything that is complete; give the sections asked for."""
    names = {one.name for one in wanted}
    sections: list[Section] = []
    headlines: list[str] = []
    left_out: list[str] = []
    used: dict[Run, Record] = {}
    for name in EXPERIMENTS:
        experiment = get_experiment(name)
        runs = experiment.runs(trials, quick=conditions.quick)
        found = {run: store.of_model(run, model_config(run, conditions)) for run in runs}
        records = {run: record for run, record in found.items() if record is not None}
        if len(records) < len(runs):
            if name in names:
                raise InputError(
                    f"'{folder}' lacks {len(runs) - len(records)} of the {len(runs)} runs of "
                    f"'{name}' with {trials} trials and seed {conditions.seed}; run it first."
                )
            left_out += [name] if records else []
            continue
        used |= records
        results = Results(records.values())
        sections.append(experiment.section(results, command_of(name, conditions, trials)))
        headlines.append(experiment.headline(results))
    if left_out:
        say(
            f"the report leaves out {', '.join(left_out)}: recorded in part, but not for all of "
            f"{trials} trials with seed {conditions.seed}"
        )
    everything = "all" if len(sections) == len(EXPERIMENTS) else " ".join(s.name for s in sections)
    published = {
        name: same for one in used.values() for name, same in one.get("as_published", {}).items()
    }
    facts = facts_of(
        used.values(),
        summary="\n\n".join(line for line in headlines if line),
        commands=(command_of(everything, conditions, trials),),
        titles={name: spec.title for name, spec in SPECS.items()},
        as_published={} if conditions.quick else published,
    )
    write_report(folder / "report.html", sections, title=TITLE, facts=facts)
    write_markdown(folder / "README.md", sections, title=TITLE, facts=facts)
    write_tables(folder / "tables", [table for one in sections for table in one.tables])
    return [section for section in sections if section.name in names]


def command_of(names: str, conditions: Conditions, trials: int) -> str:
    """Give the command line that makes something again."""
    words = ["polyseme reproduce", names]
    words.append("--quick" if conditions.quick else f'--data "$POLYSEME_DATA" --trials {trials}')
    if conditions.seed != SEED:
        words.append(f"--seed {conditions.seed}")
    if conditions.pictures is not None:
        words.append("--pictures FOLDER")
    if conditions.preset != "default":
        words.append(f"--preset {conditions.preset}")
    return " ".join(words)
