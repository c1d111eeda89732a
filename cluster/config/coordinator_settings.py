"""What a coordinator is told. Plain data: crosses processes."""

from __future__ import annotations

from dataclasses import dataclass, field

from outrider.actors.rpc.credentials import OPEN, Credentials
from outrider.actors.rpc.tls import TlsFiles
from outrider.actors.speculation.options import Speculation


@dataclass(frozen=True, slots=True, kw_only=True)
class FurtherModel:
    """A model that is served beside the first one, with the same tokenizer."""

    name: str
    """As clients know it."""

    deployment: str = ""
    """As `CoordinatorSettings.deployment`."""

    targets: tuple[str, ...] = ()
    """As `CoordinatorSettings.targets`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorSettings:
    """A coordinator."""

    name: str
    """The actor's name, unique in the cluster."""

    incarnation: int
    """Identifies this start of the actor; greater than that of every earlier start."""

    listen: str = "127.0.0.1:0"
    """Address to bind; port 0 takes a free one."""

    credentials: Credentials = OPEN
    """What calls to targets and drafters carry."""

    advertise_host: str | None = None
    """Host that clients reach this actor at. None: the bound host."""

    tls: TlsFiles | None = None
    """The certificate for clients; None: plain connections."""

    tokens: str = ""
    """File of the tokens, of which a client must send one. Empty: it need not."""

    internal_listen: str = "127.0.0.1:0"
    """Address to bind for calls of other actors."""

    shares_port: bool = False
    """Other coordinators of the service may listen at the same address already."""

    deployment: str = ""
    """Which targets of the roster are used: those of the same. Empty: all."""

    tokenizer: str = ""
    """Folder or id of the tokenizer. Empty: none, and prompts are token ids."""

    allow_remote_code: bool = False
    """Runs code that comes with the tokenizer."""

    model_name: str = ""
    """The model served, as clients know it. Empty: that of the first target that answers."""

    targets: tuple[str, ...] = ()
    """Addresses of the targets that are known from the start; others come with the roster."""

    further: tuple[FurtherModel, ...] = ()
    """Models beside this one. The drafters are those of all."""

    drafters: tuple[tuple[str, str], ...] = ()
    """Name and address of the drafters that are known from the start; others come with the roster."""

    default_max_tokens: int = 256
    """Output tokens of a request that does not say."""

    max_waiting: int = 256
    """Requests that wait for a slot, at most; the next one is refused with advice to retry."""

    speculation: Speculation = field(default_factory=Speculation)
    """Options of a request that does not say."""

    emulated: str = ""
    """Profiles of emulated devices that the service runs on, with commas; empty: all are real."""

    target_wait_s: float = 60.0
    """Seconds that a request goes without any target before it fails; its own deadline may be sooner."""

    otlp_endpoint: str | None = None
    """URL of an OTLP collector's gRPC port that spans of requests go to. None: as the standard variables say."""

    reflection: bool = True
    """Whether the server describes itself to tools such as grpcurl."""

    def __post_init__(self) -> None:
        if self.default_max_tokens < 1:
            raise ValueError(
                f"default_max_tokens must be at least 1, got {self.default_max_tokens}"
            )
        if self.max_waiting < 0:
            raise ValueError(f"max_waiting must be at least 0, got {self.max_waiting}")
