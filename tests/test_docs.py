"""What the pages say runs, and every public name says what it is."""

from __future__ import annotations

import contextlib
import doctest
import importlib
import inspect
import io
import pkgutil
import re
import shlex
import sys
import warnings
from collections.abc import Iterator
from dataclasses import is_dataclass
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import typer

import polyseme
from polyseme._validation import PolysemeWarning
from polyseme.cli import app, main

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *DOCS.rglob("*.md")])
each_page = pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))

# ---------------------------------------------------------------------- blocks of a page


class Block(NamedTuple):
    """A fenced block of a page."""

    language: str
    is_example: bool  # whether the reader is told that the output may differ
    text: str
    line: int
    follows: bool  # whether only blank lines stand between it and the block before


def blocks_of(path: Path, *languages: str) -> list[Block]:
    """Read the fenced blocks of a page that are in one of some languages."""
    blocks: list[Block] = []
    text = path.read_text("utf-8")
    last_end = 0
    for match in re.finditer(r"^```(\w*)([^\n]*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        line = text.count("\n", 0, match.start()) + 1
        follows = bool(blocks) and not text[last_end : match.start()].strip()
        blocks.append(Block(match[1], "for example" in match[2], match[3], line, follows))
        last_end = match.end()
    return [block for block in blocks if block.language in languages]


def run_command(command: str) -> tuple[int, str, str]:
    """Run a `polyseme` command in this process; give exit code, stdout and stderr."""
    words = shlex.split(command)
    assert words[0] == "polyseme", f"only polyseme can be run here, not {words[0]}"
    out, err, before, code = io.StringIO(), io.StringIO(), sys.argv, 0
    # The command prints warnings in its own way, which must not outlive it.
    with (
        warnings.catch_warnings(),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            sys.argv = words
            main()
        except SystemExit as end:
            code = int(end.code or 0)
        finally:
            sys.argv = before
    return code, out.getvalue(), err.getvalue()


def commands_of(block: Block) -> Iterator[tuple[str, str]]:
    """Yield the commands of a console block, each with the output that the page shows."""
    for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
        command, _, shown = part.replace("\\\n", " ").partition("\n")
        yield command, shown


def words(text: str) -> list[list[str]]:
    """Reduce an output to what does not depend on the machine: the words of each line, sorted.

    Training adds up in another order on another processor, so numbers move a little and labels
    with nearly the same score may change places within a line.
    """
    lines = (sorted(re.findall(r"[^\W\d]+", line)) for line in text.splitlines())
    return [line for line in lines if line]


def run_page(
    path: Path,
    *,
    languages: tuple[str, ...] = ("python", "text", "console"),
    skip: tuple[str, ...] = (),
) -> dict[str, Any]:
    """Run the python and console blocks of a page in order and compare what they print."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    printed: str | None = None
    for block in blocks_of(path, *languages):
        where = f"{path.name}:{block.line}"
        if block.language == "python":
            stream = io.StringIO()
            with contextlib.redirect_stdout(stream):
                exec(compile(block.text, where, "exec"), namespace)
            printed = stream.getvalue()
        elif block.language == "text" and block.follows and printed is not None:
            assert printed.strip() and block.text.strip(), f"{where}: no output"
            if not block.is_example:
                assert words(printed) == words(block.text), f"{where}: prints\n{printed}"
            printed = None
        elif block.language == "console":
            for command, shown in commands_of(block):
                if command.split()[1] in skip:
                    continue
                code, out, err = run_command(command)
                assert code == int(shown.startswith("polyseme: ")), f"{where}: {command}\n{err}"
                assert shown.strip(), f"{where}: no output is shown"
                if not block.is_example:
                    assert words(out or err) == words(shown), f"{where}: prints\n{out or err}"
    return namespace


# ---------------------------------------------------------------------- pages that run


def test_the_readme_opens_with_two_commands_and_has_one_short_python_block() -> None:
    opening = (ROOT / "README.md").read_text("utf-8")[:1200]
    assert "make demo" in opening and "make test" in opening
    (block,) = blocks_of(ROOT / "README.md", "python")
    assert len([line for line in block.text.splitlines() if line.strip()]) <= 12


@pytest.mark.slow
def test_the_readme_block_prints_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        tagger = run_page(ROOT / "README.md", languages=("python", "text"))["tagger"]
    assert tagger.kinds_[list(tagger.classes_).index("charger")] == "unseen"


@pytest.fixture(scope="module")
def tutorial(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """What the tutorial leaves behind: its variables, in a folder with its files."""
    with contextlib.chdir(tmp_path_factory.mktemp("tutorial")):
        yield run_page(DOCS / "first-model.md")


@pytest.mark.slow
def test_the_tutorial_runs_and_prints_what_it_says(tutorial: dict[str, Any]) -> None:
    world, tagger, new = (tutorial[name] for name in ("world", "tagger", "new"))
    why = tagger.explain(new[0], "charger", k=3)
    assert sum(part for _, part in why.parts()) == pytest.approx(why.logit)
    assert all(set(near.document) <= set(world.themes["office"]) for near in why.neighbours)


@pytest.mark.slow
def test_the_commands_print_what_the_pages_say(tutorial: dict[str, Any]) -> None:
    # The tutorial has left the models that `fit` makes on either page.
    run_page(DOCS / "commands.md", skip=("demo", "reproduce", "fit"))
    (block,) = blocks_of(ROOT / "README.md", "console")
    commands = [command for command, _ in commands_of(block)]
    assert commands[0].startswith("polyseme fit model ")
    for command in commands[1:]:
        code, out, err = run_command(command)
        assert (code, bool(out)) == (0, True), f"{command}\n{err}"


@pytest.mark.slow
@pytest.mark.parametrize("page", ["files-to-tags", "new-tags", "evaluate"])
def test_the_pages_run_and_print_what_they_say(page: str, tmp_path: Path) -> None:
    with contextlib.chdir(tmp_path), warnings.catch_warnings():
        warnings.simplefilter("ignore", PolysemeWarning)
        run_page(DOCS / f"{page}.md")


def test_every_command_and_every_option_of_fit_is_on_the_page() -> None:
    text = (DOCS / "commands.md").read_text("utf-8")
    commands = typer.main.get_command(app).commands
    assert sorted(re.findall(r"^## (\w+)$", text, re.MULTILINE)) == sorted(commands)
    for option in commands["fit"].params:
        if option.name != "model":
            shown = (f"`{name}`" in text for name in (*option.opts, *option.secondary_opts))
            assert any(shown), option.name


@each_page
def test_interpreter_sessions_on_pages_are_right(path: Path) -> None:
    text = "\n".join(block.text for block in blocks_of(path, "pycon"))
    example = doctest.DocTestParser().get_doctest(text, {}, path.name, str(path), 0)
    assert doctest.DocTestRunner(verbose=False).run(example).failed == 0


# ---------------------------------------------------------------------- links and pages


@each_page
def test_links_lead_somewhere_and_no_page_names_a_place_on_somebodys_machine(path: Path) -> None:
    text = path.read_text("utf-8")
    assert not re.search(r"/(home|work|root|Users)/|\.\./shared", text)
    text = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if not target.startswith(("http://", "https://", "#", "mailto:")):
            assert (path.parent / target.partition("#")[0]).exists(), target


def test_every_page_is_in_the_navigation() -> None:
    listed = re.findall(r"\s([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text("utf-8"), re.MULTILINE)
    assert sorted(listed) == sorted(str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md"))


def test_the_constants_on_the_method_page_are_the_defaults() -> None:
    text = (DOCS / "how-it-works.md").read_text("utf-8")
    row = r"^\|[^|]*\|[^|]*\| `([^`]+)`[^|]*\| `(\w+)` \| `(\w+)` \|$"
    rows = re.findall(row, text, re.MULTILINE)
    assert len(rows) >= 10
    for default, owner, parameter in rows:
        (thing,) = {each for name, each in ALL_PUBLIC.items() if name.endswith(f".{owner}")}
        signature = inspect.signature(thing)
        assert repr(signature.parameters[parameter].default) == default, f"{owner}.{parameter}"


# ---------------------------------------------------------------------- public names


def public_modules() -> list[str]:
    """List the modules without a leading underscore anywhere in their name."""
    names = [found.name for found in pkgutil.walk_packages(polyseme.__path__, "polyseme.")]
    return [name for name in names if not any(part.startswith("_") for part in name.split("."))]


def public_names(module: str) -> Iterator[tuple[str, Any]]:
    """Yield what a module defines in public: functions, classes and the classes' methods."""
    for name, thing in vars(importlib.import_module(module)).items():
        if name.startswith("_") or getattr(thing, "__module__", None) != module:
            continue
        if inspect.isclass(thing) or inspect.isfunction(thing):
            yield f"{module}.{name}", thing
        for inner, value in vars(thing).items() if inspect.isclass(thing) else ():
            function = value.fget if isinstance(value, property) else value
            function = getattr(function, "__func__", function)
            if not inner.startswith("_") and inspect.isfunction(function):
                yield f"{module}.{name}.{inner}", function


ALL_PUBLIC = dict(pair for module in public_modules() for pair in public_names(module))


def test_every_module_and_every_public_name_says_what_it_is() -> None:
    assert len(polyseme.__all__) <= 12 and set(polyseme.__all__) <= set(dir(polyseme))
    assert not [name for name in polyseme.__all__ if not inspect.getdoc(getattr(polyseme, name))]
    assert not [name for name in public_modules() if not importlib.import_module(name).__doc__]
    assert not [name for name, thing in ALL_PUBLIC.items() if not thing.__doc__]


def test_the_reference_names_every_module_with_public_names_and_nothing_else() -> None:
    text = "".join(page.read_text("utf-8") for page in (DOCS / "reference").glob("*.md"))
    named = re.findall(r"^::: (\S+)$", text, re.MULTILINE)
    assert len(named) == len(set(named))
    for name in named:
        pkgutil.resolve_name(name)
    wanted = {name for name in public_modules() if next(public_names(name), None)}
    assert not {name for name in wanted if not name.startswith("polyseme.cli")} - set(named)


def parameters_of(thing: Any) -> list[inspect.Parameter]:
    """Its parameters without `self` and `cls`."""
    listed = inspect.signature(thing).parameters.values()
    return [parameter for parameter in listed if parameter.name not in ("self", "cls")]


def test_every_public_signature_is_fully_annotated() -> None:
    bare, empty = [], inspect.Parameter.empty
    for name, thing in ALL_PUBLIC.items():
        # Enumerations, errors and protocols get their signatures from Python.
        if inspect.isclass(thing) and (
            issubclass(thing, (Enum, Exception)) or getattr(thing, "_is_protocol", False)
        ):
            continue
        bare += [f"{name}({p.name})" for p in parameters_of(thing) if p.annotation is empty]
        if inspect.isfunction(thing) and inspect.signature(thing).return_annotation is empty:
            bare.append(name)
    assert not bare


def listed_parameters(doc: str) -> set[str]:
    """Read the names in a docstring's Parameters section."""
    section = re.search(r"^Parameters\n-+\n(.*?)(?=^\S[^\n]*\n---|\Z)", doc, re.M | re.S)
    heads = re.findall(r"^(\S[^:\n]*)", section[1], re.M) if section else []
    return {name.strip().lstrip("*") for head in heads for name in head.split(",")}


def test_everything_exported_describes_its_parameters() -> None:
    section = "Parameters\n----------\na, b : int\n    Two: of them.\n**rest\n"
    doc = f"Do it.\n\n{section}\nReturns\n-------\nc : float\n    A number."
    assert listed_parameters(doc) == {"a", "b", "rest"}
    exported = {getattr(polyseme, name) for name in polyseme.__all__}
    roots = {f"{thing.__module__}.{thing.__qualname__}" for thing in exported}
    missing = []
    for name, thing in ALL_PUBLIC.items():
        doc = inspect.cleandoc(thing.__doc__ or "")
        if not any(name == root or name.startswith(f"{root}.") for root in roots):
            continue
        # A record lists fields under Attributes; some sentences send elsewhere or say it all.
        elsewhere = re.search(r"[Ss]ee `[\w.]+`", doc) or doc.startswith("Refuse: ")
        elsewhere = elsewhere or is_dataclass(thing) or name.endswith(".from_state")
        names = {parameter.name for parameter in parameters_of(thing)}
        if not elsewhere and len(names) > 1 and not names <= listed_parameters(doc):
            missing.append(f"{name}: {sorted(names - listed_parameters(doc))}")
    assert not missing
