"""Drawing all rows of a pass at once against drawing one at a time."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from outrider.actors.engine.protocol import Engine, Logits
from outrider.actors.engine.settings import EngineSettings
from outrider.actors.engine.tabular import TabularEngine, random_table
from outrider.actors.speculation import coupled
from outrider.actors.speculation.noise import GumbelNoise, NoiseCache
from outrider.actors.speculation.options import Sampling, Speculation
from outrider.actors.speculation.pool import Selection
from outrider.actors.speculation.transforms import SamplingTransform
from outrider.actors.target import device_drawing
from outrider.actors.target.device_drawing import DeviceDraws, HostDraws, draws_of
from outrider.actors.target.drawing import Drawer
from outrider.actors.target.events import Owner
from outrider.actors.target.plan import Entry
from outrider.actors.target.session import Session
from outrider.actors.target.settings import TargetSettings

VOCAB = 23
CPU = torch.device("cpu")
ENGINE = TabularEngine(random_table(VOCAB, 1, seed=0), EngineSettings(model="tabular:x"))
NOISE = GumbelNoise(VOCAB, CPU)

OPTIONS = [
    Sampling(seed=3, max_tokens=40, temperature=0.0),
    Sampling(seed=4, max_tokens=40, temperature=1.0),
    Sampling(seed=5, max_tokens=40, temperature=0.6, logprobs=3),
    Sampling(seed=6, max_tokens=40, temperature=0.03),
    Sampling(seed=7, max_tokens=40, temperature=0.9, top_k=4, top_p=0.8, min_p=0.05),
    Sampling(seed=8, max_tokens=40, repetition_penalty=1.3, frequency_penalty=0.3, logprobs=0),
    Sampling(seed=9, max_tokens=40, temperature=0.0, presence_penalty=0.7),
    Sampling(seed=10, max_tokens=40, logit_bias={0: -100.0, 3: 2.0}, stop_token_ids=(4,)),
    Sampling(seed=11, max_tokens=40, min_tokens=9, stop_token_ids=(1, 2), logprobs=99),
]


def session_of(sampling: Sampling, output: Sequence[int], device: torch.device = CPU) -> Session:
    """A session that has committed some output."""
    prompt = [1, 2, 3]
    transform = SamplingTransform(
        sampling, vocab_size=VOCAB, prompt=prompt, eos_token_ids=(5,), device=device
    )
    session = Session(
        owner=Owner(stream=1, session=1),
        handle=1,
        group=0,
        slot=0,
        prompt=prompt,
        committed=(),
        sampling=sampling,
        speculation=Speculation(),
        drafters=(),
        transform=transform,
        noise=NoiseCache(NOISE, sampling.seed) if transform.uses_noise else None,
        stop_tokens=frozenset(),
    )
    if output:
        session.commit(output, 0.0)
    return session


def entry_of(session: Session, tokens: list[int], parents: list[int], chain: int = 1) -> Entry:
    """A session's part of a pass."""
    selection = Selection(tokens=tokens, parents=parents, nodes=[], values=[])
    return Entry(session=session, chain=[0] * chain, is_prefill=False, selection=selection)


def check(cases: Sequence[tuple[Sampling, list[int], list[int], list[int]]], seed: int) -> None:
    """Compares, for sessions with an output and a tree each, everything that is drawn."""
    generator = torch.Generator().manual_seed(seed)
    rng = random.Random(seed)
    entries, offsets = [], [0]
    for sampling, output, tokens, parents in cases:
        entries.append(entry_of(session_of(sampling, output), tokens, parents))
        # Rows of a chain before the root may come with logits, which nobody draws from.
        offsets.append(offsets[-1] + rng.choice([0, 0, 2]) + 1 + len(tokens))
    values_RV = torch.randn(offsets[-1], VOCAB, generator=generator) * 3.0
    logits = Logits(values_RV=values_RV, offsets=tuple(offsets))
    all_drawn = DeviceDraws(ENGINE).start(entries, logits)()
    for index, (entry, drawn) in enumerate(zip(entries, all_drawn, strict=True)):
        _, output, tokens, parents = cases[index]
        session = session_of(entry.session.sampling, output)
        own_RV = logits.of(index)[-1 - len(tokens) :]
        drawer = Drawer(session, own_RV, parents, tokens)
        assert drawn is not None
        assert drawn.walk == coupled.walk(tokens, parents, drawer, session.remaining)
        assert drawn.near_ties == drawer.near_ties
        assert len(drawn.logprobs) == len(drawer.logprobs)
        for actual, expected in zip(drawn.logprobs, drawer.logprobs, strict=True):
            assert actual.top_ids == expected.top_ids
            assert actual.chosen == pytest.approx(expected.chosen, abs=1e-5)
            assert actual.top == pytest.approx(expected.top, abs=1e-5)


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
    check(found, seed)


