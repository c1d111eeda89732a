"""A target and a drafter on emulated devices: nothing leaves before the pass that it comes from is over, and no text changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from tests.actors.pair import pair as pairs
from tests.actors.pair.pair import Pair, blurred, texts_alone

from outrider.actors.draft.state.draft_events import CandidatesSent, Report
from outrider.actors.engine.engine_settings import EngineSettings
from outrider.actors.engine.profiles import Linear
from outrider.actors.engine.protocol import Logits, Rows
from outrider.actors.engine.tables.emulated_engine import EmulatedEngine
from outrider.actors.engine.tables.tabular_engine import Table, random_table
from outrider.actors.speculation.options import Sampling, Speculation

TARGET = random_table(12, 2, seed=9, concentration=0.3)
DRAFT = blurred(TARGET, random_table(12, 2, seed=109, concentration=0.3), 0.3)
PROFILE = Linear(name="p", origin="", pass_s=0.5, row_s=0.0, session_s=0.0)


@dataclass
class Device:
    """A clock that only passes move, and whether one of them runs."""

    time: float = 0.0
    is_busy: bool = False
    passes: int = 0

    def now(self) -> float:
        """See `PassClock`."""
        return self.time

    def sleep(self, seconds: float) -> None:
        """See `PassClock`."""
        self.time += seconds
        self.is_busy = False


class Watched(EmulatedEngine):
    """Tells its device when passes begin."""

    def __init__(self, table: Table, settings: EngineSettings, device: Device) -> None:
        super().__init__(table, PROFILE, settings, clock=device)
        self.device = device

    def compute(self, batch: Sequence[Rows]) -> Logits:
        """Begins one, on a device that is idle."""
        assert not self.device.is_busy
        self.device.is_busy = True
        self.device.passes += 1
        return super().compute(batch)


@dataclass
class Devices:
    """Stands for the tables' engine: each has a device of its own."""

    made: list[Device] = field(default_factory=list)

    def __call__(self, table: Table, settings: EngineSettings) -> Watched:
        self.made.append(Device())
        return Watched(table, settings, self.made[-1])


class Sent(list[Report]):
    """What a drafter has said; candidates were computed by then."""

    def __init__(self, devices: Devices) -> None:
        super().__init__()
        self.devices = devices
        self.num_sent = 0

    def append(self, report: Report) -> None:
        """Looks at what the device does."""
        if isinstance(report, CandidatesSent):
            self.num_sent += 1
            assert not self.devices.made[1].is_busy, "sent while the pass runs"
        super().append(report)


@pytest.mark.parametrize("verifier", ["coupled", "exact_match", "traversal"])
def test_candidates_leave_when_their_pass_is_over(
    verifier: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of both kinds of drafting; and passes of one device come one after the other."""
    sampling = Sampling(seed=3, max_tokens=40, temperature=0.9)
    (plain,) = texts_alone(TARGET, [sampling])
    devices = Devices()
    monkeypatch.setattr(pairs, "TabularEngine", devices)
    reports = Sent(devices)
    both = Pair(TARGET, DRAFT, reports=reports)
    both.open(0, sampling, Speculation(verifier=verifier))
    both.run()
    assert len(both.texts[0]) == 40
    if verifier != "traversal":
        assert both.texts[0] == plain
    assert both.stats(0).accepted > 0
    assert reports.num_sent > 5
    assert all(device.passes > 5 for device in devices.made)
