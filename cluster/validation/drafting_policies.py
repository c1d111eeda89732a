"""Checks of the drafting policies that a client wrote. Pure, like `validation/`, which calls this."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

from outrider.actors.exchange.option_fields import choice
from outrider.actors.speculation.choice.verifier_registry import VERIFIERS
from outrider.actors.speculation.policies import (
    DraftPolicies,
    LengthChoice,
    RootPolicy,
)
from outrider.cluster.validation.refusals import invalid
from outrider.v1 import sampling_pb2

Choice = TypeVar("Choice", LengthChoice, RootPolicy)


def settle_policies(
    options: sampling_pb2.SpeculationOptions,
    *,
    defaults: DraftPolicies,
    verifier: str,
    enabled: bool,
    served: Mapping[str, Sequence[LengthChoice]],
) -> DraftPolicies:
    """Checks the policies of a request and fills in the defaults.

    Args:
        options: What the client wrote.
        defaults: What is configured.
        verifier: The verifier in force.
        enabled: False: the request decodes plainly.
        served: The draft lengths that each drafter offers that could take part; none while a drafter has not said.

    Raises:
        Refusal: A policy is unknown, or contradicts another option.
    """
    length = _choice(options, "draft_length", LengthChoice, defaults.draft_length)
    if options.draft_length and enabled:
        _check_served(length, served)
    return DraftPolicies(
        draft_length=length,
        roots=_roots(options, defaults.roots, verifier),
        aggressiveness=_number(
            options, "aggressiveness", defaults, length, LengthChoice.CONFIDENCE
        ),
        decision_threshold=_number(
            options, "decision_threshold", defaults, length, LengthChoice.DECISION
        ),
    )


def _choice(
    options: sampling_pb2.SpeculationOptions, name: str, kind: type[Choice], default: Choice
) -> Choice:
    """What the client chose, the default, or a refusal that lists the choices."""
    if not getattr(options, name):
        return default
    try:
        return choice(options, name, kind)
    except ValueError as error:
        choices = ", ".join(one.value for one in kind)
        raise invalid(
            f"speculation.{name}",
            f"{str(error).removeprefix(name).strip()}; choose among {choices}",
        ) from None


def _roots(
    options: sampling_pb2.SpeculationOptions, default: RootPolicy, verifier: str
) -> RootPolicy:
    is_frozen = VERIFIERS[verifier].needs_frozen_tree
    if not options.roots:
        return RootPolicy.DRAFT if is_frozen else default
    roots = _choice(options, "roots", RootPolicy, default)
    if roots is RootPolicy.TARGET and is_frozen:
        growing = ", ".join(v for v, method in VERIFIERS.items() if not method.needs_frozen_tree)
        raise invalid(
            "speculation.roots",
            f"is 'target', and {verifier!r} tests tokens that were drawn from the draft model: roots that were "
            f"not would change the text's law; leave it out, or set speculation.verifier to one of {growing}",
        )
    return roots


def _number(
    options: sampling_pb2.SpeculationOptions,
    name: str,
    defaults: DraftPolicies,
    length: LengthChoice,
    needed: LengthChoice,
) -> float:
    """A parameter of a draft length policy, which must be the one in force."""
    value: float = getattr(options, name)
    if not options.HasField(name):  # type: ignore[arg-type]  # the stub wants literals
        default: float = getattr(defaults, name)
        return default
    if length is not needed:
        raise invalid(
            f"speculation.{name}",
            f"belongs to the draft length {needed.value!r}, and speculation.draft_length is {length.value!r}; "
            "change one of them",
        )
    return value


def _check_served(length: LengthChoice, served: Mapping[str, Sequence[LengthChoice]]) -> None:
    """Refuses a draft length that none of the drafters offers."""
    if not served or any(not offered or length in offered for offered in served.values()):
        return
    offered = sorted({one.value for lengths in served.values() for one in lengths})
    raise invalid(
        "speculation.draft_length",
        f"is {length.value!r}, which none of the drafters {', '.join(map(repr, served))} offers; "
        f"offered: {', '.join(offered)}",
    )
