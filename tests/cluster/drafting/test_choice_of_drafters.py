"""Which drafters work for a sequence, as its text goes on: changes, refusals, losses, rests. Streams are noted down, time is a list."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from outrider.actors.speculation.choice.selector_registry import SELECTORS
from outrider.actors.speculation.drafter_records import STRETCH_TOKENS, DrafterRecords
from outrider.actors.speculation.options import Speculation
from outrider.actors.speculation.selector_spec import DrafterOffer, SelectorSpec
from outrider.cluster.drafting import drafter_choice
from outrider.cluster.drafting.drafting import Drafting, accepted
from outrider.v1 import draft_pb2

SESSION = 7
NAMES = ("a", "b", "c")


@dataclass
class Peer:
    """A drafter's stream."""

    entry: str
    is_up: bool = True
    has_room: bool = True
    num_sessions: int = 0
    reads_siblings: bool = False
    said: list[str] = field(default_factory=list)
    on_attach: Callable[[], None] = lambda: None

    def attach(self, command: draft_pb2.AttachSession, sink: object) -> None:
        """Notes it."""
        self.said.append("attach")
        self.on_attach()

    def detach(self, session: int) -> None:
        """Notes it."""
        assert session == SESSION
        self.said.append("detach")

    def wait_for_room(self, sink: object) -> None:
        """Notes it."""
        self.said.append("wait")

    def leave(self, sink: object) -> None:
        """Nothing to note."""


@dataclass
class Target:
    """The target's stream."""

    wants_drafters: bool = True
    steers: list[tuple[str, ...]] = field(default_factory=list)

    places: dict[str, int] = field(default_factory=dict)

    def steer(self, session: int, drafters: Mapping[str, int]) -> None:
        """Notes it."""
        assert session == SESSION
        self.steers.append(tuple(sorted(drafters)))
        self.places |= drafters


class Alarm:
    """A call that will not be cancelled here."""

    def cancel(self) -> None:
        """Nothing to do."""


class Setting:
    """One sequence and its streams."""

    def __init__(
        self,
        *,
        at_work: int | None = 1,
        selector: str = "ucb",
        names: tuple[str, ...] = NAMES,
        records: DrafterRecords | None = None,
        wants_drafters: bool = True,
        entries: dict[str, str] | None = None,
        group: int = 0,
        reads_siblings: bool = False,
    ) -> None:
        self.peers = {
            name: Peer((entries or {}).get(name, name), reads_siblings=reads_siblings)
            for name in names
        }
        self.target = Target(wants_drafters)
        self.later: list[Callable[[], None]] = []
        self.records = DrafterRecords() if records is None else records
        self.names = tuple(dict.fromkeys(peer.entry for peer in self.peers.values()))
        self.drafting = Drafting(
            session=SESSION,
            names=self.names,
            group=group,
            speculation=Speculation(selector=selector, drafters_at_work=at_work),
            records=self.records,
            links=self.peers,
            told=accepted(self.names, self.peers),
            target=self.target,
            attach=draft_pb2.AttachSession,
            later=self._call_later,
        )
        self.drafting.start()

    def _call_later(self, seconds: float, action: Callable[[], None]) -> Alarm:
        assert seconds > 0.0
        self.later.append(action)
        return Alarm()

    def attached(self, name: str) -> None:
        """The drafter has answered."""
        self.drafting.on_attached(name)

    def stretch(self, proposer: str | None, count: int = STRETCH_TOKENS) -> None:
        """A stretch of text, all of whose tokens one of them proposed; None: the target itself."""
        origin = -1 if proposer is None else self.names.index(self.peers[proposer].entry)
        self.drafting.committed([origin] * count)

    def said(self) -> dict[str, list[str]]:
        """What each was told since the last call."""
        told = {name: peer.said for name, peer in self.peers.items() if peer.said}
        for peer in self.peers.values():
            peer.said = []
        return told


def settled(**wanted: object) -> Setting:
    """The first of the drafters is at work."""
    setting = Setting(**wanted)  # type: ignore[arg-type]
    setting.attached("a")
    assert setting.said() == {"a": ["attach"]}
    assert setting.target.steers == [("a",)]
    return setting


def test_one_that_gives_way_works_until_the_new_one_has_answered() -> None:
    """The target takes candidates of both meanwhile, so the text never goes without."""
    setting = settled()
    setting.stretch(None)
    assert setting.said() == {"b": ["attach"]}
    assert setting.target.steers[1:] == [("a", "b")]
    # What is proposed meanwhile says nothing of either, and changes nothing.
    setting.stretch("a")
    assert setting.said() == {}
    setting.attached("b")
    assert setting.said() == {"a": ["detach"]}
    assert setting.target.steers[2:] == [("b",)]
    setting.drafting.stop()
    assert setting.said() == {"b": ["detach"]}


