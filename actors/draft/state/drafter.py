"""What a drafting method must offer to the core."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from outrider.actors.draft.state.draft_sessions import DraftSession
from outrider.actors.draft.trees.forest import Bools, Int64s
from outrider.actors.engine.protocol import Batch, Engine, Logits
from outrider.actors.exchange.features import RejectedNodes

LOOKAHEAD = 2
"""A tree may be so many times as deep as one target pass verifies, so that the next tree grows while a pass runs."""


class CannotDraft(Exception):
    """The method cannot serve this session; the message says why and what to do."""


class NoRoom(Exception):
    """Every place is taken; attach the session to another drafter, or configure more slots."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DraftPass:
    """One unit of drafting work."""

    batch: Batch | None
    """Rows to run; None: the method has no model."""

    rows_E: Int64s
    """Sessions that it is for, none twice."""

    gains_E: NDArray[np.float64]
    """Tokens that it is expected to add to the next pass of each one's target, over what their bytes and rows cost."""

    seconds: float
    """That it is expected to take."""


class Drafter(Protocol):
    """Grows candidate trees of sessions, in their forest. Used by one thread.

    What each call is told of sessions, it is told by their rows in `Sessions`, which it may read as it likes.
    """

    @property
    def engine(self) -> Engine | None:
        """Runs the batches; None: there is no model."""
        ...

    @property
    def num_slots(self) -> int:
        """Sessions that can be served at a time."""
        ...

    @property
    def num_free_slots(self) -> int:
        """Sessions that can be attached."""
        ...

    def attach(self, session: DraftSession) -> None:
        """Makes room for a session.

        Raises:
            NoRoom: Every place is taken.
            CannotDraft: The session is not one that this method can serve.
        """
        ...

    def detach(self, session: DraftSession) -> None:
        """Frees the session's room."""
        ...

    def follow(self, rows_E: Int64s, tokens_ET: Int64s, counts_E: Int64s) -> Int64s:
        """Learns from tokens that are about to be committed, and keeps what grew below them.

        Args:
            rows_E: Sessions, none twice.
            tokens_ET: Their tokens, filled up with `forest.NO_TOKEN`.
            counts_E: How many each has, at least one.

        Returns:
            How many of them were foreseen.
        """
        ...

    def rewrite(self, session: DraftSession, keep: int) -> None:
        """Takes in that the text was replaced after its first `keep` tokens; the tree is dropped."""
        ...

    def plan(self, rows_E: Int64s) -> DraftPass | None:
        """The next unit of work for these sessions; None: there is nothing to do until something arrives."""
        ...

    def grow(self, plan: DraftPass, logits: Logits | None) -> Int64s:
        """Grows the trees by what the pass gave.

        Args:
            plan: The unit of work.
            logits: Of its batch; None if it has none.

        Returns:
            Sessions that have new candidates.
        """
        ...

    def took(self, plan: DraftPass, seconds: float) -> None:
        """Takes in what a unit of work took in all, the time outside the model included."""
        ...

    def is_complete(self, rows_E: Int64s) -> Bools:
        """Whether each tree will not grow before the next verdict."""
        ...


@runtime_checkable
class Noted(Protocol):
    """A drafter that finds something out about its model while it serves."""

    @property
    def note(self) -> str:
        """What, for people; empty: nothing. Read from any thread."""
        ...


@runtime_checkable
class FeatureReader(Protocol):
    """A drafter that reads hidden states of the target. Used by the drafting thread."""

    def take_features(
        self, session: DraftSession, start: int, features_TLD: NDArray[np.float32]
    ) -> None:
        """Takes hidden states of the target at committed positions. They decide what is proposed, never what is written.

        The state at a position is known once the target has run its token: with `session.length` tokens committed there are states of
        the positions below `session.length - 1` at most. They come in any order, late, or never: a drafter that was attached late and
        a prompt that began like an earlier one leave gaps. A position that came already is not given again, except after `attach`.

        Args:
            session: One that is attached.
            start: Absolute position of the first, 0 for the first token of the prompt.
            features_TLD: T positions, the L layers in the order of the request, D numbers each; finite. The method's to keep.
        """
        ...


@runtime_checkable
class TopRowReader(Protocol):
    """A drafter that reads the target's likeliest tokens. Used by the drafting thread."""

    def take_top_rows(
        self,
        session: DraftSession,
        start: int,
        tokens_TK: Int64s,
        logprobs_TK: NDArray[np.float32],
    ) -> None:
        """Takes the target's likeliest next tokens after committed positions. They come as states do; positions of a prompt but its
        last have none, for no logits are computed there.

        Args:
            session: One that is attached.
            start: Absolute position of the first.
            tokens_TK: The K likeliest tokens at the position after each, the likeliest first.
            logprobs_TK: Their natural log-probabilities under the model's own distribution, whatever the request samples from.
        """
        ...


@runtime_checkable
class RejectedReader(Protocol):
    """A drafter that reads hidden states of candidates that the target did not draw. Used by the drafting thread."""

    def take_rejected(
        self, session: DraftSession, nodes: RejectedNodes, states_NLD: NDArray[np.float32]
    ) -> None:
        """Takes the candidates of one round that were verified and not drawn. A round may come twice, or never.

        Args:
            session: One that is attached.
            nodes: The candidates, parents first.
            states_NLD: Their states; see `FeatureReader.take_features`.
        """
        ...
