"""Priority of threads, looked at in a process of its own, since it cannot be raised again."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from outrider.actors.engine.load.priority import lower_priority

SCRIPT = """
import json, os, threading
import torch
from outrider.actors.engine.load.priority import lower_priority

def nice(thread): return os.getpriority(os.PRIO_PROCESS, thread)

def work():
    torch.set_num_threads(3)
    lowered = lower_priority(7)
    torch.ones(1 << 20).sum()
    result.update(own=threading.get_native_id(), lowered=[(t, nice(t)) for t in lowered])
    result.update(again=[nice(t) for t in lower_priority(3)])

result = {}
thread = threading.Thread(target=work)
thread.start()
thread.join()
result.update(main=nice(threading.get_native_id()))
print(json.dumps(result))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="threads have a niceness on Linux only")
def test_thread_and_its_workers_are_lowered_and_no_other() -> None:
    """The thread that runs the model, and the OpenMP workers it makes, step back; the main thread does not."""
    finished = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    result = json.loads(finished.stdout)
    # Whoever runs the tests may have stepped back already.
    begun = os.getpriority(os.PRIO_PROCESS, 0)
    lowered = max(begun, 7)
    assert result["main"] == begun
    assert result["lowered"][0] == [result["own"], lowered]
    assert [niceness for _, niceness in result["lowered"]] == [lowered] * 3
    assert result["again"][0] == lowered


def test_zero_changes_nothing() -> None:
    """Nothing is asked of the system for 0."""
    assert lower_priority(0) == ()
