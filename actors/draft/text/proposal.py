"""What a method without a model proposes: a small tree of tokens below a session's text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from outrider.actors.draft.trees.forest import Int64s


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """A tree in parallel sequences, a place for each node, parents before their children."""

    tokens: Sequence[int] = ()
    """Token ids; none that a sibling has."""

    parents: Sequence[int] = ()
    """Place of each parent; -1: the end of the text."""

    kinds: Sequence[int] = ()
    """What each is an example of, from 0 on: how often those of a kind are right, given that their parent is, is learned while serving."""


def chain(tokens: Sequence[int], kinds: Sequence[int]) -> Proposal:
    """One continuation.

    Args:
        tokens: Its tokens.
        kinds: Of the first tokens; the last one is that of all others.
    """
    more = [kinds[-1]] * (len(tokens) - len(kinds))
    return Proposal(
        tokens=tokens, parents=range(-1, len(tokens) - 1), kinds=[*kinds, *more][: len(tokens)]
    )


class Proposer(Protocol):
    """Proposes continuations of one session's text. Made again when the text is replaced."""

    def propose(self, text_T: Int64s, *, depth: int, rates: Sequence[float]) -> Proposal:
        """A tree that may follow a text.

        Args:
            text_T: The whole text, at least one token. A view: not to be kept.
            depth: Tokens of a path, at most; at least one.
            rates: How often a node of each kind is right, given that its parent is, as far as it is known.
        """
        ...
