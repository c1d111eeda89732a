"""Drafting for the verifiers that test frozen trees: tokens are *drawn* from the draft model, level by level.

Exactness rests on a few rules, kept here and in `rounds.py`. The law of a node's children is settled before a child is
drawn: probable tokens rounded to the wire's numbers, one number for all others, then drawn from exactly those
(`speculation/sparse.py`). Shapes are fixed beforehand; a drawn token is never dropped or moved. Draws come from a generator of the session's own, seeded by
the operating system: it has nothing to do with the request's seed, which decides the target's tests. Each base gets one
tree; if that is lost, the same one is sent again.

At temperature 0 the target's law is a single one, and every tree is exact; then the most probable tokens are taken.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from outrider.actors.draft.drafter import CannotDraft, Progress
from outrider.actors.draft.lengths import LengthPolicy, Lengths
from outrider.actors.draft.rounds import Rounds, most_probable
from outrider.actors.draft.seat import check_fits, take_slot
from outrider.actors.draft.session import DraftSession
from outrider.actors.draft.tree import ROOT
from outrider.actors.engine.prefix_slots import PrefixSlots
from outrider.actors.engine.protocol import Engine, Rows
from outrider.actors.speculation.decisions import Float64s, UniformDecisions
from outrider.actors.speculation.draft_tree import Replacement
from outrider.actors.speculation.options import Verifier
from outrider.actors.speculation.shapes import Shape
from outrider.actors.speculation.sparse import (
    DRAWS_A_SIBLING,
    MAX_KEPT,
    SparseRow,
    draw_siblings,
    freeze,
    least_prob,
    of_tokens,
    rest_share,
)
from outrider.actors.speculation.transforms import SamplingTransform, is_greedy
from outrider.actors.speculation.tree_shape import shape_of
from outrider.actors.speculation.verifiers.registry import METHODS

SERVED_SAMPLED: tuple[Verifier, ...] = tuple(
    verifier for verifier, method in METHODS.items() if method.needs_draft_probs
)
"""Verifiers that this method drafts for."""

AHEAD = 1
"""Rounds drafted below predictions. The second prediction is right so rarely that its passes only delay others."""

MAX_PASS_NODES = 64
"""Nodes of all sessions in one draft pass, unless one session alone needs more."""


@dataclass(slots=True, kw_only=True)
class _Seat:
    """What the drafter keeps about a session."""

    slot: int
    rounds: Rounds
    transform: SamplingTransform
    generator: np.random.Generator
    is_greedy: bool
    replacement: Replacement
    policy: LengthPolicy | None = None
    """How many levels a tree gets, if not always all."""
    cached: int = 0
    """Rows that the engine has cached. All of the text: then the round below it has begun."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entry:
    """One session's part of a pass: committed tokens (`nodes` empty) or nodes to run."""

    session: DraftSession
    seat: _Seat
    rows: Rows
    nodes: tuple[int, ...] = ()


