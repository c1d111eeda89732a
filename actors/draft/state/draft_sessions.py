"""The sessions of a drafter as parallel arrays, a row for each: their committed texts as far as the drafter knows them, and what targets said.

Owned by the worker's thread. The target decides the text; the drafter follows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from outrider.actors.draft.state.draft_events import AttachSession, SessionKey
from outrider.actors.draft.trees.forest import Forest, Int64s
from outrider.actors.frozen.frozen_candidates import FrozenCandidates
from outrider.actors.speculation.trees import base_hash

UNKNOWN: int = np.iinfo(np.int64).max
"""Credits before the target has said any: more than any number."""

FIRST_COLUMNS = 1024
"""Tokens of text that there is room for at first; doubled as texts need it."""


class OwnTrees(Protocol):
    """Trees that a drafting method keeps itself, instead of in the forest. It leaves out sessions that are not its own."""

    def unsend(self, rows_E: Int64s) -> None:
        """Takes every tree of these sessions as not sent."""
        ...

    def take_unsent(self, rows_E: Int64s) -> list[FrozenCandidates]:
        """What is complete and was not sent, and marks it sent."""
        ...


class DraftSession:
    """What does not change about a session."""

    def __init__(self, sessions: DraftSessions, row: int, attach: AttachSession) -> None:
        self._sessions = sessions
        self.row = row
        self.key = attach.key
        self.request_id = attach.request_id
        self.sampling = attach.sampling
        self.speculation = attach.speculation
        self.prompt_length = attach.prompt_length
        self.vocab_size = attach.vocab_size
        """Token ids of the target; none beyond is proposed."""
        self.tokenizer = attach.tokenizer
        """Fingerprint of the target's tokenizer; empty: it has none."""
        self.tenant = attach.tenant
        """Whose request it is; 0: clients are not told apart."""
        self.group = attach.group
        """Sessions of one request share it; 0: the request has no other."""

    @property
    def length(self) -> int:
        """Number of committed tokens."""
        return int(self._sessions.lengths_S[self.row])

    @property
    def hash(self) -> int:
        """Rolling hash of those."""
        return int(self._sessions.hashes_S[self.row])

    @property
    def tokens(self) -> list[int]:
        """Committed tokens."""
        tokens: list[int] = self.text_T.tolist()
        return tokens

    @property
    def text_T(self) -> Int64s:
        """Committed tokens, as a view: good until the next event."""
        return self._sessions.text(self.row)

    @property
    def final_length(self) -> int:
        """Number of tokens after which the session is over."""
        return self.prompt_length + self.sampling.max_tokens


