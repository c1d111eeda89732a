"""`outrider generate` against a scripted service."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import grpc
import pytest

from outrider.v1 import sampling_pb2

if TYPE_CHECKING:
    from tests.client.cli.conftest import Run
    from tests.client.conftest import Failure, FakeService, MakeFake


def test_text_is_all_that_stdout_gets(run: Run, fake: FakeService) -> None:
    """Stdout holds the text and a new line."""
    result = run("generate", "hello", "-a", fake.address, "--seed", "3", "-n", "30")
    assert (result.exit_code, result.stderr) == (0, "")
    assert fake.output(3, max_tokens=30).decode(errors="replace") + "\n" == result.stdout


def test_a_text_that_breaks_off_ends_its_line(
    run: Run, fake: FakeService, failure: type[Failure]
) -> None:
    """So that what is told of it stands on a line of its own."""
    fake.failures = [failure(code=grpc.StatusCode.INTERNAL, after_tokens=6)]
    result = run("generate", "hello", "-a", fake.address, "--seed", "3")
    assert (result.exit_code, result.stderr) == (1, "error: scripted\n")
    assert fake.output(3)[:6].decode(errors="ignore") + "\n" == result.stdout


def test_stats_go_to_stderr(run: Run, fake: FakeService) -> None:
    """`--stats` leaves stdout alone."""
    result = run("generate", "hello", "-a", fake.address, "--seed", "3", "--stats")
    assert "2.50 a target pass" in result.stderr
    assert fake.output(3).decode(errors="replace") + "\n" == result.stdout


def test_every_flag_reaches_the_service(run: Run, fake: FakeService) -> None:
    """Each option of the contract can be set from the command line."""
    result = run(
        "generate",
        "hello",
        *("-a", fake.address, "-m", "demo", "-t", "0.5", "--top-p", "0.25", "--top-k", "4"),
        *("--min-p", "0.125", "--repetition-penalty", "1.5", "--presence-penalty", "0.5"),
        *("--frequency-penalty", "-0.5", "--logit-bias", "7=-1.5", "--logit-bias", "8=2"),
        *("--seed", "9", "-n", "6", "--min-tokens", "2", "--stop", "a", "--stop", "b"),
        *("--stop-token-id", "3", "--ignore-eos", "--logprobs", "2", "--num-sequences", "1"),
        *("--speculate", "--verifier", "kseq", "--drafter", "draft-tiny", "--max-nodes", "8"),
        *("--max-depth", "4", "--request-id", "mine"),
    )
    assert result.exit_code == 0, result.output
    (request,) = fake.requests
    expected = sampling_pb2.SamplingOptions(
        temperature=0.5,
        top_p=0.25,
        top_k=4,
        min_p=0.125,
        repetition_penalty=1.5,
        presence_penalty=0.5,
        frequency_penalty=-0.5,
        logit_bias={7: -1.5, 8: 2.0},
        seed=9,
        max_tokens=6,
        min_tokens=2,
        stop=["a", "b"],
        stop_token_ids=[3],
        ignore_eos=True,
        logprobs=2,
        n=1,
    )
    assert expected == request.sampling
    assert len(request.sampling.ListFields()) == len(expected.DESCRIPTOR.fields)
    assert request.speculation == sampling_pb2.SpeculationOptions(
        enabled=True,
        verifier=sampling_pb2.VERIFIER_KSEQ,
        drafters=["draft-tiny"],
        max_nodes=8,
        max_depth=4,
    )
    assert (request.request_id, request.model, request.text) == ("mine", "demo", "hello")


def test_json_is_one_object(run: Run, fake: FakeService) -> None:
    """`--json` prints the whole result."""
    result = run("generate", "hello", "-a", fake.address, "--seed", "3", "--json")
    (line,) = result.stdout.splitlines()
    value = json.loads(line)
    assert value["admission"]["seed"] == 3
    assert value["outputs"][0]["completion"]["finish_reason"] == "length"
    assert fake.output(3) == bytes(token["id"] for token in value["outputs"][0]["tokens"])
    assert value["outputs"][0]["tokens"][0]["origin"] == "drafter"


def test_json_stream_is_one_object_an_event(run: Run, fake: FakeService) -> None:
    """`--json --stream` prints events as they come."""
    result = run("generate", "hello", "-a", fake.address, "--seed", "3", "--json", "--stream")
    events = [json.loads(line) for line in result.stdout.splitlines()]
    assert [event["event"] for event in events] == ["admission", *["chunk"] * 8, "completion"]


def test_prompt_from_stdin(run: Run, fake: FakeService) -> None:
    """Without an argument, or with `-`, the prompt is what stdin holds, unchanged."""
    for arguments in ((), ("-",)):
        assert run("generate", *arguments, "-a", fake.address, stdin="größe\n").exit_code == 0
    assert [request.text for request in fake.requests] == ["größe\n", "größe\n"]


def test_chat_and_system(run: Run, fake: FakeService) -> None:
    """`--system` and `--chat` send a conversation."""
    run("generate", "hi", "--system", "be brief", "-a", fake.address)
    assert [(turn.role, turn.content) for turn in fake.requests[0].chat.messages] == [
        ("system", "be brief"),
        ("user", "hi"),
    ]


def test_token_prompt(run: Run, fake: FakeService) -> None:
    """`--tokens` sends ids as they are."""
    run("generate", "--tokens", "1,2,3", "-a", fake.address)
    assert list(fake.requests[0].tokens.ids) == [1, 2, 3]


def test_several_sequences_are_told_apart(run: Run, fake: FakeService) -> None:
    """With more than one sequence each has a heading."""
    result = run("generate", "hi", "-a", fake.address, "--num-sequences", "2")
    assert "--- 1 of 2 ---" in result.stdout
    assert "--- 2 of 2 ---" in result.stdout


def test_show_origin_keeps_the_text(run: Run, fake: FakeService) -> None:
    """Colouring by origin adds a legend and changes no character of the text."""
    result = run("generate", "hi", "-a", fake.address, "--seed", "3", "-n", "90", "--show-origin")
    head, _, text = result.stdout.partition("\n")
    assert head.split() == ["target", "draft-small", "draft-tiny"]
    assert fake.output(3, max_tokens=90).decode(errors="replace") + "\n" == text


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (grpc.StatusCode.INVALID_ARGUMENT, 2),
        (grpc.StatusCode.OUT_OF_RANGE, 2),
        (grpc.StatusCode.NOT_FOUND, 2),
        (grpc.StatusCode.UNAVAILABLE, 3),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, 3),
        (grpc.StatusCode.DEADLINE_EXCEEDED, 4),
        (grpc.StatusCode.INTERNAL, 1),
        (grpc.StatusCode.PERMISSION_DENIED, 1),
    ],
)
def test_exit_code_tells_the_cause(
    run: Run, fake: FakeService, failure: type[Failure], code: grpc.StatusCode, expected: int
) -> None:
    """Each cause has its exit code; with `--json` stdout holds the error, and there is no traceback."""
    fake.failures = [failure(code=code, details="for this reason")] * 10
    result = run("generate", "hi", "-a", fake.address, "--json")
    assert result.exit_code == expected
    assert json.loads(result.stdout)["error"]["code"] == code.name
    assert "error: " in result.stderr
    assert "for this reason" in result.stderr
    assert "Traceback" not in result.output


def test_refused_field_is_named(run: Run, fake: FakeService, failure: type[Failure]) -> None:
    """The line on stderr names the field."""
    fake.failures = [
        failure(code=grpc.StatusCode.OUT_OF_RANGE, details="is 2", field="sampling.top_p")
    ]
    result = run("generate", "hi", "-a", fake.address)
    assert "error: sampling.top_p: is 2" in result.stderr


def test_overload_says_when_to_come_again(
    run: Run, fake: FakeService, failure: type[Failure]
) -> None:
    """Where the advised wait is longer than the timeout, the advice reaches the user at once; else the request waits."""
    fake.failures = [failure(code=grpc.StatusCode.RESOURCE_EXHAUSTED, retry_after_s=61.5)]
    result = run("generate", "hi", "-a", fake.address, "--timeout", "61.5")
    assert result.exit_code == 3
    assert "try again in 61.5 s" in result.stderr
    assert len(fake.requests) == 1
    fake.failures = [failure(code=grpc.StatusCode.RESOURCE_EXHAUSTED, retry_after_s=0.01)]
    assert run("generate", "hi", "-a", fake.address).exit_code == 0


def test_an_exchanged_model_is_told(run: Run, make_fake: MakeFake, failure: type[Failure]) -> None:
    """What had come is on stdout; the message says why no more does, and how much it was."""
    one, two = make_fake("one"), make_fake("two")
    cut = failure(code=grpc.StatusCode.UNAVAILABLE, after_tokens=9)
    one.failures = [cut, *[failure(code=grpc.StatusCode.UNAVAILABLE)] * 9]
    two.model_fingerprint = "beef"
    result = run("generate", "hello", "-a", f"{one.address},{two.address}", "--seed", "3")
    assert result.exit_code == 1
    assert result.stdout.startswith(one.output(3)[:9].decode(errors="ignore"))
    assert "the model was exchanged" in result.stderr
    assert "9 tokens were received of 'demo'" in result.stderr


def test_timeout_ends_the_command(run: Run, fake: FakeService) -> None:
    """`--timeout` bounds the request; what had come stays printed."""
    fake.stall_after = 6
    for timeout_s in ("0.3", "3", "30"):  # a slow machine may not answer within the first
        result = run("generate", "hi", "-a", fake.address, "--timeout", timeout_s, "--seed", "3")
        assert result.exit_code == 4
        if result.stdout:
            break
    assert result.stdout.startswith(fake.output(3)[:6].decode(errors="ignore"))


@pytest.mark.parametrize(
    "arguments",
    [
        ("hi", "--tokens", "1,2"),
        ("hi", "--stream"),
        ("--tokens", "1,b"),
        ("hi", "--logit-bias", "7"),
        ("hi", "--logit-bias", "7=1", "--logit-bias", "7=2"),
        ("hi", "--temperature", "hot"),
        ("hi", "--draft-length", "none"),
        ("hi", "--verifier-option", "epsilon"),
        ("hi", "--timeout", "0"),
        ("hi", "--top-k", "-1"),
        ("hi", "--no-such-flag"),
        ("hi", "-a", "not an address"),
    ],
)
def test_wrong_usage(run: Run, fake: FakeService, arguments: tuple[str, ...]) -> None:
    """A wrong command line ends with 2, before anything is sent."""
    result = run("generate", "-a", fake.address, *arguments)
    assert result.exit_code == 2, result.output
    assert "Traceback" not in result.output
    assert fake.requests == []


def test_stdin_that_is_not_text(run: Run, fake: FakeService) -> None:
    """Bytes that are not UTF-8 are refused."""
    result = run("generate", "-a", fake.address, stdin=b"\xff\xfe")
    assert result.exit_code == 2
    assert "not UTF-8" in result.stderr


def test_address_from_the_environment(
    run: Run, fake: FakeService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """OUTRIDER_ADDRESS stands in for `--address`."""
    monkeypatch.setenv("OUTRIDER_ADDRESS", fake.address)
    assert run("generate", "hi").exit_code == 0
