"""Ray's mode of authentication and its token, found where Ray finds them, or in a file that is named.

Read again each time, because Ray itself keeps both for the life of a process. The token is sent in a header and never printed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from outrider.cluster.process.command_failed import USAGE, CommandFailed

Mode = Literal["token", "disabled"]

MAX_BYTES = 1 << 16
"""Bytes of a file with a token, at most: a wrong path may be a device, which never ends."""


@dataclass(frozen=True, slots=True)
class RayToken:
    """How to speak to a job server, and the mode that the job itself is told."""

    mode: Mode
    token: str | None = field(default=None, repr=False)

    @property
    def headers(self) -> dict[str, str]:
        """Headers of every request."""
        return {} if self.token is None else {"Authorization": f"Bearer {self.token}"}


def find_credentials(token_file: Path | None, environment: Mapping[str, str]) -> RayToken:
    """The mode and the token.

    Args:
        token_file: Holds the token; goes before every variable.
        environment: `RAY_AUTH_MODE`, `RAY_AUTH_TOKEN`, `RAY_AUTH_TOKEN_PATH`, `HOME`. Without a mode, a token that is found
            counts, as it does for Ray.

    Raises:
        CommandFailed: The mode is unknown, the token is missing or cannot be read, or the two contradict each other.
    """
    mode = environment.get("RAY_AUTH_MODE", "").lower()
    if mode not in ("", "token", "disabled"):
        raise CommandFailed(f"RAY_AUTH_MODE is {mode!r}; allowed: token, disabled", USAGE)
    if mode == "disabled":
        if token_file is not None:
            raise CommandFailed("--token-file is of no use with RAY_AUTH_MODE=disabled", USAGE)
        return RayToken("disabled")
    token = _find_token(token_file, environment)
    if token is not None:
        return RayToken("token", token)
    if mode == "token":
        raise CommandFailed(
            "RAY_AUTH_MODE is token, but there is none: --token-file FILE, RAY_AUTH_TOKEN_PATH or RAY_AUTH_TOKEN",
            USAGE,
        )
    return RayToken("disabled")


def _find_token(token_file: Path | None, environment: Mapping[str, str]) -> str | None:
    if token_file is not None:
        return _read(token_file, "--token-file")
    if environment.get("RAY_AUTH_TOKEN"):
        return _checked(environment["RAY_AUTH_TOKEN"], "RAY_AUTH_TOKEN")
    if environment.get("RAY_AUTH_TOKEN_PATH"):
        return _read(Path(environment["RAY_AUTH_TOKEN_PATH"]), "RAY_AUTH_TOKEN_PATH")
    usual = Path(environment["HOME"]) / ".ray" / "auth_token" if environment.get("HOME") else None
    return _read(usual, "the token in") if usual is not None and usual.exists() else None


def _read(path: Path, what: str) -> str:
    try:
        with path.open("rb") as file:  # Need be no ordinary file: a shell's <(...) is a pipe.
            raw = file.read(MAX_BYTES + 1)
        text = raw.decode("ascii") if len(raw) <= MAX_BYTES else ""
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "is no ASCII text"
        raise CommandFailed(f"{what} {path} cannot be read: {reason}", USAGE) from None
    return _checked(text, f"{what} {path}")


def _checked(text: str, what: str) -> str:
    """A token without the white space around it. What could not stand in a header is refused."""
    token = text.strip()
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise CommandFailed(f"{what} holds no token", USAGE)
    return token
