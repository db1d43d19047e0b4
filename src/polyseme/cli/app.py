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
from typing import TYPE_CHECKING, Annotated, Any, Literal, NoReturn, TypeVar

import typer

from polyseme.base.interrupts import CODE, tell
from polyseme.base.plugins import extractor_kinds
from polyseme.cli.output import Form

app = typer.Typer(
    name="polyseme",
    help="Rank tags for items by what tags mean in the context of other tags: tags seen on "
    "training items, tags that none of them carries, and tags that turn up later.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
# Groups of commands, in whose boxes the help lists them.
SHOWING = "See that it works"
LEARNING = "Learn and rank"
ANSWERING = "Yes, no, and what to look at next"
VOCABULARY = "Care for the vocabulary"
FILES = "From files to tags"
SERVING = "Serve and review in the browser"

# Kinds of media that `extract` takes, also those that other packages add.
_MEDIA_KINDS = extractor_kinds()
# By command, or "shared" or "tables", and parameter: keywords of typer's declarations.
_OPTIONS = tomllib.loads(Path(__file__).with_name("options.toml").read_text("utf-8"))
_OPTIONS["extract"]["kind"]["metavar"] = "|".join(_MEDIA_KINDS)

EngineName = Literal["local", "ray"]
if TYPE_CHECKING:
    Kind = str
else:
    Kind = Literal[_MEDIA_KINDS]
LabelKind = Literal["seen", "unseen", "oov"]
Command = TypeVar("Command", bound=Callable[..., None])


@dataclass(frozen=True)
class TableOptions:
    """How tables with tags are read: the options of every command that reads some."""

    tags_column: str | None = None  # by default a column called tags or labels
    delimiter: str | None = None  # between the tags of a cell; by default it is detected
    strict: bool = False  # whether ids that do not match are refused, and not only reported


class Preset(StrEnum):
    """Named sets of parameters."""

    default = "default"
    paper = "paper"


def command(panel: str) -> Callable[[Command], Command]:
    """Make a function the command of its name: parameters become arguments and options.

    A parameter of the type `TableOptions` becomes an option for each of its fields. Help texts come
    from `options.toml`, and the function's docstring is the help of the command. The function stays
    as it is, so that other code can call it.

    Parameters
    ----------
    panel : str
        The box of the help that lists the command.
    """

    def register(function: Command) -> Command:
        settings = _OPTIONS["shared"] | _OPTIONS[function.__name__]
        example = f"Example: {settings.pop('example')}"
        signature = inspect.signature(function, eval_str=True)
        table_parameters = inspect.signature(TableOptions, eval_str=True).parameters
        declared_parameters: list[inspect.Parameter] = []
        for parameter in signature.parameters.values():
            if parameter.annotation is not TableOptions:
                declared_parameters.append(_declare(parameter, settings))
                continue
            settings |= _OPTIONS["tables"]
            for table_parameter in table_parameters.values():
                declared_parameters.append(_declare(table_parameter, settings))

        @functools.wraps(function)
        def run(**arguments: Any) -> None:
            from polyseme.cli.postponed import postpone

            # Libraries that are hardly ever used wait until they are.
            postpone()
            if "tables" in signature.parameters:
                table_options = {name: arguments.pop(name) for name in table_parameters}
                arguments["tables"] = TableOptions(**table_options)
            function(**arguments)

        # Functions have no such attribute by their types; inspect, and so typer, looks for it.
        new_signature = signature.replace(parameters=declared_parameters)
        run.__signature__ = new_signature  # type: ignore[attr-defined]
        app.command(rich_help_panel=panel, epilog=example)(run)
        return function

    return register


def _declare(
    parameter: inspect.Parameter, settings_by_name: dict[str, dict[str, Any]]
) -> inspect.Parameter:
    """Return a parameter whose annotation has typer's declaration of an argument or option.

    It is an argument where it has no default, unless its settings have a short name: then it is a
    required option. `options.toml` says what else settings may have.
    """
    settings = dict(settings_by_name[parameter.name])
    short_name = settings.pop("short", None)
    is_flag = settings.pop("flag", False)
    is_argument = settings.pop("argument", False)
    option_name = settings.pop("option", None)
    is_required = parameter.default is parameter.empty and short_name is None
    if is_argument or is_required:
        declaration = typer.Argument(**settings)
    else:
        dashed_name = parameter.name.replace("_", "-")
        long_name = option_name or f"--{dashed_name}"
        # Without names typer makes its own; for a flag that is `--name` and `--no-name`.
        names: tuple[str, ...] = ()
        if short_name:
            names = (long_name, short_name)
        elif is_flag or option_name:
            names = (long_name,)
        declaration = typer.Option(*names, **settings)
    return parameter.replace(
        annotation=Annotated[parameter.annotation, declaration], kind=parameter.KEYWORD_ONLY
    )


# Types of parameters that commands of other packages take as well.
Output = Annotated[Form, typer.Option("--form", "-f", help=_OPTIONS["shared"]["form"]["help"])]
KindOfMedia = Annotated[Kind, typer.Argument(**_OPTIONS["extract"]["kind"])]


def refuse(message: str) -> NoReturn:
    """Raise an `InputError`, which ends the command with one sentence and the exit code 1."""
    from polyseme.base.validation import InputError  # costs numpy, which the help must not load

    raise InputError(message)


@contextmanager
def resumable() -> Iterator[None]:
    """Print how to resume when the command is interrupted in the body."""
    try:
        yield
    except KeyboardInterrupt:
        tell("polyseme: interrupted; run the same command again to go on where it stopped.")
        raise typer.Exit(CODE) from None


def _version(is_given: bool) -> None:
    """Print the version and end the command, where `--version` is given."""
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
    """Apply the options that stand before the name of a command."""
    if max_unpacked is not None:
        from polyseme.io import unpacking

        context.with_resource(unpacking(max_unpacked))
