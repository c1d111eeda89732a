"""What the next pass runs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from outrider.actors.speculation.draft_tree import DraftTree, Replacement
from outrider.actors.speculation.frame import FrozenTree
from outrider.actors.speculation.options import Sampling, Speculation, Verifier
from outrider.actors.speculation.sparse import freeze
from outrider.actors.speculation.transforms import SamplingTransform
from outrider.actors.target.cost import CostModel
from outrider.actors.target.events import Owner
from outrider.actors.target.plan import Entry, Limits, Plan, plan_pass
from outrider.actors.target.session import Session

LIMITS = Limits(prefill_chunk=16, max_batch_nodes=20, max_patience_s=1.0, lockstep=False)
LIVE = frozenset({"d"})


def session(
    handle: int,
    *,
    length: int = 5,
    max_tokens: int = 50,
    estimates: tuple[float, ...] = (),
    speculation: Speculation | None = None,
    joined: bool = True,
) -> Session:
    """A session whose pool holds a chain with these estimates."""
    sampling = Sampling(seed=1, max_tokens=max_tokens)
    made = Session(
        owner=Owner(stream=1, session=handle),
        handle=handle,
        group=0,
        slot=handle,
        prompt=[1] * length,
        committed=(),
        sampling=sampling,
        speculation=speculation or Speculation(),
        drafters=("d",),
        transform=SamplingTransform(
            sampling, vocab_size=8, prompt=(), eos_token_ids=(), device=torch.device("cpu")
        ),
        noise=None,
        stop_tokens=frozenset(),
    )
    if joined:
        made.joined.add("d")
    made.pool.graft(
        [2] * len(estimates), list(range(len(estimates))), estimates, 0, (), lambda stated: stated
    )
    return made


def flat(rows_per_s: float = 1e9) -> CostModel:
    """Passes take a hundredth of a second, and rows add what is stated."""
    cost = CostModel()
    cost.set_curve({rows: 0.01 + rows / rows_per_s for rows in (1, 2, 4, 8, 16, 32, 64)})
    return cost


def nodes(entries: list[Entry]) -> list[int]:
    """Number of candidates of each entry."""
    return [len(entry.selection.nodes) for entry in entries]


def test_free_rows_take_every_candidate() -> None:
    """When a row costs next to nothing, the whole tree goes along."""
    plan = plan_pass([session(1, estimates=(0.9, 0.5, 0.1))], [4], LIVE, LIMITS, flat(), 0.0)
    assert nodes(plan.entries) == [3]


def test_dear_rows_take_the_best_candidates_only() -> None:
    """A node goes along only while it raises the expected tokens a second."""
    cost = flat(rows_per_s=400.0)
    plan = plan_pass([session(1, estimates=(0.9, 0.5, 0.1))], [4], LIVE, LIMITS, cost, 0.0)
    assert nodes(plan.entries) == [2]
    plan = plan_pass([session(1, estimates=(0.1,))], [4], LIVE, LIMITS, cost, 0.0)
    assert nodes(plan.entries) == [0]


def test_a_candidate_that_costs_slightly_more_than_it_promises_stays_out() -> None:
    """Budgets of about equal pace are one thing, a pace below that of plain decoding another."""
    # A second row makes the pass 12/11 as long.
    losing = plan_pass([session(1, estimates=(0.085,))], [4], LIVE, LIMITS, flat(1000.0), 0.0)
    assert nodes(losing.entries) == [0]
    winning = plan_pass([session(1, estimates=(0.1,))], [4], LIVE, LIMITS, flat(1000.0), 0.0)
    assert nodes(winning.entries) == [1]


def test_saturated_target_decodes_plainly() -> None:
    """When rows cost all there is, no candidate pays, however likely."""
    cost = CostModel()
    cost.set_curve({rows: 0.01 * rows for rows in (1, 2, 4, 8, 16, 32, 64)})
    sessions = [session(n, estimates=(0.9, 0.9)) for n in range(4)]
    plan = plan_pass(sessions, [4] * 4, LIVE, LIMITS, cost, 0.0)
    assert nodes(plan.entries) == [0, 0, 0, 0]


def test_steps_in_the_curve_are_climbed_if_it_pays() -> None:
    """A jump at the second row does not hide that eight more are cheap."""
    cost = CostModel()
    cost.set_curve({1: 0.010, 2: 0.018, 16: 0.019})
    plan = plan_pass([session(1, estimates=(0.95,) * 8)], [4], LIVE, LIMITS, cost, 0.0)
    assert nodes(plan.entries) == [8]
    plan = plan_pass([session(1, estimates=(0.7,))], [4], LIVE, LIMITS, cost, 0.0)
    assert nodes(plan.entries) == [0]


def test_best_candidates_of_all_sessions_share_the_batch() -> None:
    """With room for few, the likeliest of all sessions go first."""
    limits = Limits(prefill_chunk=16, max_batch_nodes=3, max_patience_s=1.0, lockstep=False)
    sessions = [session(1, estimates=(0.9, 0.8)), session(2, estimates=(0.95, 0.1))]
    plan = plan_pass(sessions, [4, 4], LIVE, limits, flat(), 0.0)
    assert nodes(plan.entries) == [2, 1]


def test_request_limits_hold() -> None:
    """Nodes and depth of the request, and what max_tokens leaves, bound its tree."""
    for speculation, max_tokens, expected in (
        (Speculation(max_nodes=2), 50, 2),
        (Speculation(max_depth=3), 50, 3),
        (Speculation(enabled=False), 50, 0),
        (Speculation(), 3, 2),
        (Speculation(), 1, 0),
    ):
        made = session(1, estimates=(0.9,) * 6, speculation=speculation, max_tokens=max_tokens)
        plan = plan_pass([made], [4], frozenset(), LIMITS, flat(), 0.0)
        assert nodes(plan.entries) == [expected]


def test_target_waits_only_if_nobody_is_ready() -> None:
    """Alone, a session without candidates is waited for; beside another it comes along."""
    plan = plan_pass([session(1)], [4], LIVE, LIMITS, flat(), 0.001)
    assert plan.entries == []
    assert plan.wait_s is not None
    assert 0.0 < plan.wait_s < 0.01
    both = [session(1), session(2, estimates=(0.9,))]
    assert len(plan_pass(both, [4, 4], LIVE, LIMITS, flat(), 0.001).entries) == 2


def test_nobody_waits_for_the_dead_or_the_absent() -> None:
    """Without a live drafter that has joined, decoding goes on."""
    for made, live in ((session(1), frozenset[str]()), (session(1, joined=False), LIVE)):
        assert len(plan_pass([made], [4], live, LIMITS, flat(), 0.001).entries) == 1


def test_long_prompts_are_run_in_chunks() -> None:
    """Prompts share the chunk, oldest first; nothing is drawn before the last of it."""
    sessions = [session(1, length=20), session(2, length=40), session(3, length=40)]
    plan = plan_pass(sessions, [10, 0, 0], LIVE, LIMITS, flat(), 0.0)
    assert [(len(e.chain), e.is_prefill) for e in plan.entries] == [(10, False), (6, True)]


def test_a_tree_that_has_grown_is_not_waited_for_again() -> None:
    """Drafters that were told of the wait have grown their trees; it ends with the last one's."""
    live = frozenset({"d", "e"})

    def entries(*, is_told: bool, answered: set[str], joined: set[str]) -> int:
        made = session(1, estimates=(0.9,))
        made.patience.gap_s, made.ripens, made.last_part = 0.001, True, 0.0
        made.joined |= joined
        made.waits_until, made.answered = 1.0 if is_told else None, answered
        return len(plan_pass([made], [4], live, LIMITS, flat(), 0.0005).entries)

    assert entries(is_told=False, answered={"d"}, joined={"d"}) == 0
    assert entries(is_told=True, answered={"d"}, joined={"d"}) == 1
    assert entries(is_told=True, answered={"d"}, joined={"d", "e"}) == 0
    assert entries(is_told=True, answered={"d", "e"}, joined={"d", "e"}) == 1
    assert entries(is_told=True, answered={"d"}, joined={"d", "gone"}) == 1


