"""The proof of equal outputs is about every drafter, fails where texts differ, and counts nothing that did not happen."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

from bench.equality import disturbance
from bench.equality.message_faults import FaultyPost
from bench.equality.shipped_drafters import ways
from bench.network.relay import Relay
from bench.running.assembly import Assembly
from bench.running.bench_prompts import load
from bench.running.bench_service import TARGET
from bench.running.slow_passes import SLOW_PASSES
from bench.suites.drafters.equality_suite import (
    FAULTS,
    MOST_S,
    PlainTexts,
    compare,
    configuration,
    failures_of,
)
from outrider.actors import demo
from outrider.actors.draft.choice.drafter_registry import DRAFTERS
from outrider.actors.draft.state.draft_events import (
    Closed,
    Event,
    FeaturesReceived,
    SessionKey,
    VerdictsReceived,
)
from outrider.actors.exchange.verdicts import Verdicts
from outrider.client import Client

ROW: dict[str, Any] = {
    "drafter": "draft",
    "temperature": 0.8,
    "condition": "disturbed",
    "different": [],
    "accepted": 100,
    "restarts": 3,
    "resyncs": 2,
    "cuts": 1,
    "target_restarts": 1,
    "is_enough": True,
    "failure": "",
}


def test_every_method_and_every_shipped_checkpoint_is_in_it() -> None:
    """Also those that come later: nobody has to think of it."""
    drafters = [drafter for way in ways().values() for drafter in way.drafters.values()]
    assert {drafter["method"] for drafter in drafters} == set(DRAFTERS)
    models = {drafter["model"] for drafter in drafters if "model" in drafter}
    assert models == {f"demo:{name}" for name in (*demo.DRAFTS, *demo.HEADS, *demo.NESTED)}
    assert ways()["consensus"].num_sequences > 1


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"different": [{"prompt": 1, "at": 5, "near_ties": 0}]}, "1 outputs differ"),
        ({"accepted": 0}, "0 candidates were accepted"),
        ({"resyncs": 0, "is_enough": False}, "0 resyncs"),
    ],
)
def test_a_row_that_proves_nothing_says_so(wrong: dict[str, Any], reason: str) -> None:
    """A difference, or too little that could have made one."""
    assert failures_of(ROW) == []
    (found,) = failures_of(ROW | wrong)
    assert "draft at temperature 0.8, disturbed" in found
    assert reason in found


def _verdicts(epoch: int) -> VerdictsReceived:
    one = np.ones(1, np.int64)
    return VerdictsReceived(
        link=1,
        verdicts=Verdicts(
            handles_E=np.ones(1, np.uint64),
            epochs_E=epoch * one,
            lengths_E=one,
            hashes_E=np.ones(1, np.uint64),
            credits_E=one,
            seen_E=0 * one,
            starving_E=one > 0,
            starts_E=np.array([0, 1]),
            tokens_T=np.array([7]),
            root_starts_E=np.zeros(2, np.int64),
            roots_T=np.zeros(0, np.int64),
        ),
    )


def test_verdicts_suffer_every_fault_and_nothing_else_does() -> None:
    """Lost, doubled, overtaken and with another text; the end of a session comes as it was sent."""
    came: list[Event] = []
    post = FaultyPost(came.append, seed=1)
    for epoch in range(400):
        post(_verdicts(epoch))
        post(Closed(key=SessionKey(1, epoch)))
    verdicts = [event.verdicts for event in came if isinstance(event, VerdictsReceived)]
    epochs = [int(found.epochs_E[0]) for found in verdicts]
    assert set(range(400)) - set(epochs)
    assert len(set(epochs)) < len(epochs)
    assert 300 < sum(int(found.tokens_T[0]) == 7 for found in verdicts) < len(verdicts)
    closed = [event.key.handle for event in came if isinstance(event, Closed)]
    assert closed == list(range(400))
    places = {
        int(e.verdicts.epochs_E[0]): i
        for i, e in enumerate(came)
        if isinstance(e, VerdictsReceived)
    }
    ends = {e.key.handle: i for i, e in enumerate(came) if isinstance(e, Closed)}
    assert any(places[epoch] > ends[epoch] for epoch in places)


def test_features_are_disturbed_but_their_bytes_are_given_back_once() -> None:
    """Or the target would send no more, or too much."""
    came: list[Event] = []
    post = FaultyPost(came.append, seed=1)
    for _ in range(400):
        post(FeaturesReceived(link=1, revision=1, features=None, num_bytes=10))
    post(Closed(key=SessionKey(1, 1)))
    features = [event for event in came if isinstance(event, FeaturesReceived)]
    assert len(features) > 400
    assert sum(event.num_bytes for event in features) == 4000


def test_a_drafter_that_gets_into_the_text_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same service, disturbed: first whole, then with a target that keeps a candidate now and then that it did not draw."""
    monkeypatch.setattr(disturbance, "LEAST_RESTARTS", 1)
    drafters = {"draft": {"method": "autoregressive", "model": "law:agree70/draft"}}
    plain = PlainTexts(load(8), 40)
    with (
        Relay() as relay,
        Assembly(
            configuration("law:agree70", drafters),
            alterations={TARGET: [SLOW_PASSES], "draft": [FAULTS]},
            drafter_environment=relay.environment,
        ) as assembly,
        Client(assembly.address) as client,
    ):
        about = {"drafter": "draft", "temperature": 0.8, "condition": "disturbed"}
        row = about | compare(assembly, client, plain, temperature=0.8, relay=relay)
        assert failures_of(row) == []
        wrong = "tests.bench.running.believing_target:believe_drafters"
        assembly.restart(TARGET, alterations=[SLOW_PASSES, wrong])
        # On a busy machine few candidates come in time, and of them few may be those that it believes.
        deadline = time.monotonic() + MOST_S
        found: dict[str, Any] = {"different": []}
        while not found["different"] and time.monotonic() < deadline:
            found = about | compare(assembly, client, plain, temperature=0.8)
        assert found["different"]
        assert "differ from plain decoding" in failures_of(found)[0]
