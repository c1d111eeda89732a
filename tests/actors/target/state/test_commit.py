"""What a round makes of texts, counts and messages, against a plain loop over its sessions."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from tests.actors.target.candidates.test_frozen_pool import tree as frozen_tree
from tests.actors.target.state.passing import Sessions, Tree, pass_of

from outrider.actors.engine.engine_settings import EngineSettings
from outrider.actors.engine.protocol import Logits
from outrider.actors.engine.tables.tabular_engine import TabularEngine, random_table
from outrider.actors.exchange.candidates import FROZEN
from outrider.actors.exchange.verdicts import ENTRY_BYTES, TargetActivity
from outrider.actors.frozen.frozen_candidates import FrozenBatch, FrozenCandidates
from outrider.actors.speculation import learning
from outrider.actors.speculation.options import Sampling, Speculation
from outrider.actors.speculation.policies import DraftPolicies, RootPolicy
from outrider.actors.speculation.sampling.transforms import SamplingTransform
from outrider.actors.speculation.verify.coupled_draws import Walk
from outrider.actors.target.candidates.candidate_store import NO_COLUMN
from outrider.actors.target.candidates.trust import Trust
from outrider.actors.target.state.passes import OWN, Pass, Round
from outrider.actors.target.state.roots import RootTable
from outrider.actors.target.state.target_events import (
    CommitFrame,
    Committed,
    Finish,
    Finished,
    Logprob,
    SessionClosed,
    VerdictsSent,
)
from outrider.actors.target.state.target_state import TargetState
from outrider.actors.target.verify.commit import commit, end_sessions
from outrider.actors.target.verify.telling import tell_coordinators, tell_drafters
from outrider.actors.target.verify.walks import Walks

VOCAB = 9
TABLE = random_table(VOCAB, 1, seed=0, eos_token_ids=(5,))
ROOTED = Speculation(policies=DraftPolicies(roots=RootPolicy.TARGET))
DRAFTERS = ("d", "e", "f")
OPTIONS = [
    (Sampling(seed=1, max_tokens=9), Speculation()),
    (Sampling(seed=2, max_tokens=3, stop_token_ids=(0, 7)), Speculation()),
    (Sampling(seed=3, max_tokens=9, logprobs=0), Speculation()),
    (Sampling(seed=4, max_tokens=20, ignore_eos=True, repetition_penalty=1.5), Speculation()),
    (Sampling(seed=5, max_tokens=20, frequency_penalty=0.5, logprobs=0), ROOTED),
    (Sampling(seed=6, max_tokens=9, ignore_eos=True), ROOTED),
    (Sampling(seed=7, max_tokens=9), Speculation(verifier="specinfer")),
]


class Roots(RootTable):
    """Tells what the target is to remember."""

    def __init__(self, state: TargetState) -> None:
        super().__init__(state.table, state.pools, state.sessions)
        self.remembered: list[tuple[list[int], torch.Tensor]] = []

    def remember(self, tokens: Sequence[int], logits_RV: torch.Tensor) -> None:
        """Notes it."""
        self.remembered.append((list(tokens), logits_RV))
        super().remember(tokens, logits_RV)


@dataclass(frozen=True, kw_only=True)
class Case:
    """A pass that was decided."""

    state: TargetState
    roots: Roots
    pass_: Pass
    trees: list[Tree]
    walked: list[Walk | None]
    walks: Walks
    logits: Logits


def a_walk(tree: Tree, remaining: int, rng: random.Random) -> Walk:
    """Down some candidates."""
    path, tokens = list[int](), list[int]()
    children = [node for node, parent in enumerate(tree.parents) if parent == -1]
    while children and len(tokens) + 1 < remaining and rng.random() < 0.8:
        node = rng.choice(children)
        path.append(node)
        tokens.append(tree.tokens[node])
        children = [child for child, parent in enumerate(tree.parents) if parent == node]
    return Walk(path=tuple(path), tokens=(*tokens, rng.randrange(VOCAB)))


def place_of(drafter: str, row: int) -> int:
    """What tokens of a drafter are told as in some session; different ones may be told alike."""
    return (3 * DRAFTERS.index(drafter) + row) % 4


def some_state(rng: random.Random) -> tuple[TargetState, Roots, list[int]]:
    """Sessions of several streams and drafters."""
    settings = EngineSettings(model="tabular:x", num_slots=2 * len(OPTIONS))
    sessions, rows = Sessions(TabularEngine(TABLE, settings)), list[int]()
    state = sessions.state
    roots = state.roots = Roots(state)
    for name in DRAFTERS[1:]:
        state.number_of(name)
    state.live |= {0, 1}
    table = state.table
    for place in rng.sample(range(2 * len(OPTIONS)), 2 * len(OPTIONS)):
        sampling, speculation = OPTIONS[place % len(OPTIONS)]
        output = rng.choices([1, 3, 4], k=rng.randrange(min(sampling.max_tokens, 4)))
        row = sessions.open(sampling, output, speculation, [1, 2, 3, 4][: rng.randint(2, 4)])
        rows.append(row)
        # Replicas of a drafter have one place.
        state.allow(row, {name: place_of(name, row) for name in rng.sample(DRAFTERS, 3)})
        table.streams_S[row] = rng.choice([0, 4, 8])
        table.joined_SD[row] = [rng.random() < 0.7 for _ in DRAFTERS]
        table.seen_SD[row] = rng.choices(range(50), k=3)
        table.epochs_S[row] = rng.randrange(100)
        for counts_S in table.counts.values():
            counts_S[row] = rng.randrange(9)
        table.reached_SD[row, :3] = rng.choices(range(9), k=3)
        table.accepted_SD[row, :3] = rng.choices(range(9), k=3)
        table.yields_S[row], table.hits_S[row] = rng.random() + 1.0, rng.random()
        for number in range(place % 3):
            frozen = FrozenCandidates(
                handle=0,
                base_length=int(table.lengths_S[row]),
                base_hash=state.sessions[row].hash,
                round=1,
                frozen=frozen_tree((number + 1,)),
            )
            if table.kinds_S[row] == FROZEN:
                found = FrozenBatch(trees_E=(frozen,), bytes_E=np.array([1]))
                state.stores[FROZEN].graft(found, np.array([row]), number)
    return state, roots, rows


def a_case(seed: int) -> Case:
    """Sessions of all options, trees and walks; some entries only run a part of a prompt."""
    rng = random.Random(seed)
    state, roots, rows = some_state(rng)
    trees, walked = list[Tree](), list[Walk | None]()
    for row in rows:
        # No candidate, or a single one, in all the pass.
        count = {0: 0, 1: int(not trees)}.get(seed, rng.choice([0, 1, 3, 7]))
        one = Tree(
            row=row,
            tokens=rng.choices(range(VOCAB), k=count),
            parents=[rng.randint(-1, node - 1) for node in range(count)],
            drafters=rng.choices([OWN, 0, 1, 2], k=count) if rng.random() < 0.7 else [OWN] * count,
            chain=rng.randint(1, 3),
            draws=not (count == 0 and rng.random() < 0.3),
        )
        trees.append(one)
        walked.append(a_walk(one, state.sessions[row].remaining, rng) if one.draws else None)
    pass_ = pass_of(trees)
    size = len(pass_.tokens_N)
    pass_ = replace(
        pass_,
        columns_N=np.array([rng.choice([NO_COLUMN, 3, 4]) for _ in range(size)], np.int64),
        estimates_N=np.array([rng.random() for _ in range(size)]),
    )
    walks = Walks.empty(len(trees), 9)
    for entry, walk in enumerate(walked):
        if walk is not None:
            reports = [Logprob(chosen=-rng.random(), top_ids=(), top=()) for _ in walk.tokens]
            wanted = state.table.reports_S[rows[entry]]
            walks.put(entry, walk, rng.randrange(3), reports if wanted else [])
    offsets = pass_.batch.offsets
    generator = torch.Generator().manual_seed(seed)
    values_RV = torch.randn((offsets[-1], VOCAB), generator=generator)
    logits = Logits(values_RV=values_RV, offsets=offsets)
    return Case(
        state=state,
        roots=roots,
        pass_=pass_,
        trees=trees,
        walked=walked,
        walks=walks,
        logits=logits,
    )


@dataclass(frozen=True, kw_only=True)
class Expected:
    """What becomes of one entry."""

    entry: int
    tree: Tree
    tokens: list[int]
    nodes: list[int]
    origins: list[int]
    is_stopped: bool
    is_over: bool


def plain_round(case: Case) -> list[Expected]:
    """Of each entry that draws: its tokens up to the first that ends the text."""
    found = []
    for entry, (tree, walk) in enumerate(zip(case.trees, case.walked, strict=True)):
        if walk is None:
            continue
        session = case.state.sessions[tree.row]
        stops = {5} - ({5} if session.sampling.ignore_eos else set())
        stops |= set(session.sampling.stop_token_ids)
        ends = [place for place, token in enumerate(walk.tokens) if token in stops]
        count = ends[0] + 1 if ends else len(walk.tokens)
        nodes = list(walk.path[:count])
        drafters = [(tree.drafters or [0] * len(tree.tokens))[node] for node in nodes]
        found.append(
            Expected(
                entry=entry,
                tree=tree,
                tokens=list(walk.tokens[:count]),
                nodes=nodes,
                origins=drafters + [OWN] * (count - len(nodes)),
                is_stopped=bool(ends),
                is_over=bool(ends) or count >= session.remaining,
            )
        )
    return found


def levels(tree: Tree) -> list[int]:
    """Of each candidate, 1 for the first."""
    depths: list[int] = []
    for parent in tree.parents:
        depths.append(1 if parent < 0 else depths[parent] + 1)
    return depths


@pytest.mark.parametrize("seed", range(8))
def test_texts_grow_by_what_was_decided(seed: int) -> None:
    """Tokens, who proposed them, whether the text is over, and what depends on the text."""
    case = a_case(seed)
    state, table = case.state, case.state.table
    before = {row: session.length for row, session in state.sessions.items()}
    texts = {row: table.text(row).tolist() for row in before}
    epochs, stale = table.epochs_S.copy(), table.counts["stale"].copy()
    waiting = {row: held_nodes(state, row) for row in before}
    expected = plain_round(case)
    done = commit(state, case.pass_, case.walks, case.logits, now=7.5)
    assert done.entries_E.tolist() == [one.entry for one in expected]
    assert done.rows_E.tolist() == [one.tree.row for one in expected]
    assert done.num_tokens == sum(len(one.tokens) for one in expected)
    remembered = []
    for index, one in enumerate(expected):
        row, count = one.tree.row, len(one.tokens)
        assert done.counts_E[index] == count
        assert done.origins_ET[index, :count].tolist() == one.origins
        assert bool(done.over_E[index]) == one.is_over
        assert bool(done.stopped_E[index]) == one.is_stopped
        text = texts.pop(row) + one.tokens
        assert table.text(row).tolist() == text
        assert table.epochs_S[row] == epochs[row] + 1
        assert (table.verdict_s_of(np.array([row])).tolist(), table.answered_S[row]) == (
            [7.5],
            False,
        )
        assert table.counts["stale"][row] == stale[row] + waiting[row]
        session = state.sessions[row]
        prompt = int(table.prompts_S[row])
        fresh = SamplingTransform(
            session.sampling,
            vocab_size=VOCAB,
            prompt=tuple(text[:prompt]),
            eos_token_ids=(5,),
            device=torch.device("cpu"),
        )
        fresh.commit(text[prompt:])
        if not table.plain_S[row]:
            scores = [
                transform.apply(case.logits.values_RV[:1], [[]], [session.num_output])
                for transform in (session.transform, fresh)
            ]
            assert torch.equal(*scores)
        if table.rooted_S[row]:
            start = case.logits.offsets[one.entry + 1] - 1 - len(one.tree.tokens)
            rows = [start, *(start + 1 + node for node in one.nodes)]
            told = [text[before[row] - 1], *one.tokens[: len(one.nodes)]]
            remembered.append((told, case.logits.values_RV[rows]))
    for row, text in texts.items():
        assert table.text(row).tolist() == text
        assert table.epochs_S[row] == epochs[row]
    assert [tokens for tokens, _ in case.roots.remembered] == [tokens for tokens, _ in remembered]
    for (_, actual), (_, wanted) in zip(case.roots.remembered, remembered, strict=True):
        assert torch.equal(actual, wanted)


def held_nodes(state: TargetState, row: int) -> int:
    """Candidates that a longer text passes by: those of the frozen trees that `some_state` handed in."""
    store = state.stores[FROZEN]
    return sum(fate.depth for fate in store.fates(row, (1,), set(), is_over=False))


def by_place(matrix: NDArray[np.int64]) -> Counter[tuple[int, int]]:
    """What is not 0."""
    return Counter({(int(r), int(d)): int(matrix[r, d]) for r, d in np.argwhere(matrix)})


@pytest.mark.parametrize("seed", range(8))
def test_what_was_learned_and_counted(seed: int) -> None:
    """Of sessions, drafters and depths."""
    case = a_case(seed)
    state, table, pass_ = case.state, case.state.table, case.pass_
    yields, hits = table.yields_S.copy(), table.hits_S.copy()
    expected = plain_round(case)
    counts = {name: Counter(dict(enumerate(table.counts[name].tolist()))) for name in table.counts}
    reached, accepted = by_place(table.reached_SD), by_place(table.accepted_SD)
    verified, drawn_at = Counter[str](), Counter[tuple[str, int]]()
    met: list[tuple[int, float, bool]] = []
    for one in expected:
        row, depths = one.tree.row, levels(one.tree)
        size, start = len(one.tree.tokens), int(pass_.starts_E[one.entry])
        counts["tokens"][row] += len(one.tokens)
        counts["near_ties"][row] += int(case.walks.near_ties_E[one.entry])
        counts["rounds" if size else "plain_passes"][row] += 1
        counts["verified"][row] += size
        counts["accepted"][row] += len(one.nodes)
        reached.update((row, level) for level in range(max(depths, default=0)))
        accepted.update((row, level) for level in range(len(one.nodes)))
        for node in range(size):
            who = one.tree.drafters[node]
            name = DRAFTERS[who] if who >= 0 else "target"
            verified[name] += 1
            is_drawn = node in one.nodes
            drawn_at[name, depths[node] - 1] += is_drawn
            parent = one.tree.parents[node]
            if pass_.columns_N[start + node] != NO_COLUMN and (parent < 0 or parent in one.nodes):
                met.append((who, float(pass_.estimates_N[start + node]), is_drawn))
        if any(who >= 0 for who in one.tree.drafters):
            # Candidates that no verdict leaves behind come by waiting alone: learned slowly.
            is_frozen = table.kinds_S[row] == FROZEN
            share = 1.0 - (learning.PASSES if is_frozen else learning.ROUNDS)
            yields[row] = (1.0 - share) * yields[row] + share * len(one.tokens)
            hits[row] = (1.0 - share) * hits[row] + share * (len(one.tokens) > 1)
    done = commit(state, pass_, case.walks, case.logits, now=7.5)
    tell_coordinators(state, pass_, done, case.walks)
    for name in set(counts) - {"stale"}:
        assert table.counts[name].tolist() == [counts[name][row] for row in range(table.num_rows)]
    for matrix, wanted in ((table.reached_SD, reached), (table.accepted_SD, accepted)):
        assert by_place(matrix) == wanted
    np.testing.assert_allclose(table.yields_S, yields)
    np.testing.assert_allclose(table.hits_S, hits)
    trust = Trust()
    trust.observe(*(np.array(column) for column in zip(*met, strict=True))) if met else None
    for number in range(len(DRAFTERS)):
        assert state.trust.of(number) == pytest.approx(trust.of(number))
    for name in (*DRAFTERS, "target"):
        tally = state.tally.of(name)
        assert tally.verified == verified[name]
        wanted_at = {d: n for (who, d), n in drawn_at.items() if who == name and n}
        assert {d: n for d, n in enumerate(tally.accepted_by_position) if n} == wanted_at


def test_candidates_behind_the_end_of_a_text_do_not_count() -> None:
    """A walk goes on below a stop token; the text does not."""
    sessions = Sessions(TabularEngine(TABLE, EngineSettings(model="tabular:x", num_slots=1)))
    row = sessions.open(OPTIONS[0][0])
    pass_ = pass_of([Tree(row=row, tokens=(1, 5, 2), parents=(-1, 0, 1))])
    walks = Walks.empty(1, 4)
    walks.put(0, Walk(path=(0, 1, 2), tokens=(1, 5, 2, 3)), 0, [])
    offsets = pass_.batch.offsets
    logits = Logits(values_RV=torch.zeros((offsets[-1], VOCAB)), offsets=offsets)
    done = commit(sessions.state, pass_, walks, logits, now=7.5)
    tell_coordinators(sessions.state, pass_, done, walks)
    assert done.counts_E.tolist() == [2]
    assert done.origins_ET[0].tolist() == [0, 0, OWN, OWN]
    assert sessions.state.table.counts["accepted"][row] == 2
    assert sessions.state.table.accepted_SD[row].sum() == 2


@pytest.mark.parametrize("seed", range(8))
def test_coordinators_hear_of_all_tokens(seed: int) -> None:
    """A frame a stream, and one message a session that wants log-probabilities; drafters by the numbers that the session knows."""
    case = a_case(seed)
    state, table = case.state, case.state.table
    expected = plain_round(case)
    done = commit(state, case.pass_, case.walks, case.logits, now=7.5)
    assert not state.take_outputs()
    tell_coordinators(state, case.pass_, done, case.walks)
    alone, frames = list[Committed](), list[CommitFrame]()
    for output in state.take_outputs():
        if isinstance(output, Committed):
            alone.append(output)
        else:
            assert isinstance(output, CommitFrame)
            frames.append(output)
    heard: dict[tuple[int, int], tuple[int, list[int], list[int]]] = {}
    for frame in frames:
        commits = frame.commits
        assert len(commits.sessions_E) > 0
        for e, number in enumerate(commits.sessions_E.tolist()):
            part = slice(int(commits.starts_E[e]), int(commits.starts_E[e + 1]))
            heard[frame.stream, number] = (
                int(commits.epochs_E[e]),
                commits.tokens_T[part].tolist(),
                commits.origins_T[part].tolist(),
            )
        assert commits.starts_E[-1] == len(commits.tokens_T) == len(commits.origins_T)
    assert len({frame.stream for frame in frames}) == len(frames)
    for one in expected:
        session, row = state.sessions[one.tree.row], one.tree.row
        origins = [place_of(DRAFTERS[o], row) if o >= 0 else -1 for o in one.origins]
        epoch = int(table.epochs_S[row])
        if session.sampling.logprobs is None:
            told = heard.pop((int(table.streams_S[row]), int(table.numbers_S[row])))
            assert told == (epoch, one.tokens, origins)
        else:
            assert alone.pop(0) == Committed(
                owner=session.owner,
                epoch=epoch,
                tokens=tuple(one.tokens),
                origins=tuple(origins),
                logprobs=tuple(case.walks.logprobs[one.entry][: len(one.tokens)]),
            )
    assert not heard
    assert not alone


def committed(seed: int) -> tuple[Case, list[Expected], Round]:
    """A case whose coordinators were told."""
    case = a_case(seed)
    expected = plain_round(case)
    done = commit(case.state, case.pass_, case.walks, case.logits, now=7.5)
    tell_coordinators(case.state, case.pass_, done, case.walks)
    case.state.take_outputs()
    return case, expected, done


@pytest.mark.parametrize("is_resting", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_drafters_hear_of_texts_that_go_on(seed: int, is_resting: bool) -> None:
    """Those that take part and are there; at rest once, and then no more."""
    case, expected, done = committed(seed)
    state, table = case.state, case.state.table
    state.is_resting = is_resting
    if seed == 0:
        table.joined_SD[:, 0] = False
    doing = TargetActivity(pass_s=0.5, free_s=0.25)
    for row in [one.tree.row for one in expected][::5]:
        table.rested_S[row] = 4  # It was told of the rest earlier.
    rested, goes_on = table.rested_S.copy(), list[Expected]()
    num_bytes = table.counts["wire_bytes"].copy()
    for name in DRAFTERS:
        state.tally.of(name).sent = 1_000
    for one in expected:
        if not one.is_over and rested[one.tree.row] < 0:
            goes_on.append(one)
    has = state.has_candidates(np.array([one.tree.row for one in goes_on], np.int64))
    starving = {one.tree.row: not bool(h) for one, h in zip(goes_on, has, strict=True)}
    # Of the other nothing came yet.
    state.last_sent = {0: 793.0}
    tell_drafters(state, done, doing, 7.5)
    frames = {o.drafter: o.verdicts for o in state.take_outputs() if isinstance(o, VerdictsSent)}
    assert set(frames) <= {"d", "e"}
    for number, name in enumerate(DRAFTERS[:2]):
        told = [one for one in goes_on if table.joined_SD[one.tree.row, number]]
        if not told:
            assert name not in frames
            continue
        verdicts = frames[name]
        assert verdicts.target == doing
        assert verdicts.echo_us == (800_500_000 if number == 0 else 0)
        rows = [one.tree.row for one in told]
        assert verdicts.handles_E.tolist() == [state.sessions[row].handle for row in rows]
        assert verdicts.epochs_E.tolist() == table.epochs_S[rows].tolist()
        assert verdicts.lengths_E.tolist() == [state.sessions[row].length for row in rows]
        assert verdicts.hashes_E.tolist() == [state.sessions[row].hash for row in rows]
        assert verdicts.credits_E.tolist() == state.credits_of(np.array(rows)).tolist()
        assert verdicts.seen_E.tolist() == table.seen_SD[rows, number].tolist()
        assert verdicts.starving_E.tolist() == [starving[row] for row in rows]
        sent = 1_000
        assert len(verdicts.starts_E) == len(verdicts.root_starts_E) == len(rows) + 1
        for e, one in enumerate(told):
            tokens = slice(int(verdicts.starts_E[e]), int(verdicts.starts_E[e + 1]))
            assert verdicts.tokens_T[tokens].tolist() == one.tokens
            best = slice(int(verdicts.root_starts_E[e]), int(verdicts.root_starts_E[e + 1]))
            roots = state.roots.told(np.array([rows[e]]))[1].tolist()
            assert verdicts.roots_T[best].tolist() == roots
            size = ENTRY_BYTES + 2 * (len(one.tokens) + len(roots))
            num_bytes[rows[e]] += size
            sent += size
        assert state.tally.of(name).sent == sent
    assert table.counts["wire_bytes"].tolist() == num_bytes.tolist()
    for one in goes_on:
        rested[one.tree.row] = state.sessions[one.tree.row].length if is_resting else -1
    assert table.rested_S.tolist() == rested.tolist()


@pytest.mark.parametrize("seed", range(6))
def test_sessions_end_with_their_texts(seed: int) -> None:
    """Owners hear why, and what was done; others go on."""
    case, expected, done = committed(seed)
    state = case.state
    rows = set(state.sessions)
    wanted = [
        Finished(
            owner=state.sessions[one.tree.row].owner,
            reason=Finish.STOP_TOKEN if one.is_stopped else Finish.LENGTH,
            stats=state.sessions[one.tree.row].stats(),
        )
        for one in expected
        if one.is_over
    ]
    end_sessions(state, done)
    outputs = [o for o in state.take_outputs() if not isinstance(o, SessionClosed)]
    assert outputs == wanted
    assert set(state.sessions) == rows - {one.tree.row for one in expected if one.is_over}
