"""Drafting for the verifiers that test frozen trees: tokens are *drawn* from the draft model, level by level.

Exactness rests on a few rules, kept here and in `trees/frozen_rounds.py`. The law of a node's children is settled before a child is
drawn: probable tokens rounded to the wire's numbers, one number for all others, then drawn from exactly those
(`actors/frozen/sparse_rows.py`). Shapes are fixed beforehand; a drawn token is never dropped or moved. Draws come from a generator of the session's own, seeded by
the operating system: it has nothing to do with the request's seed, which decides the target's tests. Each base gets one
tree; if that is lost, the same one is sent again.

At temperature 0 the target's law is a single one, and every tree is exact; then the most probable tokens are taken.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from outrider.actors.draft.frozen.frozen_levels import FrozenSession, grow_level
from outrider.actors.draft.frozen.frozen_plan import AHEAD, Entry, SampledPlanner
from outrider.actors.draft.model.fitting import check_fits, take_slot, within
from outrider.actors.draft.state.draft_sessions import DraftSession, DraftSessions
from outrider.actors.draft.state.drafter import CannotDraft, DraftPass
from outrider.actors.draft.stopping.lengths import Lengths
from outrider.actors.draft.trees.forest import Bools, Int64s
from outrider.actors.draft.trees.frozen_rounds import ROOT, FrozenRounds
from outrider.actors.draft.trees.restrictions import confine
from outrider.actors.engine.kv.prefix_slots import PrefixSlots
from outrider.actors.engine.protocol import Batch, Engine, Logits, Moves
from outrider.actors.frozen.frozen_candidates import FrozenCandidates
from outrider.actors.speculation.choice.verifier_registry import VERIFIERS
from outrider.actors.speculation.sampling.transforms import SamplingTransform, is_greedy


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SampledPass(DraftPass):
    """A pass over sessions with frozen trees."""

    entries: Sequence[Entry]


class SampledDrafter:
    """Draws frozen trees with a draft model."""

    def __init__(
        self,
        sessions: DraftSessions,
        engine: Engine,
        *,
        prefill_chunk: int,
        lockstep: bool = False,
        new_generator: Callable[[], np.random.Generator] = np.random.default_rng,
        lengths: Lengths | None = None,
        slots: PrefixSlots | None = None,
    ) -> None:
        """
        Args:
            sessions: The sessions.
            engine: The draft model. Used by the calling thread only.
            prefill_chunk: Committed tokens in one pass, at most.
            lockstep: Draft nothing ahead, for comparison.
            new_generator: Makes the generator of a session; must be independent of everything the target draws.
            lengths: The length policies on offer; None: those that need no trained model.
            slots: The model's slots; None: nobody else uses the model.
        """
        self._sessions = sessions
        self.engine = engine
        self._slots = slots or PrefixSlots(engine)
        self._planner = SampledPlanner(
            engine, prefill_chunk=prefill_chunk, ahead=0 if lockstep else AHEAD
        )
        self._new_generator = new_generator
        self._lengths = lengths or Lengths()
        self._states: dict[DraftSession, FrozenSession] = {}
        sessions.own_trees.append(self)

    @property
    def num_slots(self) -> int:
        """Sessions that can be served at a time."""
        return self.engine.num_slots

    @property
    def num_free_slots(self) -> int:
        """Sessions that can be attached."""
        return self.engine.num_free

    def attach(self, session: DraftSession) -> None:
        """Makes room for a session; its text is run by later calls of `draft`.

        Raises:
            NoRoom: Every slot is taken.
            CannotDraft: The text does not fit the draft model's context, the options exclude every token, or the length
                policy needs a decision model that is not there.
        """
        check_fits(session, self.engine.spec)
        session.sampling = within(session.sampling, self.engine.spec.vocab_size)
        try:
            transform = self._transform(session)
        except ValueError as error:
            raise CannotDraft(str(error)) from error
        speculation = session.speculation
        policy = self._lengths.policy(speculation.policies, longest=speculation.max_depth)
        slot = take_slot(self._slots, session)
        replacement = VERIFIERS[session.speculation.verifier].drawn
        # Further drawing changes nothing about a complete tree.
        self._sessions.is_urgent_S[session.row] = True
        self._states[session] = FrozenSession(
            slot=slot,
            cached=self.engine.cached(slot),
            rounds=FrozenRounds(replacement),
            transform=transform,
            generator=self._new_generator(),
            is_greedy=is_greedy(session.sampling),
            replacement=replacement,
            policy=policy,
        )

    def detach(self, session: DraftSession) -> None:
        """Frees the session's slot; the rows of its text may serve another one."""
        self._slots.release(self._states.pop(session).slot, session.tokens)

    def follow(self, rows_E: Int64s, tokens_ET: Int64s, counts_E: Int64s) -> Int64s:
        """See `Drafter`: keeps the round that was drafted for the tokens, if there is one."""
        foreseen: list[int] = []
        moves: list[tuple[int, Sequence[int], Sequence[int]]] = []
        for row, tokens_T, count in zip(
            rows_E.tolist(), tokens_ET.tolist(), counts_E.tolist(), strict=True
        ):
            session, tokens = self._sessions.at(row), tokens_T[:count]
            state = self._states[session]
            foreseen.append(state.rounds.num_foreseen(tokens))
            followed = state.rounds.follow(tokens)
            if state.cached == session.length:
                moves.append((state.slot, followed.path, followed.keep))
                state.cached += len(followed.path)
            state.transform.commit(self._readable(tokens))
        if moves:
            self.engine.rebase(Moves.of(moves))
        return np.array(foreseen, np.int64)

    def rewrite(self, session: DraftSession, keep: int) -> None:
        """See `Drafter`: the last token is run again for its logits."""
        state = self._states[session]
        state.rounds.clear()
        state.cached = min(state.cached, keep, session.length - 1)
        self.engine.truncate(state.slot, state.cached)
        self._slots.rewrite(state.slot, state.cached)
        state.transform = self._transform(session)

    def is_complete(self, rows_E: Int64s) -> Bools:
        """See `Drafter`: the tree below the text is frozen, or there is no room for one."""
        return np.array(
            [self._is_complete(self._sessions.at(row)) for row in rows_E.tolist()], bool
        )

    def _is_complete(self, session: DraftSession) -> bool:
        rounds = self._states[session].rounds.rounds
        if rounds:
            return rounds[0].is_frozen
        return not self._planner.shape(session, session.length).depth

    def plan(self, rows_E: Int64s) -> SampledPass | None:
        """See `Drafter`: the sessions whose next tree is missing first, then those that draft ahead."""
        sessions = [self._sessions.at(row) for row in rows_E.tolist()]
        entries = self._planner.entries(sessions, self._states)
        if not entries:
            return None
        return SampledPass(
            batch=Batch.of(entry.rows for entry in entries),
            rows_E=np.array([entry.session.row for entry in entries]),
            # A frozen tree goes out when it is complete, whatever else there is to gain.
            gains_E=np.zeros(len(entries)),
            seconds=0.0,
            entries=entries,
        )

    def grow(self, plan: DraftPass, logits: Logits | None) -> Int64s:
        """See `Drafter`: the sessions with a tree that became complete."""
        assert isinstance(plan, SampledPass), "it is this method's own"
        assert logits is not None, "it has a batch"
        return np.array([session.row for session in self._run(plan.entries, logits)], np.int64)

    def took(self, plan: DraftPass, seconds: float) -> None:
        """See `Drafter`; nothing depends on it."""

    def unsend(self, rows_E: Int64s) -> None:
        """See `OwnTrees`."""
        for session in self._mine(rows_E):
            self._states[session].rounds.unsend()

    def take_unsent(self, rows_E: Int64s) -> list[FrozenCandidates]:
        """See `OwnTrees`."""
        return [
            tree
            for session in self._mine(rows_E)
            for tree in self._states[session].rounds.take_unsent(session.key.handle)
        ]

    def _mine(self, rows_E: Int64s) -> list[DraftSession]:
        rows = rows_E[self._sessions.is_urgent_S[rows_E]].tolist()
        return [session for row in rows if (session := self._sessions.at(row)) in self._states]

    def _transform(self, session: DraftSession) -> SamplingTransform:
        spec = self.engine.spec
        transform = SamplingTransform(
            session.sampling,
            vocab_size=spec.vocab_size,
            prompt=self._readable(session.tokens[: session.prompt_length]),
            eos_token_ids=spec.eos_token_ids,
            device=spec.device,
        )
        transform.commit(self._readable(session.tokens[session.prompt_length :]))
        return transform

    def _readable(self, tokens: Sequence[int]) -> list[int]:
        """Those that the draft model has."""
        return [token for token in tokens if token < self.engine.spec.vocab_size]

    def _run(self, entries: Sequence[Entry], logits: Logits) -> list[DraftSession]:
        growing: list[tuple[DraftSession, FrozenSession]] = []
        scores: list[torch.Tensor] = []
        read = [
            (entry.state.slot, range(len(entry.rows.tokens)), ())
            for entry in entries
            if not entry.nodes
        ]
        if read:
            self.engine.rebase(Moves.of(read))
        for index, entry in enumerate(entries):
            session, state = entry.session, entry.state
            if entry.nodes:
                first = self.engine.scratch(state.slot) - len(entry.nodes)
                for row, node in enumerate(entry.nodes, start=first):
                    state.rounds.scratch[node] = row
            else:
                state.cached += len(entry.rows.tokens)
                if entry.rows.logits == "none":
                    continue
                shape = self._planner.shape(session, session.length)
                state.rounds.begin(length=session.length, hash_=session.hash, shape=shape)
            nodes = entry.nodes or (ROOT,)
            scores_NV = self._scores(session, state, nodes, logits.of(index))
            if state.rounds.rounds[-1].is_frozen:
                self._predict(session, state, nodes[0], scores_NV)
            else:
                growing.append((session, state))
                scores.append(scores_NV)
        if not growing:
            return []
        # At once, because a softmax of many rows costs little more than one of few.
        probs_RV = torch.softmax(torch.cat(scores).double(), dim=-1).cpu().numpy()
        # Scores that are no numbers say nothing: any law will do, as long as it is the one that is drawn from.
        probs_RV[np.isnan(probs_RV[:, 0])] = 1.0 / probs_RV.shape[1]
        logits.wait()
        grown: list[DraftSession] = []
        first = 0
        for (session, state), scores_NV in zip(growing, scores, strict=True):
            probs_NV, first = probs_RV[first : first + len(scores_NV)], first + len(scores_NV)
            probs_NV = probs_NV[:, : session.vocab_size]
            if grow_level(state, scores_NV, probs_NV):
                grown.append(session)
        return grown

    def _scores(
        self,
        session: DraftSession,
        state: FrozenSession,
        nodes: Sequence[int],
        logits_NV: torch.Tensor,
    ) -> torch.Tensor:
        """The request's own scores at these nodes."""
        paths = [state.rounds.path(node) for node in nodes]
        confine(logits_NV, np.full(len(logits_NV), session.vocab_size))
        num_output = session.length - session.prompt_length
        return state.transform.apply(logits_NV, paths, [num_output + len(path) for path in paths])

    def _predict(
        self, session: DraftSession, state: FrozenSession, leaf: int, scores_1V: torch.Tensor
    ) -> None:
        """Begins the tree below the most probable token after a leaf."""
        last = state.rounds.rounds[-1]
        shape = self._planner.shape(session, last.length + last.shape.depth + 1)
        state.rounds.predict(leaf, int(scores_1V[0].argmax()), shape)
