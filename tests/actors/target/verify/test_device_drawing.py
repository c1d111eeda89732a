"""Drawing all rows of a pass at once against drawing one at a time."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.actors.target.state.passing import SETTINGS, Sessions, Tree, pass_of

from outrider.actors.engine.engine_settings import EngineSettings
from outrider.actors.engine.protocol import Logits, ModelSpec
from outrider.actors.engine.tables.tabular_engine import Table, TabularEngine, random_table
from outrider.actors.exchange.candidates import FROZEN, POOLED
from outrider.actors.speculation.options import Sampling
from outrider.actors.target.state.passes import Pass
from outrider.actors.target.state.target_settings import TargetSettings
from outrider.actors.target.verify import device_drawing
from outrider.actors.target.verify.device_drawing import DeviceDraws, draws_of
from outrider.actors.target.verify.host_drawing import HostDraws
from outrider.actors.target.verify.plain_drawing import Drawer, walk_one_at_a_time
from outrider.actors.target.verify.walks import Walks

VOCAB = 23
TABLE = random_table(VOCAB, 1, seed=0, eos_token_ids=(5,))


def some_sessions() -> Sessions:
    """Room for some."""
    return Sessions(TabularEngine(TABLE, EngineSettings(model="tabular:x", num_slots=6)))


OPTIONS = [
    Sampling(seed=3, max_tokens=40, temperature=0.0),
    Sampling(seed=4, max_tokens=40, temperature=1.0),
    Sampling(seed=5, max_tokens=40, temperature=0.6, logprobs=3),
    Sampling(seed=6, max_tokens=40, temperature=0.03),
    Sampling(seed=7, max_tokens=40, temperature=0.9, top_k=4, top_p=0.8, min_p=0.05),
    Sampling(seed=8, max_tokens=40, repetition_penalty=1.3, frequency_penalty=0.3, logprobs=0),
    Sampling(seed=9, max_tokens=40, temperature=0.0, presence_penalty=0.7),
    Sampling(seed=10, max_tokens=40, logit_bias={0: -100.0, 3: 2.0}, stop_token_ids=(4,)),
    Sampling(
        seed=11,
        max_tokens=40,
        min_tokens=5,
        stop_token_ids=(1, 2),
        logit_bias={1: 9.0},
        logprobs=99,
    ),
    Sampling(seed=12, max_tokens=40, temperature=2.0),
]


KINDS = (
    partial(HostDraws, call_values=0),
    partial(HostDraws, call_values=10**6),
    DeviceDraws,
)
"""On the host level by level, and at once where requests have no other options."""


def device_walks(
    sessions: Sessions,
    pass_: Pass,
    logits: Logits,
    kind: Callable[..., HostDraws | DeviceDraws] = DeviceDraws,
) -> Walks | None:
    """What is decided at once."""
    state = sessions.state
    return kind(state.engine, state.table, state.sessions).start(pass_, logits)()


def check(
    cases: Sequence[tuple[Sampling, list[int], list[int], list[int]]],
    seed: int,
    logits_V: torch.Tensor | None = None,
    *,
    with_frozen: bool = False,
) -> Walks:
    """Compares, for sessions with an output and a tree each, everything that is drawn; from the same logits at all rows of a session,
    if some are given: (V) for all, or (sessions, V)."""
    generator = torch.Generator().manual_seed(seed)
    rng = random.Random(seed)
    sessions = some_sessions()
    # Rows of a chain before the root may come with logits, which nobody draws from.
    trees = [
        Tree(
            row=sessions.open(sampling, output),
            tokens=tokens,
            parents=parents,
            chain=rng.choice([1, 1, 3]),
        )
        for sampling, output, tokens, parents in cases
    ]
    pass_ = pass_of(trees)
    if with_frozen:
        # Trees that a frozen verifier decides about lie between; one at least is left.
        kinds = rng.choices([POOLED, FROZEN], [2, 1], k=len(trees))
        kinds[rng.randrange(len(trees))] = POOLED
        pass_ = replace(pass_, kinds_E=np.array(kinds))
    offsets = pass_.batch.offsets
    values_RV = torch.randn(offsets[-1], VOCAB, generator=generator) * 3.0
    if seed % 2:
        # Ties, near ties and margins that are just none.
        values_RV = (values_RV * 2.0).round() / 2.0
    if logits_V is not None:
        counts = torch.tensor(offsets).diff()
        values_RV = logits_V.expand(len(trees), VOCAB).repeat_interleave(counts, 0)
    sessions.state.table.near_ties_S[:] = 0.5
    logits = Logits(values_RV=values_RV, offsets=offsets)
    expected = walk_one_at_a_time(pass_, sessions.state.sessions, logits)
    found = [device_walks(sessions, pass_, logits, kind) for kind in KINDS]
    for actual in found:
        assert actual is not None
        compare(actual, expected)
    assert found[-1] is not None
    return found[-1]


def compare(actual: Walks, expected: Walks) -> None:
    """Everything that is drawn."""
    assert actual.counts_E.tolist() == expected.counts_E.tolist()
    assert actual.near_ties_E.tolist() == expected.near_ties_E.tolist()
    assert actual.logprobs.keys() == expected.logprobs.keys()
    for entry in expected.counts_E.nonzero()[0].tolist():
        count = int(expected.counts_E[entry])
        tokens, nodes = slice(count), slice(count - 1)
        assert (
            actual.tokens_ET[entry, tokens].tolist() == expected.tokens_ET[entry, tokens].tolist()
        )
        assert actual.nodes_ET[entry, nodes].tolist() == expected.nodes_ET[entry, nodes].tolist()
        assert (actual.nodes_ET[entry, count - 1 :] == -1).all()
        assert (expected.nodes_ET[entry, count - 1 :] == -1).all()
    for entry, reports in expected.logprobs.items():
        assert len(actual.logprobs[entry]) == len(reports)
        for one, other in zip(actual.logprobs[entry], reports, strict=True):
            assert one.top_ids == other.top_ids
            assert one.chosen == pytest.approx(other.chosen, abs=1e-5)
            assert one.top == pytest.approx(other.top, abs=1e-5)


@st.composite
def cases(
    draw_from: st.DrawFn,
) -> list[tuple[Sampling, list[int], list[int], list[int]]]:
    """Sessions of a pass: options, output so far, and a tree."""
    found = []
    for _ in range(draw_from(st.integers(1, 4))):
        token = st.integers(0, VOCAB - 1)
        output = draw_from(st.lists(token, max_size=8))
        count = draw_from(st.integers(0, 10))
        # Few tokens, so that draws are met and siblings are equal now and then.
        tokens = draw_from(st.lists(st.integers(0, 6), min_size=count, max_size=count))
        parents = [draw_from(st.integers(-1, node - 1)) for node in range(count)]
        found.append((draw_from(st.sampled_from(OPTIONS)), output, tokens, parents))
    return found


@given(cases(), st.integers(0, 99))
@settings(max_examples=60)
def test_all_at_once_is_one_at_a_time(
    found: list[tuple[Sampling, list[int], list[int], list[int]]], seed: int
) -> None:
    """Paths, tokens, near ties and log-probabilities, for any mixture of options and trees."""
    check(found, seed, with_frozen=True)


@pytest.mark.parametrize("sampling", OPTIONS)
def test_right_candidates_are_walked(sampling: Sampling) -> None:
    """A tree that holds the draws is walked to its end, and the walk stops at the session's last token."""
    generator = torch.Generator().manual_seed(1)
    values_RV = torch.randn(6, VOCAB, generator=generator) * 3.0
    sessions, tokens = some_sessions(), list[int]()
    session = sessions.state.sessions[sessions.open(sampling, [7, 8])]
    for depth in range(5):
        drawer = Drawer(session, values_RV, tokens)
        drawn = [drawer(node) for node in range(-1, depth)]
        tokens.append(drawn[-1])
    parents = list(range(-1, 4))
    for left in (9, 3, 1):
        sessions = some_sessions()
        row = sessions.open(replace(sampling, max_tokens=2 + left), [7, 8])
        pass_ = pass_of([Tree(row=row, tokens=tokens, parents=parents)])
        logits = Logits(values_RV=values_RV, offsets=(0, 6))
        for kind in KINDS:
            walks = device_walks(sessions, pass_, logits, kind)
            assert walks is not None
            count = min(6, left)
            assert walks.counts_E.tolist() == [count]
            assert walks.tokens_ET[0, : min(count, 5)].tolist() == tokens[: min(count, 5)]
            assert walks.nodes_ET[0, : count - 1].tolist() == list(range(count - 1))
        check([(replace(sampling, max_tokens=2 + left), [7, 8], tokens, parents)], 1)


