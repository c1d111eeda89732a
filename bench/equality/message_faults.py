"""Faults in what a target tells a drafter: messages lost, doubled, overtaken by the next, and with another text. Only for a process of the benchmark's own.

A stream of gRPC loses nothing while it stands, so that a drafter there hardly ever has to ask for tokens again. Here it has to. The
faults are put between a drafter's stream and its worker, behind the decoding of frames.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from outrider.actors.draft.service.target_stream import TargetStream
from outrider.actors.draft.state.draft_events import (
    Event,
    FeaturesReceived,
    Resynced,
    VerdictsReceived,
)

RATE = 0.04
"""Of messages that suffer each fault."""

Post = Callable[[Event], None]


class FaultyPost:
    """Hands events on, some of them not as they came."""

    def __init__(self, post: Post, seed: int) -> None:
        """
        Args:
            post: Takes events.
            seed: Of the faults.
        """
        self._post = post
        self._random = random.Random(seed)
        self._held: Event | None = None

    def __call__(self, event: Event) -> None:
        """Takes an event. What was held back goes after the next one."""
        held, self._held = self._held, None
        match event:
            case VerdictsReceived() | Resynced():
                self._disturb(event)
            case FeaturesReceived():
                self._disturb_features(event)
            case _:
                self._post(event)
        if held is not None:
            self._post(held)

    def _disturb(self, event: VerdictsReceived | Resynced) -> None:
        fault = int(self._random.random() / RATE)
        if fault == 0:
            return
        if fault == 1:
            self._post(event)
        if fault == 2:
            self._held = event
            return
        if fault == 3 and isinstance(event, VerdictsReceived):
            verdicts = event.verdicts
            event = replace(event, verdicts=replace(verdicts, tokens_T=verdicts.tokens_T ^ 1))
        self._post(event)

    def _disturb_features(self, event: FeaturesReceived) -> None:
        fault = int(self._random.random() / RATE)
        if fault == 0:
            # The frame is not one, and its bytes are given back.
            event = replace(event, features=None)
        if fault == 1:
            self._post(replace(event, num_bytes=0))
        if fault == 2:
            self._held = event
            return
        self._post(event)


def disturb_messages() -> None:
    """Makes every stream to a target that this process opens faulty."""
    init = TargetStream.__init__

    def faulty(self: TargetStream, number: int, *args: Any, post: Post, **options: Any) -> None:
        init(self, number, *args, post=FaultyPost(post, seed=number), **options)

    setattr(TargetStream, "__init__", faulty)  # noqa: B010 - an assignment to a method is no type
