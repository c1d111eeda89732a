"""Opening sessions at a target: limits, room, and the part of the text that a slot holds already."""

from __future__ import annotations

from typing import Final

from outrider.actors.engine.prefix_slots import PrefixSlots
from outrider.actors.engine.protocol import Engine
from outrider.actors.speculation.noise import GumbelNoise, NoiseCache
from outrider.actors.speculation.options import Verifier
from outrider.actors.speculation.transforms import SamplingTransform
from outrider.actors.speculation.verifiers.registry import METHODS
from outrider.actors.target.events import Open
from outrider.actors.target.near_ties import near_tie
from outrider.actors.target.session import Session

OFFERED: Final[frozenset[Verifier]] = frozenset(METHODS)
"""Verifiers that this target carries out. Exact match is coupled verification of candidates drawn without the noise."""


class Refused(Exception):
    """A session cannot be opened."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code

    def __reduce__(self) -> tuple[type[Refused], tuple[str, str]]:
        return Refused, (self.code, str(self))


def open_session(
    event: Open, engine: Engine, slots: PrefixSlots, noise: GumbelNoise, *, handle: int
) -> Session:
    """Makes a session and takes a slot for it.

    Args:
        event: What is asked for.
        engine: The target model.
        slots: Its slots.
        noise: Makes the noise of a seed.
        handle: The session's.

    Raises:
        Refused: The request does not fit this target; nothing was taken.
    """
    _check(event, engine)
    sampling = event.sampling
    spec = engine.spec
    eos = () if sampling.ignore_eos else spec.eos_token_ids
    try:
        transform = SamplingTransform(
            sampling,
            vocab_size=spec.vocab_size,
            prompt=event.prompt,
            eos_token_ids=spec.eos_token_ids,
            device=spec.device,
        )
    except ValueError as error:
        raise Refused("INVALID_ARGUMENT", str(error)) from error
    transform.commit(event.committed)
    return Session(
        owner=event.owner,
        handle=handle,
        group=event.group,
        slot=slots.take([*event.prompt, *event.committed], group=event.group),
        prompt=event.prompt,
        committed=event.committed,
        sampling=sampling,
        speculation=event.speculation,
        drafters=event.drafters,
        transform=transform,
        noise=NoiseCache(noise, sampling.seed) if transform.uses_noise else None,
        stop_tokens=frozenset((*eos, *sampling.stop_token_ids)),
        near_tie=near_tie(spec.dtype, sampling.temperature),
        request_id=event.request_id,
    )


def _check(event: Open, engine: Engine) -> None:
    spec, sampling = engine.spec, event.sampling
    if engine.num_free == 0:
        raise Refused("RESOURCE_EXHAUSTED", f"all {engine.num_slots} slots of the target are taken")
    if not event.prompt:
        raise Refused("INVALID_ARGUMENT", "prompt is empty; send at least one token")
    needed = len(event.prompt) + sampling.max_tokens
    if needed > spec.max_context:
        raise Refused(
            "OUT_OF_RANGE",
            f"prompt ({len(event.prompt)} tokens) and sampling.max_tokens ({sampling.max_tokens}) "
            f"need {needed} tokens; the context holds {spec.max_context}",
        )
    for name, ids in (("prompt", event.prompt), ("resume", event.committed)):
        outside = next((t for t in ids if not 0 <= t < spec.vocab_size), None)
        if outside is not None:
            raise Refused(
                "INVALID_ARGUMENT",
                f"{name} holds token id {outside}; the vocabulary has ids 0 to {spec.vocab_size - 1}",
            )
    if len(event.committed) >= sampling.max_tokens:
        raise Refused(
            "INVALID_ARGUMENT",
            f"resume holds {len(event.committed)} tokens, sampling.max_tokens allows {sampling.max_tokens}",
        )
    if event.speculation.verifier not in OFFERED:
        raise Refused(
            "INVALID_ARGUMENT",
            f"speculation.verifier {event.speculation.verifier} is not offered by this target; "
            f"offered: {', '.join(sorted(OFFERED))}",
        )
