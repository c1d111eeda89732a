"""`outrider demo`: everything on this machine, and a picture of what speculation did.

Starts an embedded service, decodes varied prompts plainly and then speculatively with the same seeds, and compares the
outputs token by token. This is a client of its own service: it sees what any client sees.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from outrider.client.blocking import Client
from outrider.client.options import SamplingOptions, SpeculationOptions
from outrider.client.prompts import BUILT_IN, Prompt
from outrider.client.results import Completion, TextChunk, Token
from outrider.client.timeline.file import save
from outrider.client.timeline.model import REQUESTS, Slice, Timeline
from outrider.cluster.commands import FAILED, CommandFailed, service_config
from outrider.cluster.config import Config
from outrider.cluster.demo_report import Decoded, Pair, totals
from outrider.cluster.demo_screen import Screen
from outrider.cluster.signals import Ending, ending_by_signal

TEMPERATURES = (0.0, 0.8)
"""Greedy, and a usual one: under coupled sampling both gain."""

REQUEST_TIMEOUT_S = 120.0
"""For one text; a slow machine takes seconds."""

QUICK_TOKENS = 32
"""Greatest length of a text with `--quick`."""

TEXTS = "texts"
"""Name of the timeline's track of whole texts."""

TRACE_S = 600.0
"""The timeline ends after this time even if the texts do not."""


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


def run_demo(
    *,
    max_tokens: int = 64,
    quick: bool = False,
    trace: Path = Path("outrider-trace.json"),
    use_color: bool = True,
    as_json: bool = False,
    targets: Sequence[str] = (),
    drafts: Sequence[str] = (),
) -> int:
    """Runs the demonstration. Returns the exit code: 1 if outputs differ where no near tie explains it; 130 after SIGINT
    and 143 after SIGTERM, which end everything that was started.

    Args:
        max_tokens: Output tokens for each prompt.
        quick: Fewer and shorter texts.
        trace: Gets the timeline.
        use_color: Colour the text by who proposed each token, where the terminal can.
        as_json: Print one JSON object instead of text.
        targets: A target model in place of the shipped one.
        drafts: Draft models in place of the shipped one.

    Raises:
        CommandFailed: The service cannot start, a request failed, or the timeline cannot be written.
    """
    if not trace.absolute().parent.is_dir():
        raise CommandFailed(
            f"--trace {trace}: the folder {trace.absolute().parent} does not exist", 2
        )
    config = service_config(targets=targets, drafts=drafts, listen="127.0.0.1:0")
    plan = demo_plan(max_tokens=max_tokens, quick=quick)
    screen = Screen(is_silent=as_json, use_color=use_color)
    with ending_by_signal() as ending:
        try:
            pairs, seen = serve_and_decode(config, plan, screen, ending)
        except Interrupted:
            screen.progress("interrupted")
            return ending.exit_code
    timeline = with_texts(seen, pairs)
    write_trace(trace, timeline)
    if as_json:
        print(json.dumps(report_as_dict(pairs, trace), ensure_ascii=False))
    else:
        screen.summary(pairs, timeline)
        screen.say(f"timeline: {trace} (open it at ui.perfetto.dev or chrome://tracing)")
    return FAILED if any(pair.is_unexplained for pair in pairs) else 0


def serve_and_decode(
    config: Config, plan: DemoPlan, screen: Screen, ending: Ending
) -> tuple[list[Pair], Timeline]:
    """Starts the service, decodes everything, and ends the service. Returns the texts and what the actors did.

    Raises:
        Interrupted: A signal came.
        CommandFailed: The service cannot start, or a request failed.
    """
    # Only now: Ray takes a second to import, which a mistyped flag should not cost.
    from outrider.client.errors import OutriderError
    from outrider.cluster.launch import ServiceFailed, start_service
    from outrider.cluster.progress_lines import progress_line
    from outrider.cluster.ray_patience import StartCancelled

    try:
        with (
            start_service(
                config,
                progress=lambda actor: screen.progress(progress_line(actor)),
                is_cancelled=ending.is_set,
            ) as service,
            Client(service.address, timeout_s=REQUEST_TIMEOUT_S) as client,
        ):
            with client.start_trace(seconds=TRACE_S) as recording:
                recording.wait_started()
                pairs = list(decode_pairs(client, plan, screen, ending))
            try:
                seen = recording.result()
            except OutriderError as error:
                # A trace that fails costs the actors' tracks, not the texts.
                screen.progress(f"the timeline lacks the actors: {error}")
                seen = Timeline(start_unix_us=pairs[0].plain.start_us)
    except (StartCancelled, SystemExit) as error:
        # Ray, while it starts, turns SIGTERM into the latter.
        raise Interrupted from error
    except (ServiceFailed, OutriderError) as error:
        # A signal to all processes at once, as some supervisors send it, ends the actors before us.
        if ending.is_set():
            raise Interrupted from error
        failed = "" if isinstance(error, ServiceFailed) else "a request failed: "
        raise CommandFailed(f"{failed}{error}") from error
    return pairs, seen


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


def with_texts(timeline: Timeline, pairs: Sequence[Pair]) -> Timeline:
    """The timeline with the texts, as the client saw them, as a track above the requests.

    The client's times are of the wall clock, which is the coordinator's: both run on this machine.
    """
    texts = tuple(
        Slice(
            process=REQUESTS,
            track=TEXTS,
            name=f"{way} {pair.category}",
            start_us=round(run.start_us - timeline.start_unix_us, 3),
            duration_us=round(run.duration_us, 3),
            args={
                "temperature": pair.temperature,
                "seed": pair.seed,
                "tokens": len(run.tokens),
                "tokens_per_pass": round(run.completion.speculation.mean_tokens_per_pass, 3),
            },
        )
        for pair in pairs
        for way, run in (("plain", pair.plain), ("speculative", pair.speculative))
    )
    return replace(timeline, slices=texts + timeline.slices)


def write_trace(path: Path, timeline: Timeline) -> None:
    """Writes the timeline.

    Raises:
        CommandFailed: The file cannot be written.
    """
    try:
        save(timeline, path)
    except OSError as error:
        raise CommandFailed(f"--trace {path} cannot be written: {error}") from error


def report_as_dict(pairs: Sequence[Pair], trace: Path) -> dict[str, object]:
    """What `--json` prints."""
    temperatures = dict.fromkeys(pair.temperature for pair in pairs)
    return {
        "texts": [
            {
                "category": pair.category,
                "temperature": pair.temperature,
                "seed": pair.seed,
                "prompt": pair.prompt,
                "text": pair.speculative.text,
                "tokens": len(pair.speculative.tokens),
                "equal": pair.first_difference is None,
                "first_difference": pair.first_difference,
                "near_tie": pair.has_near_tie,
                "speed_up": pair.speed_up,
                "plain": asdict(pair.plain.completion),
                "speculative": asdict(pair.speculative.completion),
            }
            for pair in pairs
        ],
        "totals": asdict(totals(pairs)),
        "by_temperature": [asdict(totals(pairs, temperature=value)) for value in temperatures],
        "trace": str(trace),
    }


if __name__ == "__main__":
    sys.exit(run_demo())
