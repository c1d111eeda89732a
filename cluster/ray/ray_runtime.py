"""The Ray that a service runs on: its own, started and ended with it, or a running cluster that it joins.

Only this module sets Ray's environment variables in this process, and it puts them back. Its own Ray listens on loopback only,
asks for a fresh token, and keeps all its files in one private folder.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from outrider.cluster.config.schema import Config
from outrider.cluster.process.preflight import Unfit, check_room
from outrider.cluster.process.private_folder import (
    PrivateFolder,
    remove_leftovers,
    temporary_parent,
)
from outrider.cluster.process.signals import handlers_kept, held_back, uninterrupted
from outrider.cluster.ray.own_node import OBJECT_STORE_BYTES, OwnNode, StartCancelled

END_PATIENCE_S = 5.0
"""How long Ray's processes may take to end by themselves; they take less than 2 s on an idle machine."""

_VARIABLES = (
    "RAY_AUTH_MODE",
    "RAY_AUTH_TOKEN",
    "RAY_AUTH_TOKEN_PATH",
    "RAY_USAGE_STATS_ENABLED",
    "RAY_COLOR_PREFIX",
    "RAY_DEDUP_LOGS",
)


class RayUnavailable(RuntimeError):
    """No Ray could be started or joined; says why."""


class RayRuntime:
    """A connection to Ray, and Ray itself if it is our own. `stop` leaves no process and no file."""

    def __init__(self, config: Config, *, show_logs: bool) -> None:
        """Starts nothing yet.

        Args:
            config: The service's configuration.
            show_logs: Actors' output appears on this process's output.
        """
        self._config = config
        self._show_logs = show_logs
        self._folder: PrivateFolder | None = None
        self._node: OwnNode | None = None
        self._saved: dict[str, str | None] = {}

    @property
    def is_embedded(self) -> bool:
        """Whether Ray is our own."""
        return self._config.cluster.address == "local"

    @property
    def is_alive(self) -> bool:
        """Whether our own Ray runs; a cluster that was joined counts as alive."""
        return not self.is_embedded or (self._node is not None and self._node.is_alive)

    def start(self, *, is_cancelled: Callable[[], bool] = lambda: False) -> None:
        """Starts or joins.

        Args:
            is_cancelled: Is asked again and again whether to give the start up.

        Raises:
            RayUnavailable: That failed. Nothing is left behind.
            StartCancelled: `is_cancelled` said so. Nothing is left behind.
        """
        try:
            self._prepare()
            address = self._config.cluster.address
            if self._folder is not None:
                self._node = self._own_node(self._folder.path)
                import ray  # Here, as it takes as long as a third of the node's start.

                del ray
                address = self._node.wait(is_cancelled=is_cancelled)
            self._join(address)
            if is_cancelled():
                raise StartCancelled
        except Unfit as error:
            raise RayUnavailable(str(error)) from error
        except BaseException as error:
            with uninterrupted():
                # Half-started processes do not know that they should end.
                self.stop(patience_s=0.2)
            if not isinstance(error, Exception) or isinstance(error, StartCancelled):
                raise
            raise RayUnavailable(self._explain(error)) from error

    def note_files(self, files: Collection[Path]) -> None:
        """Notes the files that go with the service, which may be killed; does nothing in a cluster that was joined."""
        if self._folder is not None:
            self._folder.note_files(files)

    def stop(self, *, patience_s: float = END_PATIENCE_S) -> None:
        """Leaves Ray; ends it and removes its files if it is our own. Idempotent.

        Args:
            patience_s: How long its processes may take to end before they are asked, and again before they are killed.
        """
        import ray

        if self._node is not None:
            self._node.processes()  # notes those of other sessions, whose parents end in the next step
        ray.shutdown()
        if self._node is not None:
            self._node.end(patience_s=patience_s)
            self._node = None
        if self._folder is not None:
            self._folder.remove()
            self._folder = None
        self._restore()

    def _prepare(self) -> None:
        """Sets what Ray reads from the environment."""
        variables: dict[str, str | None] = {
            "RAY_AUTH_MODE": self._config.cluster.auth,
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_COLOR_PREFIX": "1" if sys.stderr.isatty() else "0",
            # Else lines of several actors that differ in numbers alone, and so in a request's id, become one.
            "RAY_DEDUP_LOGS": os.environ.get("RAY_DEDUP_LOGS", "0"),
        }
        if self.is_embedded:
            self._folder = _private_folder()
            variables["RAY_AUTH_TOKEN"] = None
            variables["RAY_AUTH_TOKEN_PATH"] = str(self._folder.write_token())
        self._saved = {name: os.environ.get(name) for name in _VARIABLES}
        _set_environment(variables)

    def _own_node(self, folder: Path) -> OwnNode:
        cluster = self._config.cluster
        return OwnNode(
            folder,
            num_cpus=_cpus(self._config),
            resources=cluster.local_resources,
            has_dashboard=cluster.local_dashboard,
            has_log_monitor=self._show_logs,
        )

    def _join(self, address: str) -> None:
        """Joins a Ray that runs. Signals are heard afterwards: Ray takes SIGTERM for itself, and then aborts this process."""
        with contextlib.ExitStack() as around:
            for context in (
                held_back(),
                handlers_kept(),
                _quiet_future_warnings(),
                _loopback_allowed(is_needed=self.is_embedded),
            ):
                around.enter_context(context)
            import ray

            _forget_authentication()
            ray.init(
                address=address,
                namespace=self._config.cluster.namespace,
                log_to_driver=self._show_logs,
                logging_level=logging.ERROR,
                configure_logging=True,
            )

    def _restore(self) -> None:
        if self._saved:
            _set_environment(self._saved)
            self._saved = {}
            _forget_authentication()

    def _explain(self, error: Exception) -> str:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        reason = " ".join(lines[:3]) or repr(error)
        if self.is_embedded:
            return f"cannot start Ray: {reason}"
        address, auth = self._config.cluster.address, self._config.cluster.auth
        return f"cannot join the Ray cluster at {address!r} (cluster.address) with cluster.auth {auth}: {reason}"


