"""Services on emulated devices: what a configuration may say, and the same texts as ever."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.front import Front, Serve
from tests.cluster.served.coming import let_drafters_come

from outrider.actors.draft.service.draft_server import DraftServer
from outrider.actors.draft.state.draft_settings import DraftSettings
from outrider.actors.engine.engine_settings import EngineSettings
from outrider.actors.target.service.target_server import TargetServer
from outrider.actors.target.state.target_settings import TargetSettings
from outrider.cluster.config.config_errors import ConfigError
from outrider.cluster.config.coordinator_settings import CoordinatorSettings
from outrider.cluster.config.schema import parse_config
from outrider.cluster.placement.actor_specs import actor_specs
from outrider.cluster.process.command_failed import CommandFailed
from outrider.cluster.start.commands import service_config
from outrider.cluster.text.text_tokenizer import LawCodec, load
from outrider.v1 import generation_pb2, sampling_pb2, trace_pb2


def engine(model: str, device: str) -> EngineSettings:
    """A law with a few slots."""
    return EngineSettings(
        model=model, device=device, num_slots=4, max_context=256, max_scratch=128, num_threads=1
    )


@pytest.fixture
async def front(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Front]:
    """A target, a drafter and a coordinator on emulated devices."""
    target = TargetServer(
        TargetSettings(
            name="target",
            incarnation=1,
            model_name="agree70",
            engine=engine("law:agree70", "emulated:2ms+10us"),
            # So that candidates come in time however busy the machine is.
            lockstep=True,
            adaptive=False,
        )
    )
    drafter = DraftServer(
        DraftSettings(
            name="draft",
            incarnation=1,
            engine=engine("law:agree70/draft", "emulated:200us+1us"),
            prefill_chunk=64,
            lockstep=True,
        )
    )
    addresses = await target.start(), await drafter.start()
    let_drafters_come(target, monkeypatch)
    made = await serve(
        codec=LawCodec(),
        targets=addresses[:1],
        drafters=(("draft", addresses[1]),),
        emulated="2ms+10us, 200us+1us",
    )
    async with asyncio.timeout(60.0):
        while not await _is_ready(made):  # noqa: ASYNC110 - nothing tells when it is
            await asyncio.sleep(0.02)
    yield made
    await drafter.stop(0.0)
    await target.stop(0.0)


async def _is_ready(front: Front) -> bool:
    status = await front.stub.GetStatus(generation_pb2.GetStatusRequest())
    return bool(status.accepting) and all(actor.ready for actor in status.actors)


async def generate(front: Front, seed: int, *, enabled: bool) -> tuple[str, Any, Any]:
    """Text, admission and completion."""
    request = generation_pb2.GenerateRequest(
        text="Hello, world",
        sampling=sampling_pb2.SamplingOptions(
            seed=seed, max_tokens=64, temperature=0.8, ignore_eos=True
        ),
        speculation=sampling_pb2.SpeculationOptions(enabled=enabled),
    )
    text, admission, completion = "", None, None
    async for message in front.stub.Generate(request, timeout=60.0):
        text += message.chunk.text
        if message.HasField("admission"):
            admission = message.admission
        if message.HasField("completion"):
            completion = message.completion
    return text, admission, completion


async def test_speculative_texts_are_the_plain_ones(front: Front) -> None:
    """For each seed, with several requests at once; candidates were accepted; and everybody is told that it is emulated."""
    plain = await asyncio.gather(*(generate(front, seed, enabled=False) for seed in range(4)))
    fast = await asyncio.gather(*(generate(front, seed, enabled=True) for seed in range(4)))
    assert [text for text, _, _ in plain] == [text for text, _, _ in fast]
    assert {len(text) for text, _, _ in plain} == {64}
    assert sum(completion.speculation.accepted for _, _, completion in fast) > 0
    assert fast[0][1].emulated == "2ms+10us, 200us+1us"
    models = await front.stub.ListModels(generation_pb2.ListModelsRequest())
    status = await front.stub.GetStatus(generation_pb2.GetStatusRequest())
    assert models.models[0].emulated == status.emulated == "2ms+10us, 200us+1us"
    async for told in front.stub.Trace(trace_pb2.TraceRequest(seconds=0.1)):
        if told.HasField("started"):
            assert told.started.emulated == "2ms+10us, 200us+1us"
            break
    else:
        pytest.fail("no trace began")


def test_text_of_laws() -> None:
    """A token is a character; what is none becomes a question mark; conversations are lines."""
    codec = load("law:agree70")
    text = "How? {x} ~\nSo."
    assert codec.decode(codec.encode(text, add_special_tokens=True)) == text
    assert codec.decode(codec.encode("ä\tb", add_special_tokens=False)) == "??b"
    assert codec.decode(range(96)).endswith("}~\n")
    assert codec.render_chat([("user", "Hi")]) == "user: Hi\nassistant: "


def test_the_coordinator_knows() -> None:
    """Which devices are emulated, each once, and how laws are shown."""
    config = service_config(emulate="h100-8b")
    settings = next(
        s.settings for s in actor_specs(config) if isinstance(s.settings, CoordinatorSettings)
    )
    assert (settings.emulated, settings.tokenizer) == ("h100-8b, h100-1b", "law:agree70")
    assert [spec.name for spec in actor_specs(config)] == [
        "agree70",
        "agree70-draft",
        "coordinator",
    ]
    assert service_config().emulated == ()


def test_emulate_lies_over_the_file(tmp_path: Path) -> None:
    """The file's models stay, and the devices are replaced; drafters without a model have none."""
    file = tmp_path / "c.yaml"
    file.write_text(
        "targets: [{model: 'law:agree50'}]\n"
        "drafters: [{model: 'law:agree50/draft', width: 2}, {method: prompt_lookup}]\n"
    )
    config = service_config(file, emulate="10ms+10us,1ms+3us")
    assert [actor.device for actor in (*config.targets, *config.drafters)] == [
        "emulated:10ms+10us",
        "emulated:1ms+3us",
        "cpu",
    ]
    assert (config.targets[0].model, config.drafters[0].width) == ("law:agree50", 2)


