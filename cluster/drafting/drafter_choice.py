"""Who should draft for one sequence, by its selector, and what the text has told of each drafter."""

from __future__ import annotations

import zlib
from collections.abc import Collection, Iterable, Mapping, Sequence

import structlog

from outrider.actors.speculation.choice.selector_registry import SELECTORS
from outrider.actors.speculation.drafter_records import STRETCH_TOKENS, DrafterRecords
from outrider.actors.speculation.options import LEAST_BUSY, Speculation
from outrider.actors.speculation.selector_spec import DrafterOffer, Selector
from outrider.cluster.drafting.drafting_peers import DrafterPeer

FAILED = "the selector failed; drafters are chosen by how busy they are"
"""A selector may be code of others, and drafters are never a reason to fail a request."""

Replicas = dict[str, dict[str, DrafterPeer]]
"""By drafter, the streams to its replicas, by name."""

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
        self, able: Replicas, willing: Replicas, at_work: Mapping[str, str]
    ) -> dict[str, str]:
        """A replica of each drafter, in the order in which they should be at work: the one that the request's sequences share, those that the selector
        prefers, and last those that have no use for one sequence alone.

        Args:
            able: Replicas that can be at work, by drafter.
            willing: Those that take sessions, full or not.
            at_work: Who works for this one: the replica of each drafter.
        """
        if not able:
            return {}
        home = self._home(willing)
        chosen = {
            name: _replica(replicas, at_work.get(name), self._home({name: willing[name]}))
            for name, replicas in able.items()
        }
        offers = [
            DrafterOffer(
                name=name,
                num_sessions=able[name][one].num_sessions,
                is_at_work=name in at_work,
            )
            for name, one in chosen.items()
        ]

        def turn(name: str) -> int:
            if chosen[name] == home:
                return 0
            return 2 if able[name][chosen[name]].reads_siblings else 1

        return {name: chosen[name] for name in sorted(self._asked(offers), key=turn)}

    def _home(self, willing: Replicas) -> str:
        """The replica that the request's sequences share; empty if none drafts them from each other. By a hash, so that sequences agree
        on it that never run at the same time."""
        readers = [
            one
            for replicas in willing.values()
            for one, link in replicas.items()
            if link.reads_siblings
        ]
        if not self._group or not readers:
            return ""
        return max(readers, key=lambda one: zlib.crc32(f"{self._group} {one}".encode()))

    def _asked(self, offers: Sequence[DrafterOffer]) -> list[str]:
        """Those of the entries that the selector names, each once, as it ranks them; as the default one does, if it fails."""
        known = [offer.name for offer in offers]
        try:
            return _named(self._selector.ranked(offers), known)
        except Exception:
            log.exception(FAILED)
            self._selector = SELECTORS[LEAST_BUSY].build(self._records)
            return _named(self._selector.ranked(offers), known)

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

    def settle(self, at_work: Collection[str]) -> None:
        """Takes in what was counted since the stretch began, and begins another one.

        Args:
            at_work: Drafters whose doing it is.
        """
        if self._tokens:
            counts = zip(self._names, self._proposed, strict=True)
            proposed = {name: count for name, count in counts if name in at_work}
            self._records.observe(proposed, self._tokens)
            try:
                self._selector.observe(proposed, self._tokens)
            except Exception:
                log.exception(FAILED)
                self._selector = SELECTORS[LEAST_BUSY].build(self._records)
        self.begin()


def _named(ranked: Iterable[DrafterOffer], known: Collection[str]) -> list[str]:
    names = (offer.name for offer in ranked)
    return list(dict.fromkeys(name for name in names if name in known))


def _replica(replicas: Mapping[str, DrafterPeer], own: str | None, home: str) -> str:
    """Of the replicas of a drafter the one at work, that which the request's sequences share, or the least busy one."""
    return min(replicas, key=lambda one: (one != own, one != home, replicas[one].num_sessions))
