"""What a pass decided, from a target to a drafter, in one frame: the text of each session, and what the target does next.

The drafter schedules by it: it knows when the target is free again, what a candidate must be worth there, and how many it may be
ahead.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from outrider.actors.exchange.frames import (
    MAX_TOKENS,
    BadFrame,
    Reader,
    microseconds,
    narrow,
    pack,
)
from outrider.actors.speculation.trees.ragged import sizes_of, starts_of

MAX_TOKEN = 1 << 24
"""Bound of token ids."""

VALUE_STEPS = 65_535
"""Steps of `TargetActivity.floor` on the wire."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetActivity:
    """What the target does next."""

    pass_s: float = 0.0
    """Seconds that the pass took, with the mean wait before one."""

    free_s: float = 0.0
    """Seconds from now until it can take candidates into a pass again; 0: it waits for some."""

    wait_s: float = 0.0
    """Seconds for which it then waits for candidates, at most; 0: not at all."""

    floor: float = 0.0
    """Path probability that a candidate needs, 0 to 1, to be worth its row in a pass at the present load."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Verdicts:
    """What was committed. Entry e has tokens `starts_E[e]` to `starts_E[e + 1]`."""

    target: TargetActivity = field(default_factory=TargetActivity)

    handles_E: npt.NDArray[np.uint64]
    """The target's handles of the sessions."""

    epochs_E: npt.NDArray[np.int64]
    """Rounds that each session has seen."""

    lengths_E: npt.NDArray[np.int64]
    """Length of the text after the round, in tokens."""

    hashes_E: npt.NDArray[np.uint64]
    """Rolling hash of that text."""

    credits_E: npt.NDArray[np.int64]
    """Nodes that the drafter may have below the base; 0: it is to rest."""

    seen_E: npt.NDArray[np.int64]
    """Number of the drafter's last candidates for the session that were taken in; those after it are on their way. 0: none."""

    starving_E: npt.NDArray[np.bool_]
    """The target has no candidate below the base."""

    starts_E: npt.NDArray[np.int64]
    """First token of each entry; one number more than there are entries."""

    tokens_T: npt.NDArray[np.int64]
    """The tokens of the round."""

    root_starts_E: npt.NDArray[np.int64]
    """First root of each entry; one number more than there are entries."""

    roots_T: npt.NDArray[np.int64]
    """The target's own candidates for the next token, the likeliest first; only where a session's roots are the target's."""

    echo_us: int = 0
    """`Candidates.sent_us` of the drafter's last candidates, plus the time from their arrival until this was decided (`frames.clock_us`). What the
    drafter's clock shows beyond it when this arrives is the way there and back, however the two clocks differ. 0: none came."""

    num_bytes: int = 0
    """Size of the frame that this was read from."""


ENTRY_BYTES = 34
"""Bytes of a session in a frame, beside its tokens."""


def encode(verdicts: Verdicts) -> bytes:
    """The frame of some verdicts."""
    target = verdicts.target
    largest = max(int(verdicts.tokens_T.max(initial=0)), int(verdicts.roots_T.max(initial=0)))
    kind = narrow(largest)
    times = [microseconds(s) for s in (target.pass_s, target.free_s, target.wait_s)]
    times.append(round(min(max(target.floor, 0.0), 1.0) * VALUE_STEPS))
    return pack(
        [
            len(verdicts.handles_E),
            len(verdicts.tokens_T),
            len(verdicts.roots_T),
            np.dtype(kind).itemsize,
        ],
        [
            np.array([*times, verdicts.echo_us], "<u4"),
            verdicts.handles_E.astype("<u8", copy=False),
            verdicts.hashes_E.astype("<u8", copy=False),
            verdicts.epochs_E.astype("<u4"),
            verdicts.lengths_E.astype("<u4"),
            verdicts.seen_E.astype("<u4"),
            np.minimum(verdicts.credits_E, 65_535).astype("<u2"),
            verdicts.starving_E.astype("u1"),
            sizes_of(verdicts.starts_E).astype("<u2"),
            sizes_of(verdicts.root_starts_E).astype("u1"),
            verdicts.tokens_T.astype(kind),
            verdicts.roots_T.astype(kind),
        ],
    )


def decode(frame: bytes) -> Verdicts:
    """The verdicts of a frame.

    Raises:
        BadFrame: The bytes are no such frame.
    """
    reader = Reader(frame, 4, MAX_TOKENS)
    num_entries, num_tokens, num_roots, token_bytes = reader.counts
    if token_bytes not in (2, 4):
        raise BadFrame(f"tokens of {token_bytes} bytes; not ours")
    *times, echo_us = reader.take("<u4", 5).tolist()
    handles_E = reader.take("<u8", num_entries)
    hashes_E = reader.take("<u8", num_entries)
    epochs_E = reader.take("<u4", num_entries).astype(np.int64)
    lengths_E = reader.take("<u4", num_entries).astype(np.int64)
    seen_E = reader.take("<u4", num_entries).astype(np.int64)
    credits_E = reader.take("<u2", num_entries).astype(np.int64)
    starving_E = reader.take("u1", num_entries) != 0
    starts_E = starts_of(reader.take("<u2", num_entries))
    root_starts_E = starts_of(reader.take("u1", num_entries))
    tokens_T = reader.take(f"<u{token_bytes}", num_tokens).astype(np.int64)
    roots_T = reader.take(f"<u{token_bytes}", num_roots).astype(np.int64)
    reader.end()
    if starts_E[-1] != num_tokens or root_starts_E[-1] != num_roots:
        raise BadFrame("the entries' tokens are not as many as there are tokens")
    if np.any(sizes_of(starts_E) > lengths_E):
        raise BadFrame("a verdict has more tokens than its text")
    if max(int(tokens_T.max(initial=0)), int(roots_T.max(initial=0))) >= MAX_TOKEN:
        raise BadFrame(f"a token id is {MAX_TOKEN} or more")
    return Verdicts(
        target=TargetActivity(
            pass_s=1e-6 * times[0],
            free_s=1e-6 * times[1],
            wait_s=1e-6 * times[2],
            floor=min(times[3] / VALUE_STEPS, 1.0),
        ),
        handles_E=handles_E,
        epochs_E=epochs_E,
        lengths_E=lengths_E,
        hashes_E=hashes_E,
        credits_E=credits_E,
        seen_E=seen_E,
        starving_E=starving_E,
        starts_E=starts_E,
        tokens_T=tokens_T,
        root_starts_E=root_starts_E,
        roots_T=roots_T,
        echo_us=echo_us,
        num_bytes=len(frame),
    )
