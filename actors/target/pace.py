"""What rounds of one mode did in their time, and how long plain decoding would take for the same. Pure.

Tokens and rows of prompts are weighed by what they take in plain rounds, by least squares with forgetting: by a curve that was timed with one
session, decoding of many sessions is up to three times as dear as it seems, and a mode that happens to meet more prompts would win. Prompts that
the plain rounds had none of count for nothing: what the faster mode, which meets more of them, loses by that is less than what a wrong guess costs.
"""

from __future__ import annotations

from dataclasses import dataclass

MEMORY = 0.985
"""Weight of the past: about seventy rounds."""

SHRINKAGE = 0.02
"""How strongly the weight of prompts is held near 0 where few rounds tell it; part of what the rounds themselves say."""


@dataclass(slots=True)
class Pace:
    """Sums over rounds, forgetting."""

    tokens: float = 0.0
    """Work on tokens, by the curve."""
    prompts: float = 0.0
    """Work on prompts, by the curve."""
    seconds: float = 0.0
    rounds: float = 0.0
    _tokens2: float = 0.0
    _tokens_prompts: float = 0.0
    _prompts2: float = 0.0
    _tokens_seconds: float = 0.0
    _prompts_seconds: float = 0.0

    def observe(self, tokens: float, prompts: float, seconds: float) -> None:
        """Takes in one round."""
        self.tokens = MEMORY * self.tokens + tokens
        self.prompts = MEMORY * self.prompts + prompts
        self.seconds = MEMORY * self.seconds + seconds
        self.rounds = MEMORY * self.rounds + 1.0
        self._tokens2 = MEMORY * self._tokens2 + tokens * tokens
        self._tokens_prompts = MEMORY * self._tokens_prompts + tokens * prompts
        self._prompts2 = MEMORY * self._prompts2 + prompts * prompts
        self._tokens_seconds = MEMORY * self._tokens_seconds + tokens * seconds
        self._prompts_seconds = MEMORY * self._prompts_seconds + prompts * seconds

    @property
    def weights(self) -> tuple[float, float]:
        """Seconds of a unit of work on tokens, and of one on prompts; 0 before anything was seen."""
        if self.tokens <= 0.0:
            return 0.0, 0.0
        prompts2 = (1.0 + SHRINKAGE) * self._prompts2
        determinant = self._tokens2 * prompts2 - self._tokens_prompts**2
        token_s, prompt_s = self.seconds / self.tokens, 0.0
        if determinant > 0.0:
            token = self._tokens_seconds * prompts2 - self._prompts_seconds * self._tokens_prompts
            prompt = (
                self._tokens2 * self._prompts_seconds - self._tokens_prompts * self._tokens_seconds
            )
            if token > 0.0 and prompt > 0.0:
                # The whole must come out: what the rounds took is what they took.
                scale = self.seconds / (token * self.tokens + prompt * self.prompts)
                token_s, prompt_s = scale * token, scale * prompt
        return token_s, prompt_s

    def seconds_of(self, other: Pace | Bill) -> float:
        """How long this mode would take for what another did."""
        token_s, prompt_s = self.weights
        return token_s * other.tokens + prompt_s * other.prompts


@dataclass(slots=True)
class Bill:
    """What a trial took, all of it: settling and catching up, too."""

    tokens: float = 0.0
    prompts: float = 0.0
    seconds: float = 0.0

    def observe(self, tokens: float, prompts: float, seconds: float) -> None:
        """Takes in one round."""
        self.tokens += tokens
        self.prompts += prompts
        self.seconds += seconds

    def lost_rounds(self, plain: Pace) -> float:
        """Rounds of plain decoding in the time that was lost; less than 0 if some was won, 0 if nothing is known of plain ones."""
        if plain.seconds <= 0.0:
            return 0.0
        return (self.seconds - plain.seconds_of(self)) * plain.rounds / plain.seconds

    def gap(self, plain: Pace, share: float) -> int:
        """Rounds of plain decoding of whose time the loss is that share."""
        return max(0, round(self.lost_rounds(plain) / share))
