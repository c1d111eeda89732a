"""Every link of a coordinator: who is known, who is connected, and what that offers to requests."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Coroutine

import grpc
import structlog

from outrider.actors.exchange.request_options_wire import PROTOCOL_VERSION
from outrider.actors.exchange.verifier_wire import offered_by
from outrider.actors.speculation.drafter_records import DrafterRecords
from outrider.cluster.config.coordinator_settings import CoordinatorSettings
from outrider.cluster.links.draft_link import DraftLink
from outrider.cluster.links.stream_link import LinkBroken
from outrider.cluster.links.target_link import TargetLink
from outrider.cluster.requests.known_drafters import known_drafters
from outrider.cluster.requests.misfit import misfit
from outrider.cluster.requests.sequence import SequencePeers
from outrider.cluster.requests.slot_queue import Slots, allowance, share
from outrider.cluster.roster.roster import EMPTY, Absent, Member, Role, Roster
from outrider.cluster.text.text_tokenizer import TextCodec
from outrider.cluster.validation.limits import Limits
from outrider.cluster.validation.status_codes import Refusal
from outrider.v1 import target_pb2

log = structlog.get_logger(__name__)

RETRY_AFTER_S = 1.0
"""Advice to a client that found no target: a restart takes seconds, a reconnection less."""


class Links:
    """Keeps the links to targets and drafters. Lives on one event loop."""

    def __init__(
        self,
        settings: CoordinatorSettings,
        codec: TextCodec | None,
        *,
        on_readiness: Callable[[bool], None],
        on_target_up: Callable[[], None],
        on_drafter_up: Callable[[str], None],
        on_defect: Callable[[str], None],
        beside: Links | None = None,
    ) -> None:
        """Takes whom to call.

        Args:
            settings: What the coordinator was told.
            codec: The tokenizer, None if there is none.
            on_readiness: Called with whether there is any target, when that changes.
            on_target_up: Called when a target has connected.
            on_drafter_up: Called with the name of a drafter that has connected.
            on_defect: Called with what happened when a link has ended, which only a defect can bring about.
            beside: Those of the model that is served first, whose drafters are everybody's; None: these are they.
        """
        self.targets: dict[str, TargetLink] = {}
        """By address."""
        self.drafters: dict[str, DraftLink] = {} if beside is None else beside.drafters
        """To every replica, by name."""
        self.name = settings.name
        """The coordinator's."""
        self.roster = EMPTY
        """What the supervisor last told."""
        self.slots = Slots(max_waiting=settings.max_waiting)
        # A stream to a drafter knows sessions by number.
        fresh: Callable[[], int] = itertools.count(1).__next__
        self.cluster: SequencePeers = SequencePeers(
            targets=self.targets,
            drafters=self.drafters,
            slots=self.slots,
            next_session=fresh if beside is None else beside.cluster.next_session,
            records=DrafterRecords(),
        )
        self._is_beside = beside is not None
        self._settings = settings
        self._codec = codec
        self._on_readiness = on_readiness
        self._on_target_up = on_target_up
        self._on_drafter_up = on_drafter_up
        self._on_defect = on_defect
        self._draining: set[str] = set()
        """Addresses of targets that take no new sessions."""
        self._info: target_pb2.TargetInfo | None = None
        self._limits: Limits | None = None
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._give_up: asyncio.TimerHandle | None = None
        self._has_given_up = False
        self._hello = target_pb2.Hello(
            protocol_version=PROTOCOL_VERSION,
            name=settings.name,
            incarnation=settings.incarnation,
        )

    @property
    def is_ready(self) -> bool:
        """Whether there is any target."""
        return any(link.is_up for link in self.targets.values())

    @property
    def model(self) -> str:
        """Name of the model served, as far as it is known."""
        return self._settings.model_name or (self._info.model if self._info else "")

    @property
    def fingerprint(self) -> str:
        """Of the model served; empty: no target has answered yet."""
        return self._info.model_fingerprint if self._info else ""

    @property
    def tokenizer(self) -> str | None:
        """Fingerprint of the model's tokenizer; None: no target has answered yet."""
        return self._info.tokenizer_fingerprint if self._info else None

    @property
    def info(self) -> target_pb2.TargetInfo:
        """The description of the model served.

        Raises:
            Refusal: No target has answered yet.
        """
        if self._info is None or (self._has_given_up and not self.is_ready):
            raise Refusal(
                grpc.StatusCode.UNAVAILABLE, self._no_target(), retry_after_s=RETRY_AFTER_S
            )
        return self._info

    def start(self) -> None:
        """Connects to everyone known from the start."""
        for address in self._settings.targets:
            self._add_target(address)
        for name, address in self._settings.drafters if not self._is_beside else ():
            self._add_drafter(name, address)

    async def stop(self) -> None:
        """Breaks all links."""
        if self._give_up is not None:
            self._give_up.cancel()
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    def update(self, roster: Roster) -> None:
        """Takes in who is alive. A link that works is kept even if its actor is not on the roster: the stream knows
        better than a lease."""
        self.roster = roster
        members = roster.members
        coordinators = sum(m.role is Role.COORDINATOR for m in members)
        self.slots.set_max_waiting(share(self._settings.max_waiting, coordinators))
        ours = [m for m in members if m.role is Role.TARGET and self._is_ours(m)]
        targets = {m.address for m in ours}
        self._draining = {m.address for m in ours if m.is_draining}
        for address in targets.difference(self.targets):
            self._add_target(address)
        for address in self._draining:
            self.slots.set_target(address, 0)
        targets.update(self._settings.targets)
        for address in [a for a, link in self.targets.items() if a not in targets]:
            if not self.targets[address].is_up:
                self._remove(f"target {address}")
                del self.targets[address]
        if not self._is_beside:
            self._update_drafters([m for m in members if m.role is Role.DRAFTER])
        self._limits = None

    def _update_drafters(self, members: list[Member]) -> None:
        drafters = {member.name: member.address for member in members}
        for name, address in drafters.items():
            link = self.drafters.get(name)
            if link is not None and link.address != address:
                self._remove(f"drafter {name}")
                del self.drafters[name]
            if name not in self.drafters:
                self._add_drafter(name, address)
        for member in members:
            self.drafters[member.name].entry = member.model or member.name
        drafters.update(self._settings.drafters)
        for name in [n for n in self.drafters if n not in drafters]:
            if not self.drafters[name].is_up:
                self._remove(f"drafter {name}")
                del self.drafters[name]

    def drafters_changed(self) -> None:
        """A drafter has told what it can do."""
        self._limits = None

    @property
    def emulated(self) -> str:
        """See `CoordinatorSettings.emulated`."""
        return self._settings.emulated

    def limits(self) -> Limits:
        """What requests are checked against.

        Raises:
            Refusal: No target has answered yet.
        """
        info, codec, settings = self.info, self._codec, self._settings
        if self._limits is None:
            self._limits = Limits(
                model=info.model,
                fingerprint=info.model_fingerprint,
                vocab_size=info.vocab_size,
                max_context=info.max_context,
                eos_token_ids=frozenset(info.eos_token_ids),
                verifiers=offered_by(info),
                drafters=known_drafters(self.drafters.values(), self._drafters_away(), self.misfit),
                default_max_tokens=settings.default_max_tokens,
                speculation=settings.speculation,
                has_tokenizer=codec is not None,
                has_chat_template=codec is not None and codec.has_chat_template,
                max_token_chars=codec.max_token_chars if codec is not None else None,
            )
        return self._limits

    def misfit(self, link: DraftLink) -> str:
        """Why a drafter cannot serve the model; empty if it can, or if that is not known yet."""
        ours, theirs = self._info, link.info
        return "" if ours is None or theirs is None else misfit(ours, theirs)

    def _is_ours(self, member: Member) -> bool:
        deployment = self._settings.deployment
        return not deployment or member.deployment == deployment

    # -- parts -----------------------------------------------------------------------------------------------------

    def _drafters_away(self) -> list[Absent]:
        return [
            one
            for one in self.roster.absent
            if one.role is Role.DRAFTER and one.name not in self.drafters
        ]

    def _add_target(self, address: str) -> None:
        link = TargetLink(
            address,
            self._hello,
            on_up=self._target_up,
            on_down=self._target_down,
            on_room=self._on_room,
            credentials=self._settings.credentials,
        )
        self.targets[address] = link
        self._run(f"target {address}", link.run())

    def _add_drafter(self, name: str, address: str) -> None:
        link = DraftLink(
            name,
            address,
            self._hello,
            on_up=self._drafter_up,
            credentials=self._settings.credentials,
        )
        self.drafters[name] = link
        self._limits = None
        self._run(f"drafter {name}", link.run())

    def _run(self, key: str, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work, name=f"link to {key}")
        task.add_done_callback(self._report)
        self._tasks[key] = task

    def _remove(self, key: str) -> None:
        self._tasks.pop(key).cancel()

    def _target_up(self, link: TargetLink) -> None:
        info = link.info
        assert info is not None, "a link comes up with the target's description"
        served = self._settings.model_name or (self._info.model if self._info else info.model)
        if info.model != served:
            raise LinkBroken(
                f"the target at {link.address} holds {info.model!r}, this coordinator serves {served!r}"
            )
        others = {one.fingerprint for one in self.targets.values() if one.is_up}
        if others - {link.fingerprint}:
            raise LinkBroken(
                f"the target at {link.address} holds {info.model!r} in another form than the targets that are connected: "
                "other weights, another type or another tokenizer"
            )
        was_ready = self.is_ready
        self._info, self._limits, self._has_given_up = info, None, False
        if self._give_up is not None:
            self._give_up.cancel()
            self._give_up = None
        # The link counts as up only after this returns; sessions are opened in later steps of the loop.
        is_draining = link.address in self._draining
        self.slots.set_target(link.address, 0 if is_draining else info.num_slots)
        if not was_ready:
            self._on_readiness(True)
        self._on_target_up()

    def _target_down(self, link: TargetLink) -> None:
        self.slots.remove_target(link.address)
        if not self.is_ready:
            self._on_readiness(False)
            self._give_up = asyncio.get_running_loop().call_later(
                self._settings.target_wait_s, self._fail_waiting
            )

    def _on_room(self, link: TargetLink, room: target_pb2.SharedRoom) -> None:
        assert link.info is not None, "told on a stream"
        if link.address in self._draining:
            return
        self.slots.set_target(
            link.address,
            allowance(
                link.info.num_slots,
                coordinators=room.coordinators,
                held_by_others=room.held_by_others,
                is_contended=room.is_contended,
            ),
        )

    def _fail_waiting(self) -> None:
        self._has_given_up = True
        self.slots.fail_waiting(
            Refusal(grpc.StatusCode.UNAVAILABLE, self._no_target(), retry_after_s=RETRY_AFTER_S)
        )

    def _no_target(self) -> str:
        tried = "; ".join(f"{link.address}: {link.last_error}" for link in self.targets.values())
        return f"no target is reachable ({tried or 'none is known'}); try again later"

    def _drafter_up(self, link: DraftLink) -> None:
        self._limits = None
        self._on_drafter_up(link.name)

    def _report(self, task: asyncio.Task[None]) -> None:
        """A link ends only by cancellation; anything else is a defect, and nobody would ever connect again."""
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a link ended", link=task.get_name(), exc_info=error)
            self._on_defect(f"the link {task.get_name()} ended: {error!r}")
