"""`outrider bench` against a scripted service."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.client.cli.conftest import Run
    from tests.client.conftest import FakeService


def test_figures_as_json(run: Run, fake: FakeService) -> None:
    """The plan and the figures come out, with every token counted."""
    result = run(
        "bench", "-a", fake.address, "-n", "12", "--seeds", "1,2", "--concurrency", "3", "--json"
    )
    assert result.exit_code == 0, result.output
    value = json.loads(result.stdout)
    assert value["plan"]["seeds"] == [1, 2]
    prompts = value["plan"]["prompts"]
    assert value["figures"]["requests"] == 2 * prompts
    assert value["figures"]["tokens"] == 2 * prompts * 12
    assert value["figures"]["mean_tokens_per_pass"] == pytest.approx(2.5)
    assert value["figures"]["acceptance"] == pytest.approx(16 / 30)
    assert value["figures"]["acceptance_by_depth"] == pytest.approx([7 / 8, 3 / 6])
    assert value["figures"]["first_token_p50_s"] > 0
    assert value["comparison"] is None


def test_comparison_with_plain(run: Run, fake: FakeService) -> None:
    """Every prompt and seed runs both ways, and equal outputs are counted."""
    result = run(
        "bench",
        *("-a", fake.address, "-n", "9", "--compare", "plain", "--runs", "2", "--warm-up", "0"),
        "--json",
    )
    assert result.exit_code == 0, result.output
    comparison = json.loads(result.stdout)["comparison"]
    assert comparison["pairs"] == comparison["equal"] == len(fake.requests) / 2
    assert len(comparison["speed_up_by_run"]) == 2
    assert comparison["speed_up_median"] > 0
    plain = [request for request in fake.requests if not request.speculation.enabled]
    assert sum(request.speculation.HasField("enabled") for request in plain) == len(plain) / 2


def test_difference_fails(run: Run, fake: FakeService) -> None:
    """Outputs that differ without a near tie end with 1 and say where."""
    fake.plain_differs = True
    result = run(
        "bench",
        "-a",
        fake.address,
        "-n",
        "9",
        "--compare",
        "plain",
        "--warm-up",
        "0",
        "--speculate",
    )
    assert result.exit_code == 1
    assert "0 of 12 outputs equal, 12 differ" in result.stdout
    assert "prompt 0, seed 0: token 0 differs" in result.stdout


@pytest.mark.parametrize(("temperature", "must_equal"), [("0.8", False), ("0", True)])
def test_other_draws_are_no_difference(
    run: Run, fake: FakeService, temperature: str, must_equal: bool
) -> None:
    """A verifier that keeps the law only draws other texts, so they are not held against it; at temperature 0 there is one text."""
    fake.plain_differs = True
    options = ("bench", "-a", fake.address, "-n", "9", "--compare", "plain", "--speculate")
    result = run(*options, "-t", temperature, "--verifier", "traversal")
    assert result.exit_code == int(must_equal)
    assert ("0 of 12 outputs equal" in result.stdout) is must_equal
    assert "speed-up" in result.stdout
    result = run(*options, "-t", temperature, "--verifier", "block", "--json")
    comparison = json.loads(result.stdout)["comparison"]
    assert comparison["must_equal"] is must_equal
    assert comparison["unexplained"] == (12 if must_equal else 0)


def test_table(run: Run, fake: FakeService) -> None:
    """People get a table."""
    result = run("bench", "-a", fake.address, "-n", "9", "--compare", "plain")
    assert "12 of 12 outputs equal" in result.stdout
    assert "tokens a target pass" in result.stdout
    assert "speed-up" in result.stdout


def test_prompts_from_a_file(run: Run, fake: FakeService, tmp_path: Path) -> None:
    """The file's prompts are what is sent."""
    file = tmp_path / "prompts.jsonl"
    file.write_text('{"tokens": [1, 2]}\n{"messages": [{"role": "user", "content": "hi"}]}\n')
    result = run("bench", "-a", fake.address, "--prompts", str(file), "--warm-up", "0")
    assert result.exit_code == 0, result.output
    assert [request.WhichOneof("prompt") for request in fake.requests] == ["tokens", "chat"]


@pytest.mark.parametrize(
    "arguments",
    [
        ("--seeds", "1,x"),
        ("--seeds", "1,1"),
        ("--concurrency", "0"),
        ("--compare", "fast"),
        ("--compare", "plain", "--plain"),
        ("--prompts", "no-such-file"),
        ("--temperature", "-1"),
    ],
)
def test_wrong_usage(run: Run, fake: FakeService, arguments: tuple[str, ...]) -> None:
    """A wrong command line ends with 2, before anything is sent."""
    result = run("bench", "-a", fake.address, *arguments)
    assert result.exit_code == 2, result.output
    assert fake.requests == []


def test_nobody_answers(run: Run, closed_port: str) -> None:
    """A dead address ends with 3."""
    assert run("bench", "-a", closed_port).exit_code == 3
