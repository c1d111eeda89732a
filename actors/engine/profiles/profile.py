"""What profiles compute. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


class Profile(Protocol):
    """Tells how long passes take."""

    @property
    def name(self) -> str:
        """As `find_profile` knows it."""
        ...

    @property
    def origin(self) -> str:
        """How the numbers came about."""
        ...

    def seconds(self, *, rows: int, sessions: int, context: int) -> float:
        """Seconds of a pass.

        Args:
            rows: Tokens that are run, over all sessions.
            sessions: Slots that they belong to.
            context: Cached rows of these slots together.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Linear:
    """A pass, and so much for each row, session and row of context."""

    name: str
    origin: str
    pass_s: float
    row_s: float
    session_s: float = 0.0
    context_s: float = 0.0
    """For each cached row."""

    def seconds(self, *, rows: int, sessions: int, context: int) -> float:
        """See `Profile`."""
        return (
            self.pass_s + self.row_s * rows + self.session_s * sessions + self.context_s * context
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One GPU, and its link to the others."""

    name: str
    origin: str
    memory_bytes: float
    bytes_per_s: float
    """Of its memory, as the maker says."""

    flops_per_s: float
    """Dense bf16, as the maker says."""

    bytes_share: float
    """Part of `bytes_per_s` that small passes reach."""

    flops_share: float
    """Part of `flops_per_s` that large passes reach."""

    pass_s: float
    """Of every pass beside its layers: embedding, sampling, start of a graph, the host's wait."""

    layer_s: float
    """Of every layer beside its bytes and operations: gaps between kernels."""

    reduce_s: float
    """Latency of an all-reduce among the GPUs of a machine."""

    link_bytes_per_s: float
    """Of an all-reduce, one way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """The size of a model, bf16."""

    name: str
    origin: str
    parameters: float
    """That a row is multiplied with; embeddings are looked up and not counted."""

    weight_bytes: float
    """Of these."""

    layers: int
    hidden: int
    context_bytes: float
    """Keys and values of one cached row, all layers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Roofline:
    """Bytes and operations over what the device can do, whichever is more, and the waits around them.

    Weights and keys and values are split over all GPUs; every layer adds two all-reduces where there are several.
    """

    name: str
    device: Device
    model: Model
    gpus: int

    @property
    def origin(self) -> str:
        """See `Profile`."""
        return f"roofline; {self.device.name}: {self.device.origin} {self.model.name}: {self.model.origin}"

    def seconds(self, *, rows: int, sessions: int, context: int) -> float:
        """See `Profile`. Sessions cost what their rows and context cost."""
        device, model = self.device, self.model
        bytes_s = device.bytes_per_s * device.bytes_share * self.gpus
        flops_s = device.flops_per_s * device.flops_share * self.gpus
        weights_s = max(model.weight_bytes / bytes_s, 2.0 * model.parameters * rows / flops_s)
        # Keys and values are read once for each session; every row is multiplied with its own session's.
        mean_context = context / max(1, sessions)
        attention_s = max(
            model.context_bytes * context / bytes_s,
            4.0 * model.layers * model.hidden * mean_context * rows / flops_s,
        )
        waits_s = device.pass_s + model.layers * device.layer_s
        return weights_s + attention_s + waits_s + self._reduces_s(rows)

    def sessions_that_fit(self, tokens: int) -> int:
        """Sessions whose keys and values lie in the memory of the GPUs beside the weights. An upper bound: embeddings that are
        looked up, activations and what an engine keeps for itself take room as well.

        Args:
            tokens: Of each session, its prompt among them.
        """
        room = self.gpus * self.device.memory_bytes - self.model.weight_bytes
        return max(int(room // (self.model.context_bytes * tokens)), 0)

    def _reduces_s(self, rows: int) -> float:
        if self.gpus == 1:
            return 0.0
        travelling = 2.0 * (self.gpus - 1) / self.gpus * 2.0 * self.model.hidden * rows
        each = self.device.reduce_s + travelling / self.device.link_bytes_per_s
        return 2.0 * self.model.layers * each