@pytest.mark.parametrize("sampling", OPTIONS)
def test_right_candidates_are_walked(sampling: Sampling) -> None:
    """A tree that holds the draws is walked to its end, and the walk stops at the session's last token."""
    generator = torch.Generator().manual_seed(1)
    values_RV = torch.randn(6, VOCAB, generator=generator) * 3.0
    tokens: list[int] = []
    for depth in range(5):
        drawer = Drawer(session_of(sampling, [7, 8]), values_RV, list(range(-1, depth - 1)), tokens)
        drawn = [drawer(node) for node in range(-1, depth)]
        tokens.append(drawn[-1])
    parents = list(range(-1, 4))
    for left in (9, 3, 1):
        output = [7, 8]
        limited = replace(sampling, max_tokens=len(output) + left)
        logits = Logits(values_RV=values_RV, offsets=(0, 6))
        entry = entry_of(session_of(limited, output), tokens, parents)
        (drawn_all,) = DeviceDraws(ENGINE).start([entry], logits)()
        assert drawn_all is not None
        assert drawn_all.walk.path == tuple(range(min(5, left - 1)))
        assert drawn_all.walk.tokens[:5] == tuple(tokens[: min(5, left)])
        check([(limited, output, tokens, parents)], 1)


def test_prompts_are_not_drawn_for() -> None:
    """A pass of prompts only decides nothing."""
    session = session_of(OPTIONS[1], [])
    nothing = Selection(tokens=[], parents=[], nodes=[], values=[])
    prefill = Entry(session=session, chain=[1, 2], is_prefill=True, selection=nothing)
    empty = Logits(values_RV=torch.empty(0, VOCAB), offsets=(0, 0))
    assert DeviceDraws(ENGINE).start([prefill], empty)() == [None]
    mixed = Logits(values_RV=torch.randn(1, VOCAB), offsets=(0, 0, 1))
    first, second = DeviceDraws(ENGINE).start([prefill, entry_of(session, [], [])], mixed)()
    assert first is None
    assert second is not None


@pytest.mark.parametrize(
    ("mode", "kind"), [("auto", HostDraws), ("off", HostDraws), ("on", DeviceDraws)]
)
def test_a_processor_draws_one_at_a_time(mode: str, kind: type) -> None:
    """Unless the settings say otherwise."""
    given_settings = TargetSettings(
        name="t",
        incarnation=1,
        model_name="m",
        engine=EngineSettings(model="tabular:x"),
        device_draws=mode,  # type: ignore[arg-type]
    )
    assert isinstance(draws_of(ENGINE, given_settings), kind)


@pytest.mark.parametrize("sampling", OPTIONS)
def test_the_device_is_asked_once(sampling: Sampling, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the result is read back, except for `top_k` and `top_p`; torch's device without data refuses to be read."""
    nowhere = torch.device("meta")
    asked: list[torch.Tensor] = []
    monkeypatch.setattr(
        device_drawing, "to_device", lambda array, device: torch.from_numpy(array).to(device)
    )
    monkeypatch.setattr(device_drawing, "to_host", lambda tensor: lambda: asked.append(tensor))
    spec = replace(ENGINE.spec, device=nowhere)
    draws = DeviceDraws(cast(Engine, SimpleNamespace(spec=spec)))
    session = session_of(sampling, [7, 8], device=nowhere)
    logits = Logits(values_RV=torch.empty(3, VOCAB, device=nowhere), offsets=(0, 3))
    entries = [entry_of(session, [3, 4], [-1, 0])]
    if sampling.top_k or sampling.top_p < 1.0:
        with pytest.raises((NotImplementedError, RuntimeError), match="meta"):
            draws.start(entries, logits)
        return
    with pytest.raises(AttributeError):
        draws.start(entries, logits)()
    (result,) = asked
    assert result.device == nowhere
