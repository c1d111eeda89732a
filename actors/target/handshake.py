"""Who may exchange candidates with a target. Pure."""

from __future__ import annotations

from collections.abc import Collection

from outrider.actors.speculation.options import Verifier
from outrider.actors.wire import verifier_from_proto
from outrider.v1 import target_pb2


def drafter_misfit(
    hello: target_pb2.Hello,
    *,
    vocab_size: int,
    tokenizer_fingerprint: str,
    offered: Collection[Verifier],
) -> str | None:
    """Why a drafter does not fit, None if it does.

    A drafter that states no vocabulary and no tokenizer works on any token ids, so it always fits.
    """
    if hello.vocab_size and hello.vocab_size != vocab_size:
        return (
            f"drafter {hello.name!r} has {hello.vocab_size} token ids, the target has {vocab_size}; "
            "use a draft model with the target's vocabulary"
        )
    if hello.tokenizer_fingerprint and hello.tokenizer_fingerprint != tokenizer_fingerprint:
        return (
            f"drafter {hello.name!r} has another tokenizer ({hello.tokenizer_fingerprint[:12]}) than "
            f"the target ({tokenizer_fingerprint[:12] or 'none'}); use a draft model with the target's tokenizer"
        )
    served = {_verifier(value) for value in hello.verifiers}
    if served.isdisjoint(offered):
        return (
            f"drafter {hello.name!r} serves none of the target's verifiers "
            f"({', '.join(sorted(offered))}); it states {', '.join(sorted(map(str, served))) or 'none'}"
        )
    return None


def _verifier(value: int) -> Verifier | None:
    try:
        return verifier_from_proto(value)
    except ValueError:
        return None
