"""A scenario's service, put together and run in one of three ways."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial

import numpy as np
import torch

from outrider.actors.draft.assembled.model_method import model_method
from outrider.actors.draft.draft_core import DraftCore, core_of
from outrider.actors.draft.state.draft_settings import BYTES_PER_TOKEN, MAX_AHEAD, DraftSettings
from outrider.actors.engine.engine_settings import EngineSettings
from outrider.actors.engine.turn_taking import ComputeDevice
from outrider.actors.target.state.target_settings import TargetSettings
from outrider.actors.target.target_core import TargetCore
from outrider.cluster.simulate.coordinator_process import CoordinatorProcess, Key
from outrider.cluster.simulate.draft_process import DraftProcess
from outrider.cluster.simulate.heap import EventRecord, Heap
from outrider.cluster.simulate.network import SimulatedStream, Way
from outrider.cluster.simulate.prices import prices_of
from outrider.cluster.simulate.scenario import COORDINATOR, Actor, Link, Scenario, ScenarioDrafter
from outrider.cluster.simulate.simulated_device import MAX_CONTEXT, SimulatedDevice
from outrider.cluster.simulate.simulated_links import SimulatedTarget
from outrider.cluster.simulate.simulated_process import Machine
from outrider.cluster.simulate.target_process import PassLog, TargetProcess
from outrider.cluster.simulate.traffic import Answers, Traffic


class SimulatedMode(StrEnum):
    """How a scenario is run."""

    PIPELINED = "pipelined"
    """As the service does."""
    LOCKSTEP = "lockstep"
    """Drafter and target wait for each other."""
    PLAIN = "plain"
    """No request wants speculation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedRun:
    """What a run gave."""

    mode: SimulatedMode
    seconds: float
    answers: Answers
    outputs: dict[Key, list[int]]
    logs: dict[str, PassLog]
    """By target."""
    wire_bytes: int
    """Between drafters and targets, framing included."""
    cpu_s: dict[str, float]
    """Processor seconds of each process, models left out."""
    device_s: dict[str, float]
    """Seconds of passes of each actor."""
    digest: str
    num_events: int

    @property
    def tokens(self) -> int:
        """Delivered."""
        return sum(self.answers.tokens)


