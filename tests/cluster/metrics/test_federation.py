"""The page of a service: what real actors counted of real requests, put together."""

from __future__ import annotations

import asyncio
import itertools
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import grpc
import pytest
from tests.cluster.front import Serve
from tests.cluster.metrics.page import Scraped
from tests.cluster.served.test_together import request

from outrider.actors.engine.protocol import Logits
from outrider.actors.rpc.credentials import Credentials
from outrider.cluster.metrics import federation
from outrider.cluster.roster.actor_status import ActorState
from outrider.cluster.roster.roster import Role
from outrider.v1 import generation_pb2

TOKENS = 64


async def test_every_actor_is_on_the_page_with_its_labels(scraped: Scraped) -> None:
    """Each sample of an actor says whose it is; those who share a metric share its head."""
    page = await scraped.page()

    up = {s.labels["actor"]: s.value for s in page.families["outrider_up"].samples}
    assert up == {"coordinator": 1.0, "target-0": 1.0, "draft-0": 1.0}
    slots = page.families["outrider:slots"].samples
    assert {(s.labels["actor"], s.labels["role"], s.labels["model"]) for s in slots} == {
        ("target-0", "target", "table"),
        ("draft-0", "drafter", "table"),
    }
    assert all(s.labels["node"] for s in slots)
    every = {
        name for name, labels in page.labels.items() if {"actor", "role", "model", "node"} <= labels
    }
    others = {name: labels for name, labels in page.labels.items() if name not in every}
    assert others.pop("outrider_up") == {"actor", "role", "model"}
    assert others.pop("outrider:actor_restarts_total") == {"actor", "role", "model"}
    for bound in ("wanted", "running", "min", "max"):
        assert others.pop(f"outrider:replicas_{bound}") == {"model", "role"}
    assert others.keys() == {
        "outrider:refused_registrations_total",
        "outrider:build_info",
        "outrider:collect_seconds",
    }
    for name, value in (("wanted", 2.0), ("running", 1.0), ("min", 1.0), ("max", 2.0)):
        assert page.total(f"outrider:replicas_{name}", role="target") == value
    assert page.total("process_cpu_seconds_total", role="supervisor") > 0.0


@pytest.mark.parametrize("lockstep", [True])
async def test_counts_are_those_that_clients_are_told(scraped: Scraped) -> None:
    """Tokens, rounds and candidates of all requests, at coordinator, target and drafter."""
    told: list[generation_pb2.SpeculationStats] = []
    # A busy machine may let the target finish before the drafter has come: then a later request shows it.
    while len(told) < 2 or (len(told) < 20 and not told[-1].accepted):
        _, _, completion = await scraped.together.generate(request(len(told), max_tokens=TOKENS))
        told.append(completion.speculation)
    page, num = await scraped.page(), len(told)

    assert page.total("outrider:generation_tokens_total") == num * TOKENS
    assert page.total("outrider:committed_tokens_total") == num * TOKENS
    assert page.total("outrider:prompt_tokens_total") == num * 3
    assert page.total("outrider:request_success_total", finished_reason="length") == num
    assert page.total("outrider:requests_total", outcome="completed") == num
    assert page.total("outrider:time_to_first_token_seconds_count") == num
    assert page.total("outrider:e2e_request_latency_seconds_count") == num
    first = page.total("outrider:time_to_first_token_seconds_sum")
    assert 0.0 < first < page.total("outrider:e2e_request_latency_seconds_sum")

    verified, accepted = sum(s.verified for s in told), sum(s.accepted for s in told)
    assert accepted > 0
    assert page.total("outrider:spec_decode_num_draft_tokens_total", drafter="draft-0") == verified
    assert page.total("outrider:spec_decode_num_accepted_tokens_total") == accepted
    assert page.total("outrider:spec_decode_num_accepted_tokens_per_pos_total") == accepted
    assert page.total("outrider:spec_decode_num_drafts_total") == sum(s.rounds for s in told)
    assert page.total("outrider:plain_passes_total") == sum(s.plain_passes for s in told)
    sent = page.total("outrider:link_bytes_total", direction="in")
    received = page.total("outrider:link_bytes_total", direction="out")
    # A session's own statistics leave out what came after its end.
    assert sent + received >= sum(s.wire_bytes for s in told)
    assert page.total("outrider:draft_messages_total") >= page.total(
        "outrider:candidate_messages_total"
    )


