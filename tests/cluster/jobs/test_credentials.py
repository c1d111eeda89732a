"""Where the token comes from, and what is no token."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from outrider.cluster.jobs.ray_token import RayToken, find_credentials
from outrider.cluster.process.command_failed import USAGE, CommandFailed


@pytest.fixture
def token(tmp_path: Path) -> Path:
    """A file with a token and a line's end."""
    file = tmp_path / "token"
    file.write_text("from-a-file\n")
    return file


def test_file_goes_before_variables(token: Path) -> None:
    """What the command line names is what is sent."""
    found = find_credentials(token, {"RAY_AUTH_TOKEN": "other", "RAY_AUTH_MODE": "token"})

    assert found == RayToken("token", "from-a-file")
    assert found.headers == {"Authorization": "Bearer from-a-file"}


def test_variables_as_ray_reads_them(token: Path, tmp_path: Path) -> None:
    """The token itself, then the file, then the usual place; any of them means token mode."""
    usual = tmp_path / "home" / ".ray"
    usual.mkdir(parents=True)
    (usual / "auth_token").write_text("usual")
    places = {"HOME": str(tmp_path / "home"), "RAY_AUTH_TOKEN_PATH": str(token)}

    assert find_credentials(None, {**places, "RAY_AUTH_TOKEN": "direct"}).token == "direct"
    assert find_credentials(None, places).token == "from-a-file"
    assert find_credentials(None, {"HOME": places["HOME"]}) == RayToken("token", "usual")


def test_without_a_token(token: Path) -> None:
    """Nothing is sent to a cluster that is said to ask for none, though there is a token."""
    assert find_credentials(None, {}) == RayToken("disabled")
    disabled = find_credentials(
        None, {"RAY_AUTH_MODE": "disabled", "RAY_AUTH_TOKEN_PATH": str(token)}
    )
    assert disabled == RayToken("disabled")
    assert disabled.headers == {}


def test_token_is_not_shown() -> None:
    """Not in a traceback, nor in a log."""
    assert "secret" not in repr(RayToken("token", "secret"))


@pytest.mark.parametrize(
    ("file", "environment", "message"),
    [
        (None, {"RAY_AUTH_MODE": "token"}, "there is none: --token-file"),
        (None, {"RAY_AUTH_MODE": "tokn"}, "allowed: token, disabled"),
        ("token", {"RAY_AUTH_MODE": "disabled"}, "of no use with RAY_AUTH_MODE=disabled"),
        ("missing", {}, "--token-file .*missing cannot be read: No such file"),
        (None, {"RAY_AUTH_TOKEN_PATH": "/no/such/file"}, "RAY_AUTH_TOKEN_PATH .* No such file"),
        ("/dev/zero", {}, "--token-file /dev/zero holds no token"),
        (None, {"RAY_AUTH_TOKEN_PATH": "/dev/zero"}, "/dev/zero holds no token"),
        (None, {"RAY_AUTH_TOKEN": "two words"}, "RAY_AUTH_TOKEN holds no token"),
        (None, {"RAY_AUTH_TOKEN": "a\nX-Header: b"}, "RAY_AUTH_TOKEN holds no token"),
    ],
)
def test_refused(token: Path, file: str | None, environment: dict[str, str], message: str) -> None:
    """Before anything is sent, with what to do."""
    with pytest.raises(CommandFailed, match=message) as caught:
        find_credentials(token.parent / file if file else None, environment)
    assert caught.value.exit_code == USAGE


def test_token_from_a_pipe() -> None:
    """As a shell hands over what another program says."""
    read_end, write_end = os.pipe()
    os.write(write_end, b"from-a-pipe\n")
    os.close(write_end)
    try:
        assert find_credentials(Path(f"/dev/fd/{read_end}"), {}).token == "from-a-pipe"
    finally:
        os.close(read_end)
