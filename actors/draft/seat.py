"""What a drafter with a model keeps about a session, and one session's part of a pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from outrider.actors.draft.calibration import Scoring
from outrider.actors.draft.drafter import CannotDraft, NoRoom
from outrider.actors.draft.halting import Halting
from outrider.actors.draft.session import DraftSession
from outrider.actors.engine.prefix_slots import PrefixSlots
from outrider.actors.engine.protocol import ModelSpec, NoFreeSlot, Rows
from outrider.actors.speculation.noise import NoiseCache
from outrider.actors.speculation.options import Sampling

STAND_IN = 0
"""What the draft model reads in place of a token that it does not have. Any id does."""


@dataclass(slots=True, kw_only=True)
class Seat:
    """A session that grows a tree."""

    slot: int
    scoring: Scoring
    stop_tokens: frozenset[int]
    depth_limit: int
    node_limit: int
    """Nodes that may be sent, and that may be run."""
    noise: NoiseCache | None = None
    """The session's noise, if its candidates are scored with it and nothing else is in the way."""
    halting: Halting | None = None
    """Where to stop, if the request's policy stops anywhere."""
    rating_noise: NoiseCache | None = None
    """The session's noise, if its rows are rated with it."""
    cached: int = 0
    """Rows that the engine has cached."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One session's part of a pass: committed tokens (`nodes` empty) or nodes to run."""

    session: DraftSession
    seat: Seat
    rows: Rows
    nodes: tuple[int, ...] = ()


def check_fits(session: DraftSession, spec: ModelSpec) -> None:
    """Refuses a session that a draft model cannot follow.

    Raises:
        CannotDraft: A token is none of the target's, or the text does not fit the model's context.
    """
    if not session.tokens:
        raise CannotDraft("tokens is empty; a session begins with at least one prompt token")
    wrong = max(session.tokens)
    if wrong >= session.vocab_size:
        raise CannotDraft(
            f"tokens holds {wrong}, but the target has {session.vocab_size} token ids; is it the "
            "session's target?"
        )
    if session.length >= spec.max_context:
        raise CannotDraft(
            f"tokens has {session.length} entries, but the draft model {spec.name!r} holds "
            f"{spec.max_context}; attach a drafter with a longer context"
        )


def within(sampling: Sampling, vocab_size: int) -> Sampling:
    """The options without token ids that the draft model does not have: it never proposes those."""
    return replace(
        sampling,
        logit_bias={token: by for token, by in sampling.logit_bias.items() if token < vocab_size},
        stop_token_ids=tuple(token for token in sampling.stop_token_ids if token < vocab_size),
    )


@torch.inference_mode()
def confine(logits_RV: torch.Tensor, vocab_sizes_R: Sequence[int]) -> None:
    """Excludes ids that the target does not have, in place.

    Args:
        logits_RV: The draft model's, float32.
        vocab_sizes_R: Number of the target's ids, for each row.
    """
    for row, vocab_size in enumerate(vocab_sizes_R):
        if vocab_size < logits_RV.shape[1]:
            logits_RV[row, vocab_size:] = -torch.inf


def take_slot(slots: PrefixSlots, session: DraftSession) -> int:
    """A free slot of the model, with what there is of the session's text.

    Raises:
        NoRoom: Every slot is taken.
    """
    try:
        return slots.take(session.tokens)
    except NoFreeSlot as error:
        raise NoRoom(
            f"all {slots.num_slots} slots of the drafter are taken; attach the session to "
            "another drafter, or raise num_slots"
        ) from error


def catch_up_rows(
    session: DraftSession, *, slot: int, cached: int, room: int, vocab_size: int
) -> Rows:
    """The next committed tokens that the model has not seen; with the last one of the text, the logits after it.

    Ids that the model does not have (the padding of a wider target) are read as another one: what is drafted is a guess anyway.

    Args:
        session: The session.
        slot: Its slot.
        cached: Number of tokens that the model has seen.
        room: Tokens, at most.
        vocab_size: Number of the model's token ids.
    """
    tokens = [
        token if token < vocab_size else STAND_IN
        for token in session.tokens[cached : cached + room]
    ]
    is_last = cached + len(tokens) == session.length
    return Rows(
        slot=slot,
        tokens=tokens,
        parents=range(-1, len(tokens) - 1),
        logits="last" if is_last else "none",
    )
