"""A folder of rankings: a file for each shard, whole or not at all, and a manifest at the end.

In: shards and their records. Out: `NAME.jsonl` or `NAME.parquet` beside `plan.json`, which says
what is being done, and `manifest.json`, which is there when everything is.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from polyseme._validation import InputError
from polyseme.io import UNFINISHED, replacing
from polyseme.io.records import write_records
from polyseme.io.shards import Shard, Shards
from polyseme.io.tables import import_pyarrow

FORMS = ("jsonl", "parquet")
PLAN, MANIFEST = "plan.json", "manifest.json"
FORMAT, FORMAT_VERSION = "polyseme ranking", 1
# Rows a row group of what is written; a reader holds at least one of them.
GROUP_ROWS = 16_384


def output_of(folder: Path, shard: Shard, form: str) -> Path:
    """Give the file that a shard's rankings go to."""
    return folder / f"{shard.path.stem}.{form}"


def write_output(path: Path, records: Iterable[Mapping[str, Any]], form: str) -> int:
    """Write the rankings of one shard; the file is there when all of them are.

    Parameters
    ----------
    path : Path
    records : iterable of dict
        Taken as they come.
    form : {"jsonl", "parquet"}

    Returns
    -------
    int
        Bytes of the file.
    """
    with replacing(path) as stream:
        if form == "parquet":
            write_rankings(records, stream)
        else:
            text = io.TextIOWrapper(stream, encoding="utf-8", newline="")
            write_records(records, text, "jsonl")
            text.detach()  # which flushes, and leaves the file open
        return stream.tell()


def write_rankings(records: Iterable[Mapping[str, Any]], stream: BinaryIO) -> None:
    """Write rankings as Parquet with the columns `row`, `labels`, `kinds` and `scores`.

    Parameters
    ----------
    records : iterable of dict
        Taken as they come; only one row group of them is held.
    stream : binary stream
        Where the file goes.
    """
    arrow = import_pyarrow()
    texts, numbers = arrow.list_(arrow.string()), arrow.list_(arrow.float64())
    schema = arrow.schema(
        {"row": arrow.int64(), "labels": texts, "kinds": texts, "scores": numbers}
    )
    remaining = map(dict, records)
    with arrow.parquet.ParquetWriter(stream, schema) as writer:
        while group := list(itertools.islice(remaining, GROUP_ROWS)):
            writer.write_table(arrow.Table.from_pylist(group, schema=schema))


class RankingFolder:
    """A folder that rankings of shards are written to.

    Parameters
    ----------
    path : Path
        New, empty, or that of the same work before.
    form : {"jsonl", "parquet"}
    """

    def __init__(self, path: Path, form: str) -> None:
        self.path = path
        self.form = form

    def begin(self, shards: Shards, options: Mapping[str, Any]) -> list[Shard]:
        """Make the folder ready; give the shards that are still to be ranked.

        Parameters
        ----------
        shards : Shards
        options : mapping
            What decides the rankings besides the shards; must be what it was before.
        """
        plan = self._plan(shards, options)
        before = self._before(shards)
        for name, now in plan.items():
            if before is not None and name != "shards" and before.get(name) != now:
                raise InputError(
                    f"'{self.path}' holds rankings with another {name} ({_short(before.get(name))} "
                    f"in place of {_short(now)}); name another folder."
                )
        known = {} if before is None else {one["shard"]: one for one in before["shards"]}
        gone = sorted(known.keys() - {shard.path.name for shard in shards})
        if gone:
            raise InputError(
                f"'{self.path}' holds rankings of '{gone[0]}', which is no shard any more; name "
                "another folder."
            )
        waiting = []
        (self.path / MANIFEST).unlink(missing_ok=True)
        for shard, told in zip(shards, plan["shards"], strict=True):
            output = output_of(self.path, shard, self.form)
            if known.get(told["shard"]) != told:
                output.unlink(missing_ok=True)
            if not output.exists():
                waiting.append(shard)
        self._write(PLAN, plan)
        return waiting

    def finish(self, shards: Shards, options: Mapping[str, Any], sizes: Mapping[str, int]) -> None:
        """Write the manifest, and take away what dead workers left.

        Parameters
        ----------
        shards : Shards
        options : mapping
            As for `begin`.
        sizes : mapping of str to int
            Bytes of each output that this run wrote, by the shard's name: a file that another
            machine wrote a moment ago need not be visible here yet.
        """
        files = []
        for shard in shards:
            name = shard.path.name
            output = output_of(self.path, shard, self.form)
            size = sizes[name] if name in sizes else output.stat().st_size
            told = {"file": output.name, "shard": name, "first": shard.first}
            files.append(told | {"rows": shard.n_rows, "bytes": size})
        head = {"format": FORMAT, "version": FORMAT_VERSION, **options, "form": self.form}
        self._write(MANIFEST, head | {"rows": shards.n_rows, "files": files})
        for left in self.path.glob(f"*{UNFINISHED}"):
            left.unlink(missing_ok=True)

    def _plan(self, shards: Shards, options: Mapping[str, Any]) -> dict[str, Any]:
        """Say what is to be done: options, and which shards in which state."""
        listed = []
        for shard in shards:
            info = shard.path.stat()
            state = f"{info.st_size} {info.st_mtime_ns}"
            told = {"shard": shard.path.name, "first": shard.first, "rows": shard.n_rows}
            listed.append(told | {"state": state})
        head = {"format": FORMAT, "version": FORMAT_VERSION, **options, "form": self.form}
        return head | {"shards": listed}

    def _before(self, shards: Shards) -> dict[str, Any] | None:
        """Read the plan of an earlier run; make the folder when there is none."""
        if self.path.exists() and not self.path.is_dir():
            raise InputError(f"'{self.path}' is a file; name a folder to write to.")
        if self.path.resolve() == shards.shards[0].path.parent.resolve():
            raise InputError("Shards and rankings need two folders; name another one to write to.")
        plan: Any = None
        if (self.path / PLAN).exists():
            with contextlib.suppress(ValueError):
                plan = json.loads((self.path / PLAN).read_bytes())
            if not isinstance(plan, dict) or plan.get("format") != FORMAT:
                raise InputError(
                    f"'{self.path / PLAN}' is damaged or none of ours; name another folder."
                )
            return dict(plan)
        others = list(self.path.iterdir()) if self.path.exists() else []
        others = [path for path in others if not path.name.endswith(UNFINISHED)]
        if others:
            raise InputError(
                f"'{self.path}' holds '{others[0].name}', which no ranking wrote; name another "
                "folder."
            )
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"'{self.path}' cannot be made: {error.strerror}.") from None
        return None

    def _write(self, name: str, content: Mapping[str, Any]) -> None:
        """Write a JSON file of the folder."""
        try:
            with replacing(self.path / name) as stream:
                stream.write((json.dumps(content, indent=1, ensure_ascii=False) + "\n").encode())
        except OSError as error:
            raise InputError(
                f"Nothing can be written to '{self.path}': {error.strerror}."
            ) from None


def _short(value: object) -> str:
    """Show a value of a plan; of a digest, its beginning."""
    return f"{value:.12}" if isinstance(value, str) else str(value)
