"""Calls of gRPC where no signal interrupts them.

Python handles signals in the main thread, between any two of its steps. A `KeyboardInterrupt` just after gRPC has taken a lock
leaves it taken for ever, and every other thread's calls on the same channel wait for it. So the main thread has another thread
call, and only waits for what comes of it.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any, ParamSpec, TypeVar, cast

from outrider.client.connection.blocking_flag import LOOK_UP_S

_Result = TypeVar("_Result")
_Args = ParamSpec("_Args")

_Answers = SimpleQueue[tuple[Any, BaseException | None]]
_Jobs = SimpleQueue[tuple[Callable[[], Any], _Answers]]

_idle: list[_Jobs] = []
"""Where threads wait for work. Only the main thread takes one out."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        after_in_child=_idle.clear
    )  # a process that was forked off has no such threads


def undisturbed(
    function: Callable[_Args, _Result], *args: _Args.args, **kwargs: _Args.kwargs
) -> _Result:
    """What a function returns or raises. If a signal ends the wait for it, it goes on to its end, and nobody is told.

    What it returns, raises and is given must be safe to drop in the main thread: a call of gRPC that has not ended is not.
    """
    jobs = _thread()
    if jobs is None:
        return function(*args, **kwargs)
    answers: _Answers = SimpleQueue()
    jobs.put((lambda: function(*args, **kwargs), answers))
    result, failure = _first(answers)
    if failure is not None:
        try:
            raise failure
        finally:
            del failure  # its traceback holds this frame
    return cast(_Result, result)


def undisturbed_later(
    function: Callable[_Args, object], *args: _Args.args, **kwargs: _Args.kwargs
) -> None:
    """As `undisturbed`, without a wait: nobody is told what comes of it. Where no signal comes it is done at once."""
    jobs = _thread()
    if jobs is None:
        function(*args, **kwargs)
    else:
        jobs.put((lambda: function(*args, **kwargs), SimpleQueue()))


def _thread() -> _Jobs | None:
    """Where to put work for another thread; None: this one does it, as no signal interrupts it, or there is no other."""
    if threading.get_ident() != threading.main_thread().ident or sys.is_finalizing():
        return None
    try:
        return _idle.pop()
    except IndexError:
        return _start()


def _first(answers: _Answers) -> tuple[Any, BaseException | None]:
    """What comes first."""
    while True:
        try:
            return answers.get(timeout=LOOK_UP_S)
        except Empty:
            continue


def _start() -> _Jobs | None:
    """Starts a thread that waits for work; None: there are no more threads, as when the process is about to end."""
    jobs: _Jobs = SimpleQueue()
    try:
        threading.Thread(target=_work, args=(jobs,), name="outrider-grpc", daemon=True).start()
    except RuntimeError:
        return None
    return jobs


def _work(jobs: _Jobs) -> None:
    """Does what comes, for ever."""
    while True:
        _do(*jobs.get(), jobs)


def _do(job: Callable[[], Any], answers: _Answers, jobs: _Jobs) -> None:
    """Does one thing. What it needed is let go when this returns, not when the thread has its next work."""
    result, failure = None, None
    try:
        result = job()
    except BaseException as error:  # noqa: BLE001 - the caller gets it
        failure = error
    _idle.append(jobs)
    answers.put((result, failure))
    del failure  # its traceback holds this frame
