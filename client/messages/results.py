"""What a request is answered, as frozen values."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class Origin(StrEnum):
    """Who proposed a token."""

    TARGET = "target"
    """The target itself: a plain step, a correction or the bonus token."""

    DRAFTER = "drafter"
    """A drafter proposed it and the target drew it."""

    UNKNOWN = "unknown"
    """The service did not say."""


class FinishReason(StrEnum):
    """Why a sequence ended."""

    STOP_TOKEN = "stop_token"
    """The model's end-of-text token, or one of `stop_token_ids`."""

    STOP_STRING = "stop_string"
    """One of the `stop` strings."""

    LENGTH = "length"
    """`max_tokens` was reached."""

    ABORTED = "aborted"
    """The request was aborted."""

    UNKNOWN = "unknown"
    """The service did not say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenLogprob:
    """A token and how probable it was."""

    id: int
    logprob: float
    """Natural logarithm of the probability under the model's own distribution."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """One output token."""

    id: int
    origin: Origin
    drafter: str | None = None
    """Which drafter proposed it, by name; only with `Origin.DRAFTER`."""

    logprob: float | None = None
    """Natural log-probability; only when asked for."""

    top_logprobs: tuple[TokenLogprob, ...] = ()
    """The most probable tokens here, most probable first; only when asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """The request was admitted. The first event of a stream, once."""

    request_id: str
    model: str
    seed: int
    """The seed in force, for a later repetition or resume."""

    prompt_tokens: int
    drafters: tuple[str, ...] = ()
    model_fingerprint: str = ""
    """Of what the text follows from, besides the request: weights, configuration, number type, tokenizer, chat template."""
    emulated: str = ""
    """Profiles of emulated devices that the service runs on; empty if all are real. Every figure is then emulated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TextChunk:
    """Tokens that were committed together, or while this client was busy, and the text that became certain with them."""

    index: int
    """Which of the `n` sequences, from 0."""

    text: str
    """Never splits a character and never holds part of a stop string; may be empty."""

    tokens: tuple[Token, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Token counts of one sequence."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    """Prompt tokens whose keys and values were taken from another sequence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeculationStats:
    """What speculation did for one sequence; after a resume, since the resume. Of an aborted one as much as its tokens tell: candidates
    that were not drawn, bytes and depths are not in it."""

    rounds: int = 0
    """Target passes that carried candidates."""

    plain_passes: int = 0
    """Target passes without any candidate."""

    proposed: int = 0
    """Candidates that drafters sent and that reached the session."""

    verified: int = 0
    """Candidates that were part of a target pass."""

    accepted: int = 0
    """Candidates that the target drew."""

    stale: int = 0
    """Candidates dropped because the text had gone another way."""

    reached_by_depth: tuple[int, ...] = ()
    """Rounds whose tree reached depth d, at index d - 1."""

    accepted_by_depth: tuple[int, ...] = ()
    """Rounds in which the candidate at depth d was accepted, at index d - 1."""

    mean_tokens_per_pass: float = 0.0
    """Mean tokens committed in one target pass; bonus, correction and plain passes included."""

    near_ties: int = 0
    """Draws whose two best perturbed logits were closer than the rounding of the target's type (docs/exactness.md)."""

    candidate_messages: int = 0
    wire_bytes: int = 0
    """Bytes of candidate messages and verdicts, before framing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Where the time of one sequence went, in seconds, by the service's clock."""

    queue_s: float = 0.0
    prefill_s: float = 0.0
    draft_wait_s: float = 0.0
    """The target was free and waited for candidates of this sequence."""

    verify_s: float = 0.0
    """Target passes that this sequence was part of, after the prompt."""

    first_token_s: float = 0.0
    total_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """The end of one sequence."""

    index: int
    finish_reason: FinishReason
    stop: str = ""
    """The stop string, or the decimal stop token id, that ended it."""

    usage: Usage = field(default_factory=Usage)
    speculation: SpeculationStats = field(default_factory=SpeculationStats)
    timing: Timing = field(default_factory=Timing)


Event = Admission | TextChunk | Completion
"""One event of a generation stream: an admission, then chunks, and one completion for each sequence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """One whole sequence."""

    index: int
    text: str
    tokens: tuple[Token, ...]
    completion: Completion

    @property
    def token_ids(self) -> tuple[int, ...]:
        """The ids of the output tokens."""
        return tuple(token.id for token in self.tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """The whole result of a request."""

    admission: Admission
    outputs: tuple[Output, ...]
    """The sequences, by index. At least one."""

    resumes: int = 0
    """How often the stream broke and was taken up again."""

    @property
    def text(self) -> str:
        """The text of the first sequence."""
        return self.outputs[0].text

    @property
    def tokens(self) -> tuple[Token, ...]:
        """The tokens of the first sequence."""
        return self.outputs[0].tokens

    @property
    def completion(self) -> Completion:
        """The end of the first sequence."""
        return self.outputs[0].completion
