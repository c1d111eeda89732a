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

import numpy as np
import torch

from outrider.actors.draft.drafter import CannotDraft, Progress
from outrider.actors.draft.lengths import Lengths
from outrider.actors.draft.rounds import Rounds
from outrider.actors.draft.sampled_levels import Seat, grow_level
from outrider.actors.draft.sampled_plan import AHEAD, Entry, SampledPlanner
from outrider.actors.draft.seat import check_fits, confine, take_slot, within
from outrider.actors.draft.session import DraftSession
from outrider.actors.draft.tree import ROOT
from outrider.actors.engine.prefix_slots import PrefixSlots
from outrider.actors.engine.protocol import Engine
from outrider.actors.speculation.draft_tree import Replacement
from outrider.actors.speculation.options import Verifier
from outrider.actors.speculation.sparse import (
    MAX_KEPT,
)
from outrider.actors.speculation.transforms import SamplingTransform, is_greedy
from outrider.actors.speculation.verifiers.registry import METHODS

SERVED_SAMPLED: tuple[Verifier, ...] = tuple(
    verifier for verifier, method in METHODS.items() if method.needs_draft_probs
)
"""Verifiers that this method drafts for."""


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
        self._planner = SampledPlanner(
            engine, prefill_chunk=prefill_chunk, ahead=0 if lockstep else AHEAD
        )
        self._keep = keep
        self._new_generator = new_generator
        self._lengths = lengths or Lengths()
        self._seats: dict[DraftSession, Seat] = {}

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
            CannotDraft: The text does not fit the draft model's context, the options exclude every token, or the length
                policy needs a decision model that is not there.
        """
        check_fits(session, self._engine.spec)
        session.sampling = within(session.sampling, self._engine.spec.vocab_size)
        try:
            transform = self._transform(session)
        except ValueError as error:
            raise CannotDraft(str(error)) from error
        speculation = session.speculation
        policy = self._lengths.policy(speculation.policies, longest=speculation.max_depth)
        slot = take_slot(self._slots, session)
        replacement = _replacement(session.speculation.verifier)
        session.frozen = Rounds(replacement)
        self._seats[session] = Seat(
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
        seat.transform.commit(self._readable(tokens))

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
        return (
            rounds[0].is_frozen
            if rounds
            else not self._planner.shape(session, session.length).depth
        )

    def draft(self, sessions: Collection[DraftSession]) -> Progress:
        """Runs one pass: the sessions whose next tree is missing first, then those that draft ahead."""
        entries = self._planner.entries(list(sessions), self._seats)
        if not entries:
            return Progress(worked=False)
        return Progress(worked=True, grown=self._run(entries))

    def _transform(self, session: DraftSession) -> SamplingTransform:
        spec = self._engine.spec
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
        return [token for token in tokens if token < self._engine.spec.vocab_size]

    def _run(self, entries: Sequence[Entry]) -> list[DraftSession]:
        """Runs a pass.

        Returns:
            The sessions with a tree that became complete.
        """
        logits = self._engine.forward([entry.rows for entry in entries])
        growing: list[tuple[DraftSession, Seat]] = []
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
                shape = self._planner.shape(session, session.length)
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
            probs_NV = probs_NV[:, : session.vocab_size]
            if grow_level(seat, scores_NV, probs_NV, keep=self._keep):
                grown.append(session)
        return grown

    def _scores(
        self, session: DraftSession, seat: Seat, nodes: Sequence[int], logits_NV: torch.Tensor
    ) -> torch.Tensor:
        """The request's own scores at these nodes."""
        paths = [seat.rounds.path(node) for node in nodes]
        confine(logits_NV, [session.vocab_size] * len(logits_NV))
        num_output = session.length - session.prompt_length
        return seat.transform.apply(logits_NV, paths, [num_output + len(path) for path in paths])

    def _predict(
        self, session: DraftSession, seat: Seat, leaf: int, scores_1V: torch.Tensor
    ) -> None:
        """Begins the tree below the most probable token after a leaf."""
        last = seat.rounds.rounds[-1]
        shape = self._planner.shape(session, last.length + last.shape.depth + 1)
        seat.rounds.predict(leaf, int(scores_1V[0].argmax()), shape)


def _replacement(verifier: Verifier) -> Replacement:
    """How siblings are drawn: without replacement where the verifier allows it, because no candidate is wasted."""
    allowed = METHODS[verifier].replacements
    return Replacement.WITHOUT if Replacement.WITHOUT in allowed else Replacement.WITH
