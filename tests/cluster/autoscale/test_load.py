"""What metrics say of the load."""

from __future__ import annotations

from dataclasses import replace

from tests.cluster.autoscale.telling import coordinator, drafter, target

from outrider.cluster.roster.actor_status import ActorState
from outrider.cluster.supervise.observed_load import read, samples


def test_load_is_summed_over_replicas_and_told_by_entry() -> None:
    """Sessions and queue as they are, tokens since the look before, gain by the entry of who proposed."""
    before = read([coordinator(0), target("t-0", 8, 100.0, d0=10.0), drafter("d0", 6)])
    now = [
        coordinator(5),
        target("t-0", 8, 300.0, d0=60.0, gone=90.0),
        target("t-1", 4, 50.0),
        drafter("d0", 6),
    ]
    after = read(now)
    assert before is not None
    assert after is not None
    found = samples(before, after, 7.0)
    assert (found["t"].sessions, found["t"].waiting, found["t"].slots) == (12, 5, 8)
    assert (found["d"].sessions, found["d"].waiting, found["d"].slots) == (12, 0, 6)
    # Half of the texts can have a drafter of six slots, so it is judged by half of the 200 tokens.
    assert (found["d"].tokens, found["d"].gained) == (100.0, 50.0)
    assert found["t"].at_s == 7.0


def test_a_start_anew_is_no_load() -> None:
    """Its counters begin at nothing."""
    status, families = target("t-0", 8, 40.0, d0=4.0)
    before = read([target("t-0", 8, 900.0, d0=90.0), drafter("d0", 8)])
    after = read([(replace(status, incarnation=2), families), drafter("d0", 8)])
    assert before is not None
    assert after is not None
    assert (samples(before, after, 0.0)["d"].tokens, samples(before, after, 0.0)["d"].gained) == (
        0.0,
        0.0,
    )


def test_who_is_silent_and_who_does_not_count() -> None:
    """Without a target's or a coordinator's answer nothing is known; a drafter's is not needed, nor those of actors that leave."""
    status, _ = target("t-0", 8, 0.0)
    assert read([coordinator(0), (status, None)]) is None
    leaving = (replace(status, name="t-1", state=ActorState.DRAINING), None)
    silent = (drafter("d0", 8)[0], None)
    assert len(read([coordinator(0), target("t-0", 8, 0.0), leaving, silent]) or ()) == 2
