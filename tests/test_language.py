"""How the code reads: locals are nouns, and docstrings begin with the verbs of the field."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# Locals that do not say what a value is.
VAGUE = set(
    [
        "one",
        "ones",
        "found",
        "given",
        "told",
        "held",
        "said",
        "made",
        "kept",
        "known",
        "asked",
        "shown",
        "taken",
        "drawn",
        "own",
        "other",
        "others",
        "some",
        "same",
        "rest",
        "here",
        "there",
        "at",
        "back",
        "usual",
        "again",
        "part",
        "parts",
        "thing",
        "things",
        "what",
        "who",
        "lost",
        "moved",
    ]
)
VAGUE_VERBS = {"Give", "Say", "Tell"}
# Files of tests that still have vague locals; none may be added.
EXCEPTIONS = {"tests/torture/commands.py", "tests/torture/readers.py"}


def files_of(folder):
    """Return the Python files of a folder of the checkout."""
    return sorted((ROOT / folder).rglob("*.py"))


def local_names(function):
    """Return the parameters of a function and the names that it assigns."""
    names = set()
    for node in ast.walk(function):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
    arguments = function.args
    for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
        names.add(argument.arg)
    return names


def definitions_in(path):
    """Yield the module, the classes and the functions of a file."""
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, kinds):
            yield node


@pytest.mark.parametrize("folder", ["src", "experiments", "benchmarks", "tests"])
def test_locals_say_what_a_value_is(folder):
    vague = {}
    for path in files_of(folder):
        name = path.relative_to(ROOT).as_posix()
        if name in EXCEPTIONS:
            continue
        for node in definitions_in(path):
            is_function = isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
            names = local_names(node) & VAGUE if is_function else set()
            if names:
                vague[f"{name}:{node.lineno}"] = names
    assert vague == {}


@pytest.mark.parametrize("folder", ["src", "experiments", "benchmarks", "tests"])
def test_docstrings_begin_with_verbs_of_the_field(folder):
    places = []
    for path in files_of(folder):
        for node in definitions_in(path):
            docstring = ast.get_docstring(node) or ""
            first_word, *_ = docstring.split() or [""]
            if first_word in VAGUE_VERBS:
                places.append(f"{path.relative_to(ROOT)}: {docstring.splitlines()[0]}")
    assert places == []


def test_the_check_sees_parameters_loops_and_walrus():
    code = "def f(one):\n    for other in one:\n        (found := other)"
    (function,) = ast.parse(code).body
    assert local_names(function) & VAGUE == {"one", "other", "found"}
