"""Which drafters a request may use."""

from __future__ import annotations

import grpc

from outrider.actors.speculation.choice.verifier_registry import VERIFIERS
from outrider.actors.speculation.policies import LengthChoice
from outrider.cluster.validation.limits import Limits
from outrider.cluster.validation.refusals import invalid, shown
from outrider.cluster.validation.status_codes import Refusal


def settle_drafters(
    named: tuple[str, ...], verifier: str, length: LengthChoice, limits: Limits
) -> tuple[str, ...]:
    """The drafters named, or all that can serve the request."""
    known = {drafter.name: drafter for drafter in limits.drafters}
    if not named:
        return tuple(
            drafter.name
            for drafter in limits.drafters
            if not drafter.mismatch
            and drafter.can_verify(verifier)
            and (not drafter.draft_lengths or length in drafter.draft_lengths)
        )
    for index, name in enumerate(named):
        field = f"speculation.drafters[{index}]"
        drafter = known.get(name)
        if drafter is None:
            listed = ", ".join(map(repr, known)) or "none"
            raise Refusal(
                grpc.StatusCode.NOT_FOUND,
                f"{field} {shown(name)} is not a drafter here; known drafters: {listed}",
                field=field,
            )
        if name in named[:index]:
            raise invalid(field, f"names {name!r} a second time")
        if drafter.mismatch:
            raise Refusal(
                grpc.StatusCode.FAILED_PRECONDITION,
                f"{field} {name!r} cannot serve {limits.model!r}: {drafter.mismatch}, or name another drafter or none",
                field=field,
            )
        if not drafter.can_verify(verifier):
            can = ", ".join(drafter.verifiers)
            why = (
                ": it proposes tokens without a law that they are drawn from, which this verifier tests"
                if VERIFIERS[verifier].needs_frozen_tree
                else ""
            )
            raise invalid(
                field, f"{name!r} cannot serve the verifier {verifier!r}{why}; it serves {can}"
            )
        if drafter.draft_lengths and length not in drafter.draft_lengths:
            can = ", ".join(one.value for one in drafter.draft_lengths)
            raise invalid(
                field, f"{name!r} cannot serve the draft length {length.value!r}, only {can}"
            )
    return named