def _cpus(config: Config) -> int:
    """Logical CPUs of our own Ray: as many as the machine has, or twice what the actors ask for at the most, so that all of them
    can be replaced while they serve. They are a count, and bind no one to a core."""
    wanted = sum(actor.num_cpus * actor.most for actor in (*config.targets, *config.drafters))
    return max(os.cpu_count() or 1, -int(-2 * wanted // 1))


def _private_folder() -> PrivateFolder:
    """A new private folder, where there is room for Ray's files, and none left of services that were killed.

    Raises:
        Unfit: There is no room.
    """
    try:
        parent = temporary_parent()
        remove_leftovers(parent)
        check_room(parent, object_store_bytes=OBJECT_STORE_BYTES)
        return PrivateFolder.make(parent)
    except OSError as error:
        raise Unfit(
            f"no folder for Ray's files can be made ({error}); name one that can be written to in TMPDIR"
        ) from error


def _set_environment(variables: Mapping[str, str | None]) -> None:
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def _forget_authentication() -> None:
    """Makes Ray read mode and token again: it caches both for the life of a process."""
    from ray import _raylet

    # Its stub leaves these out; Ray's own tests change modes in this way and order.
    module: Any = _raylet
    module.Config.initialize("")
    module.AuthenticationTokenLoader.instance().reset_cache()


@contextlib.contextmanager
def _quiet_future_warnings() -> Iterator[None]:
    """Ray announces its own future changes by `FutureWarning`; a user can do nothing about them."""
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        yield


@contextlib.contextmanager
def _loopback_allowed(*, is_needed: bool) -> Iterator[None]:
    """Lets Ray join at 127.0.0.1.

    On Linux Ray replaces loopback by the machine's own address, because a cluster needs that. `own_node.VARIABLES` holds the
    variable that says otherwise; a process reads it when it imports Ray, which may be done here, so its constant is set.
    """
    if not is_needed:
        yield
        return
    from ray._private import ray_constants

    constants: Any = ray_constants
    earlier = constants.ENABLE_RAY_CLUSTER
    constants.ENABLE_RAY_CLUSTER = False
    try:
        yield
    finally:
        constants.ENABLE_RAY_CLUSTER = earlier