@pytest.mark.parametrize(
    ("emulate", "targets", "message"),
    [
        ("h200-8b", (), "--emulate: there is no profile 'h200-8b'; there are"),
        ("h100-8b,x", (), "--emulate: there is no profile 'x'"),
        ("10ms+10us", (), "name both: 10ms"),
        ("h100-70b", (), "no room on 1 of h100"),
        ("h100-8b", ("demo:target",), "does no arithmetic, so it cannot run 'demo:target'"),
    ],
)
def test_refused_flags(emulate: str, targets: tuple[str, ...], message: str) -> None:
    """What cannot be emulated is told at once."""
    with pytest.raises(CommandFailed, match=message):
        service_config(emulate=emulate, targets=targets)


@pytest.mark.parametrize(
    ("actor", "message"),
    [
        ({"model": "demo:target", "device": "emulated:h100-8b"}, "does no arithmetic"),
        ({"model": "law:agree70", "device": "emulated:h100-9b"}, "there is no profile 'h100-9b'"),
        ({"model": "law:agree70", "device": "emulated:"}, "device"),
    ],
)
def test_refused_targets(actor: dict[str, Any], message: str) -> None:
    """The same in a file."""
    with pytest.raises(ConfigError, match=message):
        parse_config({"targets": [actor]}, source="test")


def test_refused_drafters() -> None:
    """A drafter without a model computes no passes."""
    data = {
        "targets": [{"model": "law:agree70"}],
        "drafters": [{"method": "prompt_lookup", "device": "emulated:1ms"}],
    }
    with pytest.raises(ConfigError, match="cannot run prompt_lookup"):
        parse_config(data, source="test")
