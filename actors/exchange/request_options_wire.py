"""Options of requests to `outrider.v1` and back, for the internal services. Pure; with round-trip tests."""

from __future__ import annotations

from outrider.actors.exchange.option_fields import fill, values
from outrider.actors.exchange.verifier_wire import ask_for, asked_for
from outrider.actors.speculation.options import COUPLED, Sampling, Speculation
from outrider.actors.speculation.trees import level_shapes
from outrider.v1 import sampling_pb2

PROTOCOL_VERSION = 3
"""Version of the internal protocol. Peers that state another are refused."""

_OWN = ("verifier", "tree_shape", "selector", "selector_options", "drafters_at_work")
"""Fields that are more than their value, and those that are the coordinator's."""


def sampling_to_proto(sampling: Sampling) -> sampling_pb2.SamplingOptions:
    """The wire form, with every field set. Stop strings and `n` are the coordinator's and are not in it."""
    options = sampling_pb2.SamplingOptions()
    fill(options, sampling)
    return options


def sampling_from_proto(options: sampling_pb2.SamplingOptions) -> Sampling:
    """The options of a session. `seed` and `max_tokens` must be set; other absent fields take their defaults.

    Values are taken as they are: checking what a client wrote is the coordinator's part (`cluster/validation/`).

    Raises:
        ValueError: `seed` or `max_tokens` is absent.
    """
    for name in ("seed", "max_tokens"):
        if not options.HasField(name):
            raise ValueError(f"sampling.{name} is absent; the coordinator sets it for each session")
    return Sampling(**values(options, Sampling))


def speculation_to_proto(speculation: Speculation) -> sampling_pb2.SpeculationOptions:
    """The wire form, with every field set. Which drafters work is the coordinator's, and not in it."""
    options = sampling_pb2.SpeculationOptions()
    fill(options, speculation, leave_out=_OWN)
    ask_for(speculation.verifier, options)
    if speculation.tree_shape is not None:
        options.tree_shape = str(speculation.tree_shape)
    return options


def speculation_from_proto(options: sampling_pb2.SpeculationOptions) -> Speculation:
    """The options of a session; absent fields take their defaults.

    Raises:
        ValueError: The verifier or a drafting policy is not known to this version, or the tree's shape cannot be read.
    """
    where = "speculation."
    try:
        plain = values(options, Speculation, leave_out=_OWN)
        where = "speculation.verifier "
        verifier = asked_for(options) or COUPLED
        where = "speculation.tree_shape: "
        shape = None
        if options.HasField("tree_shape"):
            shape = level_shapes.parse(options.tree_shape)
    except ValueError as error:
        raise ValueError(f"{where}{error}") from error
    return Speculation(**plain, verifier=verifier, tree_shape=shape)
