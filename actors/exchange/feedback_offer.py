"""What a target answers a drafter that asks for more than tokens. Pure."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from outrider.actors.exchange.feedback_request import FeedbackRequest, Layer
from outrider.v1 import target_pb2


class FeedbackRefused(ValueError):
    """The target cannot give what is asked for; the message says why and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedbackOffer:
    """What a target gives for a request."""

    num_blocks: int
    """Blocks of its model."""

    width: int
    """Numbers of a hidden state."""

    revision: int
    """Digest of the model and of what was asked for; features of another revision are not for this subscription."""

    layers: tuple[int, ...] = ()
    """The request's layers in their order, by number: one more than there are blocks is after the final norm."""


def offer_for(
    request: FeedbackRequest, *, target: str, fingerprint: str, num_blocks: int, width: int
) -> FeedbackOffer:
    """What a target answers.

    Args:
        request: What is asked for.
        target: Its name, for the message.
        fingerprint: Of its model.
        num_blocks: Of its model; 0: it gives no hidden states.
        width: Of its hidden states.

    Raises:
        FeedbackRefused: It cannot give that.
    """
    if request.layers and not num_blocks:
        raise FeedbackRefused(f"target {target!r} gives no hidden states; its engine has none")
    beyond = [layer for layer in request.layers if layer != "norm" and layer > num_blocks]
    if beyond:
        raise FeedbackRefused(
            f"target {target!r} has {num_blocks} blocks; its layers are 0 to {num_blocks} and 'norm', not {beyond[0]}"
        )
    if request.layers and request.width not in (0, width):
        raise FeedbackRefused(
            f"the drafter was made for hidden states of {request.width} numbers; those of target {target!r} "
            f"have {width}; use a drafter that was trained with this target"
        )
    said = repr((fingerprint, request.layers, request.top_k, request.wants_rejected))
    digest = hashlib.blake2b(said.encode(), digest_size=8).digest()
    return FeedbackOffer(
        num_blocks=num_blocks,
        width=width if request.layers else 0,
        revision=int.from_bytes(digest, "little"),
        layers=tuple(_number(layer, num_blocks) for layer in request.layers),
    )


def _number(layer: Layer, num_blocks: int) -> int:
    return num_blocks + 1 if layer == "norm" else layer


NORM = -1
"""Stands for "norm" in messages."""


def request_to_proto(
    request: FeedbackRequest, credit_bytes: int
) -> target_pb2.FeedbackSubscription:
    """A request as a message, with the bytes that may be sent at first."""
    return target_pb2.FeedbackSubscription(
        layers=[NORM if layer == "norm" else layer for layer in request.layers],
        top_k=request.top_k,
        wants_rejected=request.wants_rejected,
        width=request.width,
        credit_bytes=credit_bytes,
    )


def request_from_proto(message: target_pb2.FeedbackSubscription) -> FeedbackRequest:
    """The request of a message.

    Raises:
        ValueError: It asks for nothing, or for what no target has.
    """
    return FeedbackRequest(
        layers=tuple("norm" if layer == NORM else layer for layer in message.layers),
        top_k=message.top_k,
        wants_rejected=message.wants_rejected,
        width=message.width,
    )
