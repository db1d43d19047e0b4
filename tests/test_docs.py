"""Code on the pages runs and prints what they show, and every public name has a docstring."""

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
from polyseme.base.validation import PolysemeWarning
from polyseme.cli import app, main

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *DOCS.rglob("*.md")])
each_page = pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))

# ---------------------------------------------------------------------- blocks of a page


class Block(NamedTuple):
    """A fenced block of a page."""

    language: str
    is_example: bool  # whether the page says that the output may differ
    text: str
    line: int
    follows: bool  # whether only blank lines stand between it and the block before


def blocks_of(path: Path, *languages: str) -> list[Block]:
    """Return the fenced blocks of a page in some languages."""
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
    """Run a `polyseme` command in this process; return exit code, stdout and stderr."""
    arguments = shlex.split(command)
    assert arguments[0] == "polyseme", f"only polyseme can be run here, not {arguments[0]}"
    stdout = io.StringIO()
    stderr = io.StringIO()
    code = 0
    # The command prints warnings in its own way, which must not outlive it.
    with (
        warnings.catch_warnings(),
        contextlib.redirect_stdout(stdout),
        contextlib.redirect_stderr(stderr),
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setattr(sys, "argv", arguments)
        try:
            main()
        except SystemExit as end:
            code = int(end.code or 0)
    return code, stdout.getvalue(), stderr.getvalue()


def commands_of(block: Block) -> Iterator[tuple[str, str]]:
    """Yield the commands of a console block, each with the output that the page shows."""
    for prompt in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
        command, _, output = prompt.replace("\\\n", " ").partition("\n")
        yield command, output


def words(text: str) -> list[list[str]]:
    """Return what does not depend on the machine in an output: the sorted words of each line.

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
            printed = run_python(block.text, where, namespace)
        elif block.language == "text" and block.follows and printed is not None:
            check_output(printed, block.text, block.is_example, where)
            printed = None
        elif block.language == "console":
            for command, output in commands_of(block):
                if command.split()[1] not in skip:
                    check_command(command, output, block.is_example, where)
    return namespace


def run_python(code: str, where: str, namespace: dict[str, Any]) -> str:
    """Run code in a namespace and return what it prints."""
    stream = io.StringIO()
    with contextlib.redirect_stdout(stream):
        exec(compile(code, where, "exec"), namespace)
    return stream.getvalue()


def check_command(command: str, output: str, is_example: bool, where: str) -> None:
    """Run a command and compare its output and exit code with what the page shows."""
    code, stdout, stderr = run_command(command)
    is_error = output.startswith("polyseme: ")
    assert code == int(is_error), f"{where}: {command}\n{stderr}"
    check_output(stdout or stderr, output, is_example, where)


def check_output(printed: str, output: str, is_example: bool, where: str) -> None:
    assert printed.strip(), f"{where}: no output"
    assert output.strip(), f"{where}: no output is shown"
    if not is_example:
        assert words(printed) == words(output), f"{where}: prints\n{printed}"


# ---------------------------------------------------------------------- pages that run


def test_the_readme_opens_with_two_commands_and_has_one_short_python_block() -> None:
    opening = (ROOT / "README.md").read_text("utf-8")[:1200]
    assert "make demo" in opening
    assert "make test" in opening
    (block,) = blocks_of(ROOT / "README.md", "python")
    lines = block.text.split("\n")
    n_lines = sum(bool(line.strip()) for line in lines)
    assert n_lines <= 12


@pytest.mark.slow
def test_the_readme_block_prints_what_the_page_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        namespace = run_page(ROOT / "README.md", languages=("python", "text"))
    tagger = namespace["tagger"]
    charger = list(tagger.classes_).index("charger")
    assert tagger.kinds_[charger] == "unseen"


@pytest.fixture(scope="module")
def tutorial(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """The variables of the tutorial, in a folder with its files."""
    with contextlib.chdir(tmp_path_factory.mktemp("tutorial")):
        yield run_page(DOCS / "first-model.md")


@pytest.mark.slow
def test_the_tutorial_runs_and_prints_what_it_shows(tutorial: dict[str, Any]) -> None:
    features = tutorial["new"][0]
    evidence = tutorial["tagger"].explain(features, "charger", k=3)
    contributions = [contribution for _, contribution in evidence.parts()]
    assert sum(contributions) == pytest.approx(evidence.logit)
    office = set(tutorial["world"].themes["office"])
    for neighbour in evidence.neighbours:
        assert set(neighbour.document) <= office


@pytest.mark.slow
def test_the_commands_print_what_the_pages_show(tutorial: dict[str, Any]) -> None:
    # The tutorial has saved the models that `fit` learns on both pages.
    run_page(DOCS / "commands.md", skip=("demo", "reproduce", "fit"))
    (block,) = blocks_of(ROOT / "README.md", "console")
    fit, *commands = [command for command, _ in commands_of(block)]
    assert fit.startswith("polyseme fit model ")
    for command in commands:
        code, stdout, stderr = run_command(command)
        assert code == 0, f"{command}\n{stderr}"
        assert stdout


@pytest.mark.slow
@pytest.mark.parametrize("page", ["files-to-tags", "new-tags", "evaluate", "notes"])
def test_the_pages_run_and_print_what_they_show(page: str, tmp_path: Path) -> None:
    with contextlib.chdir(tmp_path), warnings.catch_warnings():
        warnings.simplefilter("ignore", PolysemeWarning)
        run_page(DOCS / f"{page}.md")


def test_every_command_and_every_option_of_fit_is_on_the_page() -> None:
    text = (DOCS / "commands.md").read_text("utf-8")
    commands = typer.main.get_command(app).commands
    assert sorted(re.findall(r"^## (\w+)$", text, re.MULTILINE)) == sorted(commands)
    for option in commands["fit"].params:
        names = [f"`{name}`" for name in (*option.opts, *option.secondary_opts)]
        if option.name != "model":
            assert any(name in text for name in names), option.name


@each_page
def test_interpreter_sessions_print_what_the_pages_show(path: Path) -> None:
    texts = [block.text for block in blocks_of(path, "pycon")]
    parser = doctest.DocTestParser()
    session = parser.get_doctest("\n".join(texts), {}, path.name, str(path), 0)
    results = doctest.DocTestRunner(verbose=False).run(session)
    assert results.failed == 0


# ---------------------------------------------------------------------- links and pages


@each_page
def test_no_page_names_a_folder_of_one_machine(path: Path) -> None:
    text = path.read_text("utf-8")
    assert not re.search(r"/(home|work|root|Users)/|\.\./shared", text)


@each_page
def test_local_links_lead_to_files(path: Path) -> None:
    text = path.read_text("utf-8")
    text = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if not target.startswith(("http://", "https://", "#", "mailto:")):
            file, _, _ = target.partition("#")
            assert (path.parent / file).exists(), target


def test_every_page_is_in_the_navigation() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text("utf-8")
    listed = re.findall(r"\s([\w/-]+\.md)$", navigation, re.MULTILINE)
    pages = [str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")]
    assert sorted(listed) == sorted(pages)


def test_the_constants_on_the_method_page_are_the_defaults() -> None:
    text = (DOCS / "how-it-works.md").read_text("utf-8")
    row = r"^\|[^|]*\|[^|]*\| `([^`]+)`[^|]*\| `(\w+)` \| `(\w+)` \|$"
    rows = re.findall(row, text, re.MULTILINE)
    assert len(rows) >= 10
    for default, owner, parameter in rows:
        (function,) = {
            function for name, function in ALL_PUBLIC.items() if name.endswith(f".{owner}")
        }
        parameters = inspect.signature(function).parameters
        assert repr(parameters[parameter].default) == default, f"{owner}.{parameter}"


# ---------------------------------------------------------------------- public names


def public_modules() -> list[str]:
    """List the modules without a leading underscore anywhere in their name."""
    names = [module.name for module in pkgutil.walk_packages(polyseme.__path__, "polyseme.")]
    return [name for name in names if "._" not in name]


def public_names(module: str) -> Iterator[tuple[str, Any]]:
    """Yield what a module defines in public: functions, classes and the classes' methods."""
    for name, value in vars(importlib.import_module(module)).items():
        if name.startswith("_") or getattr(value, "__module__", None) != module:
            continue
        if inspect.isfunction(value):
            yield f"{module}.{name}", value
        elif inspect.isclass(value):
            yield f"{module}.{name}", value
            for method, function in public_methods(value):
                yield f"{module}.{name}.{method}", function


def public_methods(owner: type) -> Iterator[tuple[str, Any]]:
    """Yield the public methods and properties that a class defines itself."""
    for name, value in vars(owner).items():
        function = value.fget if isinstance(value, property) else value
        function = getattr(function, "__func__", function)
        if not name.startswith("_") and inspect.isfunction(function):
            yield name, function


ALL_PUBLIC = {name: value for module in public_modules() for name, value in public_names(module)}
EXPORTED = [getattr(polyseme, name) for name in polyseme.__all__]


def test_the_package_exports_a_few_names_with_docstrings() -> None:
    assert len(polyseme.__all__) <= 13
    assert set(polyseme.__all__) <= set(dir(polyseme))
    assert all(map(inspect.getdoc, EXPORTED))


def test_every_module_and_every_public_name_has_a_docstring() -> None:
    modules = {name: importlib.import_module(name) for name in public_modules()}
    for name, value in (modules | ALL_PUBLIC).items():
        assert value.__doc__, name


def test_the_reference_names_every_module_with_public_names_and_nothing_else() -> None:
    pages = [page.read_text("utf-8") for page in (DOCS / "reference").glob("*.md")]
    named = re.findall(r"^::: (\S+)$", "".join(pages), re.MULTILINE)
    assert len(named) == len(set(named))
    for name in named:
        pkgutil.resolve_name(name)
    modules = {name for name in public_modules() if next(public_names(name), None)}
    inner = ("polyseme.base", "polyseme.cli")  # of the package's own use, or told elsewhere
    assert not {name for name in modules if not name.startswith(inner)} - set(named)


def parameters_of(function: Any) -> list[inspect.Parameter]:
    """Return the parameters of a function or class without `self` and `cls`."""
    parameters = inspect.signature(function).parameters.values()
    return [parameter for parameter in parameters if parameter.name not in ("self", "cls")]


def has_python_s_signature(value: Any) -> bool:
    """Whether a class gets its signature from Python: enumerations, errors and protocols."""
    if not inspect.isclass(value):
        return False
    return issubclass(value, (Enum, Exception)) or getattr(value, "_is_protocol", False)


def test_every_public_signature_is_fully_annotated() -> None:
    empty = inspect.Parameter.empty
    missing = []
    for name, value in ALL_PUBLIC.items():
        if has_python_s_signature(value):
            continue
        for parameter in parameters_of(value):
            if parameter.annotation is empty:
                missing.append(f"{name}({parameter.name})")
        if inspect.isfunction(value) and inspect.signature(value).return_annotation is empty:
            missing.append(name)
    assert not missing


def listed_parameters(doc: str) -> set[str]:
    """Return the names in a docstring's Parameters section."""
    section = re.search(r"^Parameters\n-+\n(.*?)(?=^\S[^\n]*\n---|\Z)", doc, re.M | re.S)
    if section is None:
        return set()
    names = set()
    for entry in re.findall(r"^(\S[^:\n]*)", section[1], re.M):
        for name in entry.split(","):
            names.add(name.strip(" *"))
    return names


def test_parameters_are_read_from_docstrings() -> None:
    section = "Parameters\n----------\na, b : int\n    Two: of them.\n**rest\n"
    doc = f"Do it.\n\n{section}\nReturns\n-------\nc : float\n    A number."
    assert listed_parameters(doc) == {"a", "b", "rest"}


def describes_parameters_elsewhere(name: str, value: Any, doc: str) -> bool:
    """Whether a record lists fields under Attributes, or a sentence refers to another docstring."""
    if is_dataclass(value):
        return True
    if name.endswith(".from_state") or doc.startswith("Refuse: "):
        return True
    reference = re.search(r"[Ss]ee `[\w.]+`", doc)
    return reference is not None


def test_everything_exported_describes_its_parameters() -> None:
    roots = {f"{value.__module__}.{value.__qualname__}" for value in EXPORTED}
    missing = []
    for name, value in ALL_PUBLIC.items():
        if name not in roots and name.rpartition(".")[0] not in roots:
            continue
        doc = inspect.cleandoc(value.__doc__ or "")
        names = {parameter.name for parameter in parameters_of(value)}
        undescribed = names - listed_parameters(doc)
        if len(names) > 1 and undescribed and not describes_parameters_elsewhere(name, value, doc):
            missing.append(f"{name}: {sorted(undescribed)}")
    assert not missing
