"""What a target's messages mean for sessions. Pure: nothing is changed here.

A verdict that continues our text extends it; anything else is stale, or shows that we lost the thread and must ask for the rest:

    verdict ends at or before our text                stale, nothing changes
    verdict begins after our text                     ask for the tokens after our length
    verdict overlaps, hash of the result differs      our text is wrong: ask for all of it
    verdict continues our text                        extend
    verdict ends beyond the text's greatest length    broken: the session cannot go on here
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from outrider.actors.draft.state.draft_events import Resynced
from outrider.actors.draft.state.draft_sessions import DraftSession, DraftSessions
from outrider.actors.draft.trees.forest import NO_TOKEN, Bools, Int64s
from outrider.actors.speculation.trees import base_hash

TOO_LONG = "the target committed more tokens than the request allows; attach the drafter again"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Judgement:
    """What verdicts mean, for E sessions. Where none of the flags is set the verdict is stale."""

    extends_E: Bools
    asks_E: Bools
    """Tokens are missing: those after the first `ask_lengths_E`."""
    is_broken_E: Bools
    ask_lengths_E: Int64s
    fresh_ET: Int64s
    """Tokens that the text goes on with, filled up with `NO_TOKEN`."""
    counts_E: Int64s
    """How many."""


def judge_verdicts(
    sessions: DraftSessions,
    rows_E: Int64s,
    *,
    lengths_E: Int64s,
    hashes_E: NDArray[np.uint64],
    firsts_E: Int64s,
    counts_E: Int64s,
    tokens_T: Int64s,
) -> Judgement:
    """What verdicts mean.

    Args:
        sessions: The sessions.
        rows_E: Those that the verdicts are for, none twice.
        lengths_E: Length of each text after the round.
        hashes_E: Its hash.
        firsts_E: Where the tokens of the round begin in `tokens_T`.
        counts_E: How many there are, at most the length.
        tokens_T: Tokens of all rounds.
    """
    ours_E = sessions.lengths_S[rows_E]
    broken_E = lengths_E > sessions.final_lengths_S[rows_E]
    starts_E = lengths_E - counts_E
    gap_E = ~broken_E & (starts_E > ours_E)
    fits_E = ~broken_E & ~gap_E & (lengths_E >= ours_E)
    fresh_E = np.where(fits_E, lengths_E - ours_E, 0)
    steps_T = np.arange(int(fresh_E.max(initial=0)))
    places_ET = (firsts_E + ours_E - starts_E)[:, None] + steps_T
    is_fresh_ET = steps_T < fresh_E[:, None]
    fresh_ET = np.full(is_fresh_ET.shape, NO_TOKEN, np.int64)
    fresh_ET[is_fresh_ET] = tokens_T[places_ET[is_fresh_ET]]
    found_E = base_hash.extend_rows(sessions.hashes_S[rows_E], fresh_ET, fresh_E)
    wrong_E = fits_E & (found_E != hashes_E)
    return Judgement(
        extends_E=fits_E & ~wrong_E & (fresh_E > 0),
        asks_E=gap_E | wrong_E,
        is_broken_E=broken_E,
        ask_lengths_E=np.where(wrong_E, 0, ours_E),
        fresh_ET=fresh_ET,
        counts_E=fresh_E,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewrite:
    """Our text was wrong after `keep` tokens; this is what follows. Goes on with the tokens if `keep` is its length."""

    keep: int
    tokens: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """Tokens are missing: ask for those after the first `length`."""

    length: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken:
    """The target contradicts itself: the session cannot go on here."""

    message: str


def judge_resync(session: DraftSession, resync: Resynced) -> Rewrite | Ask | Broken | None:
    """What the committed tokens that were asked for mean; None: nothing new."""
    start = resync.length - len(resync.tokens)
    if start < 0:
        return Broken(
            message=f"the target sent {len(resync.tokens)} tokens that end at length "
            f"{resync.length}; attach the drafter again"
        )
    if resync.length > session.final_length:
        return Broken(message=TOO_LONG)
    ours = session.tokens
    if start > len(ours):
        return Ask(length=len(ours))
    if start > 0 and resync.length < len(ours):
        return None
    text = ours[:start] + list(resync.tokens)
    if base_hash.extend_all(base_hash.EMPTY, text) != resync.hash:
        if start > 0:
            return Ask(length=0)
        return Broken(
            message=f"the hash of the {resync.length} tokens that the target sent is not the "
            "one it stated; attach the drafter again"
        )
    keep = _common_prefix(ours, text)
    if keep == len(ours) == len(text):
        return None
    return Rewrite(keep=keep, tokens=tuple(text[keep:]))


def _common_prefix(ours: Sequence[int], theirs: Sequence[int]) -> int:
    length = 0
    for our_token, their_token in zip(ours, theirs, strict=False):
        if our_token != their_token:
            break
        length += 1
    return length
