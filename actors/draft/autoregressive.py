"""Drafting with a language model: best-first growth below the committed text, without waiting for verdicts.

One pass runs, for each of several sessions in one ragged batch, either the committed tokens that the model has not seen
yet (their last one gives the root's children) or the most valuable nodes that were not run. Invariants between calls:

- The engine's cached rows of a slot are a prefix of the committed text; its scratch rows are the run nodes of the tree.
- The tree is expanded exactly if every committed token is cached; only then does it have nodes.

A node's value, the product of the estimates on its path, is the probability that the target gets there. Nodes less
valuable than one place among those sent are neither sent nor run: the drafter is far enough ahead and leaves the processor
to others. They are kept, because the next verdict raises the value of everything below it: a run node without children
would be a dead end.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import torch

from outrider.actors.draft.calibration import Calibration, Scoring, score_prior
from outrider.actors.draft.candidates import (
    Candidate,
    CandidateChooser,
    is_quick,
    scoring_of,
)
from outrider.actors.draft.drafter import CannotDraft, NoRoom, Progress
from outrider.actors.draft.session import LOOKAHEAD, DraftSession
from outrider.actors.draft.tree import NOT_RUN, ROOT
from outrider.actors.engine.protocol import Engine, NoFreeSlot, Rows
from outrider.actors.speculation.noise import NoiseCache
from outrider.actors.speculation.options import Sampling

CATCH_UP = 16
"""Committed tokens that may ride along in a draft pass. More make the pass longer for the other sessions; beyond this the
session is caught up in passes of its own."""

MAX_PASS_NODES = 64
"""Nodes of all sessions in one draft pass. Fewer waste passes under load, more make each session wait for the others'
less valuable nodes."""

LEAST_SHARE = 0.5
"""A node must be worth this fraction of an average place of the tree to be sent or run. Less fills the tree with hopeless
siblings, more leaves it too shallow to cover the target's next pass."""

KEPT_SHARE = 1 / 16
"""Siblings worth this fraction of that are kept for later; the best child of a run node always is."""

KEPT_NODES = 3
"""Nodes kept for each that may be sent. Fewer lose what the next verdict would make worthwhile, more cost time in each
pass."""


