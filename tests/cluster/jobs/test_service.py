"""The configuration of a service that runs as a job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.cluster.jobs.parsing import Parser

from outrider.cluster.jobs.service_job import END_MARGIN_S, NAME, with_configuration
from outrider.cluster.process.command_failed import USAGE, CommandFailed


def parse(arguments: Sequence[str]) -> Mapping[str, Any]:
    """As `outrider serve` does."""
    parser = Parser()
    parser.add_argument("-c", "--config", type=Path)
    parser.add_argument("--target", action="append")
    parser.add_argument("--listen")
    parser.add_argument("--emulate")
    return vars(parser.parse_args(list(arguments)))


def test_without_a_file_the_service_joins_the_cluster() -> None:
    """The shipped models, in the job's cluster and with its mode."""
    arguments, file, _ = with_configuration(
        ["--listen", "127.0.0.1:0"], parse, folder=None, mode="disabled"
    )

    assert arguments == ["--config", NAME, "--listen", "127.0.0.1:0"]
    assert yaml.safe_load(file.content) == {"cluster": {"address": "auto", "auth": "disabled"}}


def test_file_is_completed_and_otherwise_as_it_was(tmp_path: Path) -> None:
    """What it says counts; the argument names its place in the job."""
    written = {
        "service": {"listen": "127.0.0.1:1"},
        "cluster": {"address": "10.0.0.1:6379", "drain_s": 90.5},
    }
    (tmp_path / "c.yaml").write_text(yaml.safe_dump(written))
    arguments, file, end_s = with_configuration(
        ["-c", "c.yaml", "--target", "c.yaml"], parse, folder=tmp_path, mode="token"
    )

    assert arguments == ["-c", NAME, "--target", "c.yaml"]
    assert yaml.safe_load(file.content) == {
        "service": {"listen": "127.0.0.1:1"},
        "cluster": {"address": "10.0.0.1:6379", "drain_s": 90.5, "auth": "token"},
    }
    assert end_s == 91 + END_MARGIN_S


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("cluster: {address: local}", "cluster.address is local: the job would start a Ray"),
        ("cluster: {auth: disabled}", "cluster.auth is disabled, but .* RAY_AUTH_MODE=token"),
        ("cluster: 3", "cluster: must be"),
        ("servce: {}", "did you mean 'service'"),
        ("a: [", "line 1"),
    ],
)
def test_refused_before_it_is_sent(content: str, message: str, tmp_path: Path) -> None:
    """With the place and what is allowed."""
    (tmp_path / "c.yaml").write_text(content)
    with pytest.raises(CommandFailed, match=message) as caught:
        with_configuration(["-c", str(tmp_path / "c.yaml")], parse, folder=None, mode="token")
    assert caught.value.exit_code == USAGE
    assert "c.yaml" in str(caught.value)


def test_flags_are_checked_too() -> None:
    """They lie over the file on the cluster as here."""
    with pytest.raises(CommandFailed, match="'here' is not HOST:PORT"):
        with_configuration(["--listen", "here"], parse, folder=None, mode="token")
    with pytest.raises(CommandFailed, match="there is no profile 'h10-8b'"):
        with_configuration(["--emulate", "h10-8b"], parse, folder=None, mode="token")
