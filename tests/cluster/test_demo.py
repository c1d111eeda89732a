"""The demonstration: decoding both ways, what is shown and what is written. Without a service but for the last test."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from outrider.client.blocking import Client
from outrider.client.connection.errors import Unavailable
from outrider.client.measuring.measuring_prompts import BUILT_IN
from outrider.client.messages.request_options import SamplingOptions, SpeculationOptions
from outrider.client.messages.results import (
    Admission,
    Completion,
    Event,
    FinishReason,
    Origin,
    SpeculationStats,
    TextChunk,
    Timing,
    Token,
)
from outrider.client.timeline.timeline_file import load
from outrider.client.timeline.timeline_model import (
    DRAFTING,
    REQUESTS,
    WORK,
    Slice,
    Timeline,
    TrackSource,
)
from outrider.cluster.demo import demo_decode, demo_timeline
from outrider.cluster.demo import demonstration as demo
from outrider.cluster.demo.demo_report import Pair, report_as_dict
from outrider.cluster.demo.demo_screen import Screen, timeline_strip
from outrider.cluster.process.signals import Ending
from outrider.cluster.start.commands import CommandFailed

WORDS = ("one ", "two ", "three ", "four ")


class ScriptedClient:
    """Says the same four words to everything, a chunk at a time."""

    def __init__(self, *, differs: bool = False) -> None:
        self.asked: list[tuple[SamplingOptions, SpeculationOptions]] = []
        self.prompts: list[str | None] = []
        self._differs = differs

    @contextmanager
    def stream(
        self,
        prompt: str | None,
        *,
        sampling: SamplingOptions,
        speculation: SpeculationOptions,
        **_: object,
    ) -> Iterator[Iterator[Event]]:
        self.asked.append((sampling, speculation))
        self.prompts.append(prompt)
        yield self._events(is_fast=bool(speculation.enabled))

    def detokenize(self, ids: Sequence[int], **_: object) -> str:
        return WORDS[ids[0]]

    def _events(self, *, is_fast: bool) -> Iterator[Event]:
        yield Admission(request_id="r", model="m", seed=1, prompt_tokens=3, drafters=("small",))
        ids = (0, 1, 2, 3) if is_fast or not self._differs else (0, 1, 3, 2)
        tokens = [
            Token(id=i, origin=Origin.DRAFTER, drafter="small")
            if is_fast and place % 2 == 0
            else Token(id=i, origin=Origin.TARGET)
            for place, i in enumerate(ids)
        ]
        step = 2 if is_fast else 1
        for start in range(0, 4, step):
            part = tuple(tokens[start : start + step])
            yield TextChunk(index=0, text="".join(WORDS[t.id] for t in part), tokens=part)
        yield Completion(
            index=0,
            finish_reason=FinishReason.LENGTH,
            speculation=SpeculationStats(
                rounds=2, mean_tokens_per_pass=2.0, reached_by_depth=(2,), accepted_by_depth=(2,)
            ),
            timing=Timing(total_s=0.1 if is_fast else 0.2),
        )


def quick_pairs(client: ScriptedClient, screen: Screen | None = None) -> list[Any]:
    """The pairs of a quick demonstration."""
    plan = demo_decode.demo_plan(max_tokens=4, quick=True)
    screen = screen or Screen(is_silent=True, use_color=False)
    with closing(Ending()) as ending:
        return list(demo_decode.decode_pairs(cast(Client, client), plan, screen, ending))


def quick_streams(client: ScriptedClient | None = None) -> dict[int, list[Pair]]:
    """The streams of a quick demonstration."""
    plan = demo_decode.demo_plan(max_tokens=4, quick=True)
    with closing(Ending()) as ending:
        scripted = cast(Client, client or ScriptedClient())
        return demo_decode.decode_streams(scripted, plan, plan.streams, ending)


def test_plan_takes_each_category_once() -> None:
    """About six varied prompts, three with `--quick`."""
    whole, quick = (
        demo_decode.demo_plan(max_tokens=64, quick=False),
        demo_decode.demo_plan(max_tokens=64, quick=True),
    )
    categories = [prompt.category for prompt in whole.prompts]
    assert len(set(categories)) == len(categories) == 6
    assert whole.max_tokens == 64
    assert len(quick.prompts) == 3
    assert quick.max_tokens == demo_decode.QUICK_TOKENS
    assert 0.0 in whole.temperatures
    assert any(temperature > 0 for temperature in whole.temperatures)


def test_same_options_both_ways() -> None:
    """Plain and speculative decoding of a text differ in nothing but speculation."""
    client = ScriptedClient()
    pairs = quick_pairs(client)
    timed = client.asked
    assert len(timed) == 2 * len(pairs) == 12
    for plain, fast in zip(timed[::2], timed[1::2], strict=True):
        assert plain[0] == fast[0]
        assert (plain[1].enabled, fast[1].enabled) == (False, True)
    assert all(pair.first_difference is None for pair in pairs)
    assert [pair.speculative.passes for pair in pairs] == [(2, 2)] * 6


def test_nothing_is_measured_cold() -> None:
    """Both ways are warm at each temperature before the first figure, by a prompt that is not measured afterwards."""
    client = ScriptedClient()
    plan = demo_decode.demo_plan(max_tokens=4, quick=False)
    with closing(Ending()) as ending:
        demo_decode.warm_up(cast(Client, client), plan, ending)
    assert [(sampling.temperature, how.enabled) for sampling, how in client.asked] == [
        (0.0, False),
        (0.0, True),
        (0.8, False),
        (0.8, True),
    ]
    assert all(sampling.max_tokens == demo_decode.WARM_UP_TOKENS for sampling, _ in client.asked)
    measured = {prompt.text for prompt in (*plan.prompts, *plan.streams)}
    assert not set(client.prompts) & measured


def test_streams_of_both_lengths() -> None:
    """Each length both ways with the same options, one after the other, to its full length."""
    client = ScriptedClient()
    streams = quick_streams(client)
    assert {length: len(pairs) for length, pairs in streams.items()} == {32: 2, 256: 2}
    for plain, fast in zip(client.asked[::2], client.asked[1::2], strict=True):
        assert plain[0] == fast[0]
        assert plain[0].ignore_eos
        assert (plain[1].enabled, fast[1].enabled) == (False, True)
    assert all(pair.first_difference is None for pairs in streams.values() for pair in pairs)


def test_slow_targets_have_time_for_fewer_streams() -> None:
    """Judged by the texts: 4 tokens took 0.2 s plainly and 0.1 s speculatively."""
    pairs = quick_pairs(ScriptedClient())
    plan = demo_decode.demo_plan(max_tokens=4, quick=False)
    each_s = 2 * 2 * (32 + 256) * 0.3 / 8
    for streams_s, number in ((0.5 * each_s, 0), (2.5 * each_s, 2), (99 * each_s, 3)):
        allowed = replace(plan, streams_s=streams_s)
        assert len(demo_decode.affordable_streams(allowed, pairs)) == number


def test_tables_fit_80_columns(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """No heading or cell is cut or wrapped, at the widest of each."""
    monkeypatch.setenv("COLUMNS", "80")
    screen = Screen(is_silent=False, use_color=False)
    pairs = quick_pairs(ScriptedClient())
    wide = [
        replace(pair, category=category)
        for pair in pairs
        for category in dict.fromkeys(prompt.category for prompt in BUILT_IN)
    ]
    screen.summary(wide, quick_streams(), Timeline())
    lines = capsys.readouterr().out.splitlines()
    tables = [line for line in lines if set(line) & set("│┃━─┼╇")]
    assert len(tables) > 36
    assert max(map(len, tables)) <= 80
    assert not any("…" in line for line in lines)
    assert sum("; /s: tokens a second" in line for line in lines) == 2
    headings = [line.replace("┃", "").split() for line in tables if "temp." in line]
    others = ["temp.", "tokens", "same", "pass", "plain/s", "spec./s", "speed-up"]
    assert headings == [["text", *others], ["stream", "of", *others]]
    for category in {pair.category for pair in wide}:
        assert any(line.startswith(category) for line in tables)


def test_interruption_ends_the_decoding() -> None:
    """A signal is heeded at the next event."""
    plan = demo_decode.demo_plan(max_tokens=4, quick=True)
    screen = Screen(is_silent=True, use_color=False)
    with closing(Ending()) as ending:
        ending.note(signal.SIGTERM)
        with pytest.raises(demo_decode.Interrupted):
            list(demo_decode.decode_pairs(cast(Client, ScriptedClient()), plan, screen, ending))


def test_screen_shows_texts_and_tables(capsys: pytest.CaptureFixture[str]) -> None:
    """Without a terminal the output is plain text: each text whole, and the tables."""
    screen = Screen(is_silent=False, use_color=True)
    pairs = quick_pairs(ScriptedClient(), screen)
    screen.summary(pairs, quick_streams(), Timeline())
    shown = capsys.readouterr().out
    assert shown.count("one two three four") == len(pairs)
    assert shown.count("same text as plain decoding") == len(pairs)
    assert "target 50%" in shown
    assert "small 50%" in shown
    assert "2.00" in shown
    assert "10 of 10 texts and streams equal plain decoding" in shown
    assert "\x1b" not in shown


def test_difference_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    """A text that differs says where, and that nothing explains it."""
    pairs = quick_pairs(ScriptedClient(differs=True), Screen(is_silent=False, use_color=False))
    assert "differs from plain decoding at token 2, NOT explained" in capsys.readouterr().out
    assert all(pair.is_unexplained for pair in pairs)


def test_report_for_programs(tmp_path: Path) -> None:
    """Everything is JSON, and nothing is lost."""
    report = report_as_dict(quick_pairs(ScriptedClient()), quick_streams(), tmp_path / "t.json")
    read = json.loads(json.dumps(report))
    assert len(read["texts"]) == 6
    assert read["texts"][0]["equal"]
    assert read["totals"]["speed_up"] == pytest.approx(2.0)
    assert [entry["temperature"] for entry in read["by_temperature"]] == [0.0, 0.8]
    assert [(entry["max_tokens"], entry["texts"]) for entry in read["by_length"]] == [
        (32, 2),
        (256, 2),
    ]


def test_timeline_holds_the_texts(tmp_path: Path) -> None:
    """The file has a track of the texts above those of the actors, at the times when they were decoded."""
    pairs = quick_pairs(ScriptedClient())
    start_us = pairs[0].plain.start_us
    verify = Slice(process="target", track=WORK, name="verify", start_us=0.0, duration_us=5.0)
    source = TrackSource(
        process="target",
        name="target",
        role="target",
        incarnation=1,
        pid=1,
        start_us=0.0,
        end_us=9.0,
    )
    seen = Timeline(start_unix_us=start_us - 100.0, slices=(verify,), sources=(source,))
    file = tmp_path / "trace.json"
    demo_timeline.write_trace(file, demo_timeline.with_texts(seen, pairs))
    read = load(file)
    texts = read.of(REQUESTS, demo_timeline.TEXTS)
    assert len(texts) == 2 * len(pairs)
    assert texts[0].start_us == pytest.approx(100.0, abs=1.0)
    events = json.loads(file.read_text())["traceEvents"]
    names = [event["args"]["name"] for event in events if event["name"] == "process_name"]
    assert names == [REQUESTS, "target"]


def test_strip_shows_target_and_drafters() -> None:
    """The strip tells how much of the drafting ran while the target verified."""
    pairs = quick_pairs(ScriptedClient())
    run = replace(pairs[-1].speculative, start_us=1e15, duration_us=100_000.0)
    pairs = [replace(pairs[-1], speculative=run)]
    step_us = run.duration_us / 100
    slices = tuple(
        Slice(
            process=process,
            track=track,
            name=name,
            start_us=place * step_us,
            duration_us=step_us,
        )
        for place in range(88)
        for process, track, name, when in (
            ("target-0", WORK, "verify", 0),
            ("small", DRAFTING, "draft", 1),
            ("small", DRAFTING, "out of credits", 3),
        )
        if place % 4 in (when, when + 1)
    )
    seen = Timeline(start_unix_us=1e15, slices=slices)
    shown = timeline_strip(pairs, seen, width=40).splitlines()
    assert [line.split()[0] for line in shown[1:3]] == ["target-0", "small"]
    assert shown[3].startswith("50% of the drafting")
    assert timeline_strip(pairs, Timeline(), width=40) == ""


def test_unwritable_timeline_is_refused_before_anything_starts(tmp_path: Path) -> None:
    """A folder that does not exist is named at once."""
    with pytest.raises(CommandFailed, match="does not exist") as caught:
        demo.run_demo(trace=tmp_path / "none" / "trace.json")
    assert caught.value.exit_code == 2


def test_failed_request_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A request that fails ends the demonstration with its message, and ends the service."""
    from outrider.cluster.start import launch

    ended: list[bool] = []

    @contextmanager
    def started(*_: object, **__: object) -> Iterator[Any]:
        class Service:
            address = "127.0.0.1:1"

        try:
            yield Service()
        finally:
            ended.append(True)

    def refuse(*_: object) -> Iterator[Any]:
        raise Unavailable("nobody is there")

    monkeypatch.setattr(launch, "start_service", started)
    monkeypatch.setattr(demo, "warm_up", lambda *_: None)
    monkeypatch.setattr(demo, "decode_pairs", refuse)
    with pytest.raises(CommandFailed, match="nobody is there"):
        demo.run_demo(trace=tmp_path / "trace.json", as_json=True)
    assert ended == [True]


