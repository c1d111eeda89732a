"""The models of a service: one, or several with one tokenizer. Each has targets and a queue of its own; the drafters are everybody's."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import replace

import grpc
import structlog

from outrider.cluster.config.coordinator_settings import CoordinatorSettings
from outrider.cluster.links.draft_link import DraftLink
from outrider.cluster.links.stream_link import LinkCounts
from outrider.cluster.links.target_link import TargetLink
from outrider.cluster.requests.drafter_links import DrafterLinks
from outrider.cluster.requests.model_links import ModelLinks
from outrider.cluster.roster.roster import Roster
from outrider.cluster.text.text_tokenizer import TextCodec
from outrider.cluster.validation.status_codes import Refusal

log = structlog.get_logger(__name__)


class ServedModels:
    """The links of every model, the first one's first. Lives on one event loop."""

    def __init__(
        self,
        settings: CoordinatorSettings,
        codec: TextCodec | None,
        *,
        on_readiness: Callable[[bool], None],
        on_drafter_up: Callable[[str], None],
        on_defect: Callable[[str], None],
    ) -> None:
        """Takes whom to call.

        Args:
            settings: What the coordinator was told.
            codec: The tokenizer, None if there is none.
            on_readiness: Called with whether there is a target for any model, when that changes.
            on_drafter_up: Called with the name of a replica of a drafter that has connected.
            on_defect: As of `LinkTasks`.
        """
        self._has_tokenizer = codec is not None
        self._on_readiness, self._on_drafter_up = on_readiness, on_drafter_up
        self._ready: set[str] = set()
        parts = [settings] + [
            replace(
                settings,
                model_name=one.name,
                deployment=one.deployment,
                targets=one.targets,
                further=(),
            )
            for one in settings.further
        ]
        self.drafters = DrafterLinks(settings, on_up=self._drafter_up, on_defect=on_defect)
        """Everybody's."""
        self._every = [
            ModelLinks(
                part,
                codec,
                self.drafters,
                on_readiness=self._readiness_of(part.model_name),
                on_target_up=self._target_up,
                on_defect=on_defect,
            )
            for part in parts
        ]

    def __iter__(self) -> Iterator[ModelLinks]:
        return iter(self._every)

    @property
    def first(self) -> ModelLinks:
        """Of the model that a request gets which names none."""
        return self._every[0]

    @property
    def name(self) -> str:
        """The coordinator's."""
        return self.first.name

    @property
    def names(self) -> tuple[str, ...]:
        """Of the models, as far as they are known."""
        return tuple(links.model for links in self._every if links.model)

    @property
    def targets(self) -> dict[str, TargetLink]:
        """Those of all models, by address."""
        return {address: link for links in self._every for address, link in links.targets.items()}

    @property
    def counts(self) -> dict[str, LinkCounts]:
        """Of every target and drafter that was ever connected, by name."""
        found = dict(self.drafters.counts)
        for links in self._every:
            found |= links.counts
        return found

    @property
    def roster(self) -> Roster:
        """What the supervisor last told."""
        return self.first.roster

    @property
    def is_ready(self) -> bool:
        """Whether there is a target for any model."""
        return any(links.is_ready for links in self._every)

    def of(self, model: str, fingerprint: str = "") -> ModelLinks:
        """The links of the model that a request means: by its name, else by its fingerprint, else the first.

        Raises:
            Refusal: The model cannot be served beside the first one.
        """
        named = [one for one in self._every if model and one.model == model]
        same = [one for one in self._every if fingerprint and one.fingerprint == fingerprint]
        links = (*named, *same, self.first)[0]
        if problem := self._unreadable(links):
            raise Refusal(grpc.StatusCode.FAILED_PRECONDITION, problem, field="model")
        if self._has_tokenizer and self.first.tokenizer is None:
            return (
                self.first
            )  # which refuses: whether its tokenizer can read the other's texts is not known yet
        return links

    def _unreadable(self, links: ModelLinks) -> str:
        """Why texts of a model cannot be read here; empty if they can, or if that is not known yet."""
        ours, theirs = self.first.tokenizer, links.tokenizer
        if not self._has_tokenizer or ours is None or theirs is None or ours == theirs:
            return ""
        return (
            f"model {links.model!r} has another tokenizer than {self.first.model!r}, whose texts the service reads: "
            "serve it by itself"
        )

    def misfit(self, link: DraftLink) -> str:
        """Why a drafter can serve none of the models; empty if it can serve one, or if that is not known yet."""
        reasons = [links.misfit(link) for links in self._every]
        return reasons[0] if all(reasons) else ""

    def start(self) -> None:
        """Connects to everyone known from the start."""
        self.drafters.start()
        for links in self._every:
            links.start()

    def update(self, roster: Roster) -> None:
        """Takes in who is alive."""
        self.drafters.update(roster)
        for links in self._every:
            links.update(roster)

    async def stop(self) -> None:
        """Breaks all links."""
        await asyncio.gather(self.drafters.stop(), *(links.stop() for links in self._every))

    def forget(self, request: int) -> None:
        """A request has ended."""
        for links in self._every:
            links.slots.admission.routes.forget(request)

    def _readiness_of(self, model: str) -> Callable[[bool], None]:
        def tell(is_ready: bool) -> None:
            before = bool(self._ready)
            (self._ready.add if is_ready else self._ready.discard)(model)
            if bool(self._ready) != before:
                self._on_readiness(not before)

        return tell

    def _target_up(self) -> None:
        for links in self._every:
            if problem := self._unreadable(links):
                log.warning("model serves nobody", model=links.model, reason=problem)
        for name in self.drafters:
            self._warn_of_misfit(name)

    def _warn_of_misfit(self, name: str) -> None:
        if reason := self.misfit(self.drafters[name]):
            log.warning("drafter serves nobody", drafter=name, reason=reason)

    def _drafter_up(self, name: str) -> None:
        for links in self._every:
            links.drafters_changed()
        self._warn_of_misfit(name)
        self._on_drafter_up(name)