@dataclass(slots=True, kw_only=True)
class _Seat:
    """What the drafter keeps about a session."""

    slot: int
    scoring: Scoring
    stop_tokens: frozenset[int]
    depth_limit: int
    node_limit: int
    """Nodes that may be sent, and that may be run."""
    noise: NoiseCache | None = None
    """The session's noise, if its candidates are scored with it and nothing else is in the way."""
    cached: int = 0
    """Rows that the engine has cached."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entry:
    """One session's part of a pass: committed tokens (`nodes` empty) or nodes to run."""

    session: DraftSession
    seat: _Seat
    rows: Rows
    nodes: tuple[int, ...] = ()


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
    ) -> None:
        """
        Args:
            engine: The draft model. Used by the calling thread only.
            width: Children of a node, at most.
            expand: Nodes of one session in one pass, at most.
            max_ahead: Nodes of one session, at most.
            prefill_chunk: Committed tokens in one pass, at most.
            lockstep: Grow one tree of the size that the target verifies, for comparison.
        """
        self.calibration = Calibration(score_prior)
        self._engine = engine
        self._chooser = CandidateChooser(engine.spec.vocab_size, engine.spec.device, width)
        self._expand = expand
        self._max_ahead = max_ahead
        self._prefill_chunk = min(prefill_chunk, engine.max_scratch)
        self._lockstep = lockstep
        self._seats: dict[DraftSession, _Seat] = {}
        self._drafted_last = False

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
            CannotDraft: A token is not in the draft model's vocabulary, or the text does not fit its context.
        """
        spec = self._engine.spec
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
        try:
            slot = self._engine.acquire()
        except NoFreeSlot as error:
            raise NoRoom(
                f"all {self.num_slots} slots of the drafter are taken; attach the session to "
                "another drafter, or raise num_slots"
            ) from error
        sampling, speculation = session.sampling, session.speculation
        eos = () if sampling.ignore_eos else spec.eos_token_ids
        depth = speculation.max_depth if self._lockstep else LOOKAHEAD * speculation.max_depth
        ahead = (
            4 * max(self._max_ahead, speculation.max_nodes) if self._lockstep else self._max_ahead
        )
        node_limit = min(ahead, self._engine.max_scratch)
        scoring = scoring_of(sampling, speculation.verifier)
        self._seats[session] = _Seat(
            slot=slot,
            scoring=scoring,
            stop_tokens=frozenset((*eos, *sampling.stop_token_ids)),
            depth_limit=depth,
            node_limit=node_limit,
            noise=self._chooser.noise_of(sampling.seed)
            if scoring is Scoring.COUPLED and is_quick(sampling)
            else None,
        )
        session.least_value = LEAST_SHARE / node_limit

    def detach(self, session: DraftSession) -> None:
        """Frees the session's slot."""
        self._engine.release(self._seats.pop(session).slot)

    def extend(self, session: DraftSession, tokens: Sequence[int]) -> None:
        """Takes tokens as committed, learns from them, and keeps the rows and nodes that are still below them."""
        seat, tree = self._seats[session], session.tree
        path = tree.walk(tokens)
        self._learn(session, path, tokens)
        run = [node for node in path if tree.scratch[node] != NOT_RUN]
        rows = [tree.scratch[node] for node in run]
        if run and len(run) == len(tokens):
            self._engine.rebase(seat.slot, rows, tree.reroot(run[-1]))
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

    def is_complete(self, session: DraftSession) -> bool:
        """True if the tree will not grow before the next verdict."""
        seat = self._seats[session]
        if not session.tree.is_expanded:
            return self._deepest(session, seat) < 1
        return not self._expandable(session, seat)

    def draft(self, sessions: Collection[DraftSession]) -> Progress:
        """Runs one pass: catching up and drafting take turns, so that a long prompt does not stall the others."""
        behind: list[DraftSession] = []
        ready: list[DraftSession] = []
        for session in sessions:
            if session.tree.is_expanded:
                ready.append(session)
            elif self._deepest(session, self._seats[session]) >= 1:
                lag = session.length - self._seats[session].cached
                (behind if lag > CATCH_UP else ready).append(session)
        entries: list[_Entry] = []
        if ready and not (behind and self._drafted_last):
            entries = self._draft_entries(ready)
        self._drafted_last = bool(entries)
        if not entries and behind:
            entries = self._prefill_entries(behind)
        if not entries and ready:
            entries = self._draft_entries(ready)
        if not entries:
            return Progress(worked=False)
        return Progress(worked=True, grown=self._run(entries))

    def _prefill_entries(self, behind: Sequence[DraftSession]) -> list[_Entry]:
        entries: list[_Entry] = []
        room = self._prefill_chunk
        for session in behind:
            if room <= 0:
                break
            entry = self._catch_up(session, room)
            room -= len(entry.rows.tokens)
            entries.append(entry)
        return entries

    def _catch_up(self, session: DraftSession, room: int) -> _Entry:
        seat = self._seats[session]
        tokens = session.tokens[seat.cached : seat.cached + room]
        is_last = seat.cached + len(tokens) == session.length
        rows = Rows(
            slot=seat.slot,
            tokens=tokens,
            parents=range(-1, len(tokens) - 1),
            logits="last" if is_last else "none",
        )
        return _Entry(session=session, seat=seat, rows=rows)

    def _draft_entries(self, ready: Sequence[DraftSession]) -> list[_Entry]:
        entries: list[_Entry] = []
        wanted: list[tuple[float, int, list[tuple[float, int]]]] = []
        room = MAX_PASS_NODES
        for index, session in enumerate(ready):
            if not session.tree.is_expanded:
                if room > 0:
                    entries.append(self._catch_up(session, self._prefill_chunk))
                    room -= len(entries[-1].rows.tokens)
                continue
            nodes = self._expandable(session, self._seats[session])
            if nodes:
                wanted.append((nodes[0][0], index, nodes))
        if len(wanted) * self._expand > room:
            wanted = _most_valuable(wanted, room)
        for _, index, nodes in wanted:
            entries.append(self._grow(ready[index], [node for _, node in nodes]))
        return entries

    def _grow(self, session: DraftSession, nodes: list[int]) -> _Entry:
        tree, seat = session.tree, self._seats[session]
        # Ascending, so that a parent that is run in the same pass would come first.
        nodes.sort()
        parents = [
            ROOT if tree.parents[node] == ROOT else tree.scratch[tree.parents[node]]
            for node in nodes
        ]
        rows = Rows(slot=seat.slot, tokens=[tree.tokens[node] for node in nodes], parents=parents)
        return _Entry(session=session, seat=seat, rows=rows, nodes=tuple(nodes))

    def _expandable(self, session: DraftSession, seat: _Seat) -> list[tuple[float, int]]:
        """The most valuable nodes that may be run, as (value, node), best first; at most `expand`."""
        tree = session.tree
        room = seat.node_limit - self._engine.scratch(seat.slot)
        if room <= 0 or len(tree) >= KEPT_NODES * seat.node_limit:
            return []
        floor = session.least_value
        if self._lockstep and len(tree) >= session.speculation.max_nodes:
            # Children are worth no more than their parent: below this none would be among those sent.
            floor = max(floor, heapq.nlargest(session.speculation.max_nodes, tree.values)[-1])
        deepest = self._deepest(session, seat)
        scratch, depths, tokens, values = tree.scratch, tree.depths, tree.tokens, tree.values
        stop_tokens = seat.stop_tokens
        found = [
            (values[node], -node)
            for node in range(len(tokens))
            if scratch[node] == NOT_RUN
            and values[node] > floor
            and depths[node] < deepest
            and tokens[node] not in stop_tokens
        ]
        return [(value, -node) for value, node in heapq.nlargest(min(self._expand, room), found)]

    def _deepest(self, session: DraftSession, seat: _Seat) -> int:
        """Greatest depth of a node that the target can still commit and the context holds."""
        end = min(session.final_length, self._engine.spec.max_context)
        return min(seat.depth_limit, end - session.length)

    def _run(self, entries: Sequence[_Entry]) -> list[DraftSession]:
        logits = self._engine.forward([entry.rows for entry in entries])
        expanded: list[tuple[_Entry, int]] = []
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
        chosen = self._chooser.choose(
            logits.values_RV,
            [entry.session.sampling for entry, _ in expanded],
            [entry.seat.scoring for entry, _ in expanded],
            [_child_position(entry.session, node) for entry, node in expanded],
            _noise(expanded),
        )
        children: dict[DraftSession, list[tuple[int, list[Candidate]]]] = {}
        for (entry, node), candidates in zip(expanded, chosen, strict=True):
            children.setdefault(entry.session, []).append((node, candidates))
        for session, families in children.items():
            self._add(session, self._seats[session], families)
        return list(children)

    def _add(
        self,
        session: DraftSession,
        seat: _Seat,
        families: Sequence[tuple[int, Sequence[Candidate]]],
    ) -> None:
        """Adds the children worth keeping, the most valuable first, as far as there is room."""
        tree = session.tree
        found: list[tuple[float, bool, int, Candidate, float]] = []
        for node, candidates in families:
            value = 1.0 if node == ROOT else tree.values[node]
            estimates = [self.calibration.estimate(candidate.feature) for candidate in candidates]
            best = max(estimates)
            for candidate, estimate in zip(candidates, estimates, strict=True):
                found.append((value * estimate, estimate == best, node, candidate, estimate))
        # The best child of every node comes before the others: it may be all that the target finds there.
        found.sort(key=lambda item: (not item[1], -item[0]))
        # No more nodes are run than may be sent, so this leaves room for the best child of each.
        enough = (KEPT_NODES - 1) * seat.node_limit
        floor = KEPT_SHARE * session.least_value
        for worth, is_best, node, candidate, estimate in found:
            if is_best or (worth >= floor and len(tree) < enough):
                tree.add(node, candidate.token, estimate, candidate.feature)

    def _learn(self, session: DraftSession, path: Sequence[int], tokens: Sequence[int]) -> None:
        tree = session.tree
        for node, token in zip((ROOT, *path), tokens, strict=False):
            for child in tree.children_of(node):
                self.calibration.observe(tree.features[child], tree.tokens[child] == token)


