"""The description of a verifier: everything that the rest of the service needs to know about one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from outrider.actors.speculation.number_options import NumberOption, check_description, settle
from outrider.actors.speculation.trees.draft_tree import Replacement
from outrider.actors.speculation.verify.acceptance import Verify


class TreeGrowth(StrEnum):
    """What the shape of a tree may depend on."""

    ANYTHING = "anything"
    """Candidates may be chosen, pruned, merged and reordered at will, also after they were drawn."""

    DRAWN_TOKENS = "drawn_tokens"
    """Whether to draw a further token may depend on all tokens in the tree; each token that was drawn stays."""

    PREFIX = "prefix"
    """The number of siblings may depend on the text before them only, not on their tokens."""


WITH = frozenset({Replacement.WITH})
WITHOUT = frozenset({Replacement.WITHOUT})


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifierSpec:
    """A verifier and its needs."""

    name: str
    """As configuration, command line and contract name it: lower case, words joined by underscores."""

    verify: Verify
    """The function. It takes `options` as further keyword arguments."""

    summary: str
    """When to choose it, in one line for the table of verifiers."""

    source: str
    """Authors, year and arXiv id."""

    growth: TreeGrowth = TreeGrowth.DRAWN_TOKENS
    """What the shape of the tree may depend on."""

    needs_frozen_tree: bool = True
    """True: it tests a tree that was drawn before verification from rows that are sent along; False: a candidate stays exactly if it
    is the target's own draw, so that trees may grow as they please."""

    needs_all_target_rows: bool = False
    """True: target rows of all nodes are read; False: only those along the accepted path."""

    is_chain_only: bool = False
    """True: the tree must be a chain."""

    replacements: frozenset[Replacement] = frozenset(Replacement)
    """How siblings may be drawn. Irrelevant where no node has siblings."""

    mixes_drafters: bool = False
    """True: siblings may come from different drafters."""

    shares_noise: bool = False
    """True: the target's draws come from the noise that drafters know; all others need decisions nobody else knows."""

    is_lossless: bool = True
    """False: the text does not follow the target's law. Said wherever the verifier is shown; never chosen by default."""

    options: Mapping[str, NumberOption] = field(default_factory=dict)
    """What a request may choose, by name."""

    def __post_init__(self) -> None:
        check_description("verifier", self.name, self.options)

    @property
    def drawn(self) -> Replacement:
        """How drafters draw siblings for it: without replacement where it allows that, because no candidate is wasted then."""
        return Replacement.WITHOUT if Replacement.WITHOUT in self.replacements else Replacement.WITH

    def settled(self, given: Mapping[str, float]) -> dict[str, float]:
        """All options: those given, and the others' defaults.

        Raises:
            ValueError: One is unknown or outside its interval; names it and says what is possible.
        """
        return settle(self.name, self.options, given)
