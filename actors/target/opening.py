"""Opening sessions at a target: limits, room, and the part of the text that a slot holds already."""

from __future__ import annotations

from typing import Final

import numpy as np

from outrider.actors.engine.protocol import Engine
from outrider.actors.exchange.candidates import FROZEN, POOLED
from outrider.actors.speculation.choice.verifier_registry import VERIFIERS
from outrider.actors.speculation.noise.gumbel import GumbelNoise, NoiseCache
from outrider.actors.speculation.policies import RootPolicy
from outrider.actors.speculation.sampling.transforms import SamplingTransform, is_plain
from outrider.actors.target.state import yields
from outrider.actors.target.state.target_events import OpenSession
from outrider.actors.target.state.target_session import TargetSession
from outrider.actors.target.state.target_state import TargetState
from outrider.actors.target.verify.drawing import near_tie

OFFERED: Final[frozenset[str]] = frozenset(VERIFIERS)
"""Verifiers that this target carries out. Exact match is coupled verification of candidates drawn without the noise."""


class OpenRefused(Exception):
    """A session cannot be opened."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code

    def __reduce__(self) -> tuple[type[OpenRefused], tuple[str, str]]:
        return OpenRefused, (self.code, str(self))


def open_session(
    event: OpenSession, state: TargetState, noise: GumbelNoise, *, now: float
) -> TargetSession:
    """Makes a session and takes a slot for it.

    Args:
        event: What is asked for.
        state: Takes the session in.
        noise: Makes the noise of a seed.
        now: Seconds of the worker's clock.

    Raises:
        OpenRefused: The request does not fit this target; nothing was taken.
    """
    engine, table = state.engine, state.table
    if state.of(event.owner) is not None:
        raise OpenRefused(
            "ALREADY_EXISTS",
            f"session {event.owner.session} is open already on this stream; close it first, or take another number",
        )
    _check(event, engine)
    sampling, speculation = event.sampling, event.speculation
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
        raise OpenRefused("INVALID_ARGUMENT", str(error)) from error
    transform.commit(event.committed)
    row = state.slots.take([*event.prompt, *event.committed], group=event.group)
    table.reset(row)
    text = np.array([*event.prompt, *event.committed], np.int64)
    table.append(np.array([row]), text[None], np.array([len(text)]))
    table.prompts_S[row] = len(event.prompt)
    table.ends_S[row] = len(event.prompt) + sampling.max_tokens
    table.handles_S[row] = state.next_handle()
    table.streams_S[row], table.numbers_S[row] = event.owner.stream, event.owner.session
    table.seeds_S[row] = sampling.seed
    table.noisy_S[row] = transform.uses_noise
    table.plain_S[row] = is_plain(sampling)
    divides = table.plain_S[row] and transform.uses_noise
    table.divisors_S[row] = sampling.temperature if divides else 1.0
    table.near_ties_S[row] = near_tie(spec.dtype, sampling.temperature)
    table.reports_S[row] = sampling.logprobs is not None
    kind = FROZEN if VERIFIERS[speculation.verifier].needs_frozen_tree else POOLED
    table.kinds_S[row] = kind
    # The target's own candidates go into the pools.
    wants_roots = speculation.policies.roots is RootPolicy.TARGET and kind == POOLED
    table.rooted_S[row] = speculation.enabled and wants_roots
    table.speculates_S[row] = speculation.enabled
    table.max_nodes_S[row] = min(speculation.max_nodes, engine.max_scratch - state.longest_chain)
    table.max_depth_S[row] = speculation.max_depth
    table.hoped_S[row] = state.stores[kind].hope(speculation)
    yields.begin(table, np.array([row]))
    table.say(np.array([row]), state.clock.at(now))
    table.heard_S[row], table.woken_S[row] = table.lengths_S[row] - 1, 0
    table.set_stops(row, frozenset((*eos, *sampling.stop_token_ids)))
    session = TargetSession(
        table,
        row,
        owner=event.owner,
        sampling=sampling,
        speculation=speculation,
        transform=transform,
        noise=NoiseCache(noise, sampling.seed) if transform.uses_noise else None,
        request_id=event.request_id,
    )
    state.allow(row, event.drafters)
    state.add(session)
    return session


def _check(event: OpenSession, engine: Engine) -> None:
    spec, sampling = engine.spec, event.sampling
    if engine.num_free == 0:
        raise OpenRefused(
            "RESOURCE_EXHAUSTED", f"all {engine.num_slots} slots of the target are taken"
        )
    if not event.prompt:
        raise OpenRefused("INVALID_ARGUMENT", "prompt is empty; send at least one token")
    needed = len(event.prompt) + sampling.max_tokens
    if needed > spec.max_context:
        raise OpenRefused(
            "OUT_OF_RANGE",
            f"prompt ({len(event.prompt)} tokens) and sampling.max_tokens ({sampling.max_tokens}) "
            f"need {needed} tokens; the context holds {spec.max_context}",
        )
    for name, ids in (("prompt", event.prompt), ("resume", event.committed)):
        outside = next((t for t in ids if not 0 <= t < spec.vocab_size), None)
        if outside is not None:
            raise OpenRefused(
                "INVALID_ARGUMENT",
                f"{name} holds token id {outside}; the vocabulary has ids 0 to {spec.vocab_size - 1}",
            )
    if len(event.committed) >= sampling.max_tokens:
        raise OpenRefused(
            "INVALID_ARGUMENT",
            f"resume holds {len(event.committed)} tokens, sampling.max_tokens allows {sampling.max_tokens}",
        )
    if event.speculation.verifier not in OFFERED:
        raise OpenRefused(
            "INVALID_ARGUMENT",
            f"speculation.verifier {event.speculation.verifier} is not offered by this target; "
            f"offered: {', '.join(sorted(OFFERED))}",
        )
