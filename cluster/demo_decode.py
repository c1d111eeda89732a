"""What the demonstration decodes, both ways, as any client of a service would."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from outrider.client.blocking import Client
from outrider.client.options import SamplingOptions, SpeculationOptions
from outrider.client.prompts import BUILT_IN, Prompt
from outrider.client.results import Completion, TextChunk, Token
from outrider.cluster.demo_report import Decoded, Pair
from outrider.cluster.demo_screen import Screen
from outrider.cluster.signals import Ending

TEMPERATURES = (0.0, 0.8)
"""Greedy, and a usual one: under coupled sampling both gain."""

QUICK_TOKENS = 32
"""Greatest length of a text with `--quick`."""


class Interrupted(Exception):
    """Ctrl-C came, or SIGTERM."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoPlan:
    """What to decode."""

    prompts: tuple[Prompt, ...]
    temperatures: tuple[float, ...]
    max_tokens: int


def demo_plan(*, max_tokens: int, quick: bool) -> DemoPlan:
    """The first prompt of each category; with `quick` three of them, and shorter."""
    first = {prompt.category: prompt for prompt in reversed(BUILT_IN)}
    categories = list(dict.fromkeys(prompt.category for prompt in BUILT_IN))
    prompts = tuple(first[category] for category in categories)
    return DemoPlan(
        prompts=prompts[:3] if quick else prompts,
        temperatures=TEMPERATURES,
        max_tokens=min(max_tokens, QUICK_TOKENS) if quick else max_tokens,
    )


def decode_pairs(client: Client, plan: DemoPlan, screen: Screen, ending: Ending) -> Iterator[Pair]:
    """Decodes each prompt both ways, the plain text unseen and the speculative one live.

    Raises:
        Interrupted: A signal came.
        OutriderError: A request failed.
    """
    texts = TokenTexts(client)
    for enabled in (False, True):  # the first requests meet cold caches, whichever way they decode
        decode(client, plan.prompts[0], SamplingOptions(max_tokens=8, seed=0), enabled, ending)
    for temperature in plan.temperatures:
        for number, prompt in enumerate(plan.prompts):
            seed = 1000 + number
            sampling = SamplingOptions(
                max_tokens=plan.max_tokens, temperature=temperature, seed=seed
            )
            screen.begin(prompt, temperature)
            plain = decode(client, prompt, sampling, False, ending)
            texts.learn(plain.tokens)
            with screen.live(texts) as show:
                speculative = decode(client, prompt, sampling, True, ending, show=show)
            pair = Pair(
                category=prompt.category,
                prompt=shown_prompt(prompt),
                temperature=temperature,
                seed=seed,
                plain=plain,
                speculative=speculative,
            )
            screen.end(pair)
            yield pair


def decode(
    client: Client,
    prompt: Prompt,
    sampling: SamplingOptions,
    enabled: bool,
    ending: Ending,
    *,
    show: Callable[[TextChunk], None] = lambda chunk: None,
) -> Decoded:
    """Decodes one prompt one way.

    Raises:
        Interrupted: A signal came.
        OutriderError: The request failed.
    """
    chunks: list[TextChunk] = []
    completion: Completion | None = None
    start_us, started_s = time.time() * 1e6, time.perf_counter()
    with (
        client.stream(
            prompt.text,
            tokens=prompt.tokens,
            messages=prompt.messages,
            sampling=sampling,
            speculation=SpeculationOptions(enabled=enabled),
        ) as stream,
        ending.calling(stream.close),
    ):
        for event in stream:
            if ending.is_set():
                break
            match event:
                case TextChunk():
                    chunks.append(event)
                    show(event)
                case Completion():
                    completion = event
    if ending.is_set():
        raise Interrupted
    assert completion is not None, "a stream without a completion raises"
    return Decoded(
        text="".join(chunk.text for chunk in chunks),
        tokens=tuple(token for chunk in chunks for token in chunk.tokens),
        passes=tuple(len(chunk.tokens) for chunk in chunks if chunk.tokens),
        completion=completion,
        start_us=start_us,
        duration_us=(time.perf_counter() - started_s) * 1e6,
    )


class TokenTexts:
    """What each token is on its own. Learnt between the timed runs, so that no question falls into one."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._texts: dict[int, str] = {}

    def learn(self, tokens: Sequence[Token]) -> None:
        """Asks for those that are not known yet."""
        for token_id in {token.id for token in tokens} - set(self._texts):
            self._texts[token_id] = self._client.detokenize([token_id], skip_special_tokens=True)

    def __call__(self, token_id: int) -> str:
        """A token's text; empty if it was not learnt."""
        return self._texts.get(token_id, "")


def shown_prompt(prompt: Prompt) -> str:
    """The prompt as people read it."""
    if prompt.messages is not None:
        return "\n".join(f"{turn.role}: {turn.content}" for turn in prompt.messages)
    return prompt.text if prompt.text is not None else str(list(prompt.tokens or ()))
