"""Dataclasses to `outrider.v1` and back, for the internal services. Pure; with round-trip tests."""

from __future__ import annotations

from outrider.actors.exchange.policy_wire import policies_from_proto, policies_to_proto
from outrider.actors.exchange.verifier_wire import ask_for, asked_for
from outrider.actors.speculation.options import COUPLED, Sampling, Speculation
from outrider.actors.speculation.trees import level_shapes
from outrider.v1 import sampling_pb2

PROTOCOL_VERSION = 1
"""Version of the internal protocol. Peers that state another are refused."""


def sampling_to_proto(sampling: Sampling) -> sampling_pb2.SamplingOptions:
    """The wire form, with every field set. Stop strings and `n` are the coordinator's and are not in it."""
    return sampling_pb2.SamplingOptions(
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        top_k=sampling.top_k,
        min_p=sampling.min_p,
        repetition_penalty=sampling.repetition_penalty,
        presence_penalty=sampling.presence_penalty,
        frequency_penalty=sampling.frequency_penalty,
        logit_bias=dict(sampling.logit_bias),
        seed=sampling.seed,
        max_tokens=sampling.max_tokens,
        min_tokens=sampling.min_tokens,
        stop_token_ids=sampling.stop_token_ids,
        ignore_eos=sampling.ignore_eos,
        logprobs=sampling.logprobs,
    )


def sampling_from_proto(options: sampling_pb2.SamplingOptions) -> Sampling:
    """The options of a session. `seed` and `max_tokens` must be set; other absent fields take their defaults.

    Values are taken as they are: checking what a client wrote is the coordinator's part (`cluster/validation/`).

    Raises:
        ValueError: `seed` or `max_tokens` is absent.
    """
    for name in ("seed", "max_tokens"):
        if not options.HasField(name):
            raise ValueError(f"sampling.{name} is absent; the coordinator sets it for each session")
    scalars = {
        name: getattr(options, name)
        for name in (
            "seed",
            "max_tokens",
            "temperature",
            "top_p",
            "top_k",
            "min_p",
            "repetition_penalty",
            "presence_penalty",
            "frequency_penalty",
            "min_tokens",
            "ignore_eos",
            "logprobs",
        )
        if options.HasField(name)
    }
    return Sampling(
        **scalars,
        logit_bias=dict(options.logit_bias),
        stop_token_ids=tuple(options.stop_token_ids),
    )


def speculation_to_proto(speculation: Speculation) -> sampling_pb2.SpeculationOptions:
    """The wire form, with every field set but the drafters' names."""
    options = sampling_pb2.SpeculationOptions(
        enabled=speculation.enabled,
        max_nodes=speculation.max_nodes,
        max_depth=speculation.max_depth,
        tree_shape=None if speculation.tree_shape is None else str(speculation.tree_shape),
    )
    ask_for(speculation.verifier, options)
    options.verifier_options.update(speculation.verifier_options)
    policies_to_proto(speculation.policies, options)
    return options


def speculation_from_proto(options: sampling_pb2.SpeculationOptions) -> Speculation:
    """The options of a session; absent fields take their defaults.

    Raises:
        ValueError: The verifier or a drafting policy is not known to this version, or the tree's shape is none.
    """
    scalars = {
        name: getattr(options, name)
        for name in ("enabled", "max_nodes", "max_depth")
        if options.HasField(name)
    }
    return Speculation(
        **scalars,
        verifier=asked_for(options) or COUPLED,
        verifier_options=dict(options.verifier_options),
        tree_shape=level_shapes.parse(options.tree_shape)
        if options.HasField("tree_shape")
        else None,
        policies=policies_from_proto(options),
    )
