"""Starts a whole service and ends it: Ray, the supervisor, and through it every actor.

For `outrider serve`, the demonstration, benchmarks and tests. Invariant: whatever way `start_service` or `stop` ends, no
process of an embedded Ray stays behind, and in a joined cluster no actor does.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from outrider.actors.rpc.credentials import Credentials
from outrider.cluster.config.schema import Config
from outrider.cluster.process.preflight import Unfit, check_address
from outrider.cluster.process.signals import uninterrupted
from outrider.cluster.ray.own_node import StartCancelled
from outrider.cluster.ray.ray_errors import first_line
from outrider.cluster.ray.ray_runtime import RayRuntime, RayUnavailable
from outrider.cluster.roster.actor_status import ActorStatus
from outrider.cluster.roster.roster import Role
from outrider.cluster.start.local_checks import problems_here, unfit_files

POLL_S = 0.2
"""How often the supervisor is asked how far it is."""

ANSWER_TIMEOUT_S = 10.0
"""How long the supervisor may take to answer from memory before it counts as silent."""

MAX_SILENCES = 6
"""Silences in a row before the service counts as failed: a machine that swaps or compiles may stall a process for long, and
to end a service for that would be worse than the stall."""

STOP_MARGIN_S = 15.0
"""Time for ending processes, beyond the grace for requests."""

ALIVE_CHECK_S = 1.0
"""How often Ray's processes are looked for while the service ends; a look costs a tenth of a second."""

Progress = Callable[[ActorStatus], None]
"""Is told of each change of an actor while the service starts."""


class ServiceFailed(RuntimeError):
    """The service could not be started, or has ended; says why."""


class SupervisorSilent(ServiceFailed):
    """The supervisor lives but did not answer in time: ask again."""


class RunningService:
    """A service that runs. A context manager: leaving it ends everything."""

    def __init__(self, config: Config, runtime: RayRuntime) -> None:
        """Use `start_service`."""
        self._config = config
        self._runtime = runtime
        self._supervisor: Any = None
        self._silences = 0

    @property
    def address(self) -> str:
        """Address of the `GenerationService`, as clients reach it; empty while the coordinator restarts."""
        coordinators = [actor for actor in self.actors() if actor.role is Role.COORDINATOR]
        return next((actor.address for actor in coordinators if actor.address), "")

    @property
    def metrics_address(self) -> str:
        """HOST:PORT of the metrics over HTTP; empty if they are not served."""
        return str(self._ask("metrics_address"))

    def actors(self) -> tuple[ActorStatus, ...]:
        """Every actor at this moment.

        Raises:
            SupervisorSilent: The supervisor did not answer in time.
            ServiceFailed: The supervisor is gone.
        """
        statuses: tuple[ActorStatus, ...] = self._ask("status")
        return statuses

    def admin(self) -> tuple[str, Credentials]:
        """Address of the supervisor's `ClusterService`, and what calls to it carry.

        Raises:
            SupervisorSilent: The supervisor did not answer in time.
            ServiceFailed: The supervisor is gone.
        """
        found: tuple[str, Credentials] = self._ask("admin")
        return found

    def _ask(self, method: str) -> Any:
        import ray

        if self._supervisor is None:
            raise ServiceFailed("the service was stopped")
        try:
            answer = getattr(self._supervisor, method).remote()
            return ray.get(answer, timeout=ANSWER_TIMEOUT_S)
        except ray.exceptions.GetTimeoutError as error:
            raise SupervisorSilent(
                f"the supervisor did not answer within {ANSWER_TIMEOUT_S:g} s"
            ) from error
        except ray.exceptions.RayError as error:
            raise ServiceFailed(f"the supervisor is gone: {first_line(error)}") from error

    def failure(self) -> str | None:
        """Why the service as a whole cannot serve any more; None while it can."""
        try:
            self.actors()
        except SupervisorSilent as silence:
            self._silences += 1
            return str(silence) if self._silences >= MAX_SILENCES else None
        except ServiceFailed as failure:
            return str(failure)
        self._silences = 0
        return None

    def note_files(self, files: Collection[Path]) -> None:
        """Notes the ready and the admin file of this service before they are written: should this process be killed, a later start
        of a service on this machine removes them."""
        self._runtime.note_files(files)

    def stop(self, grace_s: float | None = None) -> None:
        """Drains and ends everything. Idempotent.

        Args:
            grace_s: Seconds that running requests may go on. None: as configured.
        """
        with uninterrupted():
            self._stop(grace_s)

    def _stop(self, grace_s: float | None) -> None:
        import ray

        grace_s = self._config.cluster.drain_s if grace_s is None else grace_s
        supervisor, self._supervisor = self._supervisor, None
        try:
            if supervisor is not None:
                self._await_stop(supervisor.stop.remote(grace_s), grace_s + STOP_MARGIN_S)
        except ray.exceptions.RayError:
            # It hangs or is gone. Its actors are its own and end with it.
            ray.kill(supervisor)
        finally:
            self._runtime.stop()

    def _await_stop(self, stopped: Any, timeout_s: float) -> None:
        """Waits for the supervisor's answer, but not on a Ray that is gone: a signal may have reached all of it.

        Raises:
            ray.exceptions.RayError: The supervisor is gone, or silent.
        """
        import ray

        deadline = time.monotonic() + timeout_s
        while not ray.wait([stopped], timeout=ALIVE_CHECK_S)[0]:
            if not self._runtime.is_alive or time.monotonic() > deadline:
                raise ray.exceptions.GetTimeoutError("the supervisor did not end the service")
        ray.get(stopped)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop(grace_s=None if kind is None else 0.0)

    def launch(
        self, *, log_level: str, progress: Progress, is_cancelled: Callable[[], bool]
    ) -> None:
        """Starts every actor; for `start_service`."""
        import ray

        self._supervisor = _start_supervisor(self._config, self._runtime, log_level=log_level)
        launched = self._supervisor.launch.remote()
        seen: dict[str, ActorStatus] = {}
        cluster = self._config.cluster
        deadline = time.monotonic() + cluster.placement_timeout_s + 4 * cluster.start_timeout_s
        while not ray.wait([launched], timeout=POLL_S)[0]:
            if is_cancelled():
                raise StartCancelled
            if time.monotonic() > deadline:
                raise ServiceFailed(
                    "the service did not start in time; see cluster.start_timeout_s"
                )
            with contextlib.suppress(SupervisorSilent):
                _tell(self.actors(), seen, progress)
        try:
            failure: str = ray.get(launched)
        except ray.exceptions.RayError as error:
            raise ServiceFailed(f"the supervisor failed: {first_line(error)}") from error
        with contextlib.suppress(SupervisorSilent):
            _tell(self.actors(), seen, progress)
        if failure:
            raise ServiceFailed(failure)


