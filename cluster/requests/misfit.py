"""Whether a drafter can serve a model, by what both tell of themselves. Pure."""

from __future__ import annotations

from outrider.actors.exchange.feedback_offer import offer_for, request_from_proto
from outrider.actors.exchange.vocabulary import Vocabulary, difference
from outrider.v1 import draft_pb2, target_pb2


def misfit(target: target_pb2.TargetInfo, drafter: draft_pb2.DrafterInfo) -> str:
    """Why a drafter cannot serve a target's model; empty if it can.

    Args:
        target: A target of the model.
        drafter: The drafter.
    """
    reason = difference(
        Vocabulary(size=drafter.vocab_size, tokenizer=drafter.tokenizer_fingerprint),
        Vocabulary(size=target.vocab_size, tokenizer=target.tokenizer_fingerprint),
        target_name=target.model,
    )
    if reason or not drafter.HasField("reads"):
        return reason
    try:
        # As the target itself will answer when it is asked for hidden states.
        offer_for(
            request_from_proto(drafter.reads),
            target=target.model,
            fingerprint=target.model_fingerprint,
            num_blocks=target.num_blocks,
            width=target.width,
        )
    except ValueError as error:
        return str(error)
    return ""
