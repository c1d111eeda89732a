"""What a service tells of itself, as frozen values: health, models, actors."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from outrider.client.messages.request_options import DraftLength, Roots, Verifier


class Health(StrEnum):
    """What the health service says."""

    SERVING = "serving"
    NOT_SERVING = "not_serving"
    SERVICE_UNKNOWN = "service_unknown"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class DrafterInfo:
    """One drafter of a model."""

    name: str
    method: str
    verifiers: tuple[Verifier | str, ...] = ()
    ready: bool = False
    draft_lengths: tuple[DraftLength, ...] = ()
    problem: str = ""
    """Why it is not ready, where that is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberOptionInfo:
    """A number that a request may choose for a method."""

    name: str
    default: float
    least: float
    most: float
    help: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifierInfo:
    """A verifier that a request may name."""

    name: str
    summary: str = ""
    """When to choose it."""
    source: str = ""
    """Authors, year and arXiv id."""
    lossless: bool = True
    """Whether the text follows the target's law."""
    options: tuple[NumberOptionInfo, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectorInfo:
    """A selector that a request may name."""

    name: str
    summary: str = ""
    """When to choose it."""
    source: str = ""
    """Authors, year and arXiv id."""
    at_work: int = 0
    """Drafters that it keeps at work where nobody says how many; 0: all."""
    options: tuple[NumberOptionInfo, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelInfo:
    """One target model and what it offers."""

    name: str
    vocab_size: int
    max_context: int
    eos_token_ids: tuple[int, ...] = ()
    verifiers: tuple[Verifier | str, ...] = ()
    verifier_infos: tuple[VerifierInfo, ...] = ()
    drafters: tuple[DrafterInfo, ...] = ()
    has_chat_template: bool = False
    model_fingerprint: str = ""
    tokenizer_fingerprint: str = ""
    draft_lengths: tuple[DraftLength, ...] = ()
    roots: tuple[Roots, ...] = ()
    selectors: tuple[SelectorInfo, ...] = ()
    emulated: str = ""
    """As `Admission.emulated`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActorInfo:
    """One actor of the service."""

    name: str
    role: str
    address: str
    incarnation: int
    ready: bool
    model: str = ""
    sessions: int = 0
    capacity: int = 0
    busy: float = 0.0
    """Fraction of the last seconds that its model was computing."""

    pid: int = 0
    """Of its process, on its node; 0 while it is not known, as of one that is starting."""

    problem: str = ""
    """Why it is not ready, where that is known."""
    tokens: int = 0
    """Target: tokens committed since its start."""
    verified: int = 0
    """Target, drafter: candidates that were part of a pass, since the targets started."""
    accepted: int = 0
    """Target, drafter: candidates that were drawn."""
    feedback_bytes: int = 0
    """Drafter: bytes of hidden states and likeliest tokens of targets that it asked for and was sent, since the targets started."""
    feedback_dropped: int = 0
    """Drafter: positions of those that were dropped, because it did not read as fast as they came."""
    note: str = ""
    """Drafter: what it has found out about its model while serving, for people; empty if nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replicas:
    """How many actors a target or drafter of the configuration has."""

    name: str
    """Its name in the configuration."""

    role: str
    """`target` or `drafter`."""

    wanted: int
    """As many as the load asks for."""

    running: int
    """As many are there and take sessions."""

    least: int
    most: int
    """Their number is fixed if both are the same."""

    reason: str = ""
    """Why their number was last changed, or why it cannot be; empty if nothing has changed since the start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """The state of the service."""

    version: str
    uptime_s: float
    running: int
    waiting: int
    finished: int
    accepting: bool
    actors: tuple[ActorInfo, ...] = ()
    refused_registrations: int = 0
    """Internal registrations that were refused: of actors that the service did not start."""
    last_refusal: str = ""
    """Why the last of them was; empty if there was none."""
    replicas: tuple[Replicas, ...] = ()
    """How many actors each target and drafter of the configuration has."""
    emulated: str = ""
    """As `Admission.emulated`."""
