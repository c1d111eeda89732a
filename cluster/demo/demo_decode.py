"""What the demonstration decodes, both ways, as any client of a service would."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from outrider.client.blocking import Client
from outrider.client.measuring.measuring_prompts import BUILT_IN, Prompt
from outrider.client.messages.request_options import SamplingOptions, SpeculationOptions
from outrider.client.messages.results import Completion, TextChunk, Token
from outrider.cluster.demo.demo_report import Decoded, Pair
from outrider.cluster.demo.demo_screen import Screen
from outrider.cluster.process.signals import Ending

TEMPERATURES = (0.0, 0.8)
"""Greedy, and a usual one: under coupled sampling both gain."""

QUICK_TOKENS = 32
"""Greatest length of a text with `--quick`."""

STREAM_TOKENS = (32, 256)
"""Lengths of the streams that are compared by length: a short answer, in which speculation has hardly begun, and a usual one."""

WARM_UP_TOKENS = 48
"""Output tokens of each request before the first figure: memory, caches and cost estimates are cold until then."""


class Interrupted(Exception):
    """Ctrl-C came, or SIGTERM."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoPlan:
    """What to decode."""

    prompts: tuple[Prompt, ...]
    temperatures: tuple[float, ...]
    max_tokens: int
    streams: tuple[Prompt, ...]
    """Prompts of the streams that are compared by length, as many as there is time for."""

    streams_s: float
    """Seconds that the streams may take together; a slow target has time for fewer, or for none."""


def demo_plan(*, max_tokens: int, quick: bool) -> DemoPlan:
    """The first prompt of each category; with `quick` three of them, and shorter. Streams go on from those that are no chat,
    which have no natural end; with `quick` from one."""
    first = {prompt.category: prompt for prompt in reversed(BUILT_IN)}
    categories = list(dict.fromkeys(prompt.category for prompt in BUILT_IN))
    prompts = tuple(first[category] for category in categories)
    streams = tuple(prompt for prompt in prompts if prompt.messages is None)
    return DemoPlan(
        prompts=prompts[:3] if quick else prompts,
        streams=streams[:1] if quick else streams,
        streams_s=10.0 if quick else 20.0,
        temperatures=TEMPERATURES,
        max_tokens=min(max_tokens, QUICK_TOKENS) if quick else max_tokens,
    )


def warm_up(client: Client, plan: DemoPlan, ending: Ending) -> None:
    """Decodes something else each way at each temperature, unseen.

    Raises:
        Interrupted: A signal came.
        OutriderError: A request failed.
    """
    other = next(prompt for prompt in BUILT_IN if prompt not in plan.prompts)
    for temperature in plan.temperatures:
        sampling = SamplingOptions(
            max_tokens=WARM_UP_TOKENS, temperature=temperature, seed=0, ignore_eos=True
        )
        for enabled in (False, True):
            decode(client, other, sampling, enabled, ending)


def decode_pairs(client: Client, plan: DemoPlan, screen: Screen, ending: Ending) -> Iterator[Pair]:
    """Decodes each prompt both ways, the plain text unseen and the speculative one live.

    Raises:
        Interrupted: A signal came.
        OutriderError: A request failed.
    """
    texts = TokenTexts(client)
    for temperature in plan.temperatures:
        for number, prompt in enumerate(plan.prompts):
            sampling = SamplingOptions(
                max_tokens=plan.max_tokens, temperature=temperature, seed=1000 + number
            )
            screen.begin(prompt, temperature)
            plain = decode(client, prompt, sampling, False, ending)
            texts.learn(plain.tokens)
            with screen.live(texts) as show:
                speculative = decode(client, prompt, sampling, True, ending, show=show)
            pair = _pair(prompt, sampling, plain, speculative)
            screen.end(pair)
            yield pair


def affordable_streams(plan: DemoPlan, pairs: Sequence[Pair]) -> tuple[Prompt, ...]:
    """The prompts whose streams there is time for, judged by how fast the texts came."""
    runs = [run for pair in pairs for run in (pair.plain, pair.speculative)]
    tokens, seconds = sum(len(run.tokens) for run in runs), sum(run.decode_s for run in runs)
    each_s = 2 * len(plan.temperatures) * sum(STREAM_TOKENS) * seconds / max(1, tokens)
    return plan.streams[: int(plan.streams_s / max(each_s, 1e-9))]


def decode_streams(
    client: Client, plan: DemoPlan, prompts: Sequence[Prompt], ending: Ending
) -> dict[int, list[Pair]]:
    """Decodes streams of each length of `STREAM_TOKENS` both ways, unseen. Ends of text are ignored.

    Returns:
        The pairs of each length; none of no prompts.

    Raises:
        Interrupted: A signal came.
        OutriderError: A request failed.
    """
    streams: dict[int, list[Pair]] = {}
    for temperature in plan.temperatures:
        for number, prompt in enumerate(prompts):
            for length in STREAM_TOKENS:
                sampling = SamplingOptions(
                    max_tokens=length, temperature=temperature, seed=2000 + number, ignore_eos=True
                )
                plain, speculative = (
                    decode(client, prompt, sampling, enabled, ending) for enabled in (False, True)
                )
                streams.setdefault(length, []).append(_pair(prompt, sampling, plain, speculative))
    return streams


def _pair(prompt: Prompt, sampling: SamplingOptions, plain: Decoded, speculative: Decoded) -> Pair:
    """What was decoded both ways with these options."""
    assert sampling.seed is not None
    assert sampling.temperature is not None
    return Pair(
        category=prompt.category,
        prompt=shown_prompt(prompt),
        temperature=sampling.temperature,
        seed=sampling.seed,
        plain=plain,
        speculative=speculative,
    )


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
