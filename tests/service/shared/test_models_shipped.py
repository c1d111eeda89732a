"""A service of the shipped models, and of a drafter with another tokenizer: refusals, probes of every port, resumes.

All tests share one service, and none changes it.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import grpc
import psutil
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase,
)
from tests.service.processes import (
    START_TIMEOUT_S,
    ServiceProcess,
    has_torch,
    run,
    until,
)

from outrider.actors.exchange.request_options_wire import PROTOCOL_VERSION
from outrider.client import Client, SamplingOptions, SpeculationOptions, TextChunk
from outrider.client.connection.errors import InvalidRequest
from outrider.client.messages.results import FinishReason, Generation
from outrider.v1 import draft_pb2, draft_pb2_grpc, target_pb2, target_pb2_grpc

MISFIT = "is not that of 'demo'"
"""What is said of the drafter whose tokenizer differs."""

CALL_S = 30.0
"""Bound on a call: milliseconds on an idle machine."""

PROMPT = "The history of the telescope begins"
MAX_TOKENS = 40


@pytest.fixture(scope="module")
def service(shipped: ServiceProcess) -> ServiceProcess:
    """The service."""
    return shipped


@pytest.fixture(scope="module")
def client(service: ServiceProcess) -> Iterator[Client]:
    """A client, once the coordinator knows every drafter."""
    with Client(service.address, timeout_s=60.0) as made:
        until(
            lambda: (
                {a.name: a.ready for a in made.status().actors}.get("small", False)
                and bool(problem_of(made, "alien"))
            ),
            timeout_s=START_TIMEOUT_S,
            what="the drafters",
        )
        yield made


def problem_of(client: Client, name: str) -> str:
    """What the status says of an actor."""
    return next((a.problem for a in client.status().actors if a.name == name), "")


# -- a drafter with another tokenizer ------------------------------------------------------------------------------


def test_only_models_need_torch(service: ServiceProcess) -> None:
    """The coordinator has the target's tokenizer without it: it takes the time of a start and 230 MiB."""
    assert {name: has_torch(service.pid_of(name)) for name in ("coordinator", "demo")} == {
        "coordinator": False,
        "demo": True,
    }


def test_misfit_is_told_where_the_service_was_started(
    service: ServiceProcess, client: Client
) -> None:
    """The service serves, and says which drafter is of no use and what to do, at the default level of its log."""
    until(lambda: "drafter serves nobody" in service.log, timeout_s=60.0, what="a warning")
    line = next(line for line in service.log.splitlines() if "drafter serves nobody" in line)
    assert "alien" in line
    assert MISFIT in line
    assert "use a draft model with the target's tokenizer" in line


def test_misfit_is_told_by_status_and_models(service: ServiceProcess, client: Client) -> None:
    """It is not ready, and why; to people and to programs."""
    for command in ("status", "models"):
        said = run(command, "--address", service.address)
        assert said.returncode == 0
        assert "alien is not ready: its tokenizer (" in said.stdout
        assert MISFIT in said.stdout
    (model,) = client.models()
    ready = {drafter.name: (drafter.ready, drafter.problem) for drafter in model.drafters}
    assert ready["small"] == (True, "")
    assert not ready["alien"][0]
    assert MISFIT in ready["alien"][1]
    actors = {actor.name: actor for actor in client.status().actors}
    assert not actors["alien"].ready
    assert actors["demo"].ready
    assert not actors["demo"].problem


def test_request_that_names_the_misfit_is_refused(client: Client) -> None:
    """With the field; and the next request is served, by the drafter that fits."""
    options = SamplingOptions(max_tokens=8, seed=1)
    with pytest.raises(InvalidRequest, match=MISFIT) as refused:
        client.generate(
            PROMPT, sampling=options, speculation=SpeculationOptions(drafters=("alien",))
        )
    assert refused.value.code is grpc.StatusCode.FAILED_PRECONDITION
    assert refused.value.field == "speculation.drafters[0]"
    served = client.generate(PROMPT, sampling=options)
    assert served.admission.drafters == ("small",)
    assert len(served.tokens) == 8


