"""The client library and the command line. Imports neither torch nor Ray.

from outrider.client import Client

with Client("127.0.0.1:50051") as client:
    print(client.generate("Once upon a time").text)
"""

from outrider.client.async_client import AsyncClient
from outrider.client.async_stream import AsyncGenerationStream
from outrider.client.blocking import Client
from outrider.client.blocking_stream import GenerationStream
from outrider.client.connection.access import Tls
from outrider.client.connection.errors import (
    AlreadyRunning,
    Cancelled,
    DeadlineExceeded,
    InvalidRequest,
    ModelExchanged,
    NotFound,
    OutriderError,
    Overloaded,
    ServiceError,
    Unauthorized,
    Unavailable,
)
from outrider.client.connection.retry import NO_RETRY, RetryPolicy
from outrider.client.messages.request_options import (
    DraftLength,
    Message,
    Roots,
    SamplingOptions,
    SpeculationOptions,
    Verifier,
)
from outrider.client.messages.results import (
    Admission,
    Completion,
    Event,
    FinishReason,
    Generation,
    Origin,
    Output,
    SpeculationStats,
    TextChunk,
    Timing,
    Token,
    TokenLogprob,
    Usage,
)
from outrider.client.messages.service_info import (
    ActorInfo,
    DrafterInfo,
    Health,
    ModelInfo,
    Replicas,
    SelectorInfo,
    Status,
    VerifierInfo,
)

__all__ = [
    "NO_RETRY",
    "ActorInfo",
    "Admission",
    "AlreadyRunning",
    "AsyncClient",
    "AsyncGenerationStream",
    "Cancelled",
    "Client",
    "Completion",
    "DeadlineExceeded",
    "DraftLength",
    "DrafterInfo",
    "Event",
    "FinishReason",
    "Generation",
    "GenerationStream",
    "Health",
    "InvalidRequest",
    "Message",
    "ModelExchanged",
    "ModelInfo",
    "NotFound",
    "Origin",
    "Output",
    "OutriderError",
    "Overloaded",
    "Replicas",
    "RetryPolicy",
    "Roots",
    "SamplingOptions",
    "SelectorInfo",
    "ServiceError",
    "SpeculationOptions",
    "SpeculationStats",
    "Status",
    "TextChunk",
    "Timing",
    "Tls",
    "Token",
    "TokenLogprob",
    "Unauthorized",
    "Unavailable",
    "Usage",
    "Verifier",
    "VerifierInfo",
]