def test_an_answer_of_the_one_that_gives_way_relieves_nobody() -> None:
    """It may come late, when another one was asked already."""
    setting = Setting()
    setting.stretch(None)
    assert setting.said() == {"a": ["attach"], "b": ["attach"]}
    for name in ("a", "c"):
        setting.attached(name)
    assert setting.said() == {}
    setting.attached("b")
    assert setting.said() == {"a": ["detach"]}


@pytest.mark.parametrize(("selector", "count"), [("least_busy", 3), ("ucb", 1)])
def test_how_many_work_is_the_selectors_where_nobody_says(selector: str, count: int) -> None:
    """And what somebody says goes before it."""
    assert len(Setting(at_work=None, selector=selector).said()) == count
    assert len(Setting(at_work=2, selector=selector).said()) == 2


def test_who_is_good_stays() -> None:
    """Once the others have been looked at."""
    setting = settled(names=("a", "b"))
    setting.stretch("a")
    setting.attached("b")
    setting.stretch(None)
    setting.attached("a")
    setting.said()
    for _ in range(20):
        setting.stretch("a")
    assert setting.said() == {}


@pytest.mark.parametrize("can_retry", [True, False])
def test_one_that_refuses_leaves_the_other_at_work(can_retry: bool) -> None:
    """And the target is told so."""
    setting = settled()
    setting.stretch(None)
    setting.drafting.on_detached("b", "no", can_retry=can_retry)
    assert setting.said() == {"b": ["attach"]}
    assert setting.target.steers[1:] == [("a", "b"), ("a",)]
    assert len(setting.later) == can_retry
    # Now somebody else is tried.
    setting.stretch(None)
    assert setting.said() == {("b" if can_retry else "c"): ["attach"]}


def test_one_that_is_lost_while_it_leaves_is_not_missed() -> None:
    """The new one goes on alone, and nobody is attached in its place."""
    setting = settled()
    setting.stretch(None)
    setting.drafting.on_detached("a", "dead", can_retry=True)
    setting.attached("b")
    assert setting.said() == {"b": ["attach"]}
    assert setting.target.steers[-1] == ("b",)


def test_no_more_work_than_may_for_long() -> None:
    """Two give way to two, of whom one answers and one refuses: whoever is too many goes at the next look."""
    setting = Setting(at_work=2, names=("a", "b", "c", "d"))
    for name in ("a", "b"):
        setting.attached(name)
    setting.said()
    setting.stretch(None)
    assert setting.said() == {"c": ["attach"], "d": ["attach"]}
    setting.drafting.on_detached("d", "no", can_retry=False)
    setting.attached("c")
    assert setting.said() == {}
    setting.stretch("c")
    told = setting.said()
    assert list(told) in (["a"], ["b"])
    assert list(told.values()) == [["detach"]]
    assert len(setting.target.steers[-1]) == 2
    assert "c" in setting.target.steers[-1]


def test_a_full_drafter_is_no_choice() -> None:
    """Nor is one that is away."""
    setting = settled()
    setting.peers["b"].has_room = False
    setting.peers["c"].is_up = False
    setting.stretch(None)
    assert setting.said() == {}


def test_changes_do_not_use_up_tries() -> None:
    """Only what a drafter gives up counts."""
    setting = settled(names=("a", "b"))
    at_work = "a"
    for _ in range(12):
        setting.stretch(None)
        at_work = "b" if at_work == "a" else "a"
        if setting.said().get(at_work) == ["attach"]:
            setting.attached(at_work)
        else:
            at_work = "b" if at_work == "a" else "a"
        setting.said()
    assert len(setting.target.steers) > 10


def test_a_rest_tells_against_those_at_work() -> None:
    """So another one is tried when the target wants drafters again. A short one, as when it compares, does not."""
    records = DrafterRecords()
    records.observe({"a": 200, "b": 60}, 320)
    setting = settled(names=("a", "b"), records=records)
    setting.target.wants_drafters = False
    setting.stretch(None, 8)
    assert setting.said() == {}
    setting.target.wants_drafters = True
    setting.drafting.start()
    assert setting.said() == {}
    setting.target.wants_drafters = False
    for _ in range(200):
        setting.stretch(None)
    assert setting.said() == {}
    setting.target.wants_drafters = True
    setting.drafting.start()
    assert setting.said() == {"b": ["attach"]}


