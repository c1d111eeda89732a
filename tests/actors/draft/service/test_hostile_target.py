"""A target that sends nonsense: it costs its own session at most, and never the drafter."""

from __future__ import annotations

import random

import pytest
from tests.actors.draft.bench import (
    DRAFT_TABLE,
    TARGET_TABLE,
    MiniTarget,
    TableBench,
    Verdict,
    frame_of,
    make_attach,
)

from outrider.actors.draft.state.draft_events import Closed, Event, Resynced, SessionKey
from outrider.actors.exchange.verdicts import TargetActivity
from outrider.actors.speculation.trees import base_hash

IDS = (0, 1, 23, 24, 1_000, 2**24 - 1)


def nonsense(generator: random.Random, handles: tuple[int, ...], mini: MiniTarget) -> Event:
    """A message that may be anything that the wire can hold."""
    key = SessionKey(generator.choice((1, 2)), generator.choice((*handles, 99)))
    tokens = tuple(generator.choice(IDS) for _ in range(generator.choice((0, 1, 3, 700))))
    length = generator.choice((0, 1, mini.length, mini.length + len(tokens), 2**32 - 1))
    text = [*mini.tokens, *tokens]
    hash_ = generator.choice((0, 2**64 - 1, base_hash.extend_all(base_hash.EMPTY, text)))
    credits = generator.choice((0, 1, 2**32 - 1))
    match generator.randrange(3):
        case 0:
            entries = [
                Verdict(
                    handle=handle,
                    epoch=generator.choice((0, 1, 2**32 - 1)),
                    # No frame says that a text is shorter than its last tokens.
                    length=max(length, len(tokens)),
                    hash=hash_,
                    tokens=tokens,
                    credits=credits,
                    starving=generator.random() < 0.5,
                    roots=tuple(generator.choice(IDS) for _ in range(generator.choice((0, 4)))),
                    seen=generator.choice((0, 1, 2**32 - 1)),
                )
                for handle in generator.choices((*handles, 99), k=generator.randrange(1, 4))
            ]
            target = TargetActivity(
                pass_s=generator.choice((0.0, 1e-3, 4294.0)),
                free_s=generator.choice((0.0, 1e-3, 4294.0)),
                wait_s=generator.choice((0.0, 4294.0)),
                floor=generator.choice((0.0, 0.5, 1.0)),
            )
            return frame_of(entries, link=key.link, target=target)
        case 1:
            return Resynced(
                key=key, epoch=2**31, length=length, hash=hash_, tokens=tokens, credits=credits
            )
        case _:
            return Closed(key=SessionKey(2, key.handle))


@pytest.mark.parametrize("seed", range(8))
def test_nonsense_ends_no_other_session(seed: int) -> None:
    """The worker goes on, whatever comes, and another session is drafted for as before."""
    generator = random.Random(seed)
    bench = TableBench(DRAFT_TABLE, max_context=900)
    victim, bystander = make_attach(handle=7), make_attach(handle=8)
    mini, good = MiniTarget(TARGET_TABLE, victim), MiniTarget(TARGET_TABLE, bystander)
    bench.worker.post(victim)
    bench.worker.post(bystander)
    for _ in range(60):
        for _ in range(generator.randrange(4)):
            bench.worker.post(nonsense(generator, (7,), mini))
        bench.step(generator.randrange(1, 4))
        bench.take()
        bench.worker.post(good.commit(1))
        bench.step(4)
        bench.take()
    bench.worker.post(good.commit(1, starving=True))
    bench.settle()
    news = [one for one in bench.take_news() if one.handle == 8]
    assert {one.length for one in news} == {good.length}
    assert bench.text(bystander.key) == good.tokens
