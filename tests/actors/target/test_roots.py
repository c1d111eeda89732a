"""Roots from the target's own rows."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from tests.actors.target.test_plan import flat
from tests.actors.target.test_plan import session as make_session

from outrider.actors.speculation.noise import GumbelNoise, NoiseCache
from outrider.actors.speculation.options import Speculation, Verifier
from outrider.actors.speculation.policies import DraftPolicies, Roots
from outrider.actors.target.plan import Entry
from outrider.actors.target.roots import NUM_ROOTS, PRIOR, RootTable, plant
from outrider.actors.target.session import Rooted, Session

VOCAB = 30
WANTED = Speculation(policies=DraftPolicies(roots=Roots.TARGET))


def rooted_session(speculation: Speculation = WANTED, *, is_sampled: bool = True) -> Session:
    """A session that wants roots."""
    made = make_session(1, speculation=speculation)
    if is_sampled:
        made.noise = NoiseCache(GumbelNoise(VOCAB, torch.device("cpu")), 7)
    return made


def commit(table: RootTable, session: Session, tokens: list[int], logits_RV: torch.Tensor) -> None:
    """A round that accepts all tokens but the last."""
    last = session.tokens[-1]
    session.commit(tokens, 0.0)
    nodes = range(len(tokens) - 1)
    table.follow(session, last=last, nodes=nodes, tokens=tokens, logits_RV=logits_RV)


@pytest.mark.parametrize("verifier", [Verifier.COUPLED, Verifier.EXACT_MATCH])
@pytest.mark.parametrize("is_sampled", [False, True])
def test_roots_are_the_best_of_the_row_after_the_same_token(
    verifier: Verifier, is_sampled: bool
) -> None:
    """With the noise of the new position where candidates may know it."""
    logits_RV = torch.randn(3, VOCAB, generator=torch.manual_seed(1))
    session = rooted_session(replace(WANTED, verifier=verifier), is_sampled=is_sampled)
    table = RootTable()
    commit(table, session, [4, 5, 6], logits_RV)
    assert session.rooted == Rooted()  # nothing was ever seen after 6
    commit(table, session, [5], torch.randn(1, VOCAB))
    scores_V = logits_RV[2]  # the row after 5, which node 1 was
    if is_sampled and verifier is Verifier.COUPLED:
        scores_V = scores_V + GumbelNoise(VOCAB, torch.device("cpu")).rows(7, session.length, 1)[0]
    assert session.rooted is not None
    assert list(session.rooted.tokens) == scores_V.topk(NUM_ROOTS).indices.tolist()
    assert session.rooted.values == pytest.approx(PRIOR)


def test_the_latest_row_counts_and_sessions_share() -> None:
    """What one session saw last after a token is what another begins with."""
    table, first, second = RootTable(), rooted_session(), rooted_session(is_sampled=False)
    rows_RV = torch.eye(VOCAB)
    commit(table, first, [9], rows_RV[3:4])  # after token 1: token 3
    commit(table, first, [1], rows_RV[4:5])
    commit(table, first, [8], rows_RV[5:6])  # after token 1: now token 5
    commit(table, second, [1], rows_RV[6:7])  # its own row after token 1: token 6
    assert second.rooted is not None
    assert second.rooted.tokens[0] == 6


def test_frequencies_are_learned_by_rank() -> None:
    """Roots that are drawn are worth more next time; those that are not, less."""
    table, session = RootTable(), rooted_session(is_sampled=False)
    row_1V = torch.arange(VOCAB).float().unsqueeze(0)
    for _ in range(40):
        commit(table, session, [VOCAB - 2], row_1V)  # always the second best
    assert session.rooted is not None
    values = session.rooted.values
    assert values[1] > 0.7
    assert max(values[0], *values[2:]) < 0.1


def test_roots_join_what_drafters_proposed() -> None:
    """Those that are not there yet, behind the others, as the target's own; within the request's limit."""
    session = make_session(1, estimates=(0.9, 0.5), speculation=replace(WANTED, max_nodes=4))
    entry = Entry(session=session, chain=[1], is_prefill=False, selection=session.pool.select(9, 9))
    session.rooted = Rooted(tokens=(2, 7, 3, 4), values=(0.5, 0.4, 0.3, 0.2))
    (planted,) = plant([entry], max_nodes=20, cost=flat())
    assert planted.selection.tokens == [2, 2, 7, 3]
    assert planted.selection.parents == [-1, 0, -1, -1]
    assert [node.drafter for node in planted.selection.nodes] == [0, 0, -1, -1]
    assert planted.is_drafted
    assert len(plant([entry], max_nodes=3, cost=flat())[0].selection.tokens) == 3


def test_dear_rows_take_no_unlikely_roots() -> None:
    """A root that does not pay for its row stays out; a pass of roots alone is not a drafter's."""
    session = make_session(1, speculation=WANTED)
    entry = Entry(session=session, chain=[1], is_prefill=False, selection=session.pool.select(9, 9))
    session.rooted = Rooted(tokens=(2, 7), values=(0.6, 0.1))
    (planted,) = plant([entry], max_nodes=20, cost=flat(rows_per_s=400.0))
    assert planted.selection.tokens == [2]
    assert not planted.is_drafted


def test_sessions_that_did_not_ask_get_none() -> None:
    """Nor do plain sessions, verifiers of frozen trees, and prompts."""
    for speculation in (
        Speculation(),
        replace(WANTED, enabled=False),
        replace(WANTED, verifier=Verifier.BLOCK),
    ):
        session = make_session(1, speculation=speculation)
        assert session.rooted is None
    session = make_session(1, speculation=WANTED)
    session.rooted = Rooted(tokens=(2,), values=(0.9,))
    nothing = session.pool.select(1, 1)
    for chain, is_prefill in (([1] * 9, False), ([1], True)):
        entry = Entry(session=session, chain=chain, is_prefill=is_prefill, selection=nothing)
        assert plant([entry], max_nodes=20, cost=flat()) == [entry]


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tokens that were used least recently go first."""
    monkeypatch.setattr("outrider.actors.target.roots.CAPACITY", 3)
    table = RootTable()
    table.remember([1, 2, 3], torch.randn(3, VOCAB))
    table.remember([1], torch.randn(1, VOCAB))
    table.remember([4], torch.randn(1, VOCAB))
    assert set(table._rows) == {1, 3, 4}
