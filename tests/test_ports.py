"""Every port is bound, and every channel made, in one place each: there TLS is decided."""

from __future__ import annotations

import re

import pytest
from tests.test_imports import ROOT, sources

PLACES = {
    r"\.add_(in)?secure_port\(": {"actors/rpc/grpc_server.py"},
    r"\.(in)?secure_channel\(": {"actors/rpc/grpc_server.py", "client/connection/access.py"},
}
"""What may stand in which file; `client/` imports nothing of `actors/`."""


@pytest.mark.parametrize("call", PLACES)
def test_nobody_else_binds_or_connects(call: str) -> None:
    """A second place would be one without certificates."""
    found = {
        file.relative_to(ROOT).as_posix() for file in sources() if re.search(call, file.read_text())
    }
    assert found == PLACES[call]
