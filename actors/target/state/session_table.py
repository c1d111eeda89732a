"""The sessions of a target as parallel arrays: a row a session, the row being its slot.

Texts with their hashes, what scheduling knows of each session, who drafts for it, and what was counted. What only few sessions need
or what is looked at once (options, transforms) is in `session.Session`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outrider.actors.speculation.trees import base_hash
from outrider.actors.speculation.trees.path_keys import Int64s, Uint64s, terms
from outrider.actors.speculation.trees.ragged import cells_of

Bools = NDArray[np.bool_]
Float64s = NDArray[np.float64]

MOST_DEPTH = 64
"""Levels of a tree whose acceptance is counted; deeper ones count as the last."""

COUNTS = (
    "rounds",
    "plain_passes",
    "proposed",
    "verified",
    "accepted",
    "stale",
    "tokens",
    "near_ties",
    "candidate_messages",
    "wire_bytes",
)
"""Names of what is counted for each session; those of `events.Stats`."""

NO_TOKEN = -1
"""Fills rows of stop tokens."""

SMALLEST_TIME_S = 1e-9
"""A clock may begin at 0, which stands for never."""

_TYPES = {"Int64s": np.int64, "Uint64s": np.uint64, "Bools": np.bool_, "Float64s": np.float64}

_FILLS = {"divisors_S": 1.0, "rested_S": -1, "waited_s_S": math.nan}
"""What a row of a new session begins with, where that is not 0."""


class SessionTable:
    """Arrays of all sessions."""

    used_S: Bools
    """Rows that a session has."""
    orders_S: Int64s
    """Rises with each session that is opened."""
    handles_S: Uint64s
    streams_S: Int64s
    """The coordinator's stream."""
    numbers_S: Uint64s
    """The coordinator's number of the session on it."""
    lengths_S: Int64s
    """Committed tokens, prompt included."""
    prompts_S: Int64s
    """Length of each prompt."""
    ends_S: Int64s
    """Length at which each text is over."""
    cached_S: Int64s
    """Rows of keys and values that the engine has."""
    started_S: Bools
    """Prefix reuse was looked for and the first rows may be run."""
    reused_S: Int64s
    """Prompt tokens that need not be computed."""
    epochs_S: Int64s
    """Rounds so far."""
    seeds_S: Uint64s
    noisy_S: Bools
    """Draws are perturbed; False: the most probable token is taken."""
    plain_S: Bools
    """One division by the temperature makes scores of logits."""
    divisors_S: Float64s
    """The temperature, where it divides; else 1."""
    near_ties_S: Float64s
    """Margin of a near tie."""
    reports_S: Bools
    """Log-probabilities are wanted."""
    kinds_S: Int64s
    """Kind of its candidates (`exchange.candidates`)."""
    rooted_S: Bools
    """The request wants the target's own candidates as well."""
    speculates_S: Bools
    max_nodes_S: Int64s
    """Candidates of a pass, at most."""
    max_depth_S: Int64s
    rested_S: Int64s
    """While drafters rest: tokens that they were told of; -1 while they work."""
    woken_S: Int64s
    """Tokens that it had when drafters were woken last; 0: it was opened since."""
    answered_S: Bools
    """Candidates below the text have come since it was told."""
    heard_S: Int64s
    """Length of the text up to which nothing more is awaited from drafters: they have answered, or it no longer matters."""
    grows_S: Bools
    """The last verdict left no candidates: a new tree is coming in, level by level."""
    waited_s_S: Float64s
    """When the target, free, began to wait for candidates of the session; nan: it does not."""
    hoped_S: Float64s
    """Tokens that a pass over candidates is taken to commit before one has."""
    yields_S: Float64s
    """Mean tokens of a pass over candidates."""
    bare_S: Int64s
    """Passes since the last one with candidates."""
    hits_S: Float64s
    """Mean rate at which the first level holds the draw."""
    prefill_s_S: Float64s
    verify_s_S: Float64s
    draft_wait_s_S: Float64s
    """Seconds of passes with its prompt, of its other passes, and of waiting for its candidates."""
    joined_SD: Bools
    """By number of the drafter, like what follows: it takes part and gets verdicts."""
    allowed_SD: Bools
    """Its candidates are taken."""
    origins_SD: Int64s
    """The place of its drafter among the request's, which tokens that it proposed are told with."""
    seen_SD: Int64s
    """Number of its last candidates that were taken in."""
    silent_SD: Int64s
    """Length of the text below which it last said that it has nothing; 0: it never did."""

    def __init__(self, num_rows: int, max_context: int) -> None:
        """Makes room. Memory is taken as texts grow.

        Args:
            num_rows: Slots.
            max_context: Tokens of a text, at most.
        """
        self.num_rows = num_rows
        for name, kind in SessionTable.__annotations__.items():
            shape = (num_rows, 0) if name.endswith("_SD") else num_rows
            setattr(self, name, np.full(shape, _FILLS.get(name, 0), _TYPES[kind]))
        self.tokens_SL = np.zeros((num_rows, max_context), np.int32)
        """Token ids of each text."""
        self.hashes_SL = np.zeros((num_rows, max_context + 1), np.uint64)
        """Rolling hash of each text at each length (`base_hash`)."""
        self.keys_SL = np.zeros((num_rows, max_context + 1), np.uint64)
        """Key of each text at each length (`path_keys`)."""
        self.said_s_SL = np.zeros((num_rows, max_context + 1))
        """When drafters were told of each length, in seconds of the worker's clock; 0: they were told of a longer text."""
        self.stops_SK = np.full((num_rows, 1), NO_TOKEN, np.int64)
        """Tokens that end each text."""
        self.counts: dict[str, Int64s] = {name: np.zeros(num_rows, np.int64) for name in COUNTS}
        self.reached_SD = np.zeros((num_rows, MOST_DEPTH), np.int64)
        """Rounds whose tree had each level, and those that drew it."""
        self.accepted_SD = np.zeros((num_rows, MOST_DEPTH), np.int64)
        self._num_opened = 0

    @property
    def remaining_S(self) -> Int64s:
        """Tokens that may still be committed."""
        return self.ends_S - self.lengths_S

    def add_drafter(self) -> None:
        """Makes room for one drafter more."""
        for name in SessionTable.__annotations__:
            if name.endswith("_SD"):
                array: NDArray[Any] = getattr(self, name)
                column = np.zeros((self.num_rows, 1), array.dtype)
                setattr(self, name, np.concatenate((array, column), axis=1))

    def reset(self, row: int) -> None:
        """Clears a row for a new session, which has no text yet."""
        for name in SessionTable.__annotations__:
            getattr(self, name)[row] = _FILLS.get(name, 0)
        for array in (self.reached_SD, self.accepted_SD, *self.counts.values()):
            array[row] = 0
        self.stops_SK[row] = NO_TOKEN
        self.hashes_SL[row, 0], self.keys_SL[row, 0] = base_hash.EMPTY, 0
        self.used_S[row] = True
        self._num_opened += 1
        self.orders_S[row] = self._num_opened

    def set_stops(self, row: int, tokens: frozenset[int]) -> None:
        """Notes the tokens that end a text."""
        if len(tokens) > self.stops_SK.shape[1]:
            more = np.full(
                (self.num_rows, len(tokens) - self.stops_SK.shape[1]), NO_TOKEN, np.int64
            )
            self.stops_SK = np.concatenate((self.stops_SK, more), axis=1)
        self.stops_SK[row] = NO_TOKEN
        self.stops_SK[row, : len(tokens)] = sorted(tokens)

    def append(self, rows_E: Int64s, tokens_ET: Int64s, counts_E: Int64s) -> None:
        """Extends several texts.

        Args:
            rows_E: Sessions, none twice.
            tokens_ET: What they get.
            counts_E: How many of those, at least one.
        """
        entries_M, steps_M = cells_of(np.arange(tokens_ET.shape[1]) < counts_E[:, None])
        lengths_E = self.lengths_S[rows_E]
        rows_M, places_M = rows_E[entries_M], lengths_E[entries_M] + steps_M
        tokens_M, behind_M = tokens_ET[entries_M, steps_M], places_M + 1
        hashes_ET = base_hash.extend_by_prefixes(self.hashes_SL[rows_E, lengths_E], tokens_ET)
        # The sum over a text is that over all of them, less what came before it.
        terms_M = terms(tokens_M, behind_M)
        sums_M, firsts_E = terms_M.cumsum(), counts_E.cumsum() - counts_E
        before_E = sums_M[firsts_E] - terms_M[firsts_E]
        self.tokens_SL[rows_M, places_M] = tokens_M
        self.said_s_SL[rows_M, behind_M] = 0.0
        self.hashes_SL[rows_M, behind_M] = hashes_ET[entries_M, steps_M]
        self.keys_SL[rows_M, behind_M] = (
            sums_M + (self.keys_SL[rows_E, lengths_E] - before_E)[entries_M]
        )
        self.lengths_S[rows_E] = lengths_E + counts_E

    def say(self, rows_E: Int64s, now: float) -> None:
        """Notes that drafters are told of these texts now."""
        self.answered_S[rows_E] = False
        self.said_s_SL[rows_E, self.lengths_S[rows_E]] = max(now, SMALLEST_TIME_S)

    def verdict_s_of(self, rows_E: Int64s) -> Float64s:
        """When drafters were told of each whole text, so when its last round was decided, in seconds of the worker's clock."""
        verdict_s: Float64s = self.said_s_SL[rows_E, self.lengths_S[rows_E]]
        return verdict_s

    def due(self, rows_E: Int64s) -> tuple[Float64s, Int64s]:
        """Since when the next answer of drafters is awaited, in seconds of the worker's clock, and how many tokens the text has grown by
        since; infinity: there is none, which they have given for this very text."""
        lengths_E, heard_E = self.lengths_S[rows_E], self.heard_S[rows_E]
        steps_W = 1 + np.arange(max(int((lengths_E - heard_E).max(initial=0)), 1))
        places_EW = heard_E[:, None] + steps_W
        inside_EW = places_EW <= lengths_E[:, None]
        said_EW = self.said_s_SL[rows_E[:, None], np.where(inside_EW, places_EW, 0)]
        said_EW = np.where(inside_EW & (said_EW > 0.0), said_EW, np.inf)
        first_E = said_EW.argmin(axis=1)
        entries = np.arange(len(rows_E))
        return said_EW[entries, first_E], lengths_E - places_EW[entries, first_E]

    def text(self, row: int, start: int = 0) -> Int64s:
        """A text from a place on."""
        text: Int64s = self.tokens_SL[row, start : self.lengths_S[row]].astype(np.int64)
        return text

    def hashes_of(self, rows_E: Int64s) -> Uint64s:
        """Rolling hash of each whole text."""
        hashes: Uint64s = self.hashes_SL[rows_E, self.lengths_S[rows_E]]
        return hashes

    def keys_of(self, rows_E: Int64s) -> Uint64s:
        """Key of each whole text."""
        keys: Uint64s = self.keys_SL[rows_E, self.lengths_S[rows_E]]
        return keys
