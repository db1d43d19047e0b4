"""The package's shape: layers, which way imports point, sizes, and what starts quickly."""

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

# The folders and root files of the package, each with what it may import: only what is below it.
BASE = {"base"}
STORAGE = BASE | {"storage"}
IO = STORAGE | {"io"}
DOCUMENTS = IO | {"documents"}
SPACE = DOCUMENTS | {"metrics", "space"}
SCORING = SPACE | {"scoring"}
FEEDBACK = SCORING | {"feedback"}
FITTING = FEEDBACK | {"fitting"}
TAGGER_PARTS = {"fitted_tagger", "label_changes", "verdict_learning"}
TAGGER = FITTING | TAGGER_PARTS | {"published", "tagger"}
LAYERS = {
    "base": set(),
    "storage": BASE,
    "io": STORAGE,
    "documents": IO,
    "metrics": DOCUMENTS,
    "space": DOCUMENTS | {"metrics"},
    "scoring": SPACE,
    "feedback": SCORING,
    "fitting": FEEDBACK,
    "fitted_tagger": FITTING,
    "label_changes": FITTING | {"fitted_tagger"},
    "verdict_learning": FITTING | {"fitted_tagger"},
    "tagger": FITTING | TAGGER_PARTS | {"published"},
    # loaded by a tagger when it is fitted, saved or read
    "fit_stages": TAGGER,
    "model_state": TAGGER | {"media"},
    # beside the default model
    "media": IO,
    "published": DOCUMENTS | {"metrics"},
    "plots": TAGGER,
    # above the tagger
    "batch": TAGGER | {"media", "model_state"},
    "studio": TAGGER | {"media", "model_state", "batch"},
    "cli": TAGGER | {"media", "batch", "studio", "__init__"},
    # the public names, imported when first used, and the command
    "__init__": TAGGER | {"media"},
    "__main__": BASE | {"cli"},
}
# Imports against the layers, by module; none may be added.
EXCEPTIONS = {
    # types alone
    ("fitted_tagger", "media"),
    ("tagger", "media"),
    # when a tagger is fitted, saved or read
    ("tagger", "fit_stages"),
    ("tagger", "model_state"),
    # the published method takes files by the extractors there are
    ("published.tagger", "media"),
}
# Modules that only functions may import: torch is loaded when there is something to train, and the
# published method when it is asked for.
INSIDE_FUNCTIONS_ONLY = {
    "space.training": {"polyseme.space.steps", "polyseme.space.trainer_gpu"},
    "tagger": {"polyseme.published.tagger", "polyseme.fit_stages", "polyseme.model_state"},
}
MOST_ROOT_FILES = 12
MOST_LINES = 1000
# Longer files, with the lines they may have; the numbers may only fall.
LONG_FILES: dict[str, int] = {}

UNSAFE_MODULES = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}
UNSAFE_CALLS = {"torch.save", "torch.load", "print", "eval", "exec"}
NO_HOME = {"utils", "util", "helpers", "helper", "common", "misc"}
HEAVY = ("torch", "sklearn", "pandas", "polars", "tomotopy", "PIL", "librosa", "numba", "h5py")
HEAVY += ("ray", "pyarrow")


class Import(NamedTuple):
    """One imported module, and whether a function or only a type checker imports it."""

    module: str
    inside_function: bool = False
    for_types: bool = False

    @property
    def unit(self):
        """The folder or root file of the package that it belongs to; None for other packages."""
        first, *inner_names = self.module.split(".")
        if first != "polyseme":
            return None
        return inner_names[0] if inner_names and inner_names[0] in LAYERS else "__init__"


def imports_of(node, inside_function=False, for_types=False):
    """Yield everything that a module's tree imports, also inside functions and for types only."""
    for child in ast.iter_child_nodes(node):
        inside = inside_function or isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef))
        types = for_types or (
            isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING"
        )
        names = []
        if isinstance(child, ast.Import):
            names = [alias.name for alias in child.names]
        elif isinstance(child, ast.ImportFrom):
            assert child.level == 0, "relative imports hide which way they point"
            names = [child.module]
            if child.module == "polyseme":
                names = [f"polyseme.{alias.name}" for alias in child.names]
        for name in names:
            yield Import(name, inside, types)
        yield from imports_of(child, inside, types)


