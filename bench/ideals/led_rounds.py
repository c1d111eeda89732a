"""What a drafter brings in rounds over all sequences of a request, by replay: nobody is late, a pass of the drafter takes what it believes at first, the same on every machine.

The real drafter is led along texts that the target has decoded. In each round every sequence that is not over takes the best part of its tree, as
large as a pass may verify, and goes as far along it as the text does, and one token more, as a target that decodes them together would.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from bench.ideals.law import Text
from bench.running.led_drafter import LedDrafter
from bench.running.target_states import TargetStates
from outrider.actors.draft.service.draft_server import load_method
from outrider.actors.draft.state.draft_settings import DraftSettings
from outrider.actors.speculation.options import Sampling, Speculation
from outrider.cluster.simulate.simulate_command import quiet


@dataclass(slots=True)
class Rounds:
    """What came of some rounds."""

    num_tokens: int = 0
    num_passes: int = 0
    """Of one sequence each."""
    num_nodes: int = 0
    """Candidates verified."""
    reached: list[int] = field(default_factory=list)
    """Passes whose tree was so deep, by depth from one."""
    accepted: list[int] = field(default_factory=list)
    """Of these, those in which the candidate at that depth was accepted."""
    num_drafted: int = 0
    """Rows that the drafter's model computed."""
    cpu_s: float = 0.0
    """Processor seconds of drafting, the model included, on one thread."""

    def took(self, depth: int, accepted: int, nodes: int) -> None:
        """Counts one pass."""
        self.num_tokens += accepted + 1
        self.num_passes += 1
        self.num_nodes += nodes
        longer = max(depth - len(self.reached), 0)
        self.reached += [0] * longer
        self.accepted += [0] * longer
        for place in range(depth):
            self.reached[place] += 1
            self.accepted[place] += place < accepted


States = NDArray[np.float32] | None
"""Of a text [T, L, D]; None: the drafter reads none."""


class LedRequests:
    """A drafter, led along one request after the other; what it learns and remembers stays."""

    def __init__(
        self,
        settings: DraftSettings,
        speculation: Speculation,
        temperature: float,
        states: TargetStates | None = None,
    ) -> None:
        """
        Args:
            settings: Of the drafter, for lock-step.
            speculation: Bounds on what a pass verifies.
            temperature: That the texts were decoded at.
            states: Of the target, for a drafter that reads them; they come right behind each verdict.
        """
        method = load_method(settings)
        self._request, self._states = method.feedback, states
        self._drafter = LedDrafter(method.sessions, method.drafter, max_ahead=settings.max_ahead)
        self._speculation = speculation
        self._temperature = temperature
        self._next_group = 1

    def lead(self, texts: Sequence[Text], rounds: Rounds, *, at_once: int) -> None:
        """Along the sequences of one request; counts what came of it.

        Args:
            texts: The sequences.
            rounds: Is added to.
            at_once: Sequences that run at a time; the others begin when one has ended.
        """
        group, self._next_group = self._next_group, self._next_group + 1
        states = [self._states_of(text) for text in texts]
        drafted = self._drafter.num_drafted
        began_s = time.process_time()
        with quiet():
            done: dict[int, int] = {}
            waiting = list(range(len(texts)))
            while waiting or done:
                while waiting and len(done) < at_once:
                    handle = waiting.pop(0)
                    self._begin(handle, texts[handle], group if len(texts) > 1 else 0)
                    done[handle] = 1
                    self._tell(handle, states[handle], 0, len(texts[handle].prompt))
                self._round(texts, states, done, rounds)
        rounds.num_drafted += self._drafter.num_drafted - drafted
        rounds.cpu_s += time.process_time() - began_s

    def _begin(self, handle: int, text: Text, group: int) -> None:
        self._drafter.begin(
            handle,
            # The first token is of the pass over the prompt.
            (*text.prompt, *text.output[:1]),
            prompt_length=len(text.prompt),
            sampling=Sampling(
                seed=text.seed,
                max_tokens=len(text.output) + 1,
                temperature=self._temperature,
                ignore_eos=True,
            ),
            speculation=self._speculation,
            group=group,
        )

    def _states_of(self, text: Text) -> States:
        if self._request is None or self._states is None:
            return None
        return self._states.of((*text.prompt, *text.output), self._request)

    def _tell(self, handle: int, states: States, start: int, end: int) -> None:
        if states is not None:
            self._drafter.tell(handle, start, states[start:end])

    def _round(
        self,
        texts: Sequence[Text],
        states: Sequence[States],
        done: dict[int, int],
        rounds: Rounds,
    ) -> None:
        fresh: dict[int, Sequence[int]] = {}
        for handle, place in done.items():
            tree, ahead = self._drafter.tree(handle), texts[handle].output[place:]
            kept = tree.best(self._speculation.max_nodes)
            accepted = min(len(tree.walk(ahead, kept)), len(ahead) - 1)
            rounds.took(_depth(tree.parents, kept), accepted, len(kept))
            fresh[handle] = ahead[: accepted + 1]
        for handle, tokens in fresh.items():
            self._drafter.advance(handle, tokens)
            done[handle] += len(tokens)
            if done[handle] >= len(texts[handle].output):
                self._drafter.end(handle)
                del done[handle]
            else:
                # Of all tokens but the newest.
                end = len(texts[handle].prompt) + done[handle] - 1
                self._tell(handle, states[handle], end - len(tokens), end)


def _depth(parents: Sequence[int], kept: set[int]) -> int:
    """Nodes of the longest path among those kept; parents come first."""
    depths: dict[int, int] = {}
    for node in sorted(kept):
        depths[node] = depths.get(parents[node], 0) + 1
    return max(depths.values(), default=0)
