"""A service as its users meet it: processes of its own, Ray, gRPC; and what happens when parts of it die."""

from __future__ import annotations

import os
import re
import signal
import urllib.request
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress

import grpc
import psutil
import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.service.processes import (
    START_TIMEOUT_S,
    ServiceProcess,
    has_torch,
    ray_folder,
    until,
)

from outrider.v1 import generation_pb2, generation_pb2_grpc, sampling_pb2

RECOVERY_S = START_TIMEOUT_S
"""Seconds within which a killed actor is back: two on an idle machine."""


@pytest.fixture
def stub(service: ServiceProcess) -> Iterator[generation_pb2_grpc.GenerationServiceStub]:
    """A client as any gRPC library makes one."""
    with grpc.insecure_channel(service.address) as channel:
        yield generation_pb2_grpc.GenerationServiceStub(channel)


def request(
    *, enabled: bool, max_tokens: int = 200, seed: int = 7
) -> generation_pb2.GenerateRequest:
    """A sampled request with a seed."""
    return generation_pb2.GenerateRequest(
        tokens=generation_pb2.TokenIds(ids=[1, 2, 3, 4]),
        sampling=sampling_pb2.SamplingOptions(
            temperature=1.0, seed=seed, max_tokens=max_tokens, ignore_eos=True
        ),
        speculation=sampling_pb2.SpeculationOptions(enabled=enabled),
    )


class Output:
    """What a stream has brought so far."""

    def __init__(self) -> None:
        self.tokens: list[int] = []
        self.drafted = 0
        self.completion: generation_pb2.Completion | None = None

    @property
    def num_proposed(self) -> int:
        """Candidates that reached the session."""
        return self.completion.speculation.proposed if self.completion is not None else 0

    def take(self, response: generation_pb2.GenerateResponse) -> None:
        """Adds a message."""
        if response.HasField("chunk"):
            for token in response.chunk.tokens:
                self.tokens.append(token.id)
                self.drafted += token.origin == generation_pb2.ORIGIN_DRAFTER
        elif response.HasField("completion"):
            self.completion = response.completion


def generate(
    stub: generation_pb2_grpc.GenerationServiceStub,
    wanted: generation_pb2.GenerateRequest,
    *,
    kill_pid: int | None = None,
) -> Output:
    """The whole output of a request; kills a process once the first tokens have come."""
    output = Output()
    for response in stub.Generate(wanted, timeout=RECOVERY_S, wait_for_ready=True):
        output.take(response)
        if kill_pid is not None and output.tokens:
            os.kill(kill_pid, signal.SIGKILL)
            kill_pid = None
    return output


def generate_with_candidates(
    stub: generation_pb2_grpc.GenerationServiceStub, wanted: generation_pb2.GenerateRequest
) -> Output:
    """The output of the first of several equal requests that candidates reached.

    A table answers in microseconds, so that a whole request may be over before a drafter's first message.
    """
    outputs: list[Output] = []

    def has_candidates() -> bool:
        outputs.append(generate(stub, wanted))
        return outputs[-1].num_proposed > 0

    until(has_candidates, timeout_s=RECOVERY_S, what="a request with candidates")
    return outputs[-1]


def pid_now(service: ServiceProcess, name: str) -> int:
    """The process of an actor at this moment, by what it has told in the log when it began to serve, which Ray carries there a moment later."""
    # Two threads of the service print there: another line may follow where a line should have ended.
    line = re.compile(rf"\] serving .*?\bactor={name} .*?\bpid=(\d+)")
    until(lambda: bool(line.search(service.log)), timeout_s=RECOVERY_S, what=f"the line of {name}")
    return int(line.findall(service.log)[-1])


def is_accepting(stub: generation_pb2_grpc.GenerationServiceStub) -> bool:
    """Whether a request would be taken now."""
    status = stub.GetStatus(
        generation_pb2.GetStatusRequest(), timeout=RECOVERY_S, wait_for_ready=True
    )
    return status.accepting


def wait_for_drafters(stub: generation_pb2_grpc.GenerationServiceStub, *names: str) -> None:
    """Waits until these drafters are ready again."""

    def are_ready() -> bool:
        models = stub.ListModels(generation_pb2.ListModelsRequest(), timeout=RECOVERY_S).models
        return {d.name for model in models for d in model.drafters if d.ready} >= set(names)

    until(are_ready, timeout_s=RECOVERY_S, what=f"drafters {names}")


def test_speculation_gives_the_plain_output(
    service: ServiceProcess, stub: generation_pb2_grpc.GenerationServiceStub
) -> None:
    """Token for token, while drafters propose."""
    wait_for_drafters(stub, "near", "prompt_lookup")
    plain = generate(stub, request(enabled=False))
    fast = generate_with_candidates(stub, request(enabled=True))

    assert len(plain.tokens) == 200
    assert plain.drafted == plain.num_proposed == 0
    assert fast.tokens == plain.tokens
    assert fast.completion is not None
    assert fast.completion.speculation.accepted == fast.drafted


def test_only_actors_with_a_model_load_torch(service: ServiceProcess) -> None:
    """A drafter without a model saves its time at the start and its memory, however much it has drafted."""
    assert {
        name: has_torch(service.pid_of(name)) for name in ("table", "near", "prompt_lookup")
    } == {
        "table": True,
        "near": True,
        "prompt_lookup": False,
    }


