"""What an actor is told about the model to load. Plain data: crosses processes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

LAW_PREFIX = "law:"
TABULAR_PREFIX = "tabular:"
DEMO_PREFIX = "demo:"
"""How names of models begin that are no folder and no hub id; `checkpoint/model_source.py` resolves them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """A model and the room it gets."""

    model: str
    """Folder or hub id of a transformers causal language model, `tabular:FILE` for a table of distributions,
    `law:NAME` for a law (`trigram_laws.py`), or `demo:NAME` for a shipped model."""

    dtype: str = "auto"
    """Type of weights and cache: `float32`, `bfloat16`, `float16`, or `auto`: on a GPU that of the checkpoint, on a CPU float32."""

    device: str = "cpu"
    """`cpu`, `cuda`, `cuda:N`, or `emulated:PROFILE` for a table or a law."""

    num_slots: int | None = None
    """Sessions that can be held at a time. None: chosen by the memory (`sizing.choose_room`)."""

    max_context: int | None = None
    """Greatest number of tokens of one sequence, at least 4. None: the model's own, or less where the memory is small."""

    gpu_share: float = 1.0
    """Part of the GPU's memory that a choice may take and that values are checked against, 0 to 1."""

    max_scratch: int = 320
    """Tree nodes that a slot can hold behind the committed rows; bounds prefill chunks and trees."""

    num_threads: int | None = None
    """Threads of the arithmetic on a CPU. None: as torch chooses."""

    niceness: int = 0
    """Niceness of the arithmetic's threads, 0 to 19, so that event loops come first; 0 leaves it as it is."""

    allow_remote_code: bool = False
    """Runs code from the model's repository."""

    direct_forward: bool = True
    """Run Llama-shaped models as functions of their weights (`llama_forward.py`). False: run the modules of transformers always."""

    cuda_graphs: Literal["auto", "on", "off"] = "auto"
    """Whether small passes are padded to fixed shapes, recorded and replayed as CUDA graphs. `auto`: on a CUDA device, shapes
    that come often, as far as the model can be recorded; the rest is run by itself. `on`: every shape when it first comes,
    and a model that cannot be recorded is refused; a CPU then takes a GPU's way too, eagerly, for tests."""