async def test_tokens_of_one_message_count_one_by_one(
    scraped: Scraped, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many latencies as tokens after the first message, whose time is another metric's."""
    worker = scraped.together.target.worker
    assert worker is not None
    engine, has_come = worker.state.engine, threading.Event()
    monkeypatch.setattr(engine, "forward", pausing(engine.forward, has_come))
    stub = scraped.together.front.stub
    async for message in stub.Generate(request(1, max_tokens=TOKENS), timeout=60.0):
        if message.chunk.tokens:
            has_come.set()
    page = await scraped.page()

    count = page.total("outrider:inter_token_latency_seconds_count")
    assert TOKENS / 2 < count < TOKENS
    between = page.total("outrider:inter_token_latency_seconds_sum")
    assert between == pytest.approx(
        page.total("outrider:request_decode_time_seconds_sum"), rel=0.5, abs=0.1
    )


def pausing(forward: Callable[[Any], Logits], until: threading.Event) -> Callable[[Any], Logits]:
    """Passes of which the second and later ones wait: the first one's tokens come in a message of their own."""
    count = itertools.count()

    def run(batch: Any) -> Logits:
        if next(count):
            until.wait(60.0)
        return forward(batch)

    return run


async def test_running_sessions_count_as_well(
    scraped: Scraped, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a request runs its tokens are there already, and so is it."""
    worker = scraped.together.target.worker
    assert worker is not None
    engine = worker.state.engine
    monkeypatch.setattr(engine, "forward", slowed(engine.forward))
    async with asyncio.timeout(60.0):
        stream = scraped.together.front.stub.Generate(request(1, max_tokens=400))
        async for message in stream:
            if message.chunk.tokens:
                break
        page = await scraped.page()
        assert page.total("outrider:num_requests_running") == 1
        assert page.total("outrider:slots_used", role="target") == 1
        assert page.total("outrider:committed_tokens_total") > 0
        assert 0.0 < page.total("outrider:kv_cache_usage_perc") < 1.0
        stream.cancel()
        while page.total("outrider:slots_used", role="target"):
            page = await scraped.page()
    assert page.total("outrider:requests_total", outcome="cancelled") == 1


def slowed(forward: Callable[[Any], Logits]) -> Callable[[Any], Logits]:
    """Passes that leave time to look."""

    def run(batch: Any) -> Logits:
        time.sleep(0.02)
        return forward(batch)

    return run


async def test_refused_requests_are_told_by_status(scraped: Scraped) -> None:
    """A request that never ran has no latency."""
    wrong = request(1)
    wrong.tokens.ids.append(10_000)
    with pytest.raises(grpc.aio.AioRpcError):
        await scraped.together.generate(wrong)
    page = await scraped.page()
    samples = page.families["outrider:requests"].samples
    refused = [sample.labels["outcome"] for sample in samples if sample.value]
    assert page.total("outrider:requests_total", outcome="INTERNAL") == 0
    assert refused in (["INVALID_ARGUMENT"], ["OUT_OF_RANGE"])
    assert page.total("outrider:time_to_first_token_seconds_count") == 0


async def test_requests_that_find_no_target_are_told_too(scraped: Scraped, serve: Serve) -> None:
    """From the first one on, for as long as there is none; so are those for another model, or of a name that runs."""
    front = await serve(codec=None)
    internal = front.coordinator.internal_address
    scraped.add("alone", Role.COORDINATOR, front.address, internal_address=internal)
    for _ in range(3):
        with pytest.raises(grpc.aio.AioRpcError, match="no target is reachable"):
            await front.stub.Generate(request(1), timeout=60.0).read()
    wrong = request(1)
    wrong.model = "another"
    with pytest.raises(grpc.aio.AioRpcError, match="is not served here"):
        await scraped.together.generate(wrong)
    page = await scraped.page()
    assert page.total("outrider:requests_total", actor="alone", outcome="UNAVAILABLE") == 3
    assert page.total("outrider:requests_total", actor="coordinator", outcome="NOT_FOUND") == 1


async def test_whoever_does_not_answer_is_down_and_costs_the_page_nothing_else(
    scraped: Scraped, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody listens; somebody listens and says nothing; the process is being started again."""
    monkeypatch.setattr(federation, "COLLECT_S", 3.0)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        scraped.add("gone", Role.DRAFTER, "127.0.0.1:9")
        scraped.add("silent", Role.DRAFTER, f"127.0.0.1:{silent.getsockname()[1]}")
        scraped.add("starting", Role.TARGET, "127.0.0.1:9", state=ActorState.RESTARTING, restarts=4)
        page = await scraped.page()

    up = {s.labels["actor"]: s.value for s in page.families["outrider_up"].samples}
    assert {name for name, value in up.items() if value == 0.0} == {"gone", "silent", "starting"}
    assert page.total("outrider:actor_restarts_total", actor="starting") == 4
    assert page.total("outrider:slots", actor="target-0") == 3


async def test_who_drains_tells_until_it_has_ended(scraped: Scraped) -> None:
    """Its requests count like any others; of those that were told to end and did, nothing is said."""
    draining = [replace(one, state=ActorState.DRAINING) for one in scraped.statuses]
    scraped.statuses[:] = draining
    scraped.add("ended", Role.DRAFTER, "127.0.0.1:9", state=ActorState.STOPPED)
    page = await scraped.page()
    up = {s.labels["actor"]: s.value for s in page.families["outrider_up"].samples}
    assert up == {"coordinator": 1.0, "target-0": 1.0, "draft-0": 1.0}
    assert page.total("outrider:slots", actor="target-0") == 3
    restarts = page.families["outrider:actor_restarts"].samples
    assert {sample.labels["actor"] for sample in restarts} == set(up)


async def test_a_channel_that_is_closed_during_a_page_costs_the_page_nothing_else(
    scraped: Scraped,
) -> None:
    """Someone who does not answer is gone while one page asks and another begins."""
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        silent.setblocking(False)
        scraped.add("gone", Role.DRAFTER, f"127.0.0.1:{silent.getsockname()[1]}")
        page = asyncio.create_task(scraped.page())
        connection, _ = await asyncio.get_running_loop().sock_accept(silent)
        with connection:
            scraped.members.pop()
            await scraped.federation.told()
            found = await page
    up = {s.labels["actor"]: s.value for s in found.families["outrider_up"].samples}
    assert up == {"coordinator": 1.0, "target-0": 1.0, "draft-0": 1.0, "gone": 0.0}


async def test_metrics_are_for_this_service_alone(scraped: Scraped, serve: Serve) -> None:
    """The coordinator's internal port asks for the secret."""
    guarded = await serve(codec=None, credentials=Credentials.fresh())
    internal = guarded.coordinator.internal_address
    scraped.add("guarded", Role.COORDINATOR, guarded.address, internal_address=internal)
    page = await scraped.page()
    assert page.total("outrider_up", actor="guarded") == 0.0
    assert page.total("outrider_up", actor="coordinator") == 1.0


async def test_pages_asked_for_together_are_one(scraped: Scraped) -> None:
    """And a client that leaves takes the page from nobody."""
    first = asyncio.create_task(scraped.federation.page())
    second = asyncio.create_task(scraped.federation.page())
    await asyncio.sleep(0)
    first.cancel()
    text = await second
    assert "outrider_up" in text
    assert scraped.num_pages == 1
