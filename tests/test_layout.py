"""The package's shape: which way imports point, what is never used, and what starts quickly."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import polyseme

PACKAGE = Path(polyseme.__file__).parent
MODULES = sorted(PACKAGE.rglob("*.py"))

# What stands below everything: checks, the estimator base, folds, threads, saved models.
BASE = {"_validation", "_estimator", "_folds", "_threads", "_progress"}
BASE |= {"persistence", "_plugins"}
DATA = BASE | {
    "io",
    "corpus",
    "documents",
    "concepts",
    "tags",
    "features",
    "word_vectors",
    "vocabulary",
}
SPACE = {"members", "training", "calibration", "space", "store", "evidence", "senses"}
TAGGERS = DATA | SPACE | {"tagger", "holdout", "published", "index", "metrics"}
ANYTHING = None

# For each file or folder of the package: what else of the package it may import.
ALLOWED: dict[str, set[str] | None] = {
    "_validation": set(),
    "_estimator": {"_validation"},
    "_plugins": {"_validation"},
    "_folds": {"_validation"},
    "_threads": set(),
    "_native": set(),
    "persistence": {"_validation"},
    "_progress": {"_validation"},
    # the data
    "io": {"_validation"},
    "corpus": BASE | {"io"},
    "documents": BASE | {"corpus"},
    "concepts": set(),
    "tags": BASE | {"corpus"},
    "features": BASE | {"io"},
    "word_vectors": BASE | {"io", "corpus"},
    "vocabulary": {"_validation", "corpus"},
    # one space
    "members": set(),
    "training": BASE | {"members"},
    "gpu_training": {"members", "training"},
    "calibration": set(),
    "space": BASE | {"members", "training", "calibration"},
    "store": BASE | {"corpus", "concepts", "documents", "space"},
    "evidence": {"members", "store"},
    "senses": {"_validation", "concepts"},
    "holdout": BASE | {"corpus", "documents", "calibration", "metrics"},
    "tagger": DATA | SPACE | {"metrics", "published", "holdout"},
    # the paper's own method
    "published": DATA | {"index", "metrics"},
    # beside both
    "index": {"_validation", "_native", "_threads"},
    "metrics": {"_validation"},
    "splits": DATA | {"metrics", "published"},
    "datasets": BASE | {"io", "corpus"},
    "baselines": DATA | {"published", "metrics"},
    "cluster": TAGGERS,
    # on top: nothing below imports these
    "cli": ANYTHING,
    "__init__": ANYTHING,
    "__main__": ANYTHING,
}
# A training reaches the module that trains on a GPU when there is one.
INSIDE_FUNCTIONS_ONLY = {
    "training": {"gpu_training"},
}
TOP = {"cli", "__main__"}

UNSAFE_MODULES = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}
NO_HOME = {"utils", "util", "helpers", "helper", "common", "misc"}
HEAVY = ("torch", "sklearn", "pandas", "polars", "tomotopy", "PIL", "librosa", "numba", "h5py")
HEAVY += ("ray", "pyarrow")


class Import(NamedTuple):
    """One imported thing: the unit of ours it belongs to, or the foreign top-level name."""

    name: str
    ours: bool
    inside_function: bool
    line: int


def unit_of(path: Path) -> str:
    """Name the file or folder in the package's root that a module belongs to."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports_of(path: Path) -> Iterator[Import]:
    """Yield everything a module imports, also inside functions and for types only."""
    tree = ast.parse(path.read_text("utf-8"), filename=str(path))
    yield from _walk(tree, inside_function=False)


def _walk(node: ast.AST, *, inside_function: bool) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        inside = inside_function or isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef))
        if isinstance(child, ast.Import):
            for alias in child.names:
                yield _import(alias.name, inside, child.lineno)
        elif isinstance(child, ast.ImportFrom):
            assert child.level == 0, "relative imports hide which way they point"
            if child.module == "polyseme":
                for alias in child.names:
                    yield _import(f"polyseme.{alias.name}", inside, child.lineno)
            else:
                yield _import(child.module or "", inside, child.lineno)
        yield from _walk(child, inside_function=inside)