def test_one_page_tells_of_every_actor(
    service: ServiceProcess, stub: generation_pb2_grpc.GenerationServiceStub
) -> None:
    """Where the ready file says: who is up, and what the requests so far have come to."""
    before = told_by_everyone(service)
    generate(stub, request(enabled=True))
    after = told_by_everyone(service)
    sent = after["outrider:generation_tokens_total"] - before["outrider:generation_tokens_total"]
    assert sent >= 200
    committed = "outrider:committed_tokens_total"
    assert after[committed] - before[committed] == sent


def told_by_everyone(service: ServiceProcess) -> dict[str, float]:
    """The page of the ready file, once every actor is up: the sum of the samples of each name."""
    url = f"http://{service.ready['metrics']}/metrics"
    sums: defaultdict[str, float] = defaultdict(float)

    def has_everyone() -> bool:
        """On a busy machine an actor may answer too late for a page."""
        with urllib.request.urlopen(url, timeout=30.0) as answer:
            families = list(text_string_to_metric_families(answer.read().decode()))
        sums.clear()
        up: dict[str, float] = {}
        for sample in (sample for family in families for sample in family.samples):
            sums[sample.name] += sample.value
            if sample.name == "outrider_up":
                up[sample.labels["actor"]] = sample.value
        assert set(up) == {"coordinator", "table", "near", "prompt_lookup"}
        return set(up.values()) == {1.0}

    until(has_everyone, timeout_s=RECOVERY_S, what="a page of everyone")
    return sums


def test_every_process_listens_on_loopback_only(service: ServiceProcess) -> None:
    """Ray's included: nobody else on the network can reach a service that was not told to be reached."""
    hosts = {
        connection.laddr.ip.removeprefix("::ffff:")
        for process in service.family()
        for connection in process.net_connections("inet")
        if connection.status == psutil.CONN_LISTEN
    }

    assert hosts == {"127.0.0.1"}


def test_event_loops_come_before_arithmetic(service: ServiceProcess) -> None:
    """The target's passes come after the loops, the drafter's after those; Ray must not make them all alike."""

    def niceness(name: str) -> set[int]:
        pid = pid_now(service, name)
        tasks = [int(task) for task in os.listdir(f"/proc/{pid}/task")]
        found = set()
        for task in tasks:
            with suppress(ProcessLookupError):  # a thread that has ended since
                found.add(os.getpriority(os.PRIO_PROCESS, task))
        return found

    own = os.getpriority(os.PRIO_PROCESS, 0)
    if own:
        pytest.skip(f"the tests themselves run at niceness {own}")
    assert niceness("coordinator") == {0}
    assert niceness("table") == {0, 5}
    assert niceness("near") == {0, 15}


def test_ray_asks_for_a_token(service: ServiceProcess) -> None:
    """A private one, that no other user of the machine can read."""
    token = ray_folder(service.family()) / "token"

    assert token.stat().st_mode & 0o777 == 0o600
    assert token.parent.stat().st_mode & 0o777 == 0o700
    assert token.read_text() not in service.log


def test_killed_drafter_changes_nothing_but_the_pace(
    service: ServiceProcess, stub: generation_pb2_grpc.GenerationServiceStub
) -> None:
    """The text is the same, and the drafter comes back."""
    plain = generate(stub, request(enabled=False, max_tokens=600))
    fast = generate(stub, request(enabled=True, max_tokens=600), kill_pid=pid_now(service, "near"))

    assert fast.tokens == plain.tokens
    wait_for_drafters(stub, "near", "prompt_lookup")
    again = generate_with_candidates(stub, request(enabled=True, max_tokens=600))
    assert again.tokens == plain.tokens


def test_killed_target_is_a_pause(
    service: ServiceProcess, stub: generation_pb2_grpc.GenerationServiceStub
) -> None:
    """The restarted target goes on from the committed tokens; the stream does not break."""
    plain = generate(stub, request(enabled=False, max_tokens=600))
    fast = generate(stub, request(enabled=True, max_tokens=600), kill_pid=pid_now(service, "table"))

    assert fast.tokens == plain.tokens


def test_killed_coordinator_comes_back_at_its_address(
    service: ServiceProcess, stub: generation_pb2_grpc.GenerationServiceStub
) -> None:
    """Its streams break, and the next request on the same channel is served with the same text."""
    plain = generate(stub, request(enabled=False))
    killed = pid_now(service, "coordinator")
    os.kill(killed, signal.SIGKILL)
    until(
        lambda: pid_now(service, "coordinator") != killed,
        timeout_s=RECOVERY_S,
        what="the coordinator's restart",
    )
    # It serves before a target has answered it, and says so.
    until(lambda: is_accepting(stub), timeout_s=RECOVERY_S, what="its targets")
    again = generate(stub, request(enabled=True))

    assert again.tokens == plain.tokens


def test_suspended_drafter_is_replaced(
    service: ServiceProcess, stub: generation_pb2_grpc.GenerationServiceStub
) -> None:
    """A process that hangs falls silent; its lease ends and another takes its place."""
    wait_for_drafters(stub, "near", "prompt_lookup")
    suspended = pid_now(service, "near")
    plain = generate(stub, request(enabled=False))
    os.kill(suspended, signal.SIGSTOP)
    fast = generate(stub, request(enabled=True))

    assert fast.tokens == plain.tokens
    until(
        lambda: pid_now(service, "near") != suspended,
        timeout_s=RECOVERY_S,
        what="another process of the drafter",
    )
    until(lambda: not psutil.pid_exists(suspended), timeout_s=RECOVERY_S, what="the old one's end")
