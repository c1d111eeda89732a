"""What rounds of one mode did in their time, and how long plain decoding would take for the same. Pure.

Tokens and rows of prompts are weighed by what they take in plain rounds, by least squares with forgetting: by a curve that was timed with one
session, decoding of many sessions is up to three times as dear as it seems, and a mode that happens to meet more prompts would win.
"""

from __future__ import annotations

from dataclasses import dataclass

MEMORY = 0.985
"""Weight of the past: about seventy rounds."""

SHRINKAGE = 0.1
"""How strongly the weights are held equal where few rounds tell them apart; part of what the rounds themselves say."""


@dataclass(slots=True)
class Pace:
    """Sums over rounds, forgetting."""

    tokens: float = 0.0
    """Work on tokens, by the curve."""
    prompts: float = 0.0
    """Work on prompts, by the curve."""
    seconds: float = 0.0
    rounds: float = 0.0
    _all2: float = 0.0
    _all_prompts: float = 0.0
    _prompts2: float = 0.0
    _all_seconds: float = 0.0
    _prompts_seconds: float = 0.0

    def observe(self, tokens: float, prompts: float, seconds: float) -> None:
        """Takes in one round."""
        work = tokens + prompts
        self.tokens = MEMORY * self.tokens + tokens
        self.prompts = MEMORY * self.prompts + prompts
        self.seconds = MEMORY * self.seconds + seconds
        self.rounds = MEMORY * self.rounds + 1.0
        self._all2 = MEMORY * self._all2 + work * work
        self._all_prompts = MEMORY * self._all_prompts + work * prompts
        self._prompts2 = MEMORY * self._prompts2 + prompts * prompts
        self._all_seconds = MEMORY * self._all_seconds + work * seconds
        self._prompts_seconds = MEMORY * self._prompts_seconds + prompts * seconds

    @property
    def weights(self) -> tuple[float, float]:
        """Seconds of a unit of work on tokens, and of one on prompts; 0 before anything was seen."""
        work = self.tokens + self.prompts
        if work <= 0.0:
            return 0.0, 0.0
        # seconds = a work + d prompts, with d held near 0.
        prompts2 = (1.0 + SHRINKAGE) * self._prompts2
        determinant = self._all2 * prompts2 - self._all_prompts**2
        if self._prompts2 > 0.0 and determinant > 1e-9 * self._all2 * prompts2:
            each = self._all_seconds * prompts2 - self._prompts_seconds * self._all_prompts
            more = self._all2 * self._prompts_seconds - self._all_prompts * self._all_seconds
            each, more = each / determinant, more / determinant
            if each > 0.0 and each + more >= 0.0:
                # The whole must come out: what the rounds took is what they took.
                scale = self.seconds / (each * work + more * self.prompts)
                return scale * each, scale * (each + more)
        return self.seconds / work, self.seconds / work

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

    def gap(self, plain: Pace, share: float) -> int:
        """Rounds of plain decoding of whose time the loss is that share."""
        if plain.seconds <= 0.0:
            return 0
        lost_s = self.seconds - plain.seconds_of(self)
        return max(0, round(lost_s / share * plain.rounds / plain.seconds))
