"""Verdicts about frozen trees in a pass, against the verifier itself with every row made beforehand, one after the other."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from tests.actors.target.state.passing import Sessions, Tree, pass_of

from outrider.actors.engine.engine_settings import EngineSettings
from outrider.actors.engine.protocol import Logits
from outrider.actors.engine.tables.tabular_engine import TabularEngine, random_table
from outrider.actors.exchange.candidates import FROZEN
from outrider.actors.frozen.law_frame import FrozenTree
from outrider.actors.frozen.sparse_rows import freeze
from outrider.actors.speculation.choice.verifier_registry import VERIFIERS
from outrider.actors.speculation.noise.uniforms import uniforms
from outrider.actors.speculation.options import Sampling, Speculation
from outrider.actors.speculation.sampling.draw import draw
from outrider.actors.speculation.sampling.random_acts import UniformDecisions, uniforms_needed
from outrider.actors.speculation.trees.draft_tree import DraftTree, sources_by_parent
from outrider.actors.speculation.trees.level_shapes import LevelShape
from outrider.actors.speculation.verify.acceptance import Acceptance
from outrider.actors.speculation.verify.coupled_draws import Walk
from outrider.actors.target.candidates.frozen_pool import VerifiableTree
from outrider.actors.target.state.frozen_store import FrozenStore
from outrider.actors.target.state.target_session import TargetSession
from outrider.actors.target.verify import frozen_verdict
from outrider.actors.target.verify.drawing import logprob_of
from outrider.actors.target.verify.draws_by_kind import draws_by_kind
from outrider.actors.target.verify.frozen_verdict import TargetRows

VOCAB = 7
TABLE = random_table(VOCAB, 1, seed=0, eos_token_ids=(5,))
OPTIONS = [
    Sampling(seed=0, max_tokens=40, temperature=0.0),
    Sampling(seed=0, max_tokens=40, temperature=1.0, logprobs=3),
    Sampling(seed=0, max_tokens=40, temperature=0.7, logprobs=0, repetition_penalty=1.5),
    Sampling(seed=0, max_tokens=40, temperature=0.0, frequency_penalty=0.8),
    Sampling(seed=0, max_tokens=40, temperature=0.9, min_tokens=4, top_k=4),
]
SHAPES = {"block": (1, 1, 1), "speculative_sampling": (1, 1, 1)}
OTHER_OPTIONS = {"typical": {"epsilon": 0.3, "delta": 0.6}}


def a_tree(verifier: str, rng: np.random.Generator) -> FrozenTree:
    """Few tokens, so that some are accepted."""
    parents_N = LevelShape(SHAPES.get(verifier, (2, 2, 1))).parents_N
    sources_N = sources_by_parent(parents_N)
    rows = tuple(freeze(rng.dirichlet(np.full(VOCAB, 0.5))) for _ in range(max(sources_N) + 1))
    tokens_N = list[int]()
    for node, parent in enumerate(parents_N):
        siblings = {tokens_N[other] for other in range(node) if parents_N[other] == parent}
        law_V = rows[sources_N[node]].dense(VOCAB)
        law_V[list(siblings)] = 0.0
        tokens_N.append(int(rng.choice(VOCAB, p=law_V / law_V.sum())))
    draft = DraftTree(
        tokens_N=tuple(tokens_N),
        parents_N=parents_N,
        sources_N=sources_N,
        replacement=max(VERIFIERS[verifier].replacements),
    )
    return FrozenTree(tree=draft, rows=rows)


def plain_rows(
    session: TargetSession, logits_RV: torch.Tensor, tree: DraftTree
) -> NDArray[np.float64]:
    """What plain decoding would draw from at the root and behind each node."""
    target_NV = np.zeros((len(logits_RV), VOCAB))
    for row in range(len(logits_RV)):
        path = tree.path(row - 1)
        scores_1V = session.transform.apply(
            logits_RV[row : row + 1], [path], [session.num_output + len(path)]
        )
        if session.sampling.temperature > 0.0:
            target_NV[row] = torch.softmax(scores_1V[0].double(), dim=0).numpy()
        else:
            target_NV[row, int(draw(scores_1V, None))] = 1.0
    return target_NV


def plain_verdict(
    session: TargetSession, target_NV: NDArray[np.float64], frozen: FrozenTree
) -> Walk:
    """The definition."""
    tree = frozen.tree
    numbers = uniforms(session.sampling.seed, session.length, uniforms_needed(tree.num_nodes))
    found = VERIFIERS[session.speculation.verifier].verify(
        **session.speculation.verifier_options,
        tree=tree,
        target_probs_NV=target_NV,
        draft_probs_RV=np.stack([row.dense(VOCAB) for row in frozen.rows]),
        decisions=UniformDecisions(numbers),
    )
    return Walk(path=found.path, tokens=found.tokens)


@pytest.mark.parametrize("verifier", [v for v, spec in VERIFIERS.items() if spec.needs_frozen_tree])
def test_verdicts_are_the_verifiers(verifier: str) -> None:
    """Paths, tokens and log-probabilities, whatever else is in the pass."""
    settings = EngineSettings(model="tabular:x", num_slots=len(OPTIONS) + 1)
    num_accepted = 0
    for seed in range(5):
        rng = np.random.default_rng(seed)
        sessions, entries = (
            Sessions(TabularEngine(TABLE, settings)),
            list[tuple[Tree, FrozenTree | None]](),
        )
        state = sessions.state
        store = state.stores[FROZEN]
        assert isinstance(store, FrozenStore)
        for place, sampling in enumerate(OPTIONS):
            speculation = Speculation(
                verifier=verifier, verifier_options=OTHER_OPTIONS.get(verifier, {})
            )
            row = sessions.open(
                replace(sampling, seed=10 * seed + place), [2, 3, 2][:place], speculation
            )
            drafted = a_tree(verifier, rng)
            nodes = drafted.tree
            store.tested[row] = VerifiableTree(
                base=(0, 0),
                frozen=drafted,
                drafters_N=(0,) * nodes.num_nodes,
                expected_nodes=0,
            )
            entries.append(
                (Tree(row=row, tokens=nodes.tokens_N, parents=nodes.parents_N, chain=2), drafted)
            )
        other = sessions.open(Sampling(seed=1, max_tokens=9))
        entries.insert(2, (Tree(row=other, tokens=[1], parents=[-1]), None))
        trees = [tree for tree, _ in entries]
        kinds_E = np.array([0 if frozen is None else FROZEN for _, frozen in entries])
        pass_ = replace(pass_of(trees), kinds_E=kinds_E)
        offsets = pass_.batch.offsets
        values_RV = torch.tensor(rng.normal(size=(offsets[-1], VOCAB)) * 2.0, dtype=torch.float32)
        walks = draws_by_kind(state)[FROZEN].start(
            pass_, Logits(values_RV=values_RV, offsets=offsets)
        )()
        assert walks is not None
        for entry, (tree, frozen) in enumerate(entries):
            count = int(walks.counts_E[entry])
            if frozen is None:
                assert count == 0
                continue
            session = state.sessions[tree.row]
            rows_RV = values_RV[offsets[entry] + 1 : offsets[entry + 1]]
            target_NV = plain_rows(session, rows_RV, frozen.tree)
            for is_every_row_read in (False, True):
                rows = TargetRows(
                    session, rows_RV, frozen.tree, is_every_row_read=is_every_row_read
                )
                np.testing.assert_array_equal([rows[n] for n in range(len(target_NV))], target_NV)
            expected = plain_verdict(session, target_NV, frozen)
            assert tuple(walks.tokens_ET[entry, :count].tolist()) == expected.tokens
            assert tuple(walks.nodes_ET[entry, : count - 1].tolist()) == expected.path
            assert (walks.nodes_ET[entry, count - 1 :] == -1).all()
            assert walks.near_ties_E[entry] == 0
            num_top = session.sampling.logprobs
            reports = [
                logprob_of(rows_RV[node + 1 : node + 2], token, num_top or 0)
                for node, token in zip((-1, *expected.path), expected.tokens, strict=True)
            ]
            assert walks.logprobs.get(entry, []) == ([] if num_top is None else reports)
            num_accepted += len(expected.path)
    assert num_accepted > 4


def test_a_pass_without_frozen_trees_decides_nothing() -> None:
    """It is for others."""
    sessions = Sessions(TabularEngine(TABLE, EngineSettings(model="tabular:x", num_slots=1)))
    pass_ = pass_of([Tree(row=sessions.open(Sampling(seed=1, max_tokens=9)))])
    logits = Logits(values_RV=torch.zeros(1, VOCAB), offsets=(0, 1))
    assert draws_by_kind(sessions.state)[FROZEN].start(pass_, logits)() is None


def test_a_verifier_that_says_what_cannot_be_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if it had raised, by name and before anything is committed: nodes of others would be looked up."""

    def wrong(**_: object) -> Acceptance:
        return Acceptance(path=(99,), tokens=(1, 2))

    spec = replace(VERIFIERS["typical"], verify=wrong)
    monkeypatch.setattr(frozen_verdict, "VERIFIERS", {"typical": spec})
    sessions = Sessions(TabularEngine(TABLE, EngineSettings(model="tabular:x", num_slots=1)))
    store = sessions.state.stores[FROZEN]
    assert isinstance(store, FrozenStore)
    drafted = a_tree("typical", np.random.default_rng(0))
    row = sessions.open(Sampling(seed=1, max_tokens=9), [], Speculation(verifier="typical"))
    nodes = drafted.tree
    store.tested[row] = VerifiableTree(
        base=(0, 0), frozen=drafted, drafters_N=(0,) * nodes.num_nodes, expected_nodes=0
    )
    tree = Tree(row=row, tokens=nodes.tokens_N, parents=nodes.parents_N)
    pass_ = replace(pass_of([tree]), kinds_E=np.array([FROZEN]))
    offsets = pass_.batch.offsets
    logits = Logits(values_RV=torch.zeros(offsets[-1], VOCAB), offsets=offsets)
    decided = draws_by_kind(sessions.state)[FROZEN].start(pass_, logits)
    with pytest.raises(ValueError, match=r"typical accepts the nodes \(99,\)"):
        decided()
