"""Calls of Ray that wait for its control store, beside the event loop: the store may be slow, or out of reach.

Whoever waits for one goes on answering others meanwhile. Calls are made one at a time, in the order in which they were asked for,
and to the end: a wait may be given up, the call is not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

_thread = ThreadPoolExecutor(1, thread_name_prefix="ray-calls")

P = ParamSpec("P")
T = TypeVar("T")


async def in_turn(call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """What the call gives, or raises."""
    made = asyncio.wrap_future(_thread.submit(call, *args, **kwargs))
    return await asyncio.shield(made)