def test_a_rest_counts_for_texts_that_began_in_it() -> None:
    """None is attached then; what is learned is of the one that would be."""
    setting = Setting(names=("a", "b"), wants_drafters=False)
    assert setting.said() == {}
    setting.stretch(None)
    assert setting.records["a"].committed == STRETCH_TOKENS
    assert setting.records["a"].share == setting.records["b"].committed == 0.0
    setting.target.wants_drafters = True
    setting.drafting.start()
    assert setting.said() == {"b": ["attach"]}


def test_all_at_work_learn_nothing() -> None:
    """Where everybody drafts there is no choice, so nothing is counted for each token."""
    setting = Setting(at_work=None, selector="least_busy")
    for name in NAMES:
        setting.attached(name)
    setting.said()
    for _ in range(5):
        setting.stretch("b")
    assert setting.said() == {}
    assert not setting.records


def test_who_is_least_busy_is_not_exchanged() -> None:
    """The default learns nothing, however little is proposed."""
    setting = settled(selector="least_busy")
    setting.peers["a"].num_sessions = 50
    for _ in range(5):
        setting.stretch(None)
    assert setting.said() == {}


def test_short_texts_tell_others_too() -> None:
    """What is left of a stretch counts when the text ends."""
    setting = settled()
    setting.stretch("a", 10)
    setting.drafting.stop()
    assert (setting.records["a"].committed, setting.records["a"].share) == (10.0, 1.0)


def test_one_replica_of_each_entry_drafts_for_a_text() -> None:
    """They would all propose the same. It is the least busy one; where all may work, those of other entries do, too."""
    entries = {"a": "draft", "b": "draft", "c": "lookup"}
    setting = Setting(at_work=None, selector="least_busy", entries=entries)
    assert setting.said() == {"a": ["attach"], "c": ["attach"]}
    busy = Setting(at_work=None, selector="least_busy", entries=entries, wants_drafters=False)
    busy.peers["a"].num_sessions = 3
    busy.target.wants_drafters = True
    busy.drafting.start()
    assert busy.said() == {"b": ["attach"], "c": ["attach"]}


def test_another_replica_takes_the_place_of_one_that_is_lost_or_full() -> None:
    """And the lost one, back again, is not needed any more."""
    entries = {"a": "draft", "b": "draft", "c": "draft"}
    setting = Setting(at_work=None, selector="least_busy", entries=entries)
    setting.attached("a")
    setting.said()
    setting.peers["a"].is_up = False
    setting.peers["b"].has_room = False
    setting.drafting.on_detached("a", "dead", can_retry=True)
    assert setting.said() == {"c": ["attach"]}
    setting.peers["a"].is_up = True
    setting.drafting.on_up("a")
    assert setting.said() == {}
    assert setting.target.steers[-1] == ("c",)


def test_a_full_entry_is_waited_for_at_all_its_replicas() -> None:
    """But not where one of them has room."""
    entries = {"a": "draft", "b": "draft", "c": "lookup"}
    setting = Setting(at_work=None, selector="least_busy", entries=entries, wants_drafters=False)
    setting.target.wants_drafters = True
    for name in ("a", "b"):
        setting.peers[name].has_room = False
    setting.drafting.start()
    assert setting.said() == {"a": ["wait"], "b": ["wait"], "c": ["attach"]}
    setting.peers["b"].has_room = True
    setting.drafting.on_room("b")
    assert setting.said() == {"b": ["attach"]}


def test_a_replica_that_comes_later_is_as_good() -> None:
    """It takes texts that run already, is told to the target before it is attached, and its tokens are told as its drafter's."""
    steered: list[tuple[str, ...]] = []
    entries = {"a": "lookup", "b": "draft"}
    setting = Setting(at_work=None, selector="least_busy", names=("a", "b"), entries=entries)
    for name in ("a", "b"):
        setting.attached(name)
    setting.said()
    setting.drafting.on_detached("b", "killed", can_retry=True)
    setting.peers["b"].is_up = False
    setting.said()
    setting.peers["new"] = Peer(
        "draft", on_attach=lambda: steered.append(setting.target.steers[-1])
    )
    setting.peers["other"] = Peer("of nobody's request")
    setting.drafting.on_up("other")
    assert setting.said() == {}
    setting.drafting.on_up("new")
    assert setting.said() == {"new": ["attach"]}
    assert steered == setting.target.steers[-1:] == [("a", "new")]
    assert setting.target.places["new"] == setting.names.index("draft")


