"""Which target has computed which beginnings of prompts, as far as this coordinator sent them there. Pure.

An estimate: a target forgets rows when it needs their slot, and only it knows. A wrong guess costs a prompt computed again.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from outrider.actors.speculation.trees import base_hash

BLOCK = 32
"""Tokens of a block. Beginnings are known in whole blocks."""

MAX_BLOCKS = 1 << 16
"""Blocks that are remembered, the most recently used: two million tokens of prompts, some megabytes."""


class PrefixRoutes:
    """Remembers where beginnings went."""

    def __init__(self, *, max_blocks: int = MAX_BLOCKS) -> None:
        self._max_blocks = max_blocks
        self._seen: OrderedDict[int, str] = OrderedDict()
        self._prompts: dict[int, list[int]] = {}

    def add(self, request: int, prompt: Sequence[int]) -> None:
        """Takes in the prompt of a request."""
        hashes, value = [], base_hash.EMPTY
        for start in range(0, len(prompt) - BLOCK + 1, BLOCK):
            value = base_hash.extend_all(value, prompt[start : start + BLOCK])
            hashes.append(value)
        if hashes:
            self._prompts[request] = hashes

    def forget(self, request: int) -> None:
        """The request has ended. Where its prompt went stays known."""
        self._prompts.pop(request, None)

    def known(self, request: int) -> dict[str, int]:
        """Tokens of a request's prompt that each target has seen, from the beginning on."""
        tokens: dict[str, int] = {}
        for index, value in enumerate(self._prompts.get(request, ()), start=1):
            target = self._seen.get(value)
            if target is None:
                break
            # A longer beginning was seen where its last block was; its shorter ones may have been seen elsewhere later.
            tokens[target] = index * BLOCK
        return tokens

    def sent(self, request: int, target: str) -> None:
        """The request goes to a target, which will know its prompt."""
        for value in self._prompts.get(request, ()):
            self._seen[value] = target
            self._seen.move_to_end(value)
        while len(self._seen) > self._max_blocks:
            self._seen.popitem(last=False)
