"""`outrider train`: a command for each trainer, made from its description. The serving packages are imported when one is asked for."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from dataclasses import MISSING, fields
from enum import StrEnum
from functools import cached_property
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import typer
from typer.core import TyperGroup

from outrider.client.cli.shared import flags
from outrider.client.cli.shared.exits import CommandFailure, ExitCode, failure_of
from outrider.client.cli.shared.printing import print_json


class Word(StrEnum):
    """One of several words, for typer; a trainer gets it as text."""


class TrainerCommands(TyperGroup):
    """The commands of all trainers."""

    @cached_property
    def _made(self) -> Any:
        app = typer.Typer()
        # A group also where there is one trainer only.
        app.callback()(lambda: None)
        module = import_module("outrider.cluster.start.commands")
        trainers = module.trainers()
        group = typer.main.get_group(app)
        for name, spec in trainers.items():
            group.add_command(_as_command(module, spec), name)
        return group

    # Click is typer's own in some versions, and has no name here that fits all.
    def list_commands(self, ctx: Any) -> list[str]:
        """Their names; none where a package that they need is missing."""
        try:
            names: list[str] = self._made.list_commands(ctx)
        except ModuleNotFoundError:
            return []
        return names

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """See `TyperGroup`; says why no trainer is listed, if none is."""
        super().format_help(ctx, formatter)
        try:
            self._made.list_commands(ctx)
        except ModuleNotFoundError as error:
            print(f"no trainer is listed: {failure_of(error).message}", file=sys.stderr)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The one with this name; None: there is none."""
        return self._made.get_command(ctx, cmd_name)


train_app = typer.Typer(cls=TrainerCommands, help="Train models.", no_args_is_help=True)


@train_app.callback()
def options() -> None:
    """Train models."""


def _as_command(module: ModuleType, spec: Any) -> Any:
    """The command of a trainer.

    Raises:
        CommandFailure: Its options cannot be flags.
    """
    summary = f"Train {spec.summary}." + (f"\n\n{spec.source}." if spec.source else "")
    app = typer.Typer(add_completion=False)
    try:
        app.command(spec.name, help=summary)(_command(module, spec))
        return typer.main.get_command(app)
    except Exception as error:
        # Code of others, and types that typer may not know.
        raise CommandFailure(
            f"the options of the trainer {spec.name!r} cannot be flags: {type(error).__name__}: {error}"
        ) from error


def _command(module: ModuleType, spec: Any) -> Callable[..., None]:
    """The command of a trainer, whose flags are the fields of its options."""

    def run(*, as_json: bool, **given: Any) -> None:
        for key, value in given.items():
            if isinstance(value, list):
                given[key] = tuple(value)
            elif isinstance(value, Word):
                given[key] = value.value
        try:
            result = module.train(spec.name, given)
        except KeyboardInterrupt:
            goes_on = any(field.name == "resume" for field in fields(spec.options))
            where = "goes on from here" if goes_on else "begins again"
            message = f"interrupted; the same command {where}"
            raise CommandFailure(message, ExitCode.INTERRUPTED) from None
        if as_json:
            print_json(result.report)
            return
        for line in result.lines:
            print(line)

    parameters = _flags(spec)
    parameters.append(_keyword("as_json", False, flags.AsJson))
    return flags.with_parameters(run, parameters)


def _flags(spec: Any) -> list[inspect.Parameter]:
    """A flag for each field of a trainer's options."""
    kind, docs = spec.options, spec.option_docs
    hints = get_type_hints(kind)
    found = []
    for field in fields(kind):
        hint: Any = hints[field.name]
        names = field.metadata.get("flags", (f"--{field.name.replace('_', '-')}",))
        if hint is bool and not any("/" in name for name in names):
            names = (f"{names[0]}/--no-{names[0].removeprefix('--')}",)
        default: Any = field.default
        if field.default_factory is not MISSING:
            default = field.default_factory()
        is_required = default is MISSING
        if get_origin(hint) is Literal:
            # Not every version of typer knows Literal.
            hint = _choice(get_args(hint))
            default = default if is_required else hint(default)
        elif get_origin(hint) is tuple:
            # Made at run time.
            hint = list[get_args(hint)[0]]  # type: ignore[misc]
            default = default if is_required else list(default)
        is_path = Path in (hint, *get_args(hint))
        parsed: Any = {"parser": _path, "metavar": "<path>"} if is_path else {}
        option = typer.Option(*names, help=docs.get(field.name), **parsed)
        found.append(
            _keyword(
                field.name,
                inspect.Parameter.empty if is_required else default,
                Annotated[hint, option],
            )
        )
    return found


def _path(word: str) -> Path:
    """A path. Of nothing, as of a variable that is not set, it would be the folder at hand."""
    if not word:
        raise typer.BadParameter("it is empty; give a path")
    return Path(word)


def _choice(words: tuple[str, ...]) -> Any:
    """An enumeration of some words."""
    make: Any = Word
    return make("Choice", {word: word for word in words})


def _keyword(name: str, default: Any, annotation: Any) -> inspect.Parameter:
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation
    )