def test_internal_ports_refuse_whoever_has_not_the_secret(service: ServiceProcess) -> None:
    """A drafter or target of nobody's gets no session and no stream, whatever it states."""
    actors = {actor["name"]: actor for actor in service.ready["actors"]}
    target, drafter = actors["demo"]["address"], actors["small"]["address"]
    command = draft_pb2.DraftCommand(
        hello=target_pb2.Hello(protocol_version=PROTOCOL_VERSION, name="test", incarnation=1)
    )
    message = target_pb2.DrafterMessage(hello=command.hello)
    with grpc.insecure_channel(target) as ours, grpc.insecure_channel(drafter) as theirs:
        calls: list[Any] = [
            target_pb2_grpc.TargetServiceStub(ours).Exchange(iter([message]), timeout=CALL_S),
            draft_pb2_grpc.DraftServiceStub(theirs).Sessions(iter([command]), timeout=CALL_S),
        ]
        for call in calls:
            with pytest.raises(grpc.RpcError) as refused:
                next(call)
            assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED


# -- every port ----------------------------------------------------------------------------------------------------


SERVICES = frozenset(
    f"outrider.v1.{name}Service" for name in ("Generation", "Target", "Draft", "Cluster")
)


def health_at(address: str, service: str) -> int | None:
    """What the health service at an address says; None where nobody knows the service."""
    with grpc.insecure_channel(address) as channel:
        stub: Any = health_pb2_grpc.HealthStub(channel)  # its stubs lack the method
        with suppress(grpc.RpcError):
            request = health_pb2.HealthCheckRequest(service=service)
            return int(stub.Check(request, timeout=CALL_S).status)
    return None


def served_at(address: str) -> frozenset[str]:
    """Our services at an address, all of them healthy."""
    told = {name: health_at(address, name) for name in SERVICES}
    known = frozenset(name for name, state in told.items() if state is not None)
    for name in ("", *known) if known else ():
        state = health_at(address, name)
        assert state == health_pb2.HealthCheckResponse.SERVING, (address, name)
    return known


def test_every_port_answers_health(service: ServiceProcess, client: Client) -> None:
    """Of gateway, target, drafters and supervisor: found by looking where the service's processes listen."""
    ports = {
        connection.laddr.port
        for process in service.family()
        for connection in process.net_connections("inet")
        if connection.status == psutil.CONN_LISTEN
    }
    addresses = [f"127.0.0.1:{port}" for port in sorted(ports)]
    with ThreadPoolExecutor(8) as pool:
        found = dict(zip(addresses, pool.map(served_at, addresses), strict=True))
    ours = {address: names for address, names in found.items() if names}

    assert frozenset().union(*ours.values()) == SERVICES
    assert {actor["address"] for actor in service.ready["actors"]} < set(ours)
    assert len(ours) == len(service.ready["actors"]) + 1


def test_gateway_describes_itself(service: ServiceProcess) -> None:
    """By reflection, to tools without our protos."""
    with grpc.insecure_channel(service.address) as channel:
        database = ProtoReflectionDescriptorDatabase(channel)
        assert "outrider.v1.GenerationService" in database.get_services()
        described = database.FindFileContainingSymbol("outrider.v1.GenerationService")
        assert "GenerationService" in {one.name for one in described.service}


# -- resumes -------------------------------------------------------------------------------------------------------

PENALTIES = {"repetition_penalty": 1.3, "presence_penalty": 0.2, "frequency_penalty": 0.1}


def sampling(temperature: float, **more: Any) -> SamplingOptions:
    """Options of one request."""
    return SamplingOptions(
        temperature=temperature, seed=11, max_tokens=MAX_TOKENS, ignore_eos=True, **more
    )


def ids_of(result: Generation) -> list[int]:
    """Its token ids."""
    return [token.id for token in result.tokens]