def start_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Puts a service that is only an address in the place of one that is started."""
    from outrider.cluster.start import launch

    class Service:
        address = "127.0.0.1:1"

    @contextmanager
    def started(*_: object, **__: object) -> Iterator[Service]:
        yield Service()

    monkeypatch.setattr(launch, "start_service", started)
    monkeypatch.setattr(demo, "warm_up", lambda *_: None)
    monkeypatch.setattr(demo, "decode_streams", lambda *_: {})


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_failure_after_a_signal_is_the_signal(
    number: signal.Signals, code: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A signal that reaches the actors too makes requests fail; that is not what the user is told."""

    def fail(*_: object) -> Iterator[Any]:
        os.kill(os.getpid(), number)
        raise Unavailable("nobody is there")

    start_nothing(monkeypatch)
    monkeypatch.setattr(demo, "decode_pairs", fail)
    assert demo.run_demo(trace=tmp_path / "trace.json", as_json=True) == code


def test_failed_trace_costs_the_timeline_only(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """If nothing can be recorded, the texts are still reported and drawn."""
    pairs = quick_pairs(ScriptedClient())
    start_nothing(monkeypatch)
    monkeypatch.setattr(demo, "decode_pairs", lambda *_: iter(pairs))
    file = tmp_path / "trace.json"
    assert demo.run_demo(trace=file, as_json=True) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["totals"]["equal"] == 6
    assert "the timeline lacks the actors" in captured.err
    assert {one.track for one in load(file).slices} == {demo_timeline.TEXTS}