def _noise(expanded: Sequence[tuple[_Entry, int]]) -> torch.Tensor | None:
    """The noise at the children's positions, a row for each expanded node; None unless every session has it at hand."""
    rows: list[torch.Tensor] = []
    for entry, node in expanded:
        cache, session = entry.seat.noise, entry.session
        if cache is None:
            return None
        # Asked for from the root on, so that the cache keeps what shallower nodes need.
        depth = 0 if node == ROOT else session.tree.depths[node]
        rows.append(cache.row_range(session.length, session.length + depth + 1)[depth])
    return torch.stack(rows)


def _child_position(session: DraftSession, node: int) -> int:
    return session.length if node == ROOT else session.length + session.tree.depths[node]


def _most_valuable(
    wanted: Sequence[tuple[float, int, list[tuple[float, int]]]], room: int
) -> list[tuple[float, int, list[tuple[float, int]]]]:
    """The `room` most valuable nodes over all sessions, grouped as they came."""
    if room <= 0:
        return []
    every = [(value, -index, -node) for _, index, nodes in wanted for value, node in nodes]
    chosen: dict[int, list[tuple[float, int]]] = {}
    for value, index, node in heapq.nlargest(room, every):
        chosen.setdefault(-index, []).append((value, -node))
    return [(nodes[0][0], index, nodes) for index, nodes in chosen.items()]
