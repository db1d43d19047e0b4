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
from collections.abc import Callable, Iterator
from dataclasses import dataclass, is_dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import pytest
import typer

import polyseme
from polyseme import io as readers
from polyseme._validation import PolysemeWarning

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *DOCS.rglob("*.md")])
each_page = pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))

# ---------------------------------------------------------------------- blocks of a page


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, what follows the language, its text and where it begins."""

    language: str
    options: str
    text: str
    line: int
    follows: bool  # only blank lines stand between it and the block before

    @property
    def only_an_example(self) -> bool:
        """Whether the reader is told that the output may differ."""
        return "for example" in self.options


def blocks_of(path: Path) -> list[Block]:
    """Read the fenced blocks of a page."""
    found: list[Block] = []
    text = path.read_text("utf-8")
    last_end = 0
    for match in re.finditer(r"^```(\w*)([^\n]*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        line = text.count("\n", 0, match.start()) + 1
        follows = bool(found) and not text[last_end : match.start()].strip()
        found.append(Block(match[1], match[2], match[3], line, follows))
        last_end = match.end()
    return found


def run_python(code: str, where: str, namespace: dict[str, Any]) -> str:
    """Run a block and give what it prints."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, where, "exec"), namespace)
    return printed.getvalue()


def run_command(command: str) -> tuple[int, str, str]:
    """Run a `polyseme` command in this process; give exit code, stdout and stderr."""
    from polyseme.cli import main

    words = shlex.split(command)
    assert words[0] == "polyseme", f"only polyseme can be run here, not {words[0]}"
    out, err = io.StringIO(), io.StringIO()
    before = sys.argv
    try:
        # The command prints warnings in its own way, which must not outlive it.
        with (
            warnings.catch_warnings(),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
        ):
            sys.argv = words
            main()
        code = 0
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
    for block in blocks_of(path):
        if block.language not in languages:
            continue
        where = f"{path.name}:{block.line}"
        if block.language == "python":
            printed = run_python(block.text, where, namespace)
        elif block.language == "text" and block.follows and printed is not None:
            assert printed.strip() and block.text.strip(), f"{where}: no output"
            if not block.only_an_example:
                assert words(printed) == words(block.text), f"{where}: prints\n{printed}"
            printed = None
        elif block.language == "console":
            for command, shown in commands_of(block):
                if command.split()[1] in skip:
                    continue
                code, out, err = run_command(command)
                assert code == int(shown.startswith("polyseme: ")), f"{where}: {command}\n{err}"
                assert shown.strip(), f"{where}: no output is shown"
                if not block.only_an_example:
                    assert words(out or err) == words(shown), f"{where}: prints\n{out or err}"
    return namespace


# ---------------------------------------------------------------------- README


def test_the_readme_opens_with_the_two_commands() -> None:
    opening = (ROOT / "README.md").read_text("utf-8")[:1200]
    assert "make demo" in opening
    assert "make test" in opening


def test_the_readme_has_one_short_python_block() -> None:
    (block,) = [one for one in blocks_of(ROOT / "README.md") if one.language == "python"]
    lines = [line for line in block.text.splitlines() if line.strip()]
    assert len(lines) <= 12


@pytest.mark.slow
def test_the_readme_block_prints_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        namespace = run_page(ROOT / "README.md", languages=("python", "text"))
    assert (
        namespace["tagger"].kinds_[list(namespace["tagger"].classes_).index("charger")] == "unseen"
    )


# ---------------------------------------------------------------------- tutorial and commands


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
    for one in why.neighbours:
        assert set(one.document) <= set(world.themes["office"])


@pytest.mark.slow
def test_the_commands_print_what_the_page_says(tutorial: dict[str, Any]) -> None:
    # The tutorial has left the model that the page's `fit` makes.
    run_page(DOCS / "commands.md", skip=("demo", "reproduce", "fit"))


@pytest.mark.slow
def test_the_commands_of_the_readme_run(tutorial: dict[str, Any]) -> None:
    (block,) = [one for one in blocks_of(ROOT / "README.md") if one.language == "console"]
    commands = [command for command, _ in commands_of(block)]
    assert commands[0].startswith("polyseme fit model ")
    for command in commands[1:]:  # the tutorial has left a folder `model` like the one of `fit`
        code, out, err = run_command(command)
        assert (code, bool(out)) == (0, True), f"{command}\n{err}"


@pytest.mark.slow
@pytest.mark.parametrize("page", ["files-to-tags", "new-tags", "evaluate"])
def test_the_pages_run_and_print_what_they_say(page: str, tmp_path: Path) -> None:
    with contextlib.chdir(tmp_path), warnings.catch_warnings():
        warnings.simplefilter("ignore", PolysemeWarning)
        run_page(DOCS / f"{page}.md")


