"""The package's shape: which way imports point, what is never used, and what starts quickly."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

import polyseme

PACKAGE = Path(polyseme.__file__).parent
MODULES = sorted(PACKAGE.rglob("*.py"))

# What stands below everything: checks, the estimator base, folds, threads, saved models.
BASE = {"_text", "_validation", "_estimator", "_folds", "_threads", "_progress"}
BASE |= {"persistence", "schema", "checkpoints", "_plugins", "_memory", "extractors"}
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
SPACE = {
    "members",
    "training",
    "calibration",
    "votes",
    "corrections",
    "linear_path",
    "space",
    "store",
    "evidence",
    "senses",
}
# What a tagger is made of beside its space.
FITTED = {"reading", "answers", "encoded", "questions"}
FITTED |= {"fitted_tagger", "label_changes", "verdict_learning"}
# What only a fit needs, which a tagger loads when it is fitted.
FIT = {"training_set", "warm_start", "fit_stages", "growth", "holdout", "simple_rankers"}
ABOVE_TAGGER = {"fit_stages", "model_state"}
TAGGERS = DATA | SPACE | FITTED | FIT | ABOVE_TAGGER
TAGGERS |= {"tagger", "published", "index", "metrics", "verdicts"}
ANYTHING = None

# For each file or folder of the package: what else of the package it may import.
ALLOWED = {
    "_text": set(),
    "_interrupts": set(),
    "_memory": {"_validation"},
    "_validation": {"_text"},
    "_estimator": {"_validation"},
    "_plugins": {"_validation"},
    "extractors": {"_estimator"},
    "_folds": {"_validation"},
    "_threads": set(),
    "persistence": {"_memory", "_validation", "io"},
    "checkpoints": {"_validation", "io", "persistence"},
    "schema": {"_text", "_validation", "persistence"},
    "_progress": {"_validation"},
    # the data
    "io": {"_text", "_validation"},
    "verdicts": BASE | {"io"},
    "verdict_files": BASE | {"io", "verdicts"},
    "corpus": BASE | {"io"},
    "documents": BASE | {"corpus"},
    "concepts": set(),
    "tags": BASE | {"corpus", "vocabulary"},
    "features": BASE | {"io"},
    "word_vectors": BASE | {"io", "corpus"},
    "vocabulary": {"_text", "_validation", "corpus"},
    # one space
    "members": set(),
    "training": BASE | {"members", "calibration"},
    "steps": {"members", "training"},
    "gpu_training": {"steps", "training"},
    "growth": BASE | {"linear_path", "training"},
    "calibration": set(),
    "votes": {"calibration"},
    "corrections": {"_validation", "calibration"},
    "linear_path": {"_validation", "calibration", "metrics"},
    "space": BASE | {"members", "training", "calibration", "corrections", "linear_path", "votes"},
    "store": BASE | {"corpus", "concepts", "documents", "space", "votes"},
    "reading": BASE | {"calibration", "corrections", "encoded", "space", "store", "tags", "votes"},
    "evidence": {"calibration", "members", "reading", "space", "store", "votes"},
    "senses": {"_validation", "concepts", "documents", "store"},
    "simple_rankers": {"corpus", "linear_path", "training"},
    "holdout": BASE | {"corpus", "documents", "calibration", "metrics", "simple_rankers"},
    "feedback": BASE | {"verdicts"},
    "active_learning": BASE | {"calibration"},
    "encoded": {"_validation", "space"},
    "questions": {"active_learning", "feedback", "reading"},
    "training_set": DATA | {"encoded", "space", "feedback", "verdicts"},
    "warm_start": DATA | {"space", "training", "training_set"},
    "answers": BASE | {"corrections", "feedback", "reading", "space", "verdicts"},
    "fitted_tagger": DATA | SPACE | {"reading", "encoded", "answers", "holdout", "warm_start"},
    "label_changes": DATA | {"fitted_tagger", "reading"},
    "verdict_learning": DATA
    | {
        "active_learning",
        "questions",
        "answers",
        "encoded",
        "feedback",
        "fitted_tagger",
        "reading",
        "verdicts",
    },
    "tagger": DATA
    | SPACE
    | FITTED
    | FIT - {"fit_stages"}
    | {"metrics", "published", "verdicts", "feedback"},
    "fit_stages": DATA | SPACE | FITTED | FIT - {"fit_stages"} | {"tagger", "verdicts"},
    "model_state": DATA
    | SPACE
    | FITTED
    | {"feedback", "holdout", "tagger", "verdicts", "warm_start"},
    # the paper's own method
    "published": DATA | {"index", "metrics"},
    # beside both
    "index": {"_validation", "_threads"},
    "metrics": {"_validation", "corpus", "tags", "vocabulary"},
    "splits": DATA | {"metrics", "published"},
    "datasets": BASE | {"io", "corpus"},
    "baselines": DATA | {"published", "metrics"},
    "cluster": TAGGERS,
    "plots": TAGGERS,
    "serve": TAGGERS | {"cluster", "active_learning"},
    # on top: nothing below imports these
    "cli": ANYTHING,
    "__init__": ANYTHING,
    "__main__": ANYTHING,
}
# A training reaches the modules that need torch when there is something to train.
# A tagger loads what only a fit needs when it is fitted.
INSIDE_FUNCTIONS_ONLY = {"training": {"gpu_training", "steps"}, "tagger": ABOVE_TAGGER}

UNSAFE_MODULES = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}
UNSAFE_CALLS = {"torch.save", "torch.load", "print", "eval", "exec"}
NO_HOME = {"utils", "util", "helpers", "helper", "common", "misc"}
HEAVY = ("torch", "sklearn", "pandas", "polars", "tomotopy", "PIL", "librosa", "numba", "h5py")
HEAVY += ("ray", "pyarrow")


# Modules of ours that importing the tagger loads, at the most.
MOST_LOADED = 36


class Import(NamedTuple):
    """One imported thing: the unit of ours it belongs to, or the foreign top-level name."""

    name: str
    ours: bool
    inside_function: bool = False


def imports_of(node, inside_function=False):
    """Yield everything that a module's tree imports, also inside functions and for types only."""
    for child in ast.iter_child_nodes(node):
        inside = inside_function or isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef))
        names = []
        if isinstance(child, ast.Import):
            names = [alias.name for alias in child.names]
        elif isinstance(child, ast.ImportFrom):
            assert child.level == 0, "relative imports hide which way they point"
            names = [child.module]
            if child.module == "polyseme":
                names = [f"polyseme.{alias.name}" for alias in child.names]
        for name in names:
            first, *rest = name.split(".")
            if first == "polyseme":
                # A name that is no file or folder comes from the root, above everything.
                unit = rest[0] if rest and rest[0] in ALLOWED else "__init__"
                yield Import(unit, True, inside)
            else:
                yield Import(first, False, inside)
        yield from imports_of(child, inside)


