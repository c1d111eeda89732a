"""The flags that several commands share. Those of requests follow from `SamplingOptions` and `SpeculationOptions`."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from enum import StrEnum
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import typer

from outrider.client.cli.shared.exits import usage_error
from outrider.client.connection.timeouts import REQUEST_TIMEOUT_S
from outrider.client.messages.request_options import Flag, SamplingOptions, SpeculationOptions

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
Model = Annotated[str, typer.Option("--model", "-m", help="Target model. Default: the first.")]
TimeoutS = Annotated[
    float, typer.Option("--timeout", metavar="SECONDS", help="Time for one request.")
]

TIMEOUT_DEFAULT = REQUEST_TIMEOUT_S

_KINDS: Mapping[str, tuple[type[Any], str]] = {
    "sampling": (SamplingOptions, "Sampling"),
    "speculation": (SpeculationOptions, "Speculation"),
}
"""Parameters of commands that stand for many flags: the class of the value, and the panel of `--help`."""


def request_options(
    *, sampling: tuple[str, ...] | None = None, speculation: tuple[str, ...] | None = None
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Gives a command flags in place of its parameters `sampling` and `speculation`, as far as it has them.

    Args:
        sampling: Fields of `SamplingOptions` that get a flag; None: all.
        speculation: Fields of `SpeculationOptions` that get a flag; None: all.
    """
    chosen = {"sampling": sampling, "speculation": speculation}

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own = inspect.signature(command, eval_str=True)
        groups = {name: _flags(name, chosen[name]) for name in _KINDS if name in own.parameters}

        @functools.wraps(command)
        def run(**given: Any) -> None:
            for name, flags in groups.items():
                values = {flag: given.pop(flag) for flag in flags}
                given[name] = _KINDS[name][0](**_read(name, values))
            command(**given)

        parameters: list[inspect.Parameter] = []
        for name, parameter in own.parameters.items():
            if name in groups:
                parameters += groups[name].values()
            else:
                parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))
        return with_parameters(run, parameters)

    return decorate


def with_parameters(
    command: Callable[..., None], parameters: Sequence[inspect.Parameter]
) -> Callable[..., None]:
    """The command, of which typer reads these parameters in place of its own."""
    changed: Any = command
    vars(changed).pop("__wrapped__", None)
    changed.__signature__ = inspect.Signature(parameters)
    changed.__annotations__ = {each.name: each.annotation for each in parameters}
    return command


def _flags(name: str, chosen: tuple[str, ...] | None) -> dict[str, inspect.Parameter]:
    """The flags of a class of options, by the names of its fields."""
    kind, panel = _KINDS[name]
    hints = get_type_hints(kind, include_extras=True)
    found = {}
    for option in fields(kind):
        if chosen is not None and option.name not in chosen:
            continue
        held, flag = get_args(hints[option.name])
        assert isinstance(flag, Flag), f"{option.name} has no flag"
        is_switch = option.name == "ignore_eos"
        found[option.name] = inspect.Parameter(
            option.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=False if is_switch else None,
            annotation=Annotated[
                bool if is_switch else _typed(held),
                typer.Option(*_names(option.name, flag), rich_help_panel=panel, help=flag.help),
            ],
        )
    return found


def _names(field: str, flag: Flag) -> tuple[str, ...]:
    has_long = any(name.startswith("--") for name in flag.names)
    return flag.names if has_long else (f"--{field.replace('_', '-')}", *flag.names)


def _typed(held: Any) -> Any:
    """The type by which typer reads a field: several of what a tuple holds, texts for a mapping, a text for any of several names."""
    parts = [part for part in get_args(held) if part is not type(None)]
    if get_origin(held) is tuple:
        return list[parts[0]] | None  # type: ignore[valid-type]
    if get_origin(held) is Mapping:
        return list[str] | None
    if str in parts and any(isinstance(part, type) and issubclass(part, StrEnum) for part in parts):
        return str | None
    return held


def _read(name: str, values: dict[str, Any]) -> dict[str, Any]:
    """The fields' values from the flags' values."""
    hints = get_type_hints(_KINDS[name][0])
    read: dict[str, Any] = {}
    for key, value in values.items():
        origin = get_origin(hints[key])
        if origin is Mapping:
            read[key] = _mapping(f"{name}.{key}", value, get_args(hints[key])[0])
        elif origin is tuple:
            read[key] = tuple(value or ())
        else:
            read[key] = None if value is False and key == "ignore_eos" else value
    return read


def _mapping(field: str, entries: list[str] | None, kind: type[Any]) -> dict[Any, float]:
    """Numbers by name, or by token id, from `NAME=NUMBER`."""
    found: dict[Any, float] = {}
    for entry in entries or []:
        name, _, number = entry.partition("=")
        try:
            key, value = kind(name), float(number)
        except ValueError:
            form = "ID=BIAS, for instance 42=-100" if kind is int else "NAME=NUMBER"
            raise usage_error(f"{field}: {entry!r} is not {form}") from None
        if key in found:
            raise usage_error(f"{field}: {entry!r} names {key} twice")
        found[key] = value
    return found
