"""The trees that token-only verifiers get in the service: grown best first by the real drafter, one for each context."""

from __future__ import annotations

from collections.abc import Sequence

from bench.running.led_drafter import LedDrafter
from outrider.actors.draft.model.growing_drafter import AutoregressiveDrafter, num_nodes_of
from outrider.actors.draft.state.draft_sessions import DraftSessions
from outrider.actors.draft.state.draft_settings import DraftSettings
from outrider.actors.engine.protocol import Engine
from outrider.actors.speculation.options import Sampling, Speculation

WIDTH = 4
"""Children of a node, as drafters have by default."""

MAX_AHEAD = 64
"""Nodes of a tree, at most."""


class OwnTrees:
    """One drafter, whose estimates learn from prompt to prompt, and a text for each verifier."""

    def __init__(self, engine: Engine, verifiers: Sequence[str], max_nodes: int) -> None:
        assert DraftSettings.__dataclass_fields__["width"].default == WIDTH
        sessions = DraftSessions(engine.num_slots, num_nodes_of(WIDTH, MAX_AHEAD, lockstep=True))
        drafter = AutoregressiveDrafter(
            sessions, engine, width=WIDTH, max_ahead=MAX_AHEAD, prefill_chunk=256, lockstep=True
        )
        self._led = LedDrafter(sessions, drafter, max_ahead=MAX_AHEAD)
        self._handles = {verifier: number for number, verifier in enumerate(verifiers)}
        self._max_nodes = max_nodes

    def begin(self, tokens: Sequence[int], *, seed: int, temperature: float, most: int) -> None:
        """Begins with a prompt of which at most `most` tokens more will come."""
        for verifier, handle in self._handles.items():
            self._led.begin(
                handle,
                tokens,
                prompt_length=len(tokens),
                sampling=Sampling(
                    seed=seed, max_tokens=most, temperature=temperature, ignore_eos=True
                ),
                speculation=Speculation(verifier=verifier, max_nodes=self._max_nodes),
            )

    def end(self) -> None:
        """Ends the prompt."""
        for handle in self._handles.values():
            self._led.end(handle)

    def advance(self, tokens: Sequence[int]) -> None:
        """Goes along with the text."""
        for handle in self._handles.values():
            self._led.advance(handle, tokens)

    def accepted(
        self, verifier: str, following: Sequence[int], budgets: Sequence[int]
    ) -> list[tuple[int, int]]:
        """Grows the tree, cuts it to its best nodes and follows the text.

        Returns:
            For each number of nodes: accepted candidates, and nodes with children on the way, the root counted.
        """
        tree = self._led.tree(self._handles[verifier])
        found = []
        for budget in budgets:
            kept = tree.best(budget)
            path = tree.walk(following, kept)
            end = path[-1] if path else -1
            has_children = any(tree.parents[node] == end for node in kept)
            found.append((len(path), len(path) + has_children))
        return found
