"""What a target tells of itself, and who may exchange candidates with it. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection

import torch

from outrider.actors.exchange.verifier_wire import offered_by
from outrider.actors.exchange.vocabulary import Vocabulary, difference
from outrider.v1 import target_pb2


def text_fingerprint(
    model: str,
    dtype: torch.dtype,
    tokenizer: str,
    chat_template: object = None,
    eos_token_ids: Collection[int] = (),
) -> str:
    """Digest of all that a text follows from, besides the request.

    Args:
        model: Fingerprint of weights and configuration.
        dtype: Of the weights in use: half precision rounds to other texts.
        tokenizer: Its fingerprint, empty if there is none.
        chat_template: A text, several by name, or None.
        eos_token_ids: What ends a text: it stands in a file of its own, which may be corrected without the weights.
    """
    ends = sorted(set(eos_token_ids))
    said = json.dumps([model, str(dtype), tokenizer, chat_template, ends], sort_keys=True)
    return hashlib.sha256(said.encode()).hexdigest()


def drafter_misfit(
    hello: target_pb2.Hello,
    *,
    vocabulary: Vocabulary,
    target_name: str,
    offered: Collection[str],
) -> str | None:
    """Why a drafter does not fit, None if it does."""
    theirs = Vocabulary(size=hello.vocab_size, tokenizer=hello.tokenizer_fingerprint)
    problem = difference(theirs, vocabulary, target_name=target_name)
    if problem:
        return f"drafter {hello.name!r} does not fit: {problem}"
    served = set(offered_by(hello))
    if served.isdisjoint(offered):
        return (
            f"drafter {hello.name!r} serves none of the target's verifiers "
            f"({', '.join(sorted(offered))}); it states {', '.join(sorted(served)) or 'none'}"
        )
    return None