@pytest.mark.parametrize("seed", range(3))
def test_equal_siblings_of_many_sessions(seed: int) -> None:
    """All sessions have every draw among their candidates, twice: each walk goes on below the first."""
    logits_1V = torch.randn((1, VOCAB), generator=torch.Generator().manual_seed(seed)) * 2.0
    found = []
    for place, sampling in enumerate(OPTIONS[seed : seed + 6]):
        sessions, tokens, output = some_sessions(), list[int](), [7, 8][: place % 3]
        session = sessions.state.sessions[sessions.open(sampling, output)]
        for depth in range(1 + place % 3):
            drawer = Drawer(session, logits_1V.repeat(9, 1), tokens)
            tokens.append([drawer(node) for node in range(-1, depth)][-1])
        parents = [-1, -1, 0, 0, 2, 2]
        pairs = [token for token in tokens for _ in range(2)]
        found.append((sampling, output, pairs, parents[: len(pairs)]))
    walks = check(found, seed, logits_1V[0])
    assert walks.counts_E.tolist() == [2 + place % 3 for place in range(6)]
    assert {node % 2 for node in walks.nodes_ET.flatten().tolist() if node >= 0} == {0}


def test_a_walk_ends_where_every_other_token_was_proposed() -> None:
    """Below a candidate that is drawn hang all tokens but the next one: none of them was drawn before its turn came, either."""
    logits_V = torch.zeros(VOCAB)
    logits_V[3] = 1.0
    others = [token for token in range(VOCAB) if token != 3]
    walks = check([(OPTIONS[0], [7, 8], [3, *others], [-1, *[0] * len(others)])], 2, logits_V)
    assert walks.counts_E.tolist() == [2]


