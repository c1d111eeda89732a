"""In lockstep a drafter that has nothing to say says so, and its target goes on at once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.actors.pair.pair import Pair, texts_alone
from tests.actors.target.state.chaos import Harness, candidates, engine, opening

from outrider.actors.draft.state.draft_settings import DraftSettings
from outrider.actors.draft.text.proposal import Proposal, chain
from outrider.actors.draft.text.text_drafter import text_drafter
from outrider.actors.engine.tables.tabular_engine import random_table
from outrider.actors.speculation.options import Sampling, Speculation
from outrider.actors.target.state.target_events import DrafterJoined, Finished

TARGET = random_table(12, 2, seed=9, concentration=0.3)
GREEDY = Sampling(seed=1, max_tokens=40, temperature=0.0)
SETTINGS = DraftSettings(name="d", incarnation=1, method="repeat_last", num_slots=4, lockstep=True)
NOTHING: tuple[list[int], list[int], bytes] = ([], [], b"")


class Seldom:
    """Proposes something for some lengths of text only."""

    def __init__(self, every: int) -> None:
        self._every = every

    def propose(self, text_T: NDArray[np.int64], *, depth: int, rates: Sequence[float]) -> Proposal:
        """The last token again, or nothing."""
        is_time = self._every and len(text_T) % self._every == 0
        return chain([int(text_T[-1])] * depth if is_time else [], kinds=(0, 1))


@pytest.mark.parametrize("every", [0, 1, 3])
def test_nobody_waits_for_a_drafter_that_has_nothing(every: int) -> None:
    """However seldom it proposes, the text is that of plain decoding, and what it proposes is verified."""
    loaded = text_drafter(SETTINGS, lambda _: Seldom(every), [0.1, 0.8])
    pair = Pair(TARGET, TARGET, lockstep=True, method=(loaded.sessions, loaded.drafter))
    for session in range(2):
        pair.open(session, GREEDY, Speculation())
    pair.run()
    assert [pair.texts[0], pair.texts[1]] == texts_alone(TARGET, [GREEDY]) * 2
    for session in range(2):
        stats = pair.stats(session)
        assert stats.draft_wait_s < pair.target.state.settings.max_patience_s
        assert (stats.verified > 0) == (every > 0)


def test_the_last_of_several_drafters_ends_the_wait() -> None:
    """One that has nothing does not speak for another that may have something; what it said of an older text counts for nothing."""
    harness = Harness(engine(), lockstep=True)
    for drafter in ("d", "e"):
        harness.worker.post(DrafterJoined(drafter=drafter))
    harness.worker.post(opening(1, Sampling(seed=3, max_tokens=30), drafters=("d", "e")))
    harness.worker.step()

    def say(drafter: str, tree: tuple[list[int], list[int], bytes], back: int = 0) -> bool:
        """Tells candidates; whether a pass was run then."""
        text = [1, 2, 3, *harness.committed(1)]
        text = text[: len(text) - back]
        handle = harness.handle(1)
        harness.worker.post(candidates(text, tree, handle=handle, drafter=drafter))
        before = len(harness.committed(1))
        harness.worker.step()
        return len(harness.committed(1)) > before

    for drafter in ("d", "e"):
        say(drafter, ([0], [0], b"\x80"))
    # Whatever is still waited for comes.
    harness.now += 10.0
    harness.worker.step()
    for _ in range(3):
        assert not say("d", NOTHING)
        assert not say("e", NOTHING, back=1)
        assert say("e", NOTHING)
    assert not say("d", NOTHING)
    assert say("e", ([0], [0], b"\x80"))
    assert harness.end(1) is None or isinstance(harness.end(1), Finished)
