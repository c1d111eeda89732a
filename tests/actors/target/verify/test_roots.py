"""Roots from the target's own rows."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.actors.target.state.chaos import (
    Harness,
    Verdict,
    opening,
    run_chaos,
    run_plain,
    verdicts,
)
from tests.actors.target.state.chaos import engine as chaos_engine
from tests.actors.target.state.passing import Sessions, Tree, pass_of

from outrider.actors.engine.engine_settings import EngineSettings
from outrider.actors.engine.protocol import Logits
from outrider.actors.engine.tables.tabular_engine import TabularEngine, random_table
from outrider.actors.speculation.noise.gumbel import GumbelNoise
from outrider.actors.speculation.options import Sampling, Speculation
from outrider.actors.speculation.policies import DraftPolicies, RootPolicy
from outrider.actors.target.state.roots import NUM_ROOTS, PRIOR
from outrider.actors.target.verify.commit import commit
from outrider.actors.target.verify.walks import Walks

VOCAB = 30
WANTED = Speculation(policies=DraftPolicies(roots=RootPolicy.TARGET))
SAMPLED = Sampling(seed=7, max_tokens=400, temperature=1.0)
GREEDY = replace(SAMPLED, temperature=0.0)
COLDEST = replace(SAMPLED, temperature=1e-45)
TABLE = random_table(VOCAB, 0, seed=1)


def some_sessions() -> Sessions:
    """Room for three."""
    settings = EngineSettings(model="tabular:x", num_slots=3, max_context=512)
    return Sessions(TabularEngine(TABLE, settings))


def run_round(
    sessions: Sessions, row: int, tokens: Sequence[int], logits_RV: torch.Tensor
) -> list[tuple[int, float]]:
    """A round that accepts a chain of all tokens but the last; tells the roots for the next, and what each is worth."""
    state, num_nodes = sessions.state, len(tokens) - 1
    pass_ = pass_of([Tree(row=row, tokens=tokens[:-1], parents=range(-1, num_nodes - 1))])
    walks = Walks.empty(1, len(tokens))
    walks.counts_E[0] = len(tokens)
    walks.tokens_ET[0] = tokens
    walks.nodes_ET[0, :num_nodes] = range(num_nodes)
    logits = Logits(values_RV=logits_RV, offsets=(0, len(logits_RV)))
    commit(state, pass_, walks, logits, now=0.0)
    (count,), told = state.roots.told(np.array([row]))
    assert count == len(told)
    pools, size = state.pools, int(state.pools.sizes_S[row])
    tops = [column for column in range(size) if pools.parents_SP[row, column] < 0]
    values = {int(pools.tokens_SP[row, c]): float(pools.values_SP[row, c]) for c in tops}
    assert len(values) == len(tops), "no token stands twice below the text"
    return [(token, values[token]) for token in told.tolist()]


@pytest.mark.parametrize("verifier", ["coupled", "exact_match"])
@pytest.mark.parametrize("sampling", [GREEDY, COLDEST, SAMPLED])
def test_roots_are_the_best_of_the_row_after_the_same_token(
    verifier: str, sampling: Sampling
) -> None:
    """With the noise of the new position where candidates may know it."""
    logits_RV = torch.randn(3, VOCAB, generator=torch.manual_seed(1))
    sessions = some_sessions()
    row = sessions.open(sampling, speculation=replace(WANTED, verifier=verifier))
    assert run_round(sessions, row, [4, 5, 6], logits_RV) == []  # nothing was ever seen after 6
    roots = run_round(sessions, row, [5], torch.randn(1, VOCAB))
    scores_V = logits_RV[2]  # the row after 5, which node 1 was
    if sampling is SAMPLED and verifier == "coupled":
        length = int(sessions.state.table.lengths_S[row])
        scores_V = scores_V + GumbelNoise(VOCAB, torch.device("cpu")).rows(7, length, 1)[0]
    assert [token for token, _ in roots] == scores_V.topk(NUM_ROOTS).indices.tolist()
    assert [value for _, value in roots] == pytest.approx(PRIOR)


def test_the_latest_row_counts_and_sessions_share() -> None:
    """What one session saw last after a token is what another begins with."""
    sessions = some_sessions()
    first = sessions.open(SAMPLED, speculation=WANTED)
    second = sessions.open(GREEDY, speculation=WANTED)
    rows_RV = torch.eye(VOCAB)
    run_round(sessions, first, [9], rows_RV[2:3])  # after token 3: token 2
    run_round(sessions, first, [3], rows_RV[4:5])
    run_round(sessions, first, [8], rows_RV[5:6])  # after token 3: now token 5
    roots = run_round(sessions, second, [9], rows_RV[6:7])  # its own row after token 3: token 6
    assert roots[0][0] == 4, "what the first session saw after 9"
    assert run_round(sessions, second, [3], rows_RV[7:8])[0][0] == 6


def test_frequencies_are_learned_by_rank() -> None:
    """Roots that are drawn are worth more next time; those that are not, less."""
    sessions = some_sessions()
    row = sessions.open(GREEDY, speculation=WANTED)
    row_1V = torch.arange(VOCAB).float().unsqueeze(0)
    for _ in range(40):
        roots = run_round(sessions, row, [VOCAB - 2], row_1V)  # always the second best
    values = [value for _, value in roots]
    assert values[1] > 0.7
    assert max(values[0], *values[2:]) < 0.1


@pytest.mark.parametrize(
    "speculation",
    [Speculation(), replace(WANTED, enabled=False), replace(WANTED, verifier="block")],
)
def test_sessions_that_did_not_ask_get_none(speculation: Speculation) -> None:
    """Nor do plain sessions and verifiers of frozen trees."""
    sessions = some_sessions()
    row = sessions.open(GREEDY, speculation=speculation)
    for _ in range(3):
        assert run_round(sessions, row, [5], torch.randn(1, VOCAB)) == []


def test_the_last_token_needs_no_root() -> None:
    """Where one token is left, it is drawn without candidates."""
    sessions = some_sessions()
    row = sessions.open(replace(GREEDY, max_tokens=4), speculation=WANTED)
    sizes = [len(run_round(sessions, row, [5], torch.randn(1, VOCAB))) for _ in range(4)]
    assert sizes == [0, NUM_ROOTS, 0, 0]


@pytest.mark.parametrize("sampling", [GREEDY, SAMPLED])
def test_the_text_is_that_of_plain_decoding_and_drafters_hear_of_roots(sampling: Sampling) -> None:
    """With and without a drafter; roots are drawn now and then."""
    event = opening(1, replace(sampling, max_tokens=120), speculation=WANTED)
    plain = run_plain(Harness(chaos_engine()), [replace(event, speculation=Speculation())])
    alone = Harness(chaos_engine())
    assert run_plain(alone, [event]) == plain
    harness = Harness(chaos_engine())
    assert run_chaos(harness, [event], random.Random(1)) == plain
    told = verdicts(harness, "d")
    assert any(isinstance(one, Verdict) and one.roots for one in told)
    for worker in (alone.worker, harness.worker):
        assert worker.state.tally.of("target").accepted > 10


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tokens that were used least recently go first."""
    monkeypatch.setattr("outrider.actors.target.state.roots.CAPACITY", 3)
    known: set[int] = set()
    for token in range(1, 5):
        sessions = some_sessions()
        table = sessions.state.roots
        table.remember([1, 2, 3], torch.randn(3, VOCAB))
        table.remember([1], torch.randn(1, VOCAB))
        table.remember([4], torch.randn(1, VOCAB))
        row = sessions.open(GREEDY, speculation=WANTED, prompt=(3,))
        if run_round(sessions, row, [token], torch.randn(1, VOCAB)):
            known.add(token)
    assert known == {1, 3, 4}