def broken_off(
    client: Client, options: SamplingOptions, at_least: int, *, enabled: bool = True
) -> tuple[str, list[int]]:
    """Text and tokens that have come when a client leaves a stream, with so many tokens or a few more."""
    text = ""
    ids: list[int] = []
    speculation = SpeculationOptions(enabled=enabled)
    with client.stream(PROMPT, sampling=options, speculation=speculation) as stream:
        for event in stream:
            if len(ids) >= at_least:
                break
            if isinstance(event, TextChunk):
                text += event.text
                ids += [token.id for token in event.tokens]
    return text, ids


def check_resumed(
    client: Client, options: SamplingOptions, whole: Generation, text: str, ids: list[int]
) -> None:
    """The rest of a broken stream makes it whole."""
    fingerprint = whole.admission.model_fingerprint
    rest = client.generate(PROMPT, sampling=options, resume=ids, model_fingerprint=fingerprint)
    assert ids + ids_of(rest) == ids_of(whole)
    assert text + rest.text == whole.text
    assert rest.completion.finish_reason is whole.completion.finish_reason
    assert rest.completion.stop == whole.completion.stop
    assert (
        rest.completion.usage.completion_tokens
        == whole.completion.usage.completion_tokens
        == len(whole.tokens)
    )


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_resumed_stream_goes_on_where_it_broke(client: Client, temperature: float) -> None:
    """From any number of tokens, with penalties, which look back over the cut: both parts make the unbroken output."""
    options = sampling(temperature, **PENALTIES)
    whole = client.generate(PROMPT, sampling=options)
    assert len(whole.tokens) == MAX_TOKENS
    chance = random.Random(temperature)
    for cut in (1, *chance.sample(range(2, MAX_TOKENS - 1), 2), MAX_TOKENS - 1):
        check_resumed(client, options, whole, *broken_off(client, options, cut))
    # At tokens that a client may have kept from the middle of a message, and at all of them.
    for cut in (*chance.sample(range(1, MAX_TOKENS), 2), MAX_TOKENS):
        rest = client.generate(
            PROMPT,
            sampling=options,
            resume=ids_of(whole)[:cut],
            model_fingerprint=whole.admission.model_fingerprint,
        )
        assert ids_of(whole)[:cut] + ids_of(rest) == ids_of(whole)
        assert whole.text.endswith(rest.text)


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_stop_string_over_the_cut_is_found(client: Client, temperature: float) -> None:
    """The tokens before the cut hold its beginning, whose text was held back; those after it the rest."""
    chance = random.Random(temperature)
    unstopped = sampling(temperature)
    text = client.generate(PROMPT, sampling=unstopped).text
    cuts = range(12, MAX_TOKENS - 8)
    for cut in chance.sample(cuts, len(cuts)):
        before, ids = broken_off(client, unstopped, cut, enabled=False)
        stop = text[len(before) - 3 : len(before) + 5]
        if len(ids) != cut or text.find(stop) != len(before) - 3:
            continue  # A client that is slow gets several tokens at once.
        options = sampling(temperature, stop=(stop,))
        whole = client.generate(PROMPT, sampling=options)
        assert whole.text == before[:-3]
        assert whole.completion.finish_reason is FinishReason.STOP_STRING
        fingerprint = whole.admission.model_fingerprint
        kept = ids_of(whole)[:cut]
        rest = client.generate(PROMPT, sampling=options, resume=kept, model_fingerprint=fingerprint)
        assert rest.text == ""
        assert rest.completion.finish_reason is FinishReason.STOP_STRING
        assert kept + ids_of(rest) == ids_of(whole)
        held, ids = broken_off(client, options, cut, enabled=False)
        if len(ids) != cut:
            continue
        assert before[:-3].startswith(held)
        check_resumed(client, options, whole, held, ids)
        break
    else:
        raise AssertionError(f"no text of its own around any cut of {text!r}")
