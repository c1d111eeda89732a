"""One request's lines in the logs of coordinator, target and drafter."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from structlog.testing import capture_logs
from tests.cluster.metrics.page import Scraped
from tests.cluster.served.test_together import request


async def test_one_name_finds_a_request_everywhere(scraped: Scraped) -> None:
    """Its beginning and its end at each of the three, at debug level or above."""
    asked = request(1, max_tokens=200)
    asked.request_id = "the-one"
    with capture_logs() as lines:
        await scraped.together.generate(request(2, max_tokens=4))
        await scraped.together.generate(asked)
        async with asyncio.timeout(60.0):
            # The drafter hears of the end last.
            while "session left" not in events(lines, "the-one"):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
    assert events(lines, "the-one") >= {
        "request accepted",
        "session opened",
        "session attached",
        "session ended",
        "session left",
        "request ended",
    }


def events(lines: Sequence[Mapping[str, Any]], request_id: str) -> set[str]:
    """The events that name a request."""
    return {line["event"] for line in lines if line.get("request_id") == request_id}
