"""The trees that token-only verifiers get in the service: grown best first by the real drafter, one for each context."""

from __future__ import annotations

from collections.abc import Sequence

from outrider.actors.draft.autoregressive import AutoregressiveDrafter
from outrider.actors.draft.events import Attach, SessionKey
from outrider.actors.draft.session import DraftSession
from outrider.actors.draft.settings import DraftSettings
from outrider.actors.engine.protocol import Engine
from outrider.actors.speculation.options import Sampling, Speculation, Verifier

WIDTH = 4
"""Children of a node, as drafters have by default."""


class OwnTrees:
    """One drafter, whose estimates learn from prompt to prompt, and a session for each verifier."""

    def __init__(self, engine: Engine, verifiers: Sequence[Verifier], max_nodes: int) -> None:
        self._drafter = AutoregressiveDrafter(
            engine, width=WIDTH, expand=4, max_ahead=64, prefill_chunk=256, lockstep=True
        )
        assert DraftSettings.__dataclass_fields__["width"].default == WIDTH
        self._verifiers = verifiers
        self._max_nodes = max_nodes
        self._sessions: dict[Verifier, DraftSession] = {}

    def begin(self, tokens: Sequence[int], *, seed: int, temperature: float, most: int) -> None:
        """Begins with a prompt of which at most `most` tokens more will come."""
        for number, verifier in enumerate(self._verifiers):
            session = DraftSession(
                Attach(
                    key=SessionKey(1, number),
                    tokens=tuple(tokens),
                    prompt_length=len(tokens),
                    sampling=Sampling(
                        seed=seed, max_tokens=most, temperature=temperature, ignore_eos=True
                    ),
                    speculation=Speculation(verifier=verifier, max_nodes=self._max_nodes),
                )
            )
            self._drafter.attach(session)
            self._sessions[verifier] = session

    def end(self) -> None:
        """Ends the prompt."""
        for session in self._sessions.values():
            self._drafter.detach(session)
        self._sessions.clear()

    def advance(self, tokens: Sequence[int]) -> None:
        """Goes along with the text."""
        for session in self._sessions.values():
            self._drafter.extend(session, tokens)

    def accepted(
        self, verifier: Verifier, following: Sequence[int], budgets: Sequence[int]
    ) -> list[tuple[int, int]]:
        """Grows the tree, cuts it to its best nodes and follows the text.

        Returns:
            For each number of nodes: accepted candidates, and nodes with children on the way, the root counted.
        """
        session = self._sessions[verifier]
        while not self._drafter.is_complete(session):
            self._drafter.draft([session])
        tree = session.tree
        by_value = sorted(range(len(tree)), key=lambda node: (-tree.values[node], node))
        path = tree.walk(following)
        found = []
        for budget in budgets:
            kept = set(by_value[:budget])
            accepted = next((i for i, node in enumerate(path) if node not in kept), len(path))
            ends = (-1, *path)[accepted]
            has_children = any(child in kept for child in tree.children_of(ends))
            found.append((accepted, accepted + has_children))
        return found
