"""Whether speculation pays at all, at the load that there is.

The plan weighs candidates by what a pass over them takes, but drafting also takes time that no pass shows: processor cores,
memory bandwidth and messages that drafters and target share. So now and then, for a few rounds, drafters are told to rest
and the target decodes plainly; if that commits more tokens a second, it goes on so, and tries the drafters again from time to
time (`trials.py`). For each load (number of decoding sessions, in powers of two) the answer is its own. Pure: rounds are pushed in,
no clock is read.

A load that falls is believed after some rounds only: between one request's end and the next one's beginning there are fewer for a
moment, and waking drafters for that moment costs more than it brings.
"""

from __future__ import annotations

from collections import deque

from outrider.actors.target.trials import CROWD, Trials

HELD_ROUNDS = 12
"""Rounds for which a lower load must last until its answer counts."""


class Governor:
    """Turns speculation off where plain decoding is faster, and on again where it is not."""

    def __init__(self) -> None:
        self._loads: dict[int, Trials] = {}
        self._load = self._loads[0] = Trials()
        self._sizes: deque[int] = deque(maxlen=HELD_ROUNDS)
        """Of the last rounds."""

    @property
    def speculates(self) -> bool:
        """Whether the next round should use candidates."""
        return self._load.mode

    def enter(self, num_sessions: int) -> None:
        """Tells the load of the next round.

        Args:
            num_sessions: Sessions that decode and may speculate.
        """
        self._sizes.append(max(num_sessions - 1, 0).bit_length())
        size = max(self._sizes)
        load = self._loads.get(size)
        if load is self._load:
            return
        self._load.interrupt()
        if load is None:
            load = self._loads[size] = Trials(size, self._begins(size))
        self._load = load

    def _begins(self, size: int) -> bool:
        """Whether a load that was never seen begins with candidates: like the one before it, but a crowd only after a crowd.

        For few sessions it is seldom wrong and soon found out. For many, drafters have all prompts to catch up with before anything
        can be found out, and what they win elsewhere says nothing: there plain decoding goes first, until a trial has won.
        """
        return self._load.speculates and (size < CROWD or self._load.size >= CROWD)

    def pause(self) -> None:
        """Nothing decodes: what load there was says nothing about the next one."""
        self._sizes.clear()

    def observe(
        self,
        tokens: float,
        seconds: float,
        *,
        prompts: float = 0.0,
        is_late: bool | None = None,
        is_counted: bool = True,
    ) -> None:
        """Takes in one round that ran as `speculates` said.

        Args:
            tokens: Work on tokens in a unit that does not depend on the mode, such as `CostModel.tokens_worth`.
            seconds: Since the end of the round before, waiting included.
            prompts: Work on prompts, such as `CostModel.prompts_worth`.
            is_late: True if no session had candidates, but some came too late; False if there were some; None if there were
                none and none came (that says nothing: a drafter may have nothing to propose).
            is_counted: False: drafters were catching up. That is part of what a trial costs, not of the pace it is judged by.
        """
        self._load.observe(tokens, prompts, seconds, is_late=is_late, is_counted=is_counted)