class SimulatedService:
    """Processes, and streams between them."""

    def __init__(self, scenario: Scenario, mode: SimulatedMode) -> None:
        """Puts it together; nothing happens yet.

        Args:
            scenario: What it is made of.
            mode: How it is run.
        """
        self.scenario = scenario
        self.mode = mode
        self.heap = Heap()
        self.record = EventRecord()
        self.prices = prices_of(scenario.prices)
        self.machines = {name: Machine(cores) for name, cores in scenario.machines.items()}
        self._gpus = {
            one.gpu: Machine(1) for one in (*scenario.targets, *scenario.drafters) if one.gpu
        }
        self._alone = Machine(None)
        self.coordinator = CoordinatorProcess(
            COORDINATOR,
            self.heap,
            self._machine(scenario.coordinator_machine),
            self.record,
            prices=self.prices,
        )
        self.streams: dict[tuple[str, str], SimulatedStream] = {}
        """By (drafter or coordinator, the other end)."""
        self._next_link = 1
        self._next_start = 1
        self.targets: dict[str, TargetProcess] = {}
        self.drafters: dict[str, DraftProcess] = {}
        drafters = scenario.drafters if mode is not SimulatedMode.PLAIN else ()
        for target in scenario.targets:
            self.start_target(target)
        for drafter in drafters:
            self.start_drafter(drafter)
        self.traffic = Traffic(
            scenario,
            self.heap,
            self.coordinator,
            vocab_size=next(iter(self.targets.values())).device.spec.vocab_size,
            speculates=mode is not SimulatedMode.PLAIN,
        )

    def run(self) -> SimulatedRun:
        """Runs the scenario to its end."""
        torch.set_num_threads(1)
        self.traffic.start()
        self.heap.run(self.scenario.seconds)
        processes = [self.coordinator, *self.targets.values(), *self.drafters.values()]
        actors: dict[str, TargetProcess | DraftProcess] = {**self.targets, **self.drafters}
        for key, output in sorted(self.coordinator.outputs.items()):
            self.record.note(0.0, str(key), "output", np.array(output, "<u4").tobytes())
        return SimulatedRun(
            mode=self.mode,
            seconds=self.scenario.seconds,
            answers=self.traffic.answers,
            outputs=self.coordinator.outputs,
            logs={name: target.log for name, target in self.targets.items()},
            wire_bytes=sum(
                stream.num_bytes
                for (end, other), stream in self.streams.items()
                if end in self.drafters and other in self.targets
            ),
            cpu_s={process.name: process.cpu_s for process in processes},
            device_s={
                name: actor.device.busy_s(self.scenario.seconds, actor.pass_ends)
                for name, actor in actors.items()
            },
            digest=self.record.digest,
            num_events=self.record.num_events,
        )

    # -- actors ----------------------------------------------------------------------------------------------------

    def start_target(self, actor: Actor) -> None:
        """Starts a target, again if it was there."""
        device, number = self._device(actor), self._number()
        settings = TargetSettings(
            name=actor.name,
            incarnation=number,
            model_name="simulated",
            engine=_room(actor),
            lockstep=self.mode is SimulatedMode.LOCKSTEP,
            adaptive=self.scenario.adaptive,
            device_draws="off",
        )
        handles = np.random.default_rng([self.scenario.seed, number])

        def new_core() -> TargetCore:
            core = TargetCore(
                device, settings, None, new_handle=lambda: int(handles.integers(1, 1 << 48))
            )
            core.warm_up(device.clock)
            device.pass_s = 0.0
            return core

        process = TargetProcess(
            actor.name,
            self.heap,
            self._machine(actor.machine),
            self.record,
            device=device,
            new_core=new_core,
            prices=self.prices,
            passes_on=self._passes_on(actor),
        )
        former = self.targets.get(actor.name)
        if former is not None:
            process.log, process.cpu_s = former.log, former.cpu_s
        self.targets[actor.name] = process
        takes = partial(self.coordinator.on_target, actor.name), process.on_command
        stream = self._connect(self.coordinator, process, Link(), takes)
        process.coordinator = stream
        self.coordinator.targets[actor.name] = SimulatedTarget(stream, self.coordinator)
        self.coordinator.target_up(actor.name, actor.slots)
        for drafter in self.drafters.values():
            self.link(drafter, process)

    def start_drafter(self, actor: ScenarioDrafter) -> None:
        """Starts a drafter, again if it was there."""
        device, number = self._device(actor), self._number()
        settings = DraftSettings(
            name=actor.name,
            incarnation=number,
            engine=_room(actor),
            lockstep=self.mode is SimulatedMode.LOCKSTEP,
            bytes_per_token=actor.bytes_per_token or BYTES_PER_TOKEN,
        )
        seeds = np.random.SeedSequence([self.scenario.seed, number])

        def new_core() -> DraftCore:
            method = model_method(
                device,
                settings,
                new_generator=lambda: np.random.default_rng(seeds.spawn(1)[0]),
            )
            core = core_of(settings, *method)
            device.pass_s = 0.0
            return core

        process = DraftProcess(
            actor.name,
            self.heap,
            self._machine(actor.machine),
            self.record,
            device=device,
            new_core=new_core,
            prices=self.prices,
            passes_on=self._passes_on(actor),
        )
        former = self.drafters.get(actor.name)
        if former is not None:
            process.cpu_s = former.cpu_s
        self.drafters[actor.name] = process
        takes = partial(self.coordinator.on_drafter, actor.name), process.on_command
        stream = self._connect(self.coordinator, process, Link(), takes)
        process.coordinator = stream
        self.coordinator.served[actor.name] = actor.targets
        for target in self.targets.values():
            self.link(process, target)
        self.coordinator.drafter_up(actor.name, stream, entry=actor.entry or actor.name)

    def link(self, drafter: DraftProcess, target: TargetProcess) -> None:
        """Connects a drafter with a target, again if it was."""
        spec = next(one for one in self.scenario.drafters if one.name == drafter.name)
        if spec.targets is not None and target.name not in spec.targets:
            return
        known = self.streams.get((drafter.name, target.name))
        number, name = self._next_link, drafter.name

        def to_target(payload: bytes) -> None:
            # Looked up anew: `bench prices` times it.
            target.on_drafter(name, payload)

        takes = partial(drafter.on_target, number), to_target
        stream = self._connect(drafter, target, spec.link, takes)
        self._next_link += 1
        if known is not None:
            stream.way = known.way
        drafter.link_of[target.name] = number
        drafter.links[number] = stream
        target.drafters[name] = stream
        of_target = next(one for one in self.scenario.targets if one.name == target.name)
        own, its = self._computes_on(of_target), self._computes_on(spec)
        target.joined(name, takes_turns=own.holds_up(its.name))

    def unlink(self, drafter: DraftProcess, target: TargetProcess) -> None:
        """Breaks the stream between them; both are told."""
        number = drafter.link_of.pop(target.name, None)
        if number is None:
            return
        self.streams[(drafter.name, target.name)].cut()
        drafter.lost_target(number)
        target.drafters.pop(drafter.name, None)
        target.left(drafter.name)

    def kill(self, name: str) -> None:
        """Ends an actor; everybody who has a stream to it is told."""
        if name in self.targets:
            target = self.targets[name]
            for drafter in self.drafters.values():
                self.unlink(drafter, target)
            self.coordinator.targets[name].stream.cut()
            self.coordinator.target_down(name)
            target.kill()
            return
        process = self.drafters[name]
        for target in self.targets.values():
            self.unlink(process, target)
        self.streams[COORDINATOR, name].cut()
        self.coordinator.drafter_down(name)
        process.kill()

    # -- parts -----------------------------------------------------------------------------------------------------

    def _connect(
        self,
        one: CoordinatorProcess | DraftProcess,
        other: TargetProcess | DraftProcess,
        link: Link,
        takes: tuple[Callable[[bytes], None], Callable[[bytes], None]],
    ) -> SimulatedStream:
        name = f"{one.name}-{other.name}"
        former = self.streams.get((one.name, other.name))
        seed = zlib.crc32(f"{self.scenario.seed} {name} {self._next_link}".encode())
        stream = SimulatedStream(
            name, self.heap, self.record, way_of(link), seed, (one, other), takes
        )
        if former is not None:
            stream.num_bytes, stream.num_messages = former.num_bytes, former.num_messages
        self.streams[(one.name, other.name)] = stream
        return stream

    def _device(self, actor: Actor) -> SimulatedDevice:
        return SimulatedDevice(actor.model, actor.profile, _room(actor))

    def _computes_on(self, actor: Actor) -> ComputeDevice:
        """What a process there would say of its device: a pass takes a GPU, or one core of the machine's."""
        if actor.gpu is not None:
            return ComputeDevice(actor.gpu)
        if actor.machine is None or not actor.on_cores:
            return ComputeDevice("")
        return ComputeDevice(actor.machine, self.scenario.machines[actor.machine])

    def _passes_on(self, actor: Actor) -> Machine | None:
        if actor.gpu is not None:
            return self._gpus[actor.gpu]
        return self._machine(actor.machine) if actor.on_cores else None

    def _machine(self, name: str | None) -> Machine:
        return self._alone if name is None else self.machines[name]

    def _number(self) -> int:
        number, self._next_start = self._next_start, self._next_start + 1
        return number


def way_of(link: Link) -> Way:
    """A link in seconds and bytes."""
    return Way(
        latency_s=1e-3 * link.latency_ms,
        jitter_s=1e-3 * link.jitter_ms,
        bytes_per_s=link.mbit_per_s * 1e6 / 8.0,
        loss=link.loss,
    )


def _room(actor: Actor) -> EngineSettings:
    room = EngineSettings(model=actor.model, num_slots=actor.slots, max_context=MAX_CONTEXT)
    return replace(room, max_scratch=MAX_AHEAD) if isinstance(actor, ScenarioDrafter) else room