class DraftSessions:
    """Rows of sessions, and the trees of the same rows."""

    def __init__(self, num_sessions: int, num_nodes: int) -> None:
        """
        Args:
            num_sessions: Rows: sessions at a time.
            num_nodes: Nodes of a tree, at most.
        """
        self.forest = Forest(num_sessions, num_nodes)
        self.sessions: list[DraftSession | None] = [None] * num_sessions
        self._rows: dict[int, dict[int, int]] = {}
        self.is_attached_S = np.zeros(num_sessions, np.bool_)
        self.links_S = np.zeros(num_sessions, np.int64)
        self.handles_S = np.zeros(num_sessions, np.uint64)
        self.lengths_S = np.zeros(num_sessions, np.int64)
        self.hashes_S = np.zeros(num_sessions, np.uint64)
        self.final_lengths_S = np.zeros(num_sessions, np.int64)
        self.epochs_S = np.zeros(num_sessions, np.int64)
        self.credits_S = np.zeros(num_sessions, np.int64)
        """Nodes that the target allows below the base; 0: rest; `UNKNOWN`: it has not said."""
        self.floors_S = np.zeros(num_sessions)
        """Value that a node needs to be worth its bytes and its row at the target."""
        self.passes_s_S = np.zeros(num_sessions)
        """Seconds of its target's last pass; 0: it has not said."""
        self.round_trips_s_S = np.zeros(num_sessions)
        """Seconds to its target and back."""
        self.asked_at_S = np.full(num_sessions, math.nan)
        """When missing tokens were asked for; not a number if none are missing."""
        self.is_waiting_S = np.zeros(num_sessions, np.bool_)
        """Lockstep: the tree was sent, the verdict is awaited."""
        self.is_dirty_S = np.zeros(num_sessions, np.bool_)
        """There may be something to send."""
        self.ready_s_S = np.full(num_sessions, math.nan)
        """When the first candidates since the last verdict and message were there, seconds; not a number if there are none."""
        self.is_awaited_S = np.zeros(num_sessions, np.bool_)
        """The target has nothing to verify below the text, and nothing was sent since it said so."""
        self.is_urgent_S = np.zeros(num_sessions, np.bool_)
        """Candidates go out at once: nothing is gained by gathering."""
        self.own_trees: list[OwnTrees] = []
        """Stores of trees that are not in the forest."""
        self.numbers_S = np.zeros(num_sessions, np.int64)
        """Number of the last message with candidates."""
        self.roots: dict[int, tuple[int, ...]] = {}
        """The target's own candidates for the next token, the likeliest first, of rows that have any."""
        self._text_SC = np.zeros((num_sessions, FIRST_COLUMNS), np.int64)

    def __len__(self) -> int:
        return int(np.count_nonzero(self.is_attached_S))

    def __iter__(self) -> Iterator[DraftSession]:
        return iter([session for session in self.sessions if session is not None])

    def find(self, key: SessionKey) -> DraftSession | None:
        """The session with this key, if it is attached."""
        row = self._rows.get(key.link, {}).get(key.handle)
        return None if row is None else self.sessions[row]

    def rows_of(self, link: int, handles_E: NDArray[np.uint64]) -> Int64s:
        """Row of each of a link's sessions; -1: it is not attached."""
        find = self._rows.get(link, {}).get
        return np.array([find(handle, -1) for handle in handles_E.tolist()], np.int64)

    def on_link(self, link: int) -> Int64s:
        """Rows of a link's sessions."""
        return np.flatnonzero(self.is_attached_S & (self.links_S == link))

    def at(self, row: int) -> DraftSession:
        """The session of a row that is taken."""
        session = self.sessions[row]
        assert session is not None, f"row {row} is free"
        return session

    def add(self, attach: AttachSession) -> DraftSession:
        """Gives a session a row; there is a free one wherever the drafting method has room."""
        row = self.sessions.index(None)
        session = self.sessions[row] = DraftSession(self, row, attach)
        key = attach.key
        self._rows.setdefault(key.link, {})[key.handle] = row
        self.is_attached_S[row] = True
        self.links_S[row], self.handles_S[row] = key.link, key.handle
        self.final_lengths_S[row] = session.final_length
        self.epochs_S[row] = self.numbers_S[row] = 0
        self.credits_S[row] = UNKNOWN
        self.floors_S[row] = self.passes_s_S[row] = 0.0
        self.round_trips_s_S[row] = attach.round_trip_s
        self.asked_at_S[row] = self.ready_s_S[row] = math.nan
        self.is_waiting_S[row] = self.is_dirty_S[row] = self.is_urgent_S[row] = False
        self.lengths_S[row] = 0
        self.replace(row, 0, attach.tokens)
        return session

    def remove(self, session: DraftSession) -> None:
        """Frees the row of a session."""
        row = session.row
        self.forest.clear(np.array([row]))
        self.sessions[row] = None
        self.is_attached_S[row] = self.is_dirty_S[row] = self.is_awaited_S[row] = False
        self.roots.pop(row, None)
        of_link = self._rows[session.key.link]
        del of_link[session.key.handle]
        if not of_link:
            del self._rows[session.key.link]

    def unsend(self, rows_E: Int64s, seen_E: Int64s) -> None:
        """Takes as not sent what was last part of message `seen_E` of its session or an earlier one."""
        self.forest.unsend(rows_E, seen_E)
        for trees in self.own_trees:
            trees.unsend(rows_E)

    def text(self, row: int) -> Int64s:
        """Committed tokens of a session, as a view. Shape (T,)."""
        return self._text_SC[row, : int(self.lengths_S[row])]

    def tokens_at(self, rows_K: Int64s, places_K: Int64s) -> Int64s:
        """Committed tokens at these places of these sessions."""
        return self._text_SC[rows_K, places_K]

    def append(self, rows_E: Int64s, tokens_ET: Int64s, counts_E: Int64s) -> None:
        """Takes the first `counts_E` tokens as committed; their hashes are set by the caller."""
        self._make_room(int((self.lengths_S[rows_E] + counts_E).max(initial=0)))
        entries_K, steps_K = (np.arange(tokens_ET.shape[1]) < counts_E[:, None]).nonzero()
        rows_K = rows_E[entries_K]
        self._text_SC[rows_K, self.lengths_S[rows_K] + steps_K] = tokens_ET[entries_K, steps_K]
        self.lengths_S[rows_E] += counts_E

    def replace(self, row: int, keep: int, tokens: Sequence[int]) -> None:
        """Takes other tokens as committed after the first `keep`."""
        length = keep + len(tokens)
        self._make_room(length)
        self._text_SC[row, keep:length] = tokens
        self.lengths_S[row] = length
        self.hashes_S[row] = base_hash.extend_all(base_hash.EMPTY, self.text(row).tolist())

    def allowed(self, rows_E: Int64s, most: int) -> Int64s:
        """Nodes that the target allows below the base of each, at most `most`."""
        return np.minimum(self.credits_S[rows_E], most)

    def is_resting(self, rows_E: Int64s) -> NDArray[np.bool_]:
        """Whether the target wants nothing of each, though the text goes on."""
        left_E = self.final_lengths_S[rows_E] - self.lengths_S[rows_E]
        resting: NDArray[np.bool_] = (self.credits_S[rows_E] == 0) & (left_E > 1)
        return resting

    def _make_room(self, length: int) -> None:
        have = self._text_SC.shape[1]
        if length > have:
            more = np.zeros((len(self.sessions), max(length, 2 * have) - have), np.int64)
            self._text_SC = np.concatenate([self._text_SC, more], axis=1)
