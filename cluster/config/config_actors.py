"""The sections of targets and drafters."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from outrider.actors.draft.choice.drafter_registry import DRAFTERS
from outrider.actors.engine.checkpoint.model_source import resolve_model
from outrider.actors.engine.engine_settings import DEMO_PREFIX, LAW_PREFIX, TABULAR_PREFIX
from outrider.actors.engine.profiles import DEVICE_PREFIX, find_profile
from outrider.cluster.config.config_section import NAME, AutoOr, Scalar, Section, Switch
from outrider.cluster.config.node_labels import KEY, SELECTOR
from outrider.cluster.config.resource_amounts import Amount, Gpus, Resources

LabelKey = Annotated[str, Field(pattern=KEY)]
LabelSelector = Annotated[str, Field(pattern=SELECTOR)]

TABLES = (LAW_PREFIX, TABULAR_PREFIX)
"""How the names of models begin that are tables of distributions."""


MAX_SLOTS = 4_096
"""Sessions that a target or a drafter can hold, at most."""


class _Actor(Section):
    name: str = Field(default="", pattern=NAME)
    """Its name, unique in the service. By default made from the model."""

    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """Type of weights and cache. `auto`: on a GPU that of the checkpoint, on a CPU float32."""

    device: str = Field(default="cpu", pattern=r"^(cpu|cuda(:[0-9]{1,3})?|emulated:.+)$")
    """`cpu`, `cuda` or `cuda:N`, counted among the devices that Ray gives the actor. `emulated:PROFILE`: passes take what the
    profile says, asleep; only `law:` and `tabular:` models run there."""

    num_slots: Annotated[int | Literal["auto"], AutoOr(1, MAX_SLOTS)] = "auto"
    """Sessions it can hold at a time. `auto`: 16, or as many as the memory has room for."""

    max_context: Annotated[int | Literal["auto"], AutoOr(4, 10_000_000)] = "auto"
    """Longest sequence, prompt and output. `auto`: the model's own, or less where the memory has no room for four of it."""

    max_scratch: int = Field(default=320, ge=2, le=65_536)
    """Tree nodes that a slot can hold behind the committed rows; bounds prefill chunks and trees."""

    prefill_chunk: int = Field(default=256, ge=1, le=65_536)
    """Prompt tokens in one pass, at most."""

    num_threads: int | None = Field(default=None, ge=1, le=1_024)
    """Threads of the arithmetic on a CPU. None: `num_cpus`, at least one."""

    allow_remote_code: bool = False
    """Runs code from the model's repository."""

    direct_forward: bool = True
    """Run Llama, Mistral, Qwen2 and Qwen3 models as functions of their weights; `false`: by transformers' own modules."""

    cuda_graphs: Switch = "auto"
    """On a GPU, whether small passes are recorded and replayed: `auto` as far as the model can be, `on` or not start, `off`."""

    replicas: int | None = Field(default=None, ge=1, le=1_000)
    """How many actors to start. None: `min_replicas`, or one. Their number is fixed unless `min_replicas` or `max_replicas` differs."""

    min_replicas: int | None = Field(default=None, ge=1, le=1_000)
    """As many run at the least, however little there is to do. None: `replicas`."""

    max_replicas: int | None = Field(default=None, ge=1, le=1_000)
    """As many run at the most; between the two the load decides (see `autoscaling`). None: the greater of the two others."""

    num_cpus: Amount = 1.0
    """CPUs that Ray reserves for each."""

    num_gpus: Gpus | None = None
    """GPUs that Ray reserves for each; may be a fraction. None: one with a `cuda` device, else none."""

    resources: Resources = Field(default_factory=dict)
    """Custom resources that Ray reserves for each, for instance `{target_node: 1}`."""

    node_labels: dict[LabelKey, LabelSelector] = Field(default_factory=dict)
    """Labels that its node must have, in Ray's form: `{gpu: h100}`, `{zone: "in(a,b)"}`, `{spot: "!true"}`."""

    @property
    def gpus(self) -> float:
        """GPUs to reserve for one replica."""
        if self.num_gpus is not None:
            return self.num_gpus
        return 1.0 if self.device.startswith("cuda") else 0.0

    @property
    def start(self) -> int:
        """Replicas to start."""
        return self.replicas or self.min_replicas or 1

    @property
    def least(self) -> int:
        """Replicas that run at the least."""
        return self.min_replicas or self.start

    @property
    def most(self) -> int:
        """Replicas that run at the most."""
        return self.max_replicas or self.start

    def replica_names(self, count: int) -> tuple[str, ...]:
        """The name of each of so many replicas. The first has the plain name, so that one that runs stays when others are added."""
        return (self.name, *(f"{self.name}-{index}" for index in range(1, count)))

    @property
    def threads(self) -> int:
        """Threads of the arithmetic of one replica."""
        return self.num_threads or max(1, int(self.num_cpus))

    @field_validator("device")
    @classmethod
    def _check_profile(cls, value: str) -> str:
        if value.startswith(DEVICE_PREFIX):
            find_profile(value.removeprefix(DEVICE_PREFIX))
        return value

    @field_validator("model", check_fields=False)
    @classmethod
    def _check_shipped(cls, value: str | None) -> str | None:
        """Refuses names of models that the package should have. Folders and files may be on other machines."""
        if value is not None and value.startswith((LAW_PREFIX, DEMO_PREFIX)):
            resolve_model(value)
        return value

    def _check_emulated(self, model: str | None, method: str = "") -> None:
        """Refuses what an emulated device cannot run."""
        if self.device.startswith(DEVICE_PREFIX) and not (model or "").startswith(TABLES):
            raise ValueError(
                f"device is {self.device}, which does no arithmetic, so it cannot run "
                f"{method if model is None else repr(model)}: name a law:NAME or tabular:FILE model, or a real device"
            )

    @model_validator(mode="after")
    def _check_replicas(self) -> Self:
        if not self.least <= self.start <= self.most:
            least, most = self.min_replicas, self.max_replicas
            given = [f"min_replicas is {least}"] if least is not None else []
            given += [f"replicas is {self.replicas}"] if self.replicas is not None else []
            given += [f"max_replicas is {most}"] if most is not None else []
            raise ValueError(f"{' and '.join(given)}: must rise in this order")
        return self

    @model_validator(mode="after")
    def _check_room(self) -> Self:
        if self.device.startswith("cuda") and self.gpus == 0:
            raise ValueError(f"num_gpus is 0 with device {self.device}: reserve a GPU or use cpu")
        if self.device.startswith("cuda:") and int(self.device.partition(":")[2]) >= self.gpus:
            raise ValueError(
                f"device is {self.device}, and num_gpus {self.gpus:g}: Ray shows each actor the GPUs that are reserved for it "
                "only, counted from cuda:0; write cuda, or reserve more"
            )
        if self.prefill_chunk > self.max_scratch:
            raise ValueError(
                f"prefill_chunk is {self.prefill_chunk} and max_scratch {self.max_scratch}: "
                "a chunk must fit into the scratch rows"
            )
        return self