def _import(dotted: str, inside_function: bool, line: int) -> Import:
    first, _, rest = dotted.partition(".")
    if first != "polyseme":
        return Import(first, False, inside_function, line)
    unit = rest.partition(".")[0]
    # A name that is no file or folder comes from the root, which stands above everything.
    return Import(unit if unit in ALLOWED else "__init__", True, inside_function, line)


def calls_of(path: Path) -> Iterator[ast.Call]:
    """Yield every call in a module."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Call):
            yield node


def name_of(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


modules = pytest.mark.parametrize("path", MODULES, ids=name_of)


def test_every_file_and_folder_has_its_place_in_the_table() -> None:
    assert {unit_of(path) for path in MODULES} == set(ALLOWED)


def test_the_table_itself_points_one_way() -> None:
    left: set[str] = set()
    waiting = {unit: allowed for unit, allowed in ALLOWED.items() if allowed is not ANYTHING}
    while waiting:
        free = {unit for unit, allowed in waiting.items() if allowed <= left}
        assert free, f"a circle among {sorted(waiting)}"
        left |= free
        waiting = {unit: allowed for unit, allowed in waiting.items() if unit not in free}
    assert not left & (TOP | {"__init__"})


def test_the_product_never_imports_the_experiments() -> None:
    for path in MODULES:
        foreign = {one.name for one in imports_of(path) if not one.ours}
        assert "polyseme_experiments" not in foreign, path


def test_only_what_stands_above_may_import_a_tagger() -> None:
    above = {unit for unit, allowed in ALLOWED.items() if allowed and "tagger" in allowed}
    assert above == {"cluster"}


@modules
def test_imports_point_one_way(path: Path) -> None:
    unit = unit_of(path)
    allowed = ALLOWED[unit]
    if allowed is ANYTHING:
        return
    lazily = INSIDE_FUNCTIONS_ONLY.get(unit, set())
    wrong = [
        f"line {one.line}: {one.name}"
        for one in imports_of(path)
        if one.ours
        and one.name not in allowed | {unit}
        and not (one.inside_function and one.name in lazily)
    ]
    assert not wrong, f"{name_of(path)} must not import {wrong}"


@modules
def test_nothing_that_runs_code_on_loading_is_imported(path: Path) -> None:
    assert not {one.name for one in imports_of(path)} & UNSAFE_MODULES


@modules
def test_no_call_unpickles_prints_or_runs_text(path: Path) -> None:
    wrong = []
    for call in calls_of(path):
        called = ast.unparse(call.func)
        if called in ("torch.load", "torch.save", "print", "eval", "exec"):
            wrong.append(f"line {call.lineno}: {called}")
        for keyword in call.keywords:
            if keyword.arg == "allow_pickle" and ast.unparse(keyword.value) != "False":
                wrong.append(f"line {call.lineno}: allow_pickle")
    assert not wrong, f"{name_of(path)} has {wrong}"


@modules
def test_no_file_is_a_drawer_for_odds_and_ends(path: Path) -> None:
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    assert not {part.strip("_") for part in parts} & NO_HOME


@pytest.mark.parametrize("module", ["polyseme", "polyseme.cli"])
def test_importing_the_package_loads_nothing_heavy(module: str) -> None:
    code = f"import sys, {module}; print(*sorted(set({HEAVY!r}) & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import polyseme.tagger", ("tagger", True, False)),
        ("from polyseme.io import jsonl", ("io", True, False)),
        ("from polyseme import load", ("__init__", True, False)),
        ("from polyseme import corpus", ("corpus", True, False)),
        ("def f():\n    from polyseme.persistence import within", ("persistence", True, True)),
        ("if True:\n    import numpy.linalg", ("numpy", False, False)),
        ("class A:\n    def f(self):\n        import pickle", ("pickle", False, True)),
    ],
)
def test_the_import_reader_sees_every_form(
    tmp_path: Path, source: str, expected: tuple[str, bool, bool]
) -> None:
    (tmp_path / "module.py").write_text(source)
    (found,) = imports_of(tmp_path / "module.py")
    assert (found.name, found.ours, found.inside_function) == expected
