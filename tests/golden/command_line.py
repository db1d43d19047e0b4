"""What the commands print, on standard output and on standard error, and their exit codes.

All commands run in one folder in the order in which they stand here; some change a model there.
"""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import chdir, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from golden import Case, models
from golden.compare import without_volatile
from polyseme.cli import main
from polyseme_experiments.datasets import load_dataset

PAPER = "--preset paper --components 8 --topics 5 --epochs 2 --mapper kernel-ridge --seed 0"


def cases(folder: Path) -> dict[str, Case]:
    """Run all commands; return what they printed as cases by name."""
    printed = {}
    write_files(folder)
    with chdir(folder):
        models.toy_tagger().save("model")
        for line in commands():
            assert line not in printed, line
            printed[line] = run(line, folder)
    return {line: lambda result=result: result for line, result in printed.items()}


def run(line: str, folder: Path, n_columns: int = 80) -> dict[str, Any]:
    """Run a command in this process."""
    out = io.StringIO()
    err = io.StringIO()
    code = 0
    words = ["polyseme", *line.split()]
    with (
        patch.object(sys, "argv", words),
        patch.dict(os.environ, {"COLUMNS": str(n_columns)}),
        redirect_stdout(out),
        redirect_stderr(err),
    ):
        try:
            main()
        except SystemExit as ended:
            code = int(ended.code or 0)
    printed = {"out": out.getvalue(), "err": err.getvalue()}
    texts = {name: without_volatile(text, folder).splitlines() for name, text in printed.items()}
    return {"code": code} | texts


def write_files(folder: Path) -> None:
    """Write the files that commands read."""
    toy = models.world()
    write_documents(folder / "documents.jsonl", toy.documents)
    write_documents(folder / "sets.jsonl", toy.label_sets)
    write_documents(folder / "truth.jsonl", models.truth())
    write_documents(folder / "given.jsonl", [["keyboard"], *([] for _ in toy.X_test[1:])])
    write_documents(folder / "more.jsonl", [["sea", "jellyfish"], ["sand", "jellyfish"]])
    np.save(folder / "items.npy", toy.X)
    np.save(folder / "new.npy", toy.X_test)
    np.save(folder / "two.npy", toy.X_test[:2])
    lines = ["id,tags", *(f"item {row},{';'.join(d)}" for row, d in enumerate(toy.documents))]
    (folder / "documents.csv").write_text("\n".join(lines))
    words = models.theme_words()
    np.savez(folder / "words.npz", words=list(words), vectors=list(words.values()))
    write_documents(folder / "fewer.jsonl", toy.documents[:120])
    np.save(folder / "fewer.npy", toy.X[:120])
    samples = (("emoji", "photos", slice(0, 240, 11)), ("clips", "clips", slice(0, 60, 5)))
    for name, media_folder, rows in samples:
        dataset = load_dataset(name)
        dataset.spec.write_media(folder / media_folder, dataset.corpus.ids[rows])


def write_documents(path: Path, documents: Iterable[Iterable[str]]) -> None:
    """Write tag sets as JSON lines."""
    lines = [json.dumps({"labels": list(labels)}) + "\n" for labels in documents]
    path.write_text("".join(lines))


def commands() -> Iterator[str]:
    """Yield all command lines."""
    fit = "-d documents.jsonl -x items.npy -s sets.jsonl"
    yield "--version"
    # fit and ask
    yield f"fit published {fit} {PAPER}"
    yield f"fit published {fit} --label-sets-only {PAPER} --relatedness density"
    yield "rank published two.npy --top 3"
    yield "explain published two.npy charger --top 2"
    yield "rank model two.npy --top 4"
    yield "rank model two.npy --top 3 --form csv"
    yield "rank model two.npy --top 3 --form table"
    yield "rank model two.npy --precision 0.6"
    yield "rank model two.npy --kind unseen --top 2"
    yield "rank model new.npy --tags given.jsonl --top 2"
    yield "rank model two.npy --method priming --top 3"
    yield "rank model new.npy --top 2 --out rankings"
    yield "complete model apple phone --top 4"
    yield "complete model apple nobody --top 2 --form table"
    yield "explain model two.npy charger --tag desk --top 2 --form table"
    yield "explain model two.npy knife --row 1 --top 1 --form jsonl"
    yield "explain model two.npy knife --row 1 --top 1 --form csv"
    yield "senses model apple --form table"
    yield "evaluate model new.npy truth.jsonl"
    yield "evaluate model new.npy truth.jsonl --form table"
    yield "info model"
    yield "info model --form table"
    yield "info published"
    yield "info documents.jsonl --form table"
    yield "info documents.csv"
    yield "labels model --kind unseen"
    yield "labels model --merges"
    # ask people
    yield "ask model new.npy --label charger --top 4"
    yield "ask model new.npy --top 3 --form table"
    yield "ask model new.npy --documents truth.jsonl --strategy errors --top 3"
    yield "learn model --yes charger 0 5 10 --features new.npy --who ann"
    yield "learn model --no charger 6 --features new.npy"
    yield "learn model --yes surfboard 7 12 --features new.npy"
    yield "rank model two.npy --top 5"
    yield "info model --form csv"
    yield "learn model --undo 1-2"
    yield "learn model --undo-last 4"
    yield "rank model two.npy --top 6"
    # care
    yield "add model --documents more.jsonl --out grown"
    yield "add grown --label beach --vectors words.npz"
    yield "block grown knife"
    yield "rename grown sand shore"
    yield "merge grown tram bus"
    yield "remove grown desk"
    yield "labels grown"
    # what cannot be done
    yield "rank nowhere two.npy"
    yield "rank model documents.jsonl"
    yield "explain model two.npy nobody"
    yield "learn model --undo 99"
    yield "complete model"
    yield "fit model2 -d nothing.jsonl"
    # the default, with what it measures
    yield "fit default -d fewer.jsonl -x fewer.npy -s sets.jsonl --seed 0"
    yield "rank default two.npy --top 4"
    yield "info default"
    yield "fit default -d fewer.jsonl -x fewer.npy -s sets.jsonl --update default --seed 0"
    yield "validate -d fewer.jsonl -x fewer.npy -s sets.jsonl --draws 1 --seed 0"
    # files
    yield "sample image drawings --limit 3"
    yield "extract image photos --out numbers"
    yield f"fit pictures -x numbers -d photos/tags.jsonl {PAPER}"
    yield "tag pictures photos --top 3"
    yield "explain pictures photos/noto/1F600.png face --top 1"
    yield "tag pictures photos --top 2 --sidecars"
    yield "review photos/noto/1F600.png --accept face --refuse *"
    yield "review photos"
    yield "tag pictures photos --undo"
    yield "extract audio clips --out sounds"
    yield f"fit music -x sounds -d clips/tags.jsonl --words 8 {PAPER}"
    yield "tag music clips --top 3"
    # experiments
    yield "audit hsun --quick --split-only"
