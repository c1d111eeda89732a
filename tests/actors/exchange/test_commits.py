"""What a pass committed, in bytes and back."""

from __future__ import annotations

from itertools import accumulate

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.actors.exchange import commits
from outrider.actors.exchange.commits import Commit, Commits
from outrider.actors.exchange.frames import BadFrame

ENTRIES = st.lists(
    st.tuples(
        st.integers(0, 2**64 - 1),
        st.integers(0, 2**32 - 1),
        st.lists(st.tuples(st.integers(0, 2**18), st.integers(-1, 300)), max_size=5),
    ),
    max_size=5,
)


def _frame(entries: list[Commit]) -> bytes:
    starts = [0, *accumulate(len(entry.tokens) for entry in entries)]
    return commits.encode(
        Commits(
            sessions_E=np.array([entry.session for entry in entries], np.uint64),
            epochs_E=np.array([entry.epoch for entry in entries], np.int64),
            starts_E=np.array(starts, np.int64),
            tokens_T=np.array([token for entry in entries for token in entry.tokens], np.int64),
            origins_T=np.array([one for entry in entries for one in entry.origins], np.int64),
        )
    )


@given(ENTRIES)
def test_what_is_read_is_what_was_written(
    drawn: list[tuple[int, int, list[tuple[int, int]]]],
) -> None:
    """Any number of sessions and tokens, narrow and wide token ids."""
    entries = [
        Commit(session, epoch, [token for token, _ in said], [origin for _, origin in said])
        for session, epoch, said in drawn
    ]
    assert commits.decode(_frame(entries)) == entries


FRAME = _frame([Commit(1, 1, [5, 6], [0, -1]), Commit(2, 7, [8], [-1])])


@pytest.mark.parametrize("size", range(len(FRAME)))
def test_a_frame_that_was_cut_is_refused(size: int) -> None:
    """Wherever it ends."""
    with pytest.raises(BadFrame):
        commits.decode(FRAME[:size])


@pytest.mark.parametrize(
    "frame",
    [
        FRAME + b"\0",
        b"\2" + FRAME[1:],
        FRAME[:4] + b"\3" + FRAME[5:],
        FRAME[:8] + b"\xff\xff\xff\xff" + FRAME[12:],
        FRAME[:12] + b"\3" + FRAME[13:],
        FRAME[:40] + b"\1" + FRAME[41:],
    ],
    ids=["longer", "version", "sessions", "tokens", "bytes of a token", "tokens of a session"],
)
def test_bytes_that_are_no_frame_are_refused(frame: bytes) -> None:
    """Whatever does not fit together."""
    with pytest.raises(BadFrame):
        commits.decode(frame)