@pytest.mark.parametrize("temperature", [0.6, 0.9, 1.0, 1.7])
def test_to_the_last_bit(temperature: float) -> None:
    """Logits that make all tokens but ties: any other way of dividing or adding draws others."""
    sampling = Sampling(seed=4, max_tokens=40, temperature=temperature)
    for seed in range(0, 40, 2):
        found: list[tuple[Sampling, list[int], list[int], list[int]]] = [
            (replace(sampling, seed=seed + place), [7, 8], [], []) for place in range(6)
        ]
        noise = some_sessions()
        logits_6V = torch.empty(6, VOCAB)
        for place, (one, output, _, _) in enumerate(found):
            session = noise.state.sessions[noise.open(one, output)]
            assert session.noise is not None
            noise_V = session.noise.row_range(session.length, session.length + 1)[0]
            logits_6V[place] = (8.0 - noise_V) * temperature
        check(found, seed, logits_6V)


def test_prompts_are_not_drawn_for() -> None:
    """A pass of prompts only decides nothing."""
    sessions = some_sessions()
    prompt = Tree(row=sessions.open(OPTIONS[1]), chain=2, draws=False)
    empty = Logits(values_RV=torch.empty(0, VOCAB), offsets=(0, 0))
    other = Tree(row=sessions.open(OPTIONS[1]))
    mixed = Logits(values_RV=torch.randn(1, VOCAB), offsets=(0, 0, 1))
    for kind in KINDS:
        assert device_walks(sessions, pass_of([prompt]), empty, kind) is None
        walks = device_walks(sessions, pass_of([prompt, other]), mixed, kind)
        assert walks is not None
        assert walks.counts_E.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("mode", "kind"), [("auto", HostDraws), ("off", HostDraws), ("on", DeviceDraws)]
)
def test_a_processor_draws_a_level_at_a_time(mode: str, kind: type) -> None:
    """Unless the settings say otherwise."""
    given_settings = TargetSettings(
        name="t",
        incarnation=1,
        model_name="m",
        engine=EngineSettings(model="tabular:x"),
        device_draws=mode,  # type: ignore[arg-type]
    )
    state = some_sessions().state
    made = draws_of(state.engine, given_settings, state.table, state.sessions)
    assert isinstance(made, kind)


def test_a_gpu_draws_all_rows_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless the settings say otherwise."""
    monkeypatch.setattr(device_drawing, "GumbelNoise", lambda vocab_size, device: None)
    sessions = Sessions(Elsewhere(TABLE, EngineSettings(model="tabular:x"), "cuda"))
    state = sessions.state
    made = draws_of(state.engine, SETTINGS, state.table, state.sessions)
    assert isinstance(made, DeviceDraws)


@pytest.mark.parametrize("sampling", OPTIONS)
def test_the_device_is_asked_once(sampling: Sampling, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the result is read back, except for `top_k` and `top_p`; torch's device without data refuses to be read."""
    nowhere = torch.device("meta")
    asked: list[torch.Tensor] = []
    monkeypatch.setattr(
        device_drawing, "to_device", lambda array, device: torch.from_numpy(array).to(device)
    )
    monkeypatch.setattr(device_drawing, "to_host", lambda tensor: lambda: asked.append(tensor))
    sessions = Sessions(Elsewhere(TABLE, EngineSettings(model="tabular:x", num_slots=1), "meta"))
    tree = Tree(row=sessions.open(sampling, [7, 8]), tokens=[3, 4], parents=[-1, 0])
    logits = Logits(values_RV=torch.empty(3, VOCAB, device=nowhere), offsets=(0, 3))
    if sampling.top_k or sampling.top_p < 1.0:
        with pytest.raises((NotImplementedError, RuntimeError), match="meta"):
            device_walks(sessions, pass_of([tree]), logits)
        return
    with pytest.raises(AttributeError):
        device_walks(sessions, pass_of([tree]), logits)
    (result,) = asked
    assert result.device == nowhere


class Elsewhere(TabularEngine):
    """Says that it is on another device than it is."""

    def __init__(self, table: Table, settings: EngineSettings, device: str) -> None:
        super().__init__(table, settings)
        self._elsewhere = torch.device(device)

    @property
    def spec(self) -> ModelSpec:
        """Of the model."""
        return replace(super().spec, device=self._elsewhere)
