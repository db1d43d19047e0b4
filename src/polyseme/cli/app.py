"""The application of the command, and the decorator that reads help texts of `options.toml`."""

from __future__ import annotations

import functools
import inspect
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn, TypeVar

import typer

from polyseme.base.interrupts import CODE, tell
from polyseme.cli.output import Form

app = typer.Typer(
    name="polyseme",
    help="Rank tags for items by what tags mean in the context of other tags: tags seen on "
    "training items, tags that none of them carries, and tags that turn up later.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
# Groups of commands in the help.
SHOWING = "See that it works"
LEARNING = "Learn and rank"
ANSWERING = "Yes, no, and what to look at next"
VOCABULARY = "Care for the vocabulary"
FILES = "From files to tags"
SERVING = "Serve and review in the browser"
_OPTIONS = tomllib.loads(Path(__file__).with_name("options.toml").read_text("utf-8"))

Kind = Literal["image", "audio"]
EngineName = Literal["local", "ray"]
LabelKind = Literal["seen", "unseen", "oov"]
Command = TypeVar("Command", bound=Callable[..., None])


@dataclass(frozen=True)
class TableOptions:
    """How tables with tags are read: options that all commands have which read some."""

    tags_column: str | None = None
    delimiter: str | None = None
    strict: bool = False


class Preset(StrEnum):
    """Named sets of parameters."""

    default = "default"
    paper = "paper"


def command(panel: str) -> Callable[[Command], Command]:
    """Make a function a command: parameters without a default are arguments, others options."""

    def register(function: Command) -> Command:
        texts = _OPTIONS["shared"] | _OPTIONS[function.__name__]
        example = f"Example: {texts.pop('example')}"
        signature = inspect.signature(function, eval_str=True)
        group = inspect.signature(TableOptions, eval_str=True).parameters
        declared: list[inspect.Parameter] = []
        for parameter in signature.parameters.values():
            if parameter.annotation is TableOptions:
                texts |= _OPTIONS["tables"]
                declared += [_declared(member, texts) for member in group.values()]
            else:
                declared.append(_declared(parameter, texts))

        @functools.wraps(function)
        def call(**given: Any) -> None:
            from polyseme.cli.postponed import postpone

            # Libraries that are hardly ever used wait until they are.
            postpone()
            if "tables" in signature.parameters:
                given["tables"] = TableOptions(**{name: given.pop(name) for name in group})
            function(**given)

        # Functions have no such attribute by their types; inspect, and so typer, looks for it.
        call.__signature__ = signature.replace(parameters=declared)  # type: ignore[attr-defined]
        app.command(rich_help_panel=panel, epilog=example)(call)
        return function

    return register


def _declared(parameter: inspect.Parameter, texts: dict[str, dict[str, Any]]) -> inspect.Parameter:
    """Return a parameter with typer's declaration of an argument or option."""
    settings = dict(texts[parameter.name])
    short = settings.pop("short", None)
    is_flag = settings.pop("flag", False)
    is_argument = settings.pop("argument", False)
    is_required = parameter.default is parameter.empty and short is None
    if is_argument or is_required:
        declaration = typer.Argument(**settings)
    else:
        name = f"--{parameter.name.replace('_', '-')}"
        names: tuple[str, ...] = ()
        if short:
            names = (name, short)
        elif is_flag:
            names = (name,)
        declaration = typer.Option(*names, **settings)
    return parameter.replace(
        annotation=Annotated[parameter.annotation, declaration], kind=parameter.KEYWORD_ONLY
    )


# Parameters that commands of other packages have, too.
Output = Annotated[Form, typer.Option("--form", "-f", help=_OPTIONS["shared"]["form"]["help"])]
KindOfMedia = Annotated[Kind, typer.Argument(**_OPTIONS["extract"]["kind"])]


def refuse(message: str) -> NoReturn:
    """Raise an `InputError`; the module that it comes from is heavy."""
    from polyseme.base.validation import InputError

    raise InputError(message)


@contextmanager
def resumable() -> Iterator[None]:
    """Print how to resume when a command is interrupted."""
    try:
        yield
    except KeyboardInterrupt:
        tell("polyseme: interrupted; run the same command again to go on where it stopped.")
        raise typer.Exit(CODE) from None


def _version(is_given: bool) -> None:
    """Print the version and end."""
    if is_given:
        from polyseme import __version__

        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _common(
    context: typer.Context,
    max_unpacked: Annotated[
        float | None,
        typer.Option(
            min=0.001, help="The most gigabytes that a .gz or .npz file may unpack to (default: 2)."
        ),
    ] = None,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    if max_unpacked is not None:
        from polyseme.io import unpacking

        context.with_resource(unpacking(max_unpacked))
