"""Who should draft for one sequence, by its selector, and what the text has told of each drafter."""

from __future__ import annotations

import zlib
from collections.abc import Collection, Mapping, Sequence

import structlog

from outrider.actors.speculation.choice.selector_registry import SELECTORS
from outrider.actors.speculation.drafter_records import STRETCH_TOKENS, DrafterRecords
from outrider.actors.speculation.options import LEAST_BUSY, Speculation
from outrider.actors.speculation.selector_spec import DrafterOffer, Selector
from outrider.cluster.drafting.drafting_peers import DrafterPeer

FAILED = "the selector failed; drafters are chosen by how busy they are"
"""A selector may be code of others, and drafters are never a reason to fail a request."""

log = structlog.get_logger(__name__)


class DrafterChoice:
    """The choice for one opened session."""

    def __init__(
        self, names: tuple[str, ...], group: int, speculation: Speculation, records: DrafterRecords
    ) -> None:
        """
        Args:
            names: The request's drafters, in order.
            group: Number that sequences of its request share; 0: it has no siblings.
            speculation: Of the request.
            records: What all sequences tell of each drafter; this one adds to it.
        """
        self._records = records
        self._names = names
        self._group = group
        spec = SELECTORS[speculation.selector]
        try:
            options = spec.settled(speculation.selector_options)
            self._selector: Selector = spec.build(records, **options)
        except Exception:
            log.exception(FAILED)
            self._selector = SELECTORS[LEAST_BUSY].build(records)
        self.begin()

    def ranked(
        self, names: Sequence[str], willing: Mapping[str, DrafterPeer], at_work: Collection[str]
    ) -> list[str]:
        """One replica of each entry, in the order in which they should be at work: the one that the request's sequences share, those that the selector
        prefers, and last those that have no use for one sequence alone.

        Args:
            names: Of the willing ones, those that can be at work.
            willing: Drafters that take sessions, full or not.
            at_work: Who works for this one.
        """
        replicas: dict[str, list[str]] = {}
        for name in names:
            replicas.setdefault(willing[name].entry, []).append(name)
        chosen = {entry: self._replica(own, willing, at_work) for entry, own in replicas.items()}
        offers = [
            DrafterOffer(
                name=entry, num_sessions=willing[name].num_sessions, is_at_work=name in at_work
            )
            for entry, name in chosen.items()
        ]
        asked = dict.fromkeys(self._asked(offers)) if offers else {}
        ranked = [chosen[entry] for entry in asked if entry in chosen]
        home = self._home(willing)

        def turn(name: str) -> int:
            if name == home:
                return 0
            return 2 if willing[name].reads_siblings else 1

        return sorted(ranked, key=turn)

    def _replica(
        self, names: Sequence[str], willing: Mapping[str, DrafterPeer], at_work: Collection[str]
    ) -> str:
        """Of the replicas of an entry the one at work, that which the request's sequences share, or the least busy one."""
        entry = willing[names[0]].entry
        home = self._home({name: link for name, link in willing.items() if link.entry == entry})
        return min(
            names,
            key=lambda name: (name not in at_work, name != home, willing[name].num_sessions),
        )

    def _home(self, willing: Mapping[str, DrafterPeer]) -> str:
        """The drafter that the request's sequences share; empty if none drafts them from each other. By a hash, so that sequences agree
        on it that never run at the same time."""
        readers = [name for name, link in willing.items() if link.reads_siblings]
        if not self._group or not readers:
            return ""
        return max(readers, key=lambda name: zlib.crc32(f"{self._group} {name}".encode()))

    def _asked(self, offers: Sequence[DrafterOffer]) -> list[str]:
        """The entries as the selector ranks them; as the default one does, if it fails."""
        try:
            return [offer.name for offer in self._selector.ranked(offers)]
        except Exception:
            log.exception(FAILED)
            self._selector = SELECTORS[LEAST_BUSY].build(self._records)
            return [offer.name for offer in self._selector.ranked(offers)]

    def begin(self) -> None:
        """A stretch begins: who is at work has changed."""
        self._tokens = 0
        self._proposed = [0] * len(self._names)

    def committed(self, origins: Sequence[int]) -> bool:
        """Counts tokens that were committed. Returns whether the choice is to be looked at again.

        Args:
            origins: The drafter that proposed each, as an index into the request's, -1: the target itself.
        """
        self._tokens += len(origins)
        for origin in origins:
            if origin >= 0:
                self._proposed[origin] += 1
        return self._tokens >= STRETCH_TOKENS

    def settle(self, at_work: Mapping[str, DrafterPeer]) -> None:
        """Takes in what was counted since the stretch began, and begins another one. What is learned is of entries: replicas are alike.

        Args:
            at_work: Whose doing it is.
        """
        if self._tokens:
            proposed: dict[str, int] = {}
            for name, count in zip(self._names, self._proposed, strict=True):
                if name in at_work:
                    entry = at_work[name].entry
                    proposed[entry] = proposed.get(entry, 0) + count
            self._records.observe(proposed, self._tokens)
            try:
                self._selector.observe(proposed, self._tokens)
            except Exception:
                log.exception(FAILED)
                self._selector = SELECTORS[LEAST_BUSY].build(self._records)
        self.begin()
