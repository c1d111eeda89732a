"""What `ListModels` and `GetStatus` tell of targets and drafters."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from typing import Any

from outrider.actors.exchange.option_fields import numbers
from outrider.actors.exchange.verifier_wire import offer_of
from outrider.actors.speculation.choice.selector_registry import SELECTORS
from outrider.actors.speculation.choice.verifier_registry import VERIFIERS
from outrider.actors.speculation.number_options import NumberOption
from outrider.actors.speculation.policies import LengthChoice, RootPolicy
from outrider.cluster.links.draft_link import DraftLink
from outrider.cluster.links.target_link import TargetLink
from outrider.cluster.requests.drafter_links import replicas_of
from outrider.cluster.requests.model_links import ModelLinks
from outrider.cluster.requests.served_models import ServedModels
from outrider.cluster.roster.roster import Absent, Member, Role, Roster
from outrider.cluster.validation.limits import KnownDrafter
from outrider.v1 import generation_pb2, target_pb2

STATUS_S = 0.5
"""Seconds that an actor has to answer before a status report calls it not ready."""


def models(served: ServedModels) -> generation_pb2.ListModelsResponse:
    """The models served, their drafters, and what a request may ask of them. One without a target is left out, if another has some.

    Raises:
        Refusal: No target has answered yet.
    """
    known = [links for links in served if links.fingerprint] or [served.first]
    return generation_pb2.ListModelsResponse(models=[_model(links) for links in known])


def _model(links: ModelLinks) -> generation_pb2.TargetModel:
    info, limits = links.info, links.limits()
    drafters = links.drafters.values()
    offered = {one for link in drafters if not links.misfit(link) for one in link.draft_lengths}
    return generation_pb2.TargetModel(
        name=info.model,
        vocab_size=info.vocab_size,
        max_context=info.max_context,
        eos_token_ids=info.eos_token_ids,
        verifiers=info.verifiers,
        verifier_infos=[_verifier(name) for name in limits.verifiers],
        drafters=[_drafter(links, known) for known in limits.drafters],
        has_chat_template=limits.has_chat_template,
        model_fingerprint=info.model_fingerprint,
        tokenizer_fingerprint=info.tokenizer_fingerprint,
        draft_lengths=numbers(
            generation_pb2.TargetModel,
            "draft_lengths",
            (o for o in LengthChoice if o in offered),
        ),
        roots=numbers(generation_pb2.TargetModel, "roots", RootPolicy),
        selectors=[
            generation_pb2.SelectorInfo(
                name=name,
                summary=spec.summary,
                source=spec.source,
                at_work=spec.at_work or 0,
                options=_options(spec.options),
            )
            for name, spec in SELECTORS.items()
        ],
        emulated=links.emulated,
    )


def _drafter(links: ModelLinks, known: KnownDrafter) -> generation_pb2.DrafterModel:
    """A drafter of the configuration: ready if one of its replicas is."""
    replicas = replicas_of(links.drafters.values()).get(known.name, [])
    is_ready = any(link.is_up and not links.misfit(link) for link in replicas)
    problems = [_problem(links.roster, link, links.misfit(link)) for link in replicas] + [
        _why(absent)
        for absent in _missing(links)
        if absent.role is Role.DRAFTER and absent.model == known.name
    ]
    return generation_pb2.DrafterModel(
        name=known.name,
        method=next((link.info.method for link in replicas if link.info), ""),
        **offer_of(known.verifiers),
        ready=is_ready,
        draft_lengths=numbers(generation_pb2.DrafterModel, "draft_lengths", known.draft_lengths),
        problem="" if is_ready else next(filter(None, problems), ""),
    )


def add_peers(
    status: generation_pb2.GetStatusResponse,
    told: list[tuple[Member, generation_pb2.GetStatusResponse | None]],
) -> None:
    """Adds what other coordinators say of themselves to what one knows of itself."""
    for peer, theirs in told:
        if theirs is None:
            status.actors.append(
                generation_pb2.ActorStatus(
                    name=peer.name,
                    role=peer.role.value,
                    address=peer.address,
                    incarnation=peer.incarnation,
                    pid=peer.pid,
                    problem="it does not answer",
                )
            )
            continue
        status.running += theirs.running
        status.waiting += theirs.waiting
        status.finished += theirs.finished
        status.accepting |= theirs.accepting
        status.actors.extend(theirs.actors)


async def actors(links: ServedModels) -> list[generation_pb2.ActorStatus]:
    """Every target and drafter, asked at the same time how busy it is."""
    targets = list(links.targets.values())
    drafters = list(links.drafters.values())
    answers = await asyncio.gather(
        *(link.refresh(STATUS_S) for link in targets),
        *(link.refresh(STATUS_S) for link in drafters),
    )
    statuses, drafted = [], _drafted(targets)
    for target, is_ready in zip(targets, answers, strict=False):
        status = _status("target", target.address, is_ready, target.info, target.num_sessions)
        status.problem = _problem(links.roster, target)
        if target.info is not None:
            status.tokens = target.info.tokens
            status.verified = sum(one.verified for one in target.info.drafters)
            status.accepted = sum(one.accepted for one in target.info.drafters)
        statuses.append(status)
    for drafter, is_ready in zip(drafters, answers[len(targets) :], strict=True):
        misfit = links.misfit(drafter)
        status = _status(
            "drafter",
            drafter.address,
            is_ready and not misfit,
            drafter.info,
            drafter.num_sessions,
        )
        status.name = drafter.name
        counts = drafted.get(drafter.name, target_pb2.DrafterCounts())
        status.verified, status.accepted = counts.verified, counts.accepted
        status.feedback_bytes = counts.feedback_bytes
        status.feedback_dropped = counts.feedback_dropped
        status.problem = _problem(links.roster, drafter, misfit)
        status.note = drafter.info.note if drafter.info is not None else ""
        statuses.append(status)
    for absent in _missing(links):
        statuses.append(
            generation_pb2.ActorStatus(
                name=absent.name,
                role=absent.role.value,
                model=absent.model,
                problem=_why(absent),
            )
        )
    return statuses


def replicas(roster: Roster) -> list[generation_pb2.ReplicaStatus]:
    """How many of each target and drafter there should be, and are."""
    there = Counter((one.model, one.role) for one in roster.members if not one.is_draining)
    return [
        generation_pb2.ReplicaStatus(
            name=scale.entry,
            role=scale.role.value,
            wanted=scale.wanted,
            running=there[scale.entry, scale.role],
            min=scale.least,
            max=scale.most,
            reason=scale.reason,
        )
        for scale in roster.scales
    ]


def _drafted(targets: list[TargetLink]) -> dict[str, target_pb2.DrafterCounts]:
    """By drafter: what became of its candidates, and what it was told, at all targets together."""
    sums: dict[str, target_pb2.DrafterCounts] = {}
    for target in targets:
        for one in target.info.drafters if target.info is not None else ():
            total = sums.setdefault(one.name, target_pb2.DrafterCounts(name=one.name))
            total.verified += one.verified
            total.accepted += one.accepted
            total.feedback_bytes += one.feedback_bytes
            total.feedback_dropped += one.feedback_dropped
    return sums


def _missing(links: ModelLinks | ServedModels) -> list[Absent]:
    """Actors that should be there and have no link that would tell of them."""
    known = {links.name, *links.drafters, *(link.name for link in links.targets.values())}
    return [absent for absent in links.roster.absent if absent.name not in known]


def _why(absent: Absent) -> str:
    restarts = f", started again {absent.restarts} times" if absent.restarts else ""
    return f"{absent.state}{restarts}" + (f": {absent.reason}" if absent.reason else "")


def _problem(roster: Roster, link: TargetLink | DraftLink, misfit: str = "") -> str:
    """Why an actor is not ready, as far as that is known; empty for one that is connected and fits."""
    if misfit or link.is_up:
        return misfit
    told = next((_why(absent) for absent in roster.absent if absent.name == link.name), "")
    return told or link.last_error


def _status(
    role: str, address: str, is_ready: bool, info: Any, num_sessions: int
) -> generation_pb2.ActorStatus:
    status = generation_pb2.ActorStatus(
        name=address, role=role, address=address, ready=is_ready, sessions=num_sessions
    )
    if info is not None:
        status.name, status.model, status.pid = info.name, info.model, info.pid
        status.incarnation, status.capacity, status.busy = (
            info.incarnation,
            info.num_slots,
            info.busy,
        )
    return status


def _verifier(name: str) -> generation_pb2.VerifierInfo:
    spec = VERIFIERS.get(name)
    if spec is None:
        return generation_pb2.VerifierInfo(name=name)
    return generation_pb2.VerifierInfo(
        name=name,
        summary=spec.summary,
        source=spec.source,
        lossless=spec.is_lossless,
        options=_options(spec.options),
    )


def _options(options: Mapping[str, NumberOption]) -> list[generation_pb2.NumberOption]:
    return [
        generation_pb2.NumberOption(
            name=name, default_value=one.default, least=one.least, most=one.most, help=one.help
        )
        for name, one in options.items()
    ]
