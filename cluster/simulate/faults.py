"""What goes wrong, at its time."""

from __future__ import annotations

from collections.abc import Callable

from outrider.cluster.simulate.draft_process import DraftProcess
from outrider.cluster.simulate.network import Way
from outrider.cluster.simulate.scenario import Fault
from outrider.cluster.simulate.simulated_device import SimulatedDevice
from outrider.cluster.simulate.simulated_service import SimulatedService, way_of
from outrider.cluster.simulate.target_process import TargetProcess

Change = Callable[[], None]


def plan(service: SimulatedService) -> None:
    """Plans the faults of a service's scenario; those of actors that this mode has not are left out."""
    for fault in service.scenario.faults:
        if fault.who in service.machines or fault.who in {**service.targets, **service.drafters}:
            begin, end = _changes(service, fault)
            service.heap.at(fault.at_s, begin)
            if fault.seconds is not None:
                service.heap.at(fault.at_s + fault.seconds, end)


def _changes(service: SimulatedService, fault: Fault) -> tuple[Change, Change]:
    """What happens at its beginning and at its end."""
    who, heap = fault.who, service.heap
    match fault.what:
        case "dies":
            return lambda: _kill(service, who), lambda: _start(service, who)
        case "slows":
            return lambda: _pace(service, who, fault.factor), lambda: _pace(service, who, 1.0)
        case "misleads":
            return (
                lambda: _device(service, who).mislead(fault.model),
                lambda: _device(service, who).mislead(None, is_over=True),
            )
        case "pauses":
            return lambda: _actor(service, who).pause(fault.seconds or 0.0), lambda: None
        case "cut":
            return lambda: _cut(service, who), lambda: _mend(service, who)
        case "link":
            own = next(one.link for one in service.scenario.drafters if one.name == who)
            other = way_of(fault.link or own)
            return lambda: _lead(service, who, other), lambda: _lead(service, who, way_of(own))
        case "cores":
            machine, cores = service.machines[who], service.scenario.machines[who]
            return (
                lambda: machine.set_cores(fault.cores or 1, heap.now),
                lambda: machine.set_cores(cores, heap.now),
            )


def _actor(service: SimulatedService, who: str) -> TargetProcess | DraftProcess:
    return service.targets[who] if who in service.targets else service.drafters[who]


def _device(service: SimulatedService, who: str) -> SimulatedDevice:
    return _actor(service, who).device


def _pace(service: SimulatedService, who: str, factor: float) -> None:
    _device(service, who).pace.factor = factor


def _kill(service: SimulatedService, who: str) -> None:
    if _actor(service, who).is_alive:
        service.kill(who)


def _start(service: SimulatedService, who: str) -> None:
    """Starts it again, unless another fault's end has done so."""
    if _actor(service, who).is_alive:
        return
    for target in service.scenario.targets:
        if target.name == who:
            service.start_target(target)
    for drafter in service.scenario.drafters:
        if drafter.name == who:
            service.start_drafter(drafter)


def _cut(service: SimulatedService, who: str) -> None:
    for target in service.targets.values():
        service.unlink(service.drafters[who], target)


def _mend(service: SimulatedService, who: str) -> None:
    """Connects it again with the targets that it has no stream to; one that is dead is connected when it starts."""
    drafter = service.drafters[who]
    for target in service.targets.values():
        if drafter.is_alive and target.is_alive and target.name not in drafter.link_of:
            service.link(drafter, target)


def _lead(service: SimulatedService, who: str, way: Way) -> None:
    for (end, other), stream in service.streams.items():
        if end == who and other in service.targets:
            stream.way = way