def frozen(width: int) -> FrozenTree:
    """One level of so many siblings."""
    tokens = tuple(range(width))
    tree = DraftTree(
        tokens_N=tokens,
        parents_N=(-1,) * width,
        sources_N=(0,) * width,
        replacement=Replacement.WITHOUT,
    )
    return FrozenTree(tree=tree, rows=(freeze(np.ones(8)),))


def test_in_lockstep_the_trees_of_all_drafters_go_together() -> None:
    """Where the verifier mixes drafters, the target waits for each, as long as its patience lasts; else for none."""
    for verifier, lockstep, waits in (
        (Verifier.SPECINFER, True, True),
        (Verifier.SPECINFER, False, False),
        (Verifier.KSEQ, True, False),
    ):
        made = session(1, speculation=Speculation(verifier=verifier))
        assert made.trees is not None
        made.joined.add("e")
        made.drafters = ("d", "e")
        limits = replace(LIMITS, lockstep=lockstep)

        def plan(now: float, made: Session = made, limits: Limits = limits) -> Plan:
            return plan_pass([made], [4], frozenset({"d", "e"}), limits, flat(), now)

        tree = replace(frozen(2).tree, replacement=Replacement.WITH)
        both = FrozenTree(tree=tree, rows=frozen(2).rows)
        made.trees.take("d", length=made.length, hash_=made.hash, number=1, frozen=both)
        assert (plan(0.1).wait_s is not None) == waits
        assert nodes(plan(0.1).entries) == ([] if waits else [2])
        assert nodes(plan(1.1).entries) == [2]
        made.trees.take("e", length=made.length, hash_=made.hash, number=1, frozen=both)
        assert nodes(plan(0.1).entries) == [4 if verifier is Verifier.SPECINFER else 2]


@pytest.mark.parametrize("usual", [1, 6])
def test_the_size_of_a_tree_does_not_decide_whether_it_is_verified(usual: int) -> None:
    """A row may have fewer tokens than there should be siblings, and which row it is depends on the tokens drawn."""
    cost = CostModel()
    cost.set_curve({1: 0.010, 2: 0.010, 7: 0.030, 16: 0.060})
    taken: list[bool] = []
    for width in (1, 6):
        made = session(
            1, speculation=Speculation(verifier=Verifier.MCSD_WITHOUT_REPLACEMENT, max_nodes=8)
        )
        assert made.trees is not None
        for base, size in ((1, usual), (2, usual), (made.length, width)):
            hash_ = made.hash_at(base)
            assert hash_ is not None
            made.trees.take("d", length=base, hash_=hash_, number=base, frozen=frozen(size))
        made.trees.advance(made.length)
        plan = plan_pass([made], [4], LIVE, LIMITS, cost, 0.0)
        taken.append(nodes(plan.entries) == [width])
    assert taken == [usual == 1] * 2
