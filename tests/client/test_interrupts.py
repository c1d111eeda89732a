"""Ctrl-C at a client, and the end of a program, beside other threads that use the same client."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from tests.client.timeline.build import service

if TYPE_CHECKING:
    from tests.client.conftest import FakeService

INTERRUPTED = """
import os, random, signal, sys, threading, time
from outrider.client import Client

client = Client(sys.argv[1])
is_calling = is_over = False
answers = [0] * 4

def call(index):
    while not is_over:
        client.status(timeout_s=20)
        client.generate("hello", timeout_s=20)
        answers[index] += 1

def interrupt():
    while not is_over:
        time.sleep(random.random() / 50)
        os.kill(os.getpid(), signal.SIGINT)

def meet_signal(*_):
    if is_calling:
        raise KeyboardInterrupt

signal.signal(signal.SIGINT, meet_signal)
threads = [threading.Thread(target=call, args=(index,), daemon=True) for index in range(4)]
for thread in [*threads, interrupter := threading.Thread(target=interrupt, daemon=True)]:
    thread.start()
num_interrupts = 0
while num_interrupts < 150:
    try:
        try:
            is_calling = True
            client.status(timeout_s=20)
            client.generate("hello", timeout_s=20)
        finally:
            is_calling = False
    except KeyboardInterrupt:
        num_interrupts += 1
before = list(answers)
while any(now <= then for now, then in zip(answers, before)):
    time.sleep(0.01)
is_over = True
for thread in [*threads, interrupter]:
    thread.join()
client.close()
print("went on")
"""

TAKEN = """
import gc, sys, threading
from outrider.client import Client, OutriderError

taken = []

def meet_call(frame, event, _):
    if event == "call" and frame.f_code is threading.Condition.__enter__.__code__:
        names = []
        while frame is not None:
            names.append(frame.f_code.co_qualname)
            frame = frame.f_back
        if "Thread.start" not in names:
            taken.append(names)

client = Client(sys.argv[1])
sys.setprofile(meet_call)
client.status()
client.generate("hello")
next(client.stream("hello"))
try:
    client.generate("hello", model="another")
except OutriderError:
    pass
stream = client.stream("hello")
next(stream)
stream.cancel()
del stream
with client.start_trace(seconds=30) as trace:
    trace.wait_started()
trace.result()
with client.stream("hello") as stream:
    next(stream)
    client.close()
del stream, trace, client
gc.collect()
sys.setprofile(None)
print(taken)
"""

UNNOTICED = """
import signal, sys, threading, time
from outrider.client import Client

def interrupt():
    time.sleep(0.5)
    signal.pthread_kill(threading.get_ident(), signal.SIGINT)

signal.signal(signal.SIGINT, signal.default_int_handler)
client = Client(sys.argv[1])
trace = client.start_trace(seconds=300)
trace.wait_started()
waits = {
    "event": lambda: list(client.stream("hello", timeout_s=90)),
    "answer": lambda: client.abort("hello"),
    "trace": trace.result,
}
for name, wait in waits.items():
    try:
        threading.Thread(target=interrupt).start()
        wait()
    except KeyboardInterrupt:
        print(name)
"""

AT_EXIT = """
import atexit, sys
from outrider.client import Client

client = Client(sys.argv[1])
atexit.register(client.close)
stream = Client(sys.argv[1]).stream("hello")
next(stream)
print("done")
"""


def ran(program: str, address: str) -> subprocess.CompletedProcess[str]:
    """A program that a user may have written, when it has ended."""
    return subprocess.run(
        [sys.executable, "-c", program, address],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="signals are of another kind here")
def test_ctrl_c_leaves_the_other_threads_alone(fake: FakeService) -> None:
    """A main thread that is interrupted again and again holds up no other thread's calls, none of its own, and not the closing."""
    done = ran(INTERRUPTED, fake.address)
    assert (done.returncode, done.stdout) == (0, "went on\n"), done.stderr


def test_a_program_ends_with_a_stream_open(fake: FakeService) -> None:
    """A stream that nobody closed, and a client that is closed as the last of all, hold nothing up."""
    fake.stall_after = 6
    done = ran(AT_EXIT, fake.address)
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")
    assert fake.ended.wait(60)


def test_no_lock_is_taken_where_a_signal_may_come(fake: FakeService) -> None:
    """In the main thread nothing of gRPC's takes a lock, nor does a flag: not to call, not to end a call, not to let one go."""
    fake.trace_responses = service().responses
    fake.trace_stalls = True
    fake.stall_after = 12
    fake.go_on.set()
    done = ran(TAKEN, fake.address)
    assert (done.returncode, done.stdout, done.stderr) == (0, "[]\n", "")


def test_ctrl_c_that_no_wait_notices(fake: FakeService) -> None:
    """A signal that came just before a wait, or to another thread, as here, ends the wait all the same."""
    fake.trace_responses = service().responses
    fake.trace_stalls = True
    fake.stall_after = 6
    fake.abort_stalls = True
    done = ran(UNNOTICED, fake.address)
    assert (done.returncode, done.stdout) == (0, "event\nanswer\ntrace\n"), done.stderr
