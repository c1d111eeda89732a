"""Drafting with a language model: best-first growth below the committed text, without waiting for verdicts.

One pass runs, for each of several sessions in one ragged batch, either the committed tokens that the model has not seen
yet (their last one gives the root's children) or the most valuable nodes that were not run (`frontier.py`). Invariants
between calls:

- The engine's cached rows of a slot are a prefix of the committed text; its scratch rows are the run nodes of the tree.
- The tree is expanded exactly if every committed token is cached; only then does it have nodes.
- The ratings of a session with a length policy (`halting.py`) are those of its root and of its scratch rows, in their order.

Nodes that are worth too little, or that the length policy stops at, are neither run nor, if worthless, sent. They are
kept, because the next verdict raises the value of everything below it: a run node without children would be a dead end.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from outrider.actors.draft.calibration import Calibration, Scoring, score_prior
from outrider.actors.draft.candidates import (
    Candidate,
    CandidateChooser,
    is_quick,
    scoring_of,
)
from outrider.actors.draft.children import add_children, add_roots, child_position, learn, noise_of
from outrider.actors.draft.drafter import Progress
from outrider.actors.draft.frontier import Frontier
from outrider.actors.draft.halting import Halting
from outrider.actors.draft.lengths import Lengths
from outrider.actors.draft.rating import rate_rows
from outrider.actors.draft.seat import Entry, Seat, check_fits, confine, take_slot, within
from outrider.actors.draft.session import LOOKAHEAD, DraftSession
from outrider.actors.draft.tree import NOT_RUN, ROOT
from outrider.actors.draft.turns import Turns
from outrider.actors.engine.prefix_slots import PrefixSlots
from outrider.actors.engine.protocol import Engine, Rows
from outrider.actors.speculation.options import Sampling

RUN_SHARE = 0.75
"""A node must be worth this fraction of an average place of the tree to be run. Less fills the tree with hopeless siblings, more
leaves it too shallow to cover the target's next pass."""

SENT_SHARE = 2.5
"""A node must be worth this fraction of an average place to be sent where bytes are dear, and a part of it where they are not
(`thrift.py`). What is kept back goes out after the verdict that makes it worth more."""


