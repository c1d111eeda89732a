"""Whether a draft model can follow a session, and which slot it has there."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from outrider.actors.draft.state.draft_sessions import DraftSession
from outrider.actors.draft.state.drafter import CannotDraft, NoRoom
from outrider.actors.engine.kv.prefix_slots import PrefixSlots
from outrider.actors.engine.protocol import ModelSpec, NoFreeSlot
from outrider.actors.speculation.options import Sampling

STAND_IN = 0
"""What the draft model reads in place of a token that it does not have. Any id does: what is drafted is a guess anyway."""


def check_fits(session: DraftSession, spec: ModelSpec) -> None:
    """Refuses a session that a draft model cannot follow.

    Raises:
        CannotDraft: A token is not the target's, or the text does not fit the model's context.
    """
    if not session.length:
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


def take_slot(slots: PrefixSlots, session: DraftSession) -> int:
    """A free slot of the model, with what there is of the session's text.

    Raises:
        NoRoom: Every slot is taken.
    """
    try:
        return slots.take(session.tokens)
    except NoFreeSlot as error:
        raise no_room(slots.num_slots) from error


def no_room(num_slots: int) -> NoRoom:
    """The error of a drafter whose places are taken."""
    return NoRoom(
        f"all {num_slots} slots of the drafter are taken; attach the session to "
        "another drafter, or raise num_slots"
    )


def stop_tokens(sampling: Sampling, spec: ModelSpec) -> Collection[int]:
    """Tokens that end the text of a session."""
    eos = () if sampling.ignore_eos else spec.eos_token_ids
    return {*eos, *sampling.stop_token_ids}
