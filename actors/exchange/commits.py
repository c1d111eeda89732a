"""What a pass committed, from a target to a coordinator, in one frame."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from outrider.actors.exchange.frames import MAX_TOKENS, BadFrame, Reader, narrow, pack
from outrider.actors.speculation.trees.ragged import sizes_of

MAX_PLACE = 0x7FFF
"""Greatest place of a drafter that fits."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Commits:
    """Tokens of several sessions. Entry e has tokens `starts_E[e]` to `starts_E[e + 1]`."""

    sessions_E: npt.NDArray[np.uint64]
    """The coordinator's numbers of the sessions."""

    epochs_E: npt.NDArray[np.int64]
    """Rounds that each session has seen. Rises by one each time."""

    starts_E: npt.NDArray[np.int64]
    """First token of each entry; one number more than there are entries."""

    tokens_T: npt.NDArray[np.int64]
    """Token ids."""

    origins_T: npt.NDArray[np.int64]
    """The place of the drafter that proposed each among the request's, at most `MAX_PLACE`; -1: the target itself."""


def encode(commits: Commits) -> bytes:
    """The frame of some commits."""
    kind = narrow(int(commits.tokens_T.max(initial=0)))
    return pack(
        [len(commits.sessions_E), len(commits.tokens_T), np.dtype(kind).itemsize],
        [
            commits.sessions_E.astype("<u8", copy=False),
            commits.epochs_E.astype("<u4"),
            sizes_of(commits.starts_E).astype("<u2"),
            commits.tokens_T.astype(kind),
            commits.origins_T.astype("<i2"),
        ],
    )


class Commit(NamedTuple):
    """Tokens of one session, as whoever handles sessions one by one wants them."""

    session: int
    epoch: int
    tokens: list[int]
    origins: list[int]


def decode(frame: bytes) -> list[Commit]:
    """The commits of a frame, in its order.

    Not by arrays: the reader wants lists for each session, and making small arrays would take ten times as long as reading
    the commit of the one session that is most often there.

    Raises:
        BadFrame: The bytes are no such frame.
    """
    reader = Reader(frame, 3, MAX_TOKENS)
    num_entries, num_tokens, token_bytes = reader.counts
    if token_bytes not in (2, 4):
        raise BadFrame(f"tokens of {token_bytes} bytes; not ours")
    token = "H" if token_bytes == 2 else "I"
    numbers = reader.take_numbers(
        f"<{num_entries}Q{num_entries}I{num_entries}H{num_tokens}{token}{num_tokens}h"
    )
    reader.end()
    epochs, counts = numbers[num_entries:], numbers[2 * num_entries : 3 * num_entries]
    tokens = numbers[3 * num_entries : 3 * num_entries + num_tokens]
    origins = numbers[3 * num_entries + num_tokens :]
    if sum(counts) != num_tokens:
        raise BadFrame("the entries' tokens are not as many as there are tokens")
    commits, start = [], 0
    for session, epoch, count in zip(numbers, epochs, counts, strict=False):
        end = start + count
        commits.append(Commit(session, epoch, tokens[start:end], origins[start:end]))
        start = end
    return commits
