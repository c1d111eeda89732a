"""The description of a trainer: everything that the command line and the documentation need to know about one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from outrider.actors.speculation.plugins import check_options, field_docs


class TrainerNeed(StrEnum):
    """What a trainer learns from."""

    TEXT = "text"
    """Training texts (`--data`)."""

    TARGET = "target"
    """A target, whose distribution or hidden states it learns (`--target`)."""

    DRAFT = "draft"
    """A draft model, which gets what was learnt (`--draft`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainResult:
    """What a trainer has to say in the end."""

    report: Mapping[str, Any]
    """Plain JSON, for programs."""

    lines: tuple[str, ...] = ()
    """The same for people, as far as it was not said before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerSpec:
    """A trainer: a command `outrider train NAME`."""

    name: str
    """Lower case, words joined by underscores; where it trains for a drafting method, that one's name."""

    run: Callable[[Any], TrainResult]
    """Trains, given its options. Killed, it goes on where it was. Raises `TrainError` for what a user can fix."""

    options: type[Any]
    """A frozen dataclass: each field is a flag, with the docstring below it for help. A flag without a default must be given. Raises
    ValueError if a value is wrong. A field's metadata may have `flags`, the flag's own names."""

    summary: str
    """What it makes, in one line."""

    source: str = ""
    """Authors, year and arXiv id; empty where there is no paper."""

    needs: frozenset[TrainerNeed] = frozenset({TrainerNeed.TEXT})
    """What it learns from."""

    @property
    def option_docs(self) -> Mapping[str, str]:
        """What each option is, by its name."""
        return field_docs(self.options)

    def __post_init__(self) -> None:
        if not self.name.isidentifier() or self.name != self.name.lower():
            raise ValueError(
                f"trainer {self.name!r}: a name is lower case, words joined by underscores"
            )
        check_options("trainer", self.name, self.options)
