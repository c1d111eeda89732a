"""A service whose metrics are looked at."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from tests.cluster.metrics.page import Scraped
from tests.cluster.served.test_together import Together, lockstep, table, together

__all__ = ["lockstep", "table", "together"]


@pytest.fixture
async def scraped(together: Together) -> AsyncIterator[Scraped]:
    """Coordinator, target and drafter, all real."""
    made = Scraped(together)
    await made.start()
    yield made
    await made.stop()