class SampledDrafter:
    """Draws frozen trees with a draft model."""

    def __init__(
        self,
        engine: Engine,
        *,
        prefill_chunk: int,
        lockstep: bool = False,
        keep: int = MAX_KEPT,
        new_generator: Callable[[], np.random.Generator] = np.random.default_rng,
        lengths: Lengths | None = None,
        slots: PrefixSlots | None = None,
    ) -> None:
        """
        Args:
            engine: The draft model. Used by the calling thread only.
            prefill_chunk: Committed tokens in one pass, at most.
            lockstep: Draft nothing ahead, for comparison.
            keep: Tokens that a law lists, at most.
            new_generator: Makes the generator of a session; must be independent of everything the target draws.
            lengths: The length policies on offer; None: those that need no trained model.
            slots: The model's slots; None: nobody else uses the model.
        """
        self._engine = engine
        self._slots = slots or PrefixSlots(engine)
        self._prefill_chunk = min(prefill_chunk, engine.max_scratch)
        self._ahead = 0 if lockstep else AHEAD
        self._keep = keep
        self._new_generator = new_generator
        self._lengths = lengths or Lengths()
        self._seats: dict[DraftSession, _Seat] = {}
        self._turn = 0

    @property
    def num_slots(self) -> int:
        """Sessions that can be served at a time."""
        return self._engine.num_slots

    @property
    def num_free_slots(self) -> int:
        """Sessions that can be attached."""
        return self._engine.num_free

    def attach(self, session: DraftSession) -> None:
        """Makes room for a session; its text is run by later calls of `draft`.

        Raises:
            NoRoom: Every slot is taken.
            CannotDraft: A token is not in the draft model's vocabulary, the text does not fit its context, the options
                exclude every token, or the length policy needs a decision model that is not there.
        """
        check_fits(session, self._engine.spec)
        try:
            transform = self._transform(session)
        except ValueError as error:
            raise CannotDraft(str(error)) from error
        speculation = session.speculation
        policy = self._lengths.policy(speculation.policies, longest=speculation.max_depth)
        slot = take_slot(self._slots, session)
        replacement = _replacement(session.speculation.verifier)
        session.frozen = Rounds(replacement)
        self._seats[session] = _Seat(
            slot=slot,
            cached=self._engine.cached(slot),
            rounds=session.frozen,
            transform=transform,
            generator=self._new_generator(),
            is_greedy=is_greedy(session.sampling),
            replacement=replacement,
            policy=policy,
        )

    def detach(self, session: DraftSession) -> None:
        """Frees the session's slot; the rows of its text may serve another one."""
        self._slots.release(self._seats.pop(session).slot, session.tokens)

    def extend(self, session: DraftSession, tokens: Sequence[int]) -> None:
        """Takes tokens as committed, and keeps the round that was drafted for them, if there is one."""
        seat = self._seats[session]
        followed = seat.rounds.follow(tokens)
        if seat.cached == session.length:
            self._engine.rebase(seat.slot, followed.path, followed.keep)
            seat.cached += len(followed.path)
        session.append(tokens)
        seat.transform.commit(tokens)

    def rewrite(self, session: DraftSession, keep: int, tokens: Sequence[int]) -> None:
        """Takes other tokens as committed after the first `keep`; the last one is run again for its logits."""
        seat = self._seats[session]
        session.replace(keep, tokens)
        seat.rounds.clear()
        seat.cached = min(seat.cached, keep, session.length - 1)
        self._engine.truncate(seat.slot, seat.cached)
        self._slots.rewrite(seat.slot, seat.cached)
        seat.transform = self._transform(session)

    def is_complete(self, session: DraftSession) -> bool:
        """True if the tree below the text is frozen, or there is no room for one."""
        rounds = self._seats[session].rounds.rounds
        return rounds[0].is_frozen if rounds else not self._shape(session, session.length).depth

    def draft(self, sessions: Collection[DraftSession]) -> Progress:
        """Runs one pass: the sessions whose next tree is missing first, then those that draft ahead."""
        missing: list[_Entry] = []
        ahead: list[_Entry] = []
        prefill_left = self._prefill_chunk
        for session in self._in_turn(list(sessions)):
            seat = self._seats[session]
            if not seat.rounds.rounds:
                entry = self._catch_up(session, seat, prefill_left)
                if entry is not None:
                    prefill_left -= len(entry.rows.tokens)
                    missing.append(entry)
            elif not seat.rounds.rounds[-1].is_frozen:
                entry = self._expand(session, seat, seat.rounds.rounds[-1].frontier)
                (missing if len(seat.rounds.rounds) == 1 else ahead).append(entry)
            elif self._may_predict(session, seat):
                ahead.append(self._expand(session, seat, [seat.rounds.best_leaf()]))
        entries = _bounded([*missing, *ahead])
        if not entries:
            return Progress(worked=False)
        return Progress(worked=True, grown=self._run(entries))

    def _in_turn(self, sessions: list[DraftSession]) -> list[DraftSession]:
        """The sessions, each first now and then, so that a full pass leaves out another one each time."""
        self._turn += 1
        first = self._turn % len(sessions) if sessions else 0
        return sessions[first:] + sessions[:first]

    def _transform(self, session: DraftSession) -> SamplingTransform:
        spec = self._engine.spec
        transform = SamplingTransform(
            session.sampling,
            vocab_size=spec.vocab_size,
            prompt=session.tokens[: session.prompt_length],
            eos_token_ids=spec.eos_token_ids,
            device=spec.device,
        )
        transform.commit(session.tokens[session.prompt_length :])
        return transform

    def _shape(self, session: DraftSession, length: int) -> Shape:
        """Shape of a tree below so many tokens, for which target and draft model have room."""
        end = min(session.final_length - 1, self._engine.spec.max_context)
        shape = shape_of(session.speculation, end - length)
        while shape.num_internal + 1 > self._engine.max_scratch:
            shape = shape.prefix(shape.depth - 1)
        return shape

    def _may_predict(self, session: DraftSession, seat: _Seat) -> bool:
        if len(seat.rounds.rounds) > self._ahead:
            return False
        last = seat.rounds.rounds[-1]
        shape = self._shape(session, last.length + last.shape.depth + 1)
        # The leaf's row, the predicted token's, and those below it.
        num_rows = seat.rounds.num_run + 1 + shape.num_internal
        return shape.depth > 0 and num_rows <= self._engine.max_scratch

    def _catch_up(self, session: DraftSession, seat: _Seat, room: int) -> _Entry | None:
        if room < 1 or not self._shape(session, session.length).depth:
            return None
        tokens = session.tokens[seat.cached : seat.cached + room]
        is_last = seat.cached + len(tokens) == session.length
        rows = Rows(
            slot=seat.slot,
            tokens=tokens,
            parents=range(-1, len(tokens) - 1),
            logits="last" if is_last else "none",
        )
        return _Entry(session=session, seat=seat, rows=rows)

    def _expand(self, session: DraftSession, seat: _Seat, nodes: Sequence[int]) -> _Entry:
        rounds = seat.rounds
        rows = Rows(
            slot=seat.slot,
            tokens=[rounds.tokens[node] for node in nodes],
            parents=[
                ROOT if rounds.parents[node] == ROOT else rounds.scratch[rounds.parents[node]]
                for node in nodes
            ],
            mask=session.tree_mask,
        )
        return _Entry(session=session, seat=seat, rows=rows, nodes=tuple(nodes))

    def _run(self, entries: Sequence[_Entry]) -> list[DraftSession]:
        """Runs a pass.

        Returns:
            The sessions with a tree that became complete.
        """
        logits = self._engine.forward([entry.rows for entry in entries])
        growing: list[tuple[DraftSession, _Seat]] = []
        scores: list[torch.Tensor] = []
        for index, entry in enumerate(entries):
            session, seat = entry.session, entry.seat
            if entry.nodes:
                first = self._engine.scratch(seat.slot) - len(entry.nodes)
                for row, node in enumerate(entry.nodes, start=first):
                    seat.rounds.scratch[node] = row
            else:
                count = len(entry.rows.tokens)
                self._engine.rebase(seat.slot, range(count))
                seat.cached += count
                if entry.rows.logits == "none":
                    continue
                shape = self._shape(session, session.length)
                seat.rounds.begin(length=session.length, hash_=session.hash, shape=shape)
            nodes = entry.nodes or (ROOT,)
            scores_NV = self._scores(session, seat, nodes, logits.of(index))
            if seat.rounds.rounds[-1].is_frozen:
                self._predict(session, seat, nodes[0], scores_NV)
            else:
                growing.append((session, seat))
                scores.append(scores_NV)
        if not growing:
            return []
        # At once, because a softmax of many rows costs little more than one of few.
        probs_RV = torch.softmax(torch.cat(scores).double(), dim=-1).cpu().numpy()
        grown: list[DraftSession] = []
        first = 0
        for (session, seat), scores_NV in zip(growing, scores, strict=True):
            probs_NV, first = probs_RV[first : first + len(scores_NV)], first + len(scores_NV)
            if self._grow(seat, scores_NV, probs_NV):
                grown.append(session)
        return grown

    def _scores(
        self, session: DraftSession, seat: _Seat, nodes: Sequence[int], logits_NV: torch.Tensor
    ) -> torch.Tensor:
        """The request's own scores at these nodes."""
        paths = [seat.rounds.path(node) for node in nodes]
        num_output = session.length - session.prompt_length
        return seat.transform.apply(logits_NV, paths, [num_output + len(path) for path in paths])

    def _predict(
        self, session: DraftSession, seat: _Seat, leaf: int, scores_1V: torch.Tensor
    ) -> None:
        """Begins the tree below the most probable token after a leaf."""
        last = seat.rounds.rounds[-1]
        shape = self._shape(session, last.length + last.shape.depth + 1)
        seat.rounds.predict(leaf, int(scores_1V[0].argmax()), shape)

    def _grow(self, seat: _Seat, scores_NV: torch.Tensor, probs_NV: Float64s) -> bool:
        """Draws the next level of the last tree. True if it became complete."""
        rounds = seat.rounds
        last = rounds.rounds[-1]
        if last.num_levels == 0 and seat.policy is not None:
            # By the row of the base alone: what is drawn must decide neither what is drawn nor when the tree is sent.
            (rating,) = seat.policy.rater(scores_NV)
            last.shape = last.shape.prefix(seat.policy.frozen_depth(rating, last.shape.depth))
        level, branching = last.num_levels, last.shape.branching
        count = branching[level]
        if seat.is_greedy:
            drawn = [most_probable(probs_V, count) for probs_V in probs_NV]
            laws = [
                of_tokens(probs_V, tokens) for probs_V, tokens in zip(probs_NV, drawn, strict=True)
            ]
        else:
            least = least_prob(level)
            share = rest_share(count)
            laws = [freeze(probs_V, least, self._keep, rest_share=share) for probs_V in probs_NV]
            drawn = [_draw(seat, law, count) for law in laws]
        rounds.grow(last, laws, drawn)
        return last.is_frozen


def _draw(seat: _Seat, law: SparseRow, count: int) -> tuple[int, ...]:
    uniforms_U = UniformDecisions(seat.generator.random(DRAWS_A_SIBLING * count))
    return draw_siblings(law, count, seat.replacement, uniforms_U)


def _replacement(verifier: Verifier) -> Replacement:
    """How siblings are drawn: without replacement where the verifier allows it, because no candidate is wasted."""
    allowed = METHODS[verifier].replacements
    return Replacement.WITHOUT if Replacement.WITHOUT in allowed else Replacement.WITH


def _bounded(entries: Sequence[_Entry]) -> list[_Entry]:
    """The first entries, as many as the nodes of one pass allow; at least one."""
    bounded: list[_Entry] = []
    num_nodes = 0
    for entry in entries:
        num_nodes += len(entry.nodes)
        if bounded and num_nodes > MAX_PASS_NODES:
            break
        bounded.append(entry)
    return bounded
