"""Every call ends."""

from __future__ import annotations

import pytest

from outrider.client.connection.errors import InvalidRequest
from outrider.client.connection.timeouts import check_timeout


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("inf"), float("nan"), 1e9])
def test_unusable_timeouts(seconds: float) -> None:
    """A timeout is above 0 and finite."""
    with pytest.raises(InvalidRequest, match="timeout_s") as caught:
        check_timeout("timeout_s", seconds)
    assert caught.value.field == "timeout_s"


def test_usable_timeout() -> None:
    """A usable one comes back."""
    assert check_timeout("timeout_s", 3) == 3.0