def test_one_at_work_needs_no_more_room() -> None:
    """It has the text already."""
    setting = settled(selector="least_busy")
    setting.peers["a"].has_room = False
    setting.stretch(None)
    assert setting.said() == {}


def test_nobody_waits_for_more_than_may_work() -> None:
    """A full drafter is not waited for where others fill its place."""
    setting = Setting(at_work=2, selector="least_busy", wants_drafters=False)
    setting.peers["a"].has_room = False
    setting.target.wants_drafters = True
    setting.drafting.start()
    assert setting.said() == {"b": ["attach"], "c": ["attach"]}


def test_replicas_are_one_arm() -> None:
    """What one of them proposed tells of all, and a change is one of entries."""
    entries = {"a": "draft", "b": "draft", "c": "lookup"}
    setting = settled(entries=entries)
    setting.stretch("a")
    assert setting.records["draft"].share == 1.0
    assert setting.said() == {"c": ["attach"]}


@pytest.mark.parametrize("entries", [("one", "one", "one", "one"), ("one", "one", "two", "two")])
@pytest.mark.parametrize("group", range(1, 9))
def test_sequences_of_a_request_share_replicas(group: int, entries: tuple[str, ...]) -> None:
    """Where drafters read siblings, whoever is least busy: all of a group go to one of each drafter, known by the group alone."""
    names = ("a", "b", "c", "d")
    chosen = set()
    for busiest in names:
        setting = Setting(
            at_work=None,
            selector="least_busy",
            names=names,
            entries=dict(zip(names, entries, strict=True)),
            group=group,
            reads_siblings=True,
            wants_drafters=False,
        )
        setting.peers[busiest].num_sessions = 9
        setting.target.wants_drafters = True
        setting.drafting.start()
        chosen.add(tuple(sorted(setting.said())))
    assert len(chosen) == 1


def test_one_that_reads_siblings_is_last_where_there_are_none() -> None:
    """It would have nothing to propose."""
    setting = Setting(selector="least_busy", wants_drafters=False)
    setting.peers["a"].reads_siblings = True
    setting.target.wants_drafters = True
    setting.drafting.start()
    assert setting.said() == {"b": ["attach"]}


class Broken:
    """A selector of others that fails."""

    def __init__(self, records: DrafterRecords, where: str) -> None:
        if where == "build":
            raise ZeroDivisionError
        self._where = where

    def ranked(self, offers: Sequence[DrafterOffer]) -> list[DrafterOffer]:
        """Fails, or turns the order round."""
        if self._where == "ranked":
            raise ZeroDivisionError
        return list(reversed(offers))

    def observe(self, proposed: Mapping[str, int], committed: int) -> None:
        """Fails."""
        raise ZeroDivisionError


@pytest.mark.parametrize("where", ["build", "ranked", "observe"])
def test_a_selector_that_fails_costs_no_text(monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    """It is logged, and drafters are chosen as they are by default."""
    broken = SelectorSpec(
        name="broken", build=lambda records: Broken(records, where), summary="", at_work=1
    )
    monkeypatch.setattr(drafter_choice, "SELECTORS", {**SELECTORS, "broken": broken})
    setting = Setting(selector="broken")
    first = "c" if where == "observe" else "a"
    setting.attached(first)
    assert setting.said() == {first: ["attach"]}
    for _ in range(3):
        setting.stretch(None)
    assert setting.said() == {}


@pytest.mark.parametrize(
    ("said", "at_work"),
    [
        ([], []),
        (["b", "b", "c"], ["b"]),
        (["nobody", "c"], ["c"]),
        ([["a"], None, "b"], ["b"]),
    ],
)
def test_what_a_selector_says_of_others_counts_for_nothing(
    monkeypatch: pytest.MonkeyPatch, said: list[Any], at_work: list[str]
) -> None:
    """Nor does what is no name, or is said twice. Who names nobody has nobody at work."""

    class Odd(Broken):
        """Says what it likes."""

        def ranked(self, offers: Sequence[DrafterOffer]) -> list[DrafterOffer]:
            """Of whomever."""
            return [replace(offers[0], name=name) for name in said]

    odd = SelectorSpec(name="odd", build=lambda records: Odd(records, ""), summary="", at_work=1)
    monkeypatch.setattr(drafter_choice, "SELECTORS", {**SELECTORS, "odd": odd})
    assert Setting(selector="odd").said() == {name: ["attach"] for name in at_work}
