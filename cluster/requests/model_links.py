"""A model's links: its targets, beside everybody's drafters, and what that offers to requests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import grpc
import structlog

from outrider.actors.exchange.verifier_wire import offered_by
from outrider.actors.speculation.drafter_records import DrafterRecords
from outrider.cluster.config.coordinator_settings import CoordinatorSettings
from outrider.cluster.links.draft_link import DraftLink
from outrider.cluster.links.link_tasks import LinkTasks
from outrider.cluster.links.stream_link import LinkBroken, LinkCounts
from outrider.cluster.links.target_link import TargetLink
from outrider.cluster.requests.drafter_links import DrafterLinks, hello_of, known_drafters
from outrider.cluster.requests.misfit import misfit
from outrider.cluster.requests.sequence import SequencePeers
from outrider.cluster.requests.slot_queue import Slots, allowance, share
from outrider.cluster.roster.roster import EMPTY, Member, Role, Roster
from outrider.cluster.text.text_tokenizer import TextCodec
from outrider.cluster.validation.limits import Limits
from outrider.cluster.validation.status_codes import Refusal
from outrider.v1 import target_pb2

log = structlog.get_logger(__name__)

RETRY_AFTER_S = 1.0
"""Advice to a client that found no target: a restart takes seconds, a reconnection less."""


class ModelLinks:
    """Keeps the links to the targets of a model. Lives on one event loop."""

    def __init__(
        self,
        settings: CoordinatorSettings,
        codec: TextCodec | None,
        drafters: DrafterLinks,
        *,
        on_readiness: Callable[[bool], None],
        on_target_up: Callable[[], None],
        on_defect: Callable[[str], None],
    ) -> None:
        """Takes whom to call.

        Args:
            settings: What the coordinator was told.
            codec: The tokenizer, None if there is none.
            drafters: The links to drafters, which others share.
            on_readiness: Called with whether there is any target, when that changes.
            on_target_up: Called when a target has connected.
            on_defect: As of `LinkTasks`.
        """
        self.targets: dict[str, TargetLink] = {}
        """By address."""
        self.counts: dict[str, LinkCounts] = {}
        """By name of the target, over its restarts: each is a link to another address."""
        self.drafters = drafters
        self.name = settings.name
        """The coordinator's."""
        self.emulated = settings.emulated
        """See `CoordinatorSettings.emulated`."""
        self.roster = EMPTY
        """What the supervisor last told."""
        self.slots = Slots(max_waiting=settings.max_waiting)
        self.cluster: SequencePeers = SequencePeers(
            targets=self.targets,
            drafters=self.drafters,
            slots=self.slots,
            next_session=drafters.next_session,
            records=DrafterRecords(),
        )
        self._settings = settings
        self._codec = codec
        self._on_readiness = on_readiness
        self._on_target_up = on_target_up
        self._draining: set[str] = set()
        """Addresses of targets that take no new sessions."""
        self._info: target_pb2.TargetInfo | None = None
        self._limits: Limits | None = None
        self._tasks = LinkTasks(on_defect)
        self._give_up: asyncio.TimerHandle | None = None
        self._has_given_up = False

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

    async def stop(self) -> None:
        """Breaks all links."""
        if self._give_up is not None:
            self._give_up.cancel()
        await self._tasks.stop()

    def update(self, roster: Roster) -> None:
        """Takes in who is alive. A link that works is kept even if its actor is not on the roster: the stream knows
        better than a lease."""
        self.roster = roster
        members = roster.members
        coordinators = sum(m.role is Role.COORDINATOR for m in members)
        self.slots.admission.max_waiting = share(self._settings.max_waiting, coordinators)
        ours = [m for m in members if m.role is Role.TARGET and self._is_ours(m)]
        targets = {m.address for m in ours}
        self._draining = {m.address for m in ours if m.is_draining}
        for address in targets.difference(self.targets):
            self._add_target(address)
        for address in self._draining:
            self.slots.set_target(address, 0)
            self.targets[address].is_leaving = True
        targets.update(self._settings.targets)
        for address in [a for a, link in self.targets.items() if a not in targets]:
            if not self.targets[address].is_up:
                self._tasks.remove(f"target {address}")
                self.slots.admission.remove_target(address)
                del self.targets[address]
        self._limits = None

    def drafters_changed(self) -> None:
        """A drafter has told what it can do."""
        self._limits = None

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
                drafters=known_drafters(self.drafters.values(), self.drafters.away, self.misfit),
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

    def _add_target(self, address: str) -> None:
        link = TargetLink(
            address,
            hello_of(self._settings),
            on_up=self._target_up,
            on_down=self._target_down,
            on_room=self._on_room,
            credentials=self._settings.credentials,
        )
        link.on_break = self._look_again
        self.targets[address] = link
        self._tasks.run(f"target {address}", link.run())

    def _look_again(self) -> None:
        """Who has left the roster is gone once the stream has broken. Later: the link is still at work."""
        asyncio.get_running_loop().call_soon(lambda: self.update(self.roster))

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
        link.counts = self.counts.setdefault(info.name, link.counts)
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
        self.slots.admission.remove_target(link.address)
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