def name_of(path):
    """Return a file's dotted name below the package; a package is named by its folder."""
    components = path.relative_to(PACKAGE).with_suffix("").parts
    if len(components) > 1 and components[-1] == "__init__":
        components = components[:-1]
    return ".".join(components)


def imports_against_layers(path):
    """Return the pairs of a module and a unit that it imports but may not."""
    name = name_of(path)
    unit = name.split(".")[0]
    allowed = LAYERS[unit] | {unit}
    tree = ast.parse(path.read_text("utf-8"), filename=str(path))
    units = {imported.unit for imported in imports_of(tree)} - {None}
    return {(name, imported_unit) for imported_unit in units - allowed}


def test_every_file_and_folder_has_a_layer():
    units = {path.relative_to(PACKAGE).parts[0].removesuffix(".py") for path in MODULES}
    assert units == set(LAYERS)


def test_the_layers_have_no_circle():
    lower = set()
    waiting = dict(LAYERS)
    while waiting:
        free = {unit for unit, allowed in waiting.items() if allowed <= lower}
        assert free, f"a circle among {sorted(waiting)}"
        lower |= free
        waiting = {unit: allowed for unit, allowed in waiting.items() if unit not in free}


def test_imports_follow_the_layers_but_for_the_exceptions():
    violations = set()
    for path in MODULES:
        violations |= imports_against_layers(path)
    assert violations == EXCEPTIONS


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_no_module_is_unsafe(path):
    components = path.relative_to(PACKAGE).with_suffix("").parts
    assert not {component.strip("_") for component in components} & NO_HOME, (
        "a drawer for odds and ends"
    )
    tree = ast.parse(path.read_text("utf-8"), filename=str(path))
    imports = set(imports_of(tree))
    foreign = {imported.module.split(".")[0] for imported in imports if imported.unit is None}
    assert not foreign & UNSAFE_MODULES, "runs code on loading"
    assert "polyseme_experiments" not in foreign, "the product never imports the experiments"

    late_modules = INSIDE_FUNCTIONS_ONLY.get(name_of(path), set())
    for imported in imports:
        if imported.module in late_modules:
            assert imported.inside_function or imported.for_types

    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            assert ast.unparse(node.func) not in UNSAFE_CALLS, f"line {node.lineno}"
            pickles = [keyword.value for keyword in node.keywords if keyword.arg == "allow_pickle"]
            assert all(ast.unparse(value) == "False" for value in pickles), f"line {node.lineno}"


def test_the_root_stays_small():
    assert len(list(PACKAGE.glob("*.py"))) <= MOST_ROOT_FILES


def test_files_stay_short():
    too_long = {}
    for path in MODULES:
        name = path.relative_to(PACKAGE).as_posix()
        n_lines = len(path.read_text("utf-8").splitlines())
        if n_lines > LONG_FILES.get(name, MOST_LINES):
            too_long[name] = n_lines
    assert too_long == {}


def test_no_file_is_named_as_long_that_is_short():
    for name in LONG_FILES:
        n_lines = len((PACKAGE / name).read_text("utf-8").splitlines())
        assert n_lines > MOST_LINES, f"{name} has {n_lines} lines: take it off the list"


@pytest.mark.parametrize("module", ["polyseme", "polyseme.cli"])
def test_importing_the_package_loads_nothing_heavy(module):
    code = f"import sys, {module}; print(*sorted(set({HEAVY!r}) & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


@pytest.mark.parametrize(
    ("source", "expected", "unit"),
    [
        ("import polyseme.tagger", Import("polyseme.tagger"), "tagger"),
        ("from polyseme.io import jsonl", Import("polyseme.io"), "io"),
        ("from polyseme import load", Import("polyseme.load"), "__init__"),
        ("from polyseme import metrics", Import("polyseme.metrics"), "metrics"),
        (
            "def f():\n    from polyseme.storage.model_file import part_arrays",
            Import("polyseme.storage.model_file", inside_function=True),
            "storage",
        ),
        (
            "if TYPE_CHECKING:\n    import polyseme.tagger",
            Import("polyseme.tagger", for_types=True),
            "tagger",
        ),
        ("if True:\n    import numpy.linalg", Import("numpy.linalg"), None),
        ("class A:\n    def f(self):\n        import pickle", Import("pickle", True), None),
    ],
)
def test_the_import_reader_sees_every_form(source, expected, unit):
    (imported,) = imports_of(ast.parse(source))
    assert imported == expected
    assert imported.unit == unit
