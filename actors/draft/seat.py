"""What a drafter with a model keeps about a session, and one session's part of a pass."""

from __future__ import annotations

from dataclasses import dataclass

from outrider.actors.draft.calibration import Scoring
from outrider.actors.draft.drafter import CannotDraft, NoRoom
from outrider.actors.draft.halting import Halting
from outrider.actors.draft.session import DraftSession
from outrider.actors.engine.prefix_slots import PrefixSlots
from outrider.actors.engine.protocol import ModelSpec, NoFreeSlot, Rows
from outrider.actors.speculation.noise import NoiseCache


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
        CannotDraft: A token is not in the model's vocabulary, or the text does not fit its context.
    """
    if not session.tokens:
        raise CannotDraft("tokens is empty; a session begins with at least one prompt token")
    wrong = max(session.tokens)
    if wrong >= spec.vocab_size:
        raise CannotDraft(
            f"tokens holds {wrong}, but the draft model {spec.name!r} has "
            f"{spec.vocab_size} token ids; attach a drafter with the target's vocabulary"
        )
    if session.length >= spec.max_context:
        raise CannotDraft(
            f"tokens has {session.length} entries, but the draft model {spec.name!r} holds "
            f"{spec.max_context}; attach a drafter with a longer context"
        )


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


def catch_up_rows(session: DraftSession, *, slot: int, cached: int, room: int) -> Rows:
    """The next committed tokens that the model has not seen; with the last one of the text, the logits after it.

    Args:
        session: The session.
        slot: Its slot.
        cached: Number of tokens that the model has seen.
        room: Tokens, at most.
    """
    tokens = session.tokens[cached : cached + room]
    is_last = cached + len(tokens) == session.length
    return Rows(
        slot=slot,
        tokens=tokens,
        parents=range(-1, len(tokens) - 1),
        logits="last" if is_last else "none",
    )
