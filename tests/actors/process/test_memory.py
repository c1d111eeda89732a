"""What garbage collection of a serving actor looks through. In a process of its own, since it holds for the whole process."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import gc
from outrider.actors.process.actor_runner import YOUNG_OBJECTS, hold_searches, settle_memory
hold_searches()
looked = sum(each["collections"] for each in gc.get_stats())
kept = [[number] for number in range(50_000)]
assert sum(each["collections"] for each in gc.get_stats()) == looked
settle_memory()
assert gc.get_freeze_count() > len(kept)
assert len(gc.get_objects()) < 1_000, len(gc.get_objects())
assert gc.get_threshold()[0] == YOUNG_OBJECTS
assert gc.isenabled()

class Node:
    alive = 0
    def __init__(self):
        self.itself = self
        Node.alive += 1
    def __del__(self):
        Node.alive -= 1

for _ in range(3 * YOUNG_OBJECTS):
    Node()
assert Node.alive <= YOUNG_OBJECTS + 1, Node.alive
"""


def test_what_stays_is_not_searched_and_new_cycles_are_found() -> None:
    """Nothing is searched while the model is loaded, and it is left out of every later search; cycles made while serving are freed."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
