"""What a report says about itself: what was run, on which data, with which versions.

In: the records of the runs. Out: one `Facts` record, which `report` shows above all tables.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class DataFact:
    """One dataset of a report.

    Attributes
    ----------
    name : str
        Its folder's name.
    checksum : str
        SHA-256 over what was read.
    title : str
        Its name in words.
    stands_for : str or None
        The dataset in whose place it is used; None: it stands for itself.
    is_sample : bool
        Whether only the tiny sample of our own making was used.
    as_published : bool or None
        Whether the files are those our published figures were made with; None: not known.
    """

    name: str
    checksum: str
    title: str = ""
    stands_for: str | None = None
    is_sample: bool = False
    as_published: bool | None = None


@dataclass(frozen=True)
class Facts:
    """What stands on top of a report.

    Attributes
    ----------
    summary : str
        What was run and found; paragraphs are parted by empty lines.
    numbers : tuple of (str, str)
        A few figures, each with what it counts.
    commands : tuple of str
        Command lines that make the report again.
    data : tuple of DataFact
    versions : tuple of (str, str)
        Programs and their versions, machine and dates.
    alerts : tuple of str
        What a reader must know first; they stand in a box with the stand-ins.
    """

    summary: str = ""
    numbers: tuple[tuple[str, str], ...] = ()
    commands: tuple[str, ...] = ()
    data: tuple[DataFact, ...] = ()
    versions: tuple[tuple[str, str], ...] = ()
    alerts: tuple[str, ...] = ()

    def warnings(self) -> list[str]:
        """Give all that the box says: samples, stand-ins, other files, then the alerts."""
        found = []
        for one in self.data:
            title = one.title or one.name
            if one.is_sample:
                found.append(
                    f"{title}: a tiny sample of our own making; its figures mean nothing beside "
                    "the published ones."
                )
            if one.stands_for:
                found.append(
                    f"{title} stands in for {one.stands_for}, which was not at hand; published "
                    "values are for the original."
                )
            if one.as_published is False:
                found.append(f"{title}: other files than those of our published figures.")
        return [*found, *self.alerts]


def data_role(one: DataFact) -> str:
    """Say in words what a dataset is in a report."""
    role = f"stand-in for {one.stands_for}" if one.stands_for else "itself"
    role = f"tiny sample, {role}" if one.is_sample else role
    known = {True: ", the files of our figures", False: ", other files", None: ""}
    return role + known[one.as_published]


def facts_of(
    records: Iterable[Mapping[str, Any]],
    *,
    summary: str = "",
    commands: Sequence[str] = (),
    titles: Mapping[str, str] | None = None,
    as_published: Mapping[str, bool] | None = None,
    alerts: Sequence[str] = (),
) -> Facts:
    """Gather the facts of runs from their records.

    Parameters
    ----------
    records : iterable of mapping
        Of all runs in the report, with the keys that run records have.
    summary : str
        As in `Facts`.
    commands, alerts : sequence of str
        As in `Facts`; an alert is added where records differ in version or data.
    titles : mapping of str to str, optional
        Datasets' names in words.
    as_published : mapping of str to bool, optional
        For each dataset whether its files are those of our published figures.

    Returns
    -------
    Facts
        The same for the same records, whatever their order.
    """
    runs = list(records)
    versions = {"polyseme": sorted({str(run["version"]) for run in runs if "version" in run})}
    for run in runs:
        for name, value in run.get("libraries", {}).items():
            versions.setdefault(name, []).append(str(value))
    sums: dict[str, set[str]] = {}
    stands: dict[str, set[str]] = {}
    samples: set[str] = set()
    for run in runs:
        for name, checksum in run.get("data", {}).items():
            sums.setdefault(name, set()).add(str(checksum))
            original = (run.get("stand_in") or {}).get(name)
            stands.setdefault(name, set()).update({original} if original else ())
            samples |= {name} if run.get("sample") else set()
    data = tuple(
        DataFact(
            name,
            ", ".join(sorted(sums[name])),
            (titles or {}).get(name, ""),
            " and ".join(sorted(stands[name])) or None,
            name in samples,
            (as_published or {}).get(name),
        )
        for name in sorted(sums)
    )
    mixed = [
        f"Runs of several versions of {name} are mixed: {', '.join(sorted(set(found)))}."
        for name, found in versions.items()
        if len(set(found)) > 1
    ]
    mixed += [
        f"Runs on several states of the dataset {name} are mixed."
        for name in sorted(sums)
        if len(sums[name]) > 1
    ]
    order = sorted(versions, key=lambda name: (name != "polyseme", name))
    listed = [(name, ", ".join(sorted(set(versions[name])))) for name in order if versions[name]]
    return Facts(
        summary=summary,
        numbers=_numbers(runs, len(data)),
        commands=tuple(commands),
        data=data,
        versions=(*listed, *_when(runs)),
        alerts=(*mixed, *alerts),
    )


def _numbers(runs: Sequence[Mapping[str, Any]], n_data: int) -> tuple[tuple[str, str], ...]:
    """Count settings, methods, runs and their time."""
    settings = {run.get("setting") for run in runs}
    methods = {run.get("method") for run in runs}
    seconds = _seconds(runs)
    time = f"{seconds / 3600:.1f} h" if seconds >= 3600 else f"{seconds / 60:.1f} min"
    counts = (
        (len(settings), "setting"),
        (len(methods), "method"),
        (len(runs), "run"),
        (n_data, "dataset"),
    )
    told = tuple((f"{n:,}", word if n == 1 else f"{word}s") for n, word in counts)
    return (*told, (time, "of computing"))


def _seconds(runs: Sequence[Mapping[str, Any]]) -> float:
    """Add up the runs' seconds, counting a part that runs share, also across trials, once."""
    own = 0.0
    shared: dict[tuple[object, ...], float] = {}
    for run in runs:
        parts = run.get("parts") or {}
        own += float(run.get("seconds") or 0.0) - sum(parts.values())
        for name, taken in parts.items():
            # A part that was learned once has the same seconds wherever it is used.
            shared[run.get("setting"), name, taken] = float(taken)
    return max(own, 0.0) + sum(shared.values())


def _when(runs: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """Say when the first and the last run finished."""
    days = sorted(str(run["finished"]) for run in runs if run.get("finished"))
    return (
        [("runs finished", days[0] if days[0] == days[-1] else f"{days[0]} to {days[-1]}")]
        if days
        else []
    )