def test_every_command_and_every_option_of_fit_is_on_the_page() -> None:
    from polyseme.cli import app

    text = (DOCS / "commands.md").read_text("utf-8")
    commands = typer.main.get_command(app).commands
    assert sorted(re.findall(r"^## (\w+)$", text, re.MULTILINE)) == sorted(commands)
    for option in commands["fit"].params:
        if option.name != "model":
            shown = (f"`{name}`" in text for name in (*option.opts, *option.secondary_opts))
            assert any(shown), option.name


@each_page
def test_interpreter_sessions_on_pages_are_right(path: Path) -> None:
    text = "\n".join(block.text for block in blocks_of(path) if block.language == "pycon")
    example = doctest.DocTestParser().get_doctest(text, {}, path.name, str(path), 0)
    assert doctest.DocTestRunner(verbose=False).run(example).failed == 0


# ---------------------------------------------------------------------- links and pages


@each_page
def test_links_to_files_lead_somewhere(path: Path) -> None:
    text = re.sub(r"^```.*?^```$", "", path.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if not target.startswith(("http://", "https://", "#", "mailto:")):
            assert (path.parent / target.partition("#")[0]).exists(), target


@each_page
def test_no_page_names_a_place_on_somebodys_machine(path: Path) -> None:
    assert not re.search(r"/(home|work|root|Users)/|\.\./shared", path.read_text("utf-8"))


def test_every_page_is_in_the_navigation() -> None:
    listed = re.findall(r"\s([\w/]+\.md)$", (ROOT / "mkdocs.yml").read_text("utf-8"), re.MULTILINE)
    assert sorted(listed) == sorted(str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md"))


def test_the_constants_on_the_method_page_are_the_defaults() -> None:
    text = (DOCS / "how-it-works.md").read_text("utf-8")
    row = r"^\|[^|]*\|[^|]*\| `([^`]+)`[^|]*\| `(\w+)` \| `(\w+)` \|$"
    rows = re.findall(row, text, re.MULTILINE)
    assert len(rows) >= 10
    for default, owner, parameter in rows:
        signature = inspect.signature(getattr(polyseme, owner))
        assert repr(signature.parameters[parameter].default) == default, f"{owner}.{parameter}"


# ---------------------------------------------------------------------- public names


def public_modules() -> list[str]:
    """List the modules without a leading underscore anywhere in their name."""
    names = [found.name for found in pkgutil.walk_packages(polyseme.__path__, "polyseme.")]
    return [name for name in names if not any(part.startswith("_") for part in name.split("."))]


@dataclass(frozen=True)
class Public:
    """A public class, function or method."""

    module: str
    name: str
    thing: Any

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"

    @property
    def doc(self) -> str:
        """Its own docstring, cleaned; not an inherited one."""
        return inspect.cleandoc(self.thing.__doc__ or "")

    @property
    def parameters(self) -> list[inspect.Parameter]:
        """Its parameters without `self` and `cls`."""
        listed = inspect.signature(self.thing).parameters.values()
        return [one for one in listed if one.name not in ("self", "cls")]


def public_names(module: str) -> Iterator[Public]:
    """Yield what a module defines in public: functions, classes and the classes' methods."""
    for name, thing in vars(importlib.import_module(module)).items():
        if name.startswith("_") or getattr(thing, "__module__", None) != module:
            continue
        if inspect.isclass(thing):
            yield Public(module, name, thing)
            for inner, value in vars(thing).items():
                function = value.fget if isinstance(value, property) else value
                function = getattr(function, "__func__", function)
                if not inner.startswith("_") and inspect.isfunction(function):
                    yield Public(module, f"{name}.{inner}", function)
        elif inspect.isfunction(thing):
            yield Public(module, name, thing)


ALL_PUBLIC = [one for module in public_modules() for one in public_names(module)]
each_public = pytest.mark.parametrize("one", ALL_PUBLIC, ids=str)


def test_everything_exported_exists_and_is_documented() -> None:
    for name in polyseme.__all__:
        assert inspect.getdoc(getattr(polyseme, name)), name
    assert set(polyseme.__all__) <= set(dir(polyseme))


@pytest.mark.parametrize("module", public_modules())
def test_every_module_says_what_it_is(module: str) -> None:
    assert importlib.import_module(module).__doc__


@pytest.mark.parametrize("module", public_modules())
def test_every_module_with_public_names_is_in_the_reference(module: str) -> None:
    if not list(public_names(module)):
        pytest.skip("defines no public name of its own")
    text = "".join(page.read_text("utf-8") for page in (DOCS / "reference").glob("*.md"))
    assert re.search(rf"^::: {re.escape(module)}$", text, re.MULTILINE)


def test_the_reference_names_only_what_exists() -> None:
    text = "".join(page.read_text("utf-8") for page in (DOCS / "reference").glob("*.md"))
    named = re.findall(r"^::: (\S+)$", text, re.MULTILINE)
    assert len(named) == len(set(named))
    for name in named:
        pkgutil.resolve_name(name)


@each_public
def test_every_public_name_has_a_docstring(one: Public) -> None:
    assert one.doc


def has_own_signature(one: Public) -> bool:
    """Whether its signature is ours: enumerations and protocols get theirs from Python."""
    if not inspect.isclass(one.thing):
        return True
    return not issubclass(one.thing, Enum) and not getattr(one.thing, "_is_protocol", False)


@each_public
def test_every_public_signature_is_fully_annotated(one: Public) -> None:
    if not has_own_signature(one):
        pytest.skip("its signature comes from Python")
    bare = [each.name for each in one.parameters if each.annotation is inspect.Parameter.empty]
    assert not bare
    if inspect.isfunction(one.thing):
        assert inspect.signature(one.thing).return_annotation is not inspect.Signature.empty


# ---------------------------------------------------------------------- parameters of the path

PATH_FILES = (
    "polyseme.corpus",
    "polyseme.space",
    "polyseme.calibration",
    "polyseme.store",
    "polyseme.evidence",
    "polyseme.metrics",
    "polyseme.tagger",
    "polyseme.published.tagger",
    "polyseme.published.descriptors",
    "polyseme.published.embedding",
    "polyseme.published.mapping",
    "polyseme.published.priming",
    "polyseme.persistence",
    "polyseme.io",
    "polyseme.index",
)

# Who need not list their parameters, and why.
EXEMPT: dict[str, Callable[[Public], bool]] = {
    "a record lists its fields under Attributes": lambda one: (
        is_dataclass(one.thing) or hasattr(one.thing, "_fields")
    ),
    "takes anything, for it refuses whatever comes": lambda one: one.doc.startswith("Refuse: "),
    "takes back learned state, which the class lists under Attributes": lambda one: (
        one.name.endswith((".restore", ".from_state"))
    ),
    "one parameter, and the sentence says what it is": lambda one: (
        len(one.parameters) == 1 and "Parameters\n---" not in one.doc
    ),
    "sends the reader to the function that lists them": lambda one: (
        "Parameters\n---" not in one.doc and bool(re.search(r"see `[\w.]+`", one.doc))
    ),
    "a metric: `polyseme.metrics` says once what truth, scores and ties are": lambda one: (
        one.module == "polyseme.metrics.ranking"
        and all(
            each.name in ("truth", "scores", "ties") or re.search(rf"\b{each.name}\b", one.doc)
            for each in one.parameters
        )
    ),
    "shared by the readers of files and not exported": lambda one: (
        one.module == "polyseme.io" and one.name not in readers.__all__
    ),
}


def listed_parameters(doc: str) -> set[str]:
    """Read the names in a docstring's Parameters section."""
    section = re.search(r"^Parameters\n-+\n(.*?)(?=^\S[^\n]*\n---|\Z)", doc, re.M | re.S)
    heads = re.findall(r"^(\S[^:\n]*)", section[1], re.M) if section else []
    return {name.strip().lstrip("*") for head in heads for name in head.split(",")}


ON_THE_PATH = [one for one in ALL_PUBLIC if one.module.startswith(PATH_FILES)]


@pytest.mark.parametrize("one", ON_THE_PATH, ids=str)
def test_every_parameter_on_the_path_is_described(one: Public) -> None:
    if not has_own_signature(one) or any(rule(one) for rule in EXEMPT.values()):
        return
    missing = {each.name for each in one.parameters} - listed_parameters(one.doc)
    assert not missing


def test_the_metrics_describe_once_what_they_all_take() -> None:
    told = importlib.import_module("polyseme.metrics").__doc__ or ""
    assert all(f"`{name}`" in told for name in ("truth", "scores")) and "ties=" in told


@pytest.mark.parametrize("reason", EXEMPT)
def test_every_exemption_is_still_needed(reason: str) -> None:
    assert any(EXEMPT[reason](one) and one.parameters for one in ON_THE_PATH)


def test_parameters_are_read_from_a_docstring() -> None:
    section = "Parameters\n----------\na, b : int\n    Two: of them.\n**rest\n"
    doc = f"Do it.\n\n{section}\nReturns\n-------\nc : float\n    A number."
    assert listed_parameters(doc) == {"a", "b", "rest"}
