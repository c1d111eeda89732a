"""What a target does while a device works, and before a processor does: when tokens leave, and that none is lost or comes late."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pytest
from tests.actors.target.state.chaos import opening

from outrider.actors.engine.engine_settings import EngineSettings
from outrider.actors.engine.profiles import Linear
from outrider.actors.engine.protocol import Engine, Logits, Rows
from outrider.actors.engine.tables.emulated_engine import EmulatedEngine
from outrider.actors.engine.tables.tabular_engine import TabularEngine, random_table
from outrider.actors.engine.tables.token_table import Table
from outrider.actors.speculation.options import Sampling, Speculation
from outrider.actors.target.state.target_events import (
    CommitFrame,
    Committed,
    Failed,
    Finished,
    Output,
)
from outrider.actors.target.state.target_settings import TargetSettings
from outrider.actors.target.target_worker import TargetWorker

TABLE = random_table(6, 2, seed=1)
SETTINGS = EngineSettings(model="tabular:x", num_slots=2)
PASS_S = 0.5
TOKENS = 3


class Log:
    """What happens, in order, and a clock that only passes move."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.time = 0.0
        self.fails_after = 100
        """Passes that begin well."""

    def now(self) -> float:
        """See `PassClock`."""
        return self.time

    def sleep(self, seconds: float) -> None:
        """See `PassClock`."""
        self.events.append("device")
        self.time += seconds

    def begin(self) -> None:
        """A pass is begun."""
        if self.events.count("begin") >= self.fails_after:
            raise RuntimeError("no pass any more")
        self.events.append("begin")


class Beside(EmulatedEngine):
    """A device beside the host."""

    def __init__(self, table: Table, log: Log) -> None:
        profile = Linear(name="p", origin="", pass_s=PASS_S, row_s=0.0, session_s=0.0)
        super().__init__(table, profile, SETTINGS, clock=log)
        self.log = log

    def compute(self, batch: Sequence[Rows]) -> Logits:
        """Tells."""
        self.log.begin()
        return super().compute(batch)


class Processor(TabularEngine):
    """The host itself."""

    def __init__(self, table: Table, log: Log) -> None:
        super().__init__(table, SETTINGS)
        self.log = log

    def forward(self, batch: Sequence[Rows]) -> Logits:
        """Tells."""
        self.log.begin()
        self.log.time += PASS_S
        return super().forward(batch)


def run(engine: Engine, log: Log, *, logprobs: int | None = None) -> None:
    """One request to its end, as an actor runs it."""
    settings = TargetSettings(name="t", incarnation=1, model_name="m", engine=SETTINGS)

    def emit(outputs: Sequence[Output]) -> None:
        for output in outputs:
            match output:
                case CommitFrame():
                    log.events.append(f"{len(output.commits.tokens_T)} sent")
                case Committed():
                    log.events.append(f"{len(output.tokens)} sent")
                case Finished():
                    assert output.stats.plain_passes == TOKENS
                    log.events.append("finished")
                    worker.stop()
                case Failed():
                    log.events.append("failed")
                    worker.stop()

    worker = TargetWorker(engine, settings, emit, log.now)
    sampling = Sampling(seed=1, max_tokens=TOKENS, ignore_eos=True, logprobs=logprobs)
    worker.post(opening(1, sampling, speculation=Speculation(enabled=False), drafters=()))
    thread = threading.Thread(target=worker.run, daemon=True)
    thread.start()
    thread.join(60)
    assert not thread.is_alive()


@pytest.mark.parametrize("logprobs", [None, 1])
def test_tokens_leave_while_a_device_runs_the_next_pass(logprobs: int | None) -> None:
    """The device waits for nothing that it does not need; the last tokens leave before the text is said to be over."""
    log = Log()
    run(Beside(TABLE, log), log, logprobs=logprobs)
    assert log.events == [
        *("begin", "device"),
        *("begin", "1 sent", "device"),
        *("begin", "1 sent", "device"),
        *("1 sent", "finished"),
    ]
    assert log.time == TOKENS * PASS_S


def test_tokens_leave_before_a_processor_begins() -> None:
    """There is no "while": what is not sent before the pass would be sent after it."""
    log = Log()
    run(Processor(TABLE, log), log)
    assert log.events == ["begin", *("1 sent", "begin") * 2, "1 sent", "finished"]


@pytest.mark.parametrize("logprobs", [None, 1])
@pytest.mark.parametrize("kind", [Beside, Processor])
def test_tokens_leave_before_a_failure_is_told(
    kind: type[Beside | Processor], logprobs: int | None
) -> None:
    """The pass that begins while they wait fails, and its session with it."""
    log = Log()
    log.fails_after = 2
    run(kind(TABLE, log), log, logprobs=logprobs)
    said = [event for event in log.events if event not in ("begin", "device")]
    assert said == ["1 sent", "1 sent", "failed"]
