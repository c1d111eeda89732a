"""Admission."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from outrider.cluster.requests.admission import AdmissionQueue, Grant, Ticket


def indices(grants: list[Grant]) -> list[tuple[int, int]]:
    """Request and sequence of each grant."""
    return [(grant.ticket.request, grant.ticket.index) for grant in grants]


def test_requests_start_in_order_of_arrival() -> None:
    """The first to come gets the first free slot."""
    admission = AdmissionQueue(max_waiting=8)
    admission.set_target("t", 1)
    for request in (1, 2, 3):
        assert admission.enqueue(request, 1)
    order = []
    grants = admission.grants()
    while grants:
        order += indices(grants)
        for grant in grants:
            admission.release(grant)
        grants = admission.grants()
    assert order == [(1, 0), (2, 0), (3, 0)]


def test_a_request_of_many_sequences_takes_turns_with_the_others() -> None:
    """It gets slots gradually, and a later request does not wait for all of it."""
    admission = AdmissionQueue(max_waiting=8)
    admission.set_target("t", 2)
    admission.enqueue(1, 4)
    first = admission.grants()
    admission.enqueue(2, 1)
    admission.release(first[0])
    admission.release(first[1])
    assert indices(first) == [(1, 0), (1, 1)]
    assert indices(admission.grants()) == [(1, 2), (2, 0)]


def test_a_full_queue_refuses_and_stays_as_it_was() -> None:
    """Beyond the bound nothing is queued; with a free slot nobody is refused."""
    admission = AdmissionQueue(max_waiting=1)
    admission.set_target("t", 1)
    assert admission.enqueue(1, 1)
    assert len(admission.grants()) == 1
    assert admission.enqueue(2, 1)
    assert not admission.enqueue(3, 1)
    assert admission.num_waiting == 1
    no_queue = AdmissionQueue(max_waiting=0)
    no_queue.set_target("t", 1)
    assert no_queue.enqueue(1, 1)


def test_sequences_that_lost_their_target_go_first() -> None:
    """They return past a full queue, and are served before it."""
    admission = AdmissionQueue(max_waiting=1)
    admission.set_target("old", 1)
    admission.enqueue(1, 1)
    admission.grants()
    admission.enqueue(2, 1)
    admission.remove_target("old")
    admission.return_to_queue(Ticket(request=1, index=0))
    admission.set_target("new", 2)
    assert indices(admission.grants()) == [(1, 0), (2, 0)]


def test_the_target_with_most_room_is_chosen() -> None:
    """Load spreads over targets."""
    admission = AdmissionQueue(max_waiting=8)
    admission.set_target("small", 1)
    admission.set_target("large", 3)
    for request in range(4):
        admission.enqueue(request, 1)
    targets = [grant.target for grant in admission.grants()]
    assert targets[0] == "large"
    assert sorted(targets) == ["large", "large", "large", "small"]


def test_a_withdrawn_sequence_gets_no_slot() -> None:
    """Whoever gives up leaves no trace in the queue."""
    admission = AdmissionQueue(max_waiting=8)
    admission.enqueue(1, 2)
    admission.withdraw(Ticket(request=1, index=0))
    admission.withdraw(Ticket(request=1, index=1))
    admission.set_target("t", 2)
    assert admission.num_waiting == 0
    assert admission.grants() == []


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["enqueue", "release", "lose", "gain", "withdraw"]), st.integers(0, 9)
        ),
        max_size=60,
    )
)
def test_slots_are_never_given_out_twice(steps: list[tuple[str, int]]) -> None:
    """Over any history, no target has more live grants than slots, and no free slot is left while someone waits."""
    admission = AdmissionQueue(max_waiting=4)
    slots = {"a": 2, "b": 1}
    live: list[Grant] = []
    up: set[str] = set()
    for number, (step, choice) in enumerate(steps):
        name = "ab"[choice % 2]
        if step == "enqueue":
            admission.enqueue(number, choice % 3 + 1)
        elif step == "release" and live:
            admission.release(live.pop(choice % len(live)))
        elif step == "gain":
            admission.set_target(name, slots[name])
            up.add(name)
        elif step == "lose" and name in up:
            admission.remove_target(name)
            up.discard(name)
            for grant in [grant for grant in live if grant.target == name]:
                live.remove(grant)
                admission.return_to_queue(grant.ticket)
        elif step == "withdraw":
            admission.withdraw(Ticket(request=choice, index=0))
        live += admission.grants()
        held = {target: sum(grant.target == target for grant in live) for target in slots}
        assert all(held[target] <= slots[target] for target in slots)
        assert admission.num_running == len(live)
        if admission.num_waiting:
            assert all(held[target] == slots[target] for target in up)


def test_a_target_that_refuses_gets_no_more_until_it_tells() -> None:
    """Others hold its slots: what was refused goes elsewhere or waits, and nobody asks in vain again and again."""
    admission = AdmissionQueue(max_waiting=8)
    admission.set_target("t", 3)
    admission.enqueue(1, 2)
    first, second = admission.grants()
    admission.refused(second)
    admission.return_to_queue(second.ticket)
    assert admission.grants() == []
    admission.set_target("t", 2)
    assert [grant.ticket for grant in admission.grants()] == [second.ticket]
    admission.set_target("t", 0)
    admission.release(first)
    assert admission.grants() == [], "it holds more than it may, and takes nothing"