def start_service(
    config: Config,
    *,
    log_level: str = "warning",
    show_logs: bool = False,
    progress: Progress = lambda status: None,
    is_cancelled: Callable[[], bool] = lambda: False,
) -> RunningService:
    """Starts a service and waits until it serves.

    Args:
        config: What to start.
        log_level: Least level of the events that actors log.
        show_logs: What actors log appears on this process's output.
        progress: Is told of each change of an actor while the service starts.
        is_cancelled: Is asked again and again whether to give the start up.

    Raises:
        ServiceFailed: It cannot be started; says which part and why. Nothing is left behind.
        StartCancelled: `is_cancelled` said so. Nothing is left behind.
    """
    runtime = RayRuntime(config, show_logs=show_logs)
    try:
        # Also in a cluster: supervisor and first coordinator run on the node of this process.
        check_address(config.service.listen, "service.listen (--listen)")
        if config.service.metrics is not None:
            check_address(config.service.metrics, "service.metrics")
        # A wrong path, too, is told before Ray is started, which takes seconds, and models are loaded.
        problems = problems_here(config) if runtime.is_embedded else tuple(unfit_files(config))
        if problems:
            raise ServiceFailed("\n".join(map(str, problems)))
        runtime.start(is_cancelled=is_cancelled)
    except (Unfit, RayUnavailable) as error:
        raise ServiceFailed(str(error)) from error
    service = RunningService(config, runtime)
    try:
        service.launch(log_level=log_level, progress=progress, is_cancelled=is_cancelled)
    except BaseException:
        service.stop(grace_s=0.0)
        raise
    return service


def _start_supervisor(config: Config, runtime: RayRuntime, *, log_level: str) -> Any:
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    from outrider.actors.process.logs import LogSettings
    from outrider.cluster.supervise.supervisor_actor import NAME, SupervisorActor
    from outrider.cluster.supervise.supervisor_settings import SupervisorSettings

    cluster = config.cluster
    use_loopback = cluster.internal_host == "loopback" or (
        cluster.internal_host == "auto" and runtime.is_embedded
    )
    settings = SupervisorSettings(
        host="127.0.0.1" if use_loopback else ray.util.get_node_ip_address(),
        cluster=cluster,
        logs=LogSettings(level=log_level, format=config.service.log_format),
        metrics=config.service.metrics,
        tls=config.security.internal.tls if config.security.internal is not None else None,
    )
    # Beside this process, which in a cluster is where the user looks for the service's address.
    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    remote: Any = ray.remote(SupervisorActor)
    try:
        return remote.options(
            name=NAME, num_cpus=0, max_concurrency=16, scheduling_strategy=here
        ).remote(config, settings, use_loopback=use_loopback, may_grow=not runtime.is_embedded)
    except ValueError as error:
        raise ServiceFailed(
            f"a service runs in the Ray namespace {cluster.namespace!r} (cluster.namespace) already; "
            f"stop it or take another namespace ({error})"
        ) from error


def _tell(
    actors: tuple[ActorStatus, ...], seen: dict[str, ActorStatus], progress: Progress
) -> None:
    """Tells of those whose state has changed since the last time."""
    for actor in actors:
        before = seen.get(actor.name)
        told = (actor.state, actor.incarnation, actor.reason)
        if before is None or told != (before.state, before.incarnation, before.reason):
            progress(actor)
        seen[actor.name] = actor