class AutoregressiveDrafter:
    """Grows trees with a draft model."""

    def __init__(
        self,
        engine: Engine,
        *,
        width: int,
        expand: int,
        max_ahead: int,
        prefill_chunk: int,
        lockstep: bool = False,
        lengths: Lengths | None = None,
        slots: PrefixSlots | None = None,
    ) -> None:
        """
        Args:
            engine: The draft model. Used by the calling thread only.
            width: Children of a node, at most.
            expand: Nodes of one session in one pass, at most.
            max_ahead: Nodes of one session, at most.
            prefill_chunk: Committed tokens in one pass, at most.
            lockstep: Grow one tree of the size that the target verifies, for comparison.
            lengths: The length policies on offer; None: those that need no trained model.
            slots: The model's slots; None: nobody else uses the model.
        """
        self.calibration = Calibration(score_prior)
        self._engine = engine
        self._slots = slots or PrefixSlots(engine)
        self._chooser = CandidateChooser(engine.spec.vocab_size, engine.spec.device, width)
        self._frontier = Frontier(engine, expand=expand, lockstep=lockstep)
        self._turns = Turns(
            self._frontier,
            prefill_chunk=min(prefill_chunk, engine.max_scratch),
            vocab_size=engine.spec.vocab_size,
        )
        self._lengths = lengths or Lengths()
        self._expand = expand
        self._max_ahead = max_ahead
        self._lockstep = lockstep
        self._seats: dict[DraftSession, Seat] = {}

    @property
    def num_slots(self) -> int:
        """Sessions that can be served at a time."""
        return self._engine.num_slots

    @property
    def num_free_slots(self) -> int:
        """Sessions that can be attached."""
        return self._engine.num_free

    def warm_up(self) -> None:
        """Runs the shapes of a prefill and of a draft pass once, so that the first session does not pay for them."""
        slot = self._engine.acquire()
        try:
            self._engine.forward([Rows(slot=slot, tokens=[0], parents=[ROOT])])
            self._engine.rebase(slot, [0])
            count = min(self._expand, self._engine.max_scratch)
            rows = Rows(slot=slot, tokens=[0] * count, parents=[ROOT] * count)
            logits = self._engine.forward([rows])
            sampling = Sampling(seed=0, max_tokens=1)
            self._chooser.choose(
                logits.values_RV, [sampling] * count, [Scoring.COUPLED] * count, [1] * count
            )
        finally:
            self._engine.release(slot)

    def attach(self, session: DraftSession) -> None:
        """Makes room for a session; its text is run by later calls of `draft`.

        Raises:
            NoRoom: Every slot is taken.
            CannotDraft: The text does not fit the draft model's context, or the length policy needs a decision model that is
                not there.
        """
        spec, speculation = self._engine.spec, session.speculation
        check_fits(session, spec)
        session.sampling = within(session.sampling, spec.vocab_size)
        depth = speculation.max_depth if self._lockstep else LOOKAHEAD * speculation.max_depth
        ahead = (
            4 * max(self._max_ahead, speculation.max_nodes) if self._lockstep else self._max_ahead
        )
        node_limit = min(ahead, self._engine.max_scratch)
        policy = self._lengths.policy(speculation.policies, longest=depth)
        slot = take_slot(self._slots, session)
        seat = Seat(
            slot=slot,
            cached=self._engine.cached(slot),
            scoring=scoring_of(session.sampling, speculation.verifier),
            stop_tokens=self._stop_tokens(session),
            depth_limit=depth,
            node_limit=node_limit,
        )
        if seat.scoring is Scoring.COUPLED:
            noise = self._chooser.noise_of(session.sampling.seed)
            seat.noise = noise if is_quick(session.sampling) else None
            seat.rating_noise = noise
        if policy is not None:
            seat.halting = Halting(policy)
        self._seats[session] = seat
        session.least_value = RUN_SHARE / node_limit
        session.least_sent = SENT_SHARE / node_limit

    def _stop_tokens(self, session: DraftSession) -> frozenset[int]:
        sampling = session.sampling
        eos = () if sampling.ignore_eos else self._engine.spec.eos_token_ids
        return frozenset((*eos, *sampling.stop_token_ids))

    def _add_roots(self, session: DraftSession) -> None:
        vocab_size = self._engine.spec.vocab_size
        add_roots(session, [t for t in session.roots if t < vocab_size], self.calibration)

    def detach(self, session: DraftSession) -> None:
        """Frees the session's slot; the rows of its text may serve another one."""
        self._slots.release(self._seats.pop(session).slot, session.tokens)

    def extend(self, session: DraftSession, tokens: Sequence[int]) -> None:
        """Takes tokens as committed, learns from them, and keeps the rows and nodes that are still below them."""
        seat, tree = self._seats[session], session.tree
        path = tree.walk(tokens)
        learn(session, path, tokens, self.calibration)
        run = [node for node in path if tree.scratch[node] != NOT_RUN]
        rows = [tree.scratch[node] for node in run]
        if run and len(run) == len(tokens):
            keep = tree.reroot(run[-1])
            self._engine.rebase(seat.slot, rows, keep)
            if seat.halting is not None:
                seat.halting.reroot(rows[-1], keep)
            if session.roots:
                self._add_roots(session)
        elif run:
            self._engine.rebase(seat.slot, rows)
            tree.clear()
        elif tree.is_expanded:
            self._engine.truncate(seat.slot, seat.cached)
            tree.clear()
        seat.cached += len(rows)
        session.append(tokens)

    def rewrite(self, session: DraftSession, keep: int, tokens: Sequence[int]) -> None:
        """Takes other tokens as committed after the first `keep`; the last one is run again for its logits."""
        seat = self._seats[session]
        session.replace(keep, tokens)
        seat.cached = min(seat.cached, keep, session.length - 1)
        self._engine.truncate(seat.slot, seat.cached)
        self._slots.rewrite(seat.slot, seat.cached)

    def is_complete(self, session: DraftSession) -> bool:
        """True if the tree will not grow before the next verdict."""
        seat = self._seats[session]
        if not session.tree.is_expanded:
            return self._frontier.deepest(session, seat) < 1
        return not self._frontier.expandable(session, seat)

    def draft(self, sessions: Collection[DraftSession]) -> Progress:
        """Runs one pass: catching up and drafting take turns, so that a long prompt does not stall the others."""
        entries = self._turns.next_entries(sessions, self._seats)
        if not entries:
            return Progress(worked=False)
        return Progress(worked=True, grown=self._run(entries))

    def _run(self, entries: Sequence[Entry]) -> list[DraftSession]:
        logits = self._engine.forward([entry.rows for entry in entries])
        expanded: list[tuple[Entry, int]] = []
        for entry in entries:
            if entry.nodes:
                first = self._engine.scratch(entry.seat.slot) - len(entry.nodes)
                for row, node in enumerate(entry.nodes, start=first):
                    entry.session.tree.scratch[node] = row
                    expanded.append((entry, node))
                continue
            count = len(entry.rows.tokens)
            self._engine.rebase(entry.seat.slot, range(count))
            entry.seat.cached += count
            if entry.rows.logits == "last":
                entry.session.tree.is_expanded = True
                expanded.append((entry, ROOT))
        if not expanded:
            return []
        rate_rows(expanded, logits.values_RV)
        confine(logits.values_RV, [entry.session.vocab_size for entry, _ in expanded])
        chosen = self._chooser.choose(
            logits.values_RV,
            [entry.session.sampling for entry, _ in expanded],
            [entry.seat.scoring for entry, _ in expanded],
            [child_position(entry.session, node) for entry, node in expanded],
            noise_of(expanded),
        )
        children: dict[DraftSession, list[tuple[int, list[Candidate]]]] = {}
        for (entry, node), candidates in zip(expanded, chosen, strict=True):
            children.setdefault(entry.session, []).append((node, candidates))
        for session, families in children.items():
            add_children(session, self._seats[session], families, self.calibration)
            if session.roots and families[0][0] == ROOT:
                self._add_roots(session)
        return list(children)