def test_every_file_and_folder_has_its_place_and_the_table_points_one_way():
    units = {path.relative_to(PACKAGE).parts[0].removesuffix(".py") for path in MODULES}
    assert units == set(ALLOWED)
    below = set()
    waiting = {unit: allowed for unit, allowed in ALLOWED.items() if allowed is not ANYTHING}
    while waiting:
        free = {unit for unit, allowed in waiting.items() if allowed <= below}
        assert free, f"a circle among {sorted(waiting)}"
        below |= free
        waiting = {unit: allowed for unit, allowed in waiting.items() if unit not in free}
    assert not below & {"cli", "__main__", "__init__"}
    above = {unit for unit, allowed in ALLOWED.items() if allowed and "tagger" in allowed}
    assert above == {"cluster", "fit_stages", "model_state", "plots", "serve"}, (
        "only what stands above may import it"
    )


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_imports_point_one_way_and_nothing_unsafe_is_called(path):
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    assert not {part.strip("_") for part in parts} & NO_HOME, "a drawer for odds and ends"
    tree, unit = ast.parse(path.read_text("utf-8"), filename=str(path)), parts[0]
    imports = set(imports_of(tree))
    foreign = {one.name for one in imports if not one.ours}
    assert not foreign & UNSAFE_MODULES, "runs code on loading"
    assert "polyseme_experiments" not in foreign, "the product never imports the experiments"
    if ALLOWED[unit] is not ANYTHING:
        lazily = INSIDE_FUNCTIONS_ONLY.get(unit, set())
        ours = {one for one in imports if one.ours and one.name not in ALLOWED[unit] | {unit}}
        assert not {one for one in ours if not (one.inside_function and one.name in lazily)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            assert ast.unparse(node.func) not in UNSAFE_CALLS, f"line {node.lineno}"
            pickles = [one.value for one in node.keywords if one.arg == "allow_pickle"]
            assert all(ast.unparse(value) == "False" for value in pickles), f"line {node.lineno}"


@pytest.mark.parametrize("module", ["polyseme", "polyseme.cli"])
def test_importing_the_package_loads_nothing_heavy(module):
    code = f"import sys, {module}; print(*sorted(set({HEAVY!r}) & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_importing_the_tagger_loads_no_media_and_little_of_the_rest():
    code = "import sys, polyseme.tagger; print(*(name for name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {name for name in done.stdout.split() if name.split(".")[0] == "polyseme"}
    above = {
        "features",
        "baselines",
        "cli",
        "serve",
        "cluster",
        "published",
        "fit_stages",
        "holdout",
    }
    assert not {name for name in loaded if name.split(".")[1:2] and name.split(".")[1] in above}
    assert len(loaded) <= MOST_LOADED, sorted(loaded)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import polyseme.tagger", Import("tagger", True)),
        ("from polyseme.io import jsonl", Import("io", True)),
        ("from polyseme import load", Import("__init__", True)),
        ("from polyseme import corpus", Import("corpus", True)),
        (
            "def f():\n    from polyseme.persistence import within",
            Import("persistence", True, True),
        ),
        ("if True:\n    import numpy.linalg", Import("numpy", False)),
        ("class A:\n    def f(self):\n        import pickle", Import("pickle", False, True)),
    ],
)
def test_the_import_reader_sees_every_form(source, expected):
    assert list(imports_of(ast.parse(source))) == [expected]