class TargetConfig(_Actor):
    """A target model."""

    model: str = Field(min_length=1)
    """Folder or hub id of a transformers model, `demo:NAME`, `law:NAME`, or `tabular:FILE`."""

    niceness: int = Field(default=5, ge=0, le=19)
    """Niceness of the arithmetic's threads on a CPU, so that event loops come first."""

    max_batch_nodes: int = Field(default=256, ge=1, le=65_536)
    """Tree nodes in one pass over all sessions, at most. More pays where many requests meet a device whose rows are nearly free; a pass's logits take memory for each."""

    max_patience_s: float = Field(default=0.5, ge=0, le=60, allow_inf_nan=False)
    """How long a free target waits for candidates, at most."""

    @model_validator(mode="after")
    def _check_model(self) -> Self:
        self._check_emulated(self.model)
        return self


class DrafterConfig(_Actor):
    """A drafter."""

    method: str = Field(default="autoregressive", json_schema_extra={"enum": list(DRAFTERS)})
    """How it drafts; docs/extending.md has a table."""

    options: dict[str, Scalar] = Field(default_factory=dict)
    """Options of the method, where it has some."""

    model: str | None = Field(default=None, min_length=1)
    """Folder or hub id of a transformers model, `demo:NAME`, `law:NAME`, or `tabular:FILE`; none for a method without a model."""

    niceness: int = Field(default=15, ge=0, le=19)
    """Niceness of the arithmetic's threads on a CPU: above that of the target, which must not wait."""

    width: int = Field(default=4, ge=1, le=1_024)
    """Children of a node, at most."""

    max_ahead: int = Field(default=512, ge=1, le=65_536)
    """Nodes of one session below its committed text, at most."""

    max_scratch: int = Field(default=512, ge=2, le=65_536)
    """Tree nodes that a slot can hold behind the committed rows; bounds prefill chunks and trees."""

    bytes_per_token: float = Field(default=2500.0, gt=0, le=1e9, allow_inf_nan=False)
    """Bytes on the wire that one more committed token may cost. With more, more candidates are sent ahead."""

    @model_validator(mode="after")
    def _check_method(self) -> Self:
        method = DRAFTERS.get(self.method)
        if method is None:
            raise ValueError(f"method is {self.method!r}; allowed: {', '.join(DRAFTERS)}")
        if self.model is not None and not method.needs_model:
            raise ValueError(f"model is {self.model!r}, but {self.method} drafts without one")
        if self.model is None and method.needs_model:
            raise ValueError(f"model is missing: {self.method} drafts with one")
        if self.model is None and self.device.startswith("cuda"):
            raise ValueError(
                f"device is {self.device}, but {self.method} has no model that would run there, and a GPU would be reserved for "
                "nothing: leave device out"
            )
        try:
            method.settled(self.options)
        except ValueError:
            raise
        except Exception as error:  # noqa: BLE001 - the options' own check may be code of others
            raise ValueError(
                f"options of {self.method} cannot be used: {type(error).__name__}: {error}"
            ) from None
        self._check_emulated(self.model, self.method)
        return self
