"""What a pass committed, from a target to a coordinator, in one frame."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from outrider.actors.exchange.frames import BadFrame, Reader, narrow, pack, starts_of

MAX_TOKENS = 1 << 20
"""Sessions and tokens of one frame."""


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
    """The drafter that proposed each, as an index into the session's drafters; -1: the target itself."""


def encode(commits: Commits) -> bytes:
    """The frame of some commits."""
    kind = narrow(int(commits.tokens_T.max(initial=0)))
    return pack(
        [len(commits.sessions_E), len(commits.tokens_T), np.dtype(kind).itemsize],
        [
            commits.sessions_E.astype("<u8", copy=False),
            commits.epochs_E.astype("<u4"),
            np.diff(commits.starts_E).astype("<u2"),
            commits.tokens_T.astype(kind),
            commits.origins_T.astype("<i2"),
        ],
    )


def decode(frame: bytes) -> Commits:
    """The commits of a frame.

    Raises:
        BadFrame: The bytes are no such frame.
    """
    reader = Reader(frame, 3, MAX_TOKENS)
    num_entries, num_tokens, token_bytes = reader.counts
    if token_bytes not in (2, 4):
        raise BadFrame(f"tokens of {token_bytes} bytes; not ours")
    sessions_E = reader.take("<u8", num_entries)
    epochs_E = reader.take("<u4", num_entries).astype(np.int64)
    starts_E = starts_of(reader.take("<u2", num_entries))
    tokens_T = reader.take(f"<u{token_bytes}", num_tokens).astype(np.int64)
    origins_T = reader.take("<i2", num_tokens).astype(np.int64)
    reader.end()
    if starts_E[-1] != num_tokens:
        raise BadFrame("the entries' tokens are not as many as there are tokens")
    return Commits(
        sessions_E=sessions_E,
        epochs_E=epochs_E,
        starts_E=starts_E,
        tokens_T=tokens_T,
        origins_T=origins_T,
    )
