"""The law of the text with drafters of different laws side by side, through the real workers and the wire's bytes.

The same with real servers is in `test_rounds_over_grpc.py`; here every message is in our hands, so that what a drafter
sends can be falsified.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from tests.actors.pair.pair import LINK, Pair, target_events_of
from tests.actors.target.state.chaos import commits_of
from tests.laws.coordinator import Text
from tests.laws.judgement import Judgement, judge
from tests.laws.modes import DRAFTS, PROMPT, TARGET, VOCAB

from outrider.actors.draft.state.draft_events import AttachSession
from outrider.actors.draft.state.draft_events import SessionKey as Key
from outrider.actors.frozen.frozen_candidates import FrozenBatch
from outrider.actors.frozen.sparse_rows import SparseRow, freeze
from outrider.actors.speculation.options import Sampling, Speculation
from outrider.actors.speculation.trees.level_shapes import parse
from outrider.actors.target.service import target_messages
from outrider.actors.target.state.target_events import (
    CandidatesReceived,
    CommitFrame,
    DrafterJoined,
    Event,
    Finished,
    Opened,
    OpenSession,
    Resync,
    ResyncRequest,
    SessionClosed,
    SessionOwner,
    VerdictsSent,
)

TOKENS = 300
SESSIONS = 12
"""Side by side, so that passes are shared. Some 1,400 rounds in all; in two thirds of them wrong rows give a probability below 1e-14."""

MIN_P = 1e-6
"""For each statistic; the seeds are fixed."""

Falsify = Callable[[str, Event], Event]
"""What becomes of the message of a drafter on its way."""


class Company:
    """One target, several drafters; each drafter is that of a pair whose own target idles."""

    def __init__(self, falsify: Falsify = lambda drafter, event: event) -> None:
        self._pairs = {
            name: Pair(TARGET, table, seed=seed, lockstep=True)
            for seed, (name, table) in enumerate(DRAFTS.items())
        }
        self._first = next(iter(self._pairs.values()))
        self._falsify = falsify
        self._tokens = TOKENS
        self._speculation = Speculation()
        self.texts: dict[int, Text] = {}
        self.ends: dict[int, Finished] = {}
        for name in self._pairs:
            self._first.target.post(DrafterJoined(drafter=name))

    def run(self, verifier: str, shape: str, tokens: int = TOKENS) -> None:
        """Opens sessions and runs them to their ends, after so many tokens each."""
        self._tokens = tokens
        self._speculation = Speculation(verifier=verifier, tree_shape=parse(shape))
        for session in range(SESSIONS):
            self.texts[session] = Text(tokens=list(PROMPT))
            self._first.target.post(
                OpenSession(
                    owner=SessionOwner(stream=1, session=session),
                    group=0,
                    prompt=PROMPT,
                    committed=(),
                    sampling=self._sampling(session),
                    speculation=self._speculation,
                    drafters={name: place for place, name in enumerate(self._pairs)},
                )
            )
        while len(self.ends) < SESSIONS:
            self._step()

    def _sampling(self, session: int) -> Sampling:
        return Sampling(seed=100 + session, max_tokens=self._tokens)

    def _step(self) -> None:
        first = self._first
        for name, pair in self._pairs.items():
            pair.now = first.now
            while pair.draft.run_once():
                first.now += 1e-5
            wire, pair.reports[:] = pair.draft_wire(pair.reports), []
            for message in wire:
                for event in target_events_of(message, first.target_table.vocab_size):
                    if isinstance(event, CandidatesReceived | ResyncRequest):
                        event = replace(event, drafter=name)
                    first.target.post(self._falsify(name, event))
        first.target.step()
        outputs, first.outputs[:] = first.outputs[:], []
        for output in outputs:
            match output:
                case Opened():
                    self._attach(output.owner.session, output.handle)
                case CommitFrame():
                    for one in commits_of([output]):
                        text = self.texts[one.owner.session]
                        text.starts.append(len(text.tokens))
                        text.tokens.extend(one.tokens)
                case Finished():
                    self.ends[output.owner.session] = output
                case VerdictsSent():
                    self._pairs[output.drafter].tell(target_messages.verdict_message(output))
                case Resync() | SessionClosed():
                    self._pairs[output.drafter].tell(target_messages.drafter_message(output))

    def _attach(self, session: int, handle: int) -> None:
        for pair in self._pairs.values():
            pair.draft.post(
                AttachSession(
                    key=Key(LINK, handle),
                    tokens=PROMPT,
                    prompt_length=len(PROMPT),
                    sampling=self._sampling(session),
                    speculation=self._speculation,
                )
            )


def judged(company: Company, depth: int) -> Judgement:
    """What is to be said of the texts."""
    return judge(list(company.texts.values()), TARGET, window=depth + 1, depth=depth)


@pytest.mark.parametrize("shape", ["1,1", "2,1"])
@pytest.mark.parametrize("verifier", ["specinfer", "canonical"])
def test_texts_follow_the_law(verifier: str, shape: str) -> None:
    """Independent paths from each drafter, of which nearly every round tests both."""
    company = Company()
    company.run(verifier, shape)
    stats = [end.stats for end in company.ends.values()]
    rounds, nodes = sum(s.rounds for s in stats), 2 * parse(shape).num_nodes
    assert rounds > 1100
    assert sum(s.verified for s in stats) > 0.98 * nodes * rounds
    assert sum(s.accepted for s in stats) > 0.5 * rounds
    assert judged(company, parse(shape).depth).least > MIN_P


def flattened(drafter: str, event: Event) -> Event:
    """The second drafter's rows are told to be flat."""
    if drafter == next(iter(DRAFTS)) or not isinstance(event, CandidatesReceived):
        return event
    found = event.candidates
    assert isinstance(found, FrozenBatch), "the verifier tests frozen trees"
    flat: SparseRow = freeze(np.ones(VOCAB))
    trees = tuple(
        replace(one, frozen=replace(one.frozen, rows=tuple(flat for _ in one.frozen.rows)))
        for one in found.trees_E
    )
    return replace(event, candidates=replace(found, trees_E=trees))


@pytest.mark.parametrize("verifier", ["specinfer", "canonical"])
def test_wrong_rows_of_one_drafter_are_caught(verifier: str) -> None:
    """Though those of the other are right. Two thirds of the rounds of a right text are enough."""
    company = Company(flattened)
    company.run(verifier, "1,1", TOKENS * 2 // 3)
    assert judged(company, 2).least < MIN_P
