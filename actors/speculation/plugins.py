"""Methods that register themselves: every module of a folder, and whatever installed packages offer under an entry point."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import pkgutil
import textwrap
import traceback
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from importlib.metadata import entry_points
from itertools import pairwise
from types import MappingProxyType, ModuleType
from typing import Any, Protocol, TypeVar, get_type_hints


class Named(Protocol):
    """A description of a method."""

    @property
    def name(self) -> str:
        """Unique among its kind."""
        ...


Spec = TypeVar("Spec", bound=Named)


class Conflict(ImportError):
    """Two methods have one name, or a package offers something that is no method or cannot be loaded. Says which, and by whom."""


def discover(package: ModuleType, kind: type[Spec], *, group: str) -> Mapping[str, Spec]:
    """All methods of one kind, by name, those of this package first.

    A module registers itself by a tuple `SPECS`. An installed package does so by an entry point whose object is a
    description, or a tuple of some.

    Args:
        package: The folder whose modules are methods.
        kind: Class of the descriptions.
        group: Entry points of other packages.

    Raises:
        Conflict: A name is taken twice, or an entry point is no description or raises when it is loaded.
    """
    found: dict[str, Spec] = {}
    places: dict[str, str] = {}
    for place, spec in (*_own(package), *_offered(group)):
        if not isinstance(spec, kind):
            raise Conflict(
                f"{place} offers {spec!r}, which is no {kind.__name__}, nor a tuple of some"
            )
        if spec.name in found:
            raise Conflict(
                f"{place} names a method {spec.name!r}, which there is already, by {places[spec.name]}"
            )
        found[spec.name], places[spec.name] = spec, place
    return MappingProxyType(found)


class Discovered(Mapping[str, Spec]):
    """Methods that are looked for when one is first asked for: a package may offer several kinds in one module, which then imports what asks for them."""

    def __init__(self, look: Callable[[], Mapping[str, Spec]]) -> None:
        """Looks for nothing.

        Args:
            look: `discover`, with its arguments.
        """
        self._look = look

    @cached_property
    def _found(self) -> Mapping[str, Spec]:
        return self._look()

    def __getitem__(self, name: str) -> Spec:
        return self._found[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)


def fault(error: BaseException) -> str:
    """What code of others has raised, and where, which tells its author most."""
    if isinstance(error, SyntaxError):
        file, line, text = error.filename, error.lineno, error.msg
    else:
        at = traceback.extract_tb(error.__traceback__)[-1]
        file, line, text = at.filename, at.lineno, str(error)
    return f"{type(error).__name__}: {text} ({file}, line {line})"


def check_options(kind: str, name: str, options: type[Any]) -> None:
    """Refuse a class of options that is no dataclass, or whose types cannot be told while it runs.

    Raises:
        ValueError: Says whose it is, and what is wrong.
    """
    if not dataclasses.is_dataclass(options):
        raise ValueError(f"{kind} {name}: options is {options!r}, which is no dataclass")
    try:
        get_type_hints(options)
    except Exception as error:
        raise ValueError(
            f"{kind} {name}: the types of its options cannot be told: {type(error).__name__}: {error}"
        ) from error


def field_docs(kind: type[Any]) -> dict[str, str]:
    """The docstrings that stand below the fields of a class of options, and of those that it derives from, by field."""
    found: dict[str, str] = {}
    for one in reversed(kind.__mro__[:-1]):
        try:
            (body,) = ast.parse(textwrap.dedent(inspect.getsource(one))).body
        except (OSError, TypeError):
            # Made by a program.
            continue
        assert isinstance(body, ast.ClassDef), "it is a class"
        for field, below in pairwise(body.body):
            if (
                isinstance(field, ast.AnnAssign)
                and isinstance(field.target, ast.Name)
                and isinstance(below, ast.Expr)
                and isinstance(below.value, ast.Constant)
            ):
                found[field.target.id] = inspect.cleandoc(str(below.value.value)).replace("\n", " ")
    return found


def _own(package: ModuleType) -> Iterator[tuple[str, Any]]:
    for module in pkgutil.iter_modules(package.__path__):
        name = f"{package.__name__}.{module.name}"
        for spec in getattr(importlib.import_module(name), "SPECS", ()):
            yield name, spec


def _offered(group: str) -> Iterator[tuple[str, Any]]:
    for point in sorted(entry_points(group=group)):
        package = f" of the package {point.dist.name}" if point.dist is not None else ""
        place = f"the entry point {point.name!r} of {group}{package}"
        try:
            offered = point.load()
        except (Exception, SystemExit) as error:
            # Code of others, which may raise anything.
            raise Conflict(
                f"{place} cannot be loaded: {fault(error)}; fix or uninstall it"
            ) from error
        for spec in offered if isinstance(offered, tuple) else (offered,):
            yield place, spec
