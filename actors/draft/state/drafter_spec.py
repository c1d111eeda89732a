"""The description of a drafting method: everything that the rest of the service needs to know about one."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, get_type_hints

from outrider.actors.draft.state.draft_sessions import DraftSessions
from outrider.actors.draft.state.draft_settings import DraftSettings
from outrider.actors.draft.state.drafter import Drafter
from outrider.actors.engine.timed_engine import TimedEngine
from outrider.actors.exchange.feedback_request import FeedbackRequest
from outrider.actors.speculation.plugins import check_options
from outrider.actors.speculation.policies import LengthChoice


def full_alone(model: str) -> tuple[LengthChoice, ...]:
    """Nothing stops early."""
    return (LengthChoice.FULL,)


def full_or_confidence(model: str) -> tuple[LengthChoice, ...]:
    """Those that need no trained model."""
    return LengthChoice.FULL, LengthChoice.CONFIDENCE


class TargetNeed(StrEnum):
    """What a method reads of the target's work."""

    TOKENS = "tokens"
    """Committed tokens, which every drafter is told."""

    HIDDEN_STATES = "hidden_states"
    """Hidden states of named layers at committed positions."""

    TOP_ROWS = "top_rows"
    """The most probable tokens at committed positions, with their probabilities."""

    SIBLINGS = "siblings"
    """Committed tokens of the other sequences of the same request, which are attached to the same drafter for this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedDrafter:
    """A method that is ready to draft, and what identifies its model."""

    sessions: DraftSessions
    """Its sessions."""

    drafter: Drafter
    """Grows their trees."""

    lengths: tuple[LengthChoice, ...] = (LengthChoice.FULL,)
    """Length policies that it can follow."""

    model: str = ""
    """Name of its model; this and what follows is empty without one."""

    model_fingerprint: str = ""
    """Digest of the weights."""

    tokenizer_fingerprint: str = ""
    """Digest of the tokenizer."""

    vocab_size: int = 0
    """Token ids that it knows; 0: any."""

    engine: TimedEngine | None = None
    """Runs its model."""

    feedback: FeedbackRequest | None = None
    """What it asks of targets beyond tokens; None: nothing. Its drafter is then a reader of that (`drafter.py`)."""


KINDS: dict[Any, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a text",
}
"""What an option of each type must be, for people."""


def _is_of(value: object, kind: type) -> bool:
    """Whether a value may stand for an option of a type: true and false are no numbers, and whole numbers are numbers."""
    if isinstance(value, bool):
        return kind is bool
    return isinstance(value, (int, float) if kind is float else kind)


@dataclass(frozen=True, slots=True, kw_only=True)
class NoOptions:
    """Of a method that has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DrafterSpec:
    """A drafting method."""

    name: str
    """As the configuration names it: lower case, words joined by underscores."""

    build: Callable[[DraftSettings], LoadedDrafter]
    """Loads what the settings name, on the thread that will draft. Raises ValueError or OSError if it cannot; the message says why."""

    summary: str
    """When to choose it, in one line for the table of drafters."""

    source: str = ""
    """Authors, year and arXiv id; empty where there is no paper."""

    needs_model: bool = False
    """True: the configuration must name a model; False: it must name none."""

    model_types: frozenset[str] = frozenset()
    """`model_type` in the `config.json` of folders that are made for this method: `--draft FOLDER` then means it."""

    also_loads: frozenset[str] = frozenset()
    """Likewise of folders that are made for another method, and that this one loads where the configuration names it."""

    read_shape: Callable[[Mapping[str, Any]], object] | None = None
    """Reads what the `config.json` of such a folder holds, without torch, so that the configuration can tell whether it can be loaded. Raises
    ValueError if not; the message says why."""

    config_key: str = ""
    """Key in the `config.json` of folders that this method is meant for, though others may load them: `--draft FOLDER` then means it."""

    gives_probabilities: bool = False
    """True: its tokens are drawn from rows that it sends along, so that it serves verifiers of frozen trees, too."""

    needs: frozenset[TargetNeed] = frozenset({TargetNeed.TOKENS})
    """What it reads of the target's work; `LoadedDrafter.feedback` names the layers and numbers of rows."""

    lengths: Callable[[str], tuple[LengthChoice, ...]] = full_alone
    """Length policies that it offers with this model, the empty word where it has none (`LoadedDrafter.lengths`), as far as the model's folder
    tells without torch."""

    check_model: Callable[[Any, str, Mapping[str, Any]], None] | None = None
    """Compares its options with a model that it is given: its name, and what its `config.json` holds. Without torch. Raises ValueError if they
    do not fit; the message says why."""

    options: type[Any] = NoOptions
    """A frozen dataclass of its own options; each field has a default, and a docstring below it in the source."""

    @property
    def loads(self) -> frozenset[str]:
        """`model_type` of every folder of a net that it loads; empty: it loads language models, or none."""
        return self.model_types | self.also_loads

    def __post_init__(self) -> None:
        if not self.name.isidentifier() or self.name != self.name.lower():
            raise ValueError(
                f"drafter {self.name!r}: a name is lower case, words joined by underscores"
            )
        check_options("drafter", self.name, self.options)

    def check_lengths(self, loaded: LoadedDrafter, model: str) -> None:
        """Makes sure that a loaded method offers no length policy but those of its description.

        Raises:
            ValueError: It does.
        """
        if undeclared := set(loaded.lengths).difference(self.lengths(model)):
            raise ValueError(
                f"method {self.name} offers the draft lengths {', '.join(sorted(undeclared))}, which `lengths` of its description lacks"
            )

    def check_feedback(self, loaded: LoadedDrafter) -> None:
        """Makes sure that a loaded method asks targets for what its description says, and reads what it asks for.

        Raises:
            ValueError: Description and method differ.
        """
        feedback, drafter = loaded.feedback, loaded.drafter
        asked = {
            TargetNeed.HIDDEN_STATES: feedback is not None and bool(feedback.layers),
            TargetNeed.TOP_ROWS: feedback is not None and feedback.top_k > 0,
        }
        for need, is_asked in asked.items():
            if is_asked != (need in self.needs):
                raise ValueError(
                    f"method {self.name} {'asks' if is_asked else 'does not ask'} for {need}, and its needs are "
                    f"{', '.join(sorted(self.needs))}"
                )
        hooks = {
            "take_features": asked[TargetNeed.HIDDEN_STATES],
            "take_top_rows": asked[TargetNeed.TOP_ROWS],
            "take_rejected": feedback is not None and feedback.wants_rejected,
        }
        lacking = [
            name for name, is_asked in hooks.items() if is_asked and not hasattr(drafter, name)
        ]
        if lacking:
            raise ValueError(f"the drafter of method {self.name} lacks {', '.join(lacking)}")

    def settled(self, given: Mapping[str, Any]) -> Any:
        """Its options, those given and the others' defaults.

        Raises:
            ValueError: One is unknown or wrong.
        """
        known = {field.name for field in dataclasses.fields(self.options)}
        if unknown := given.keys() - known:
            raise ValueError(
                f"method {self.name} has no option {', '.join(map(repr, sorted(unknown)))}; "
                f"it has {', '.join(sorted(known)) or 'none'}"
            )
        hints = get_type_hints(self.options)
        for name, value in given.items():
            kind = KINDS.get(hints[name])
            if kind is not None and not _is_of(value, hints[name]):
                raise ValueError(
                    f"option {name} of method {self.name} is {json.dumps(value)}; it must be {kind}"
                )
        return self.options(**given)
