"""Every drafter beside the others, at the same number of candidates in a pass, for each category of prompts; requests of one sequence and of eight.

Two looks at each. *Led*: the drafter alone, along what plain decoding said (`bench.ideals.led_rounds`): acceptance by depth, tokens a pass and
processor time, the same on every machine and under any load. *Served*: the service with that drafter, outputs compared with plain decoding first: speed-up
and bytes. Parts are categories. Drafters are new for each temperature and number of sequences, so that what one remembers is of the prompts
before; `suffix, again` is asked the same prompts a second time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from bench.equality.shipped_drafters import MODELS
from bench.ideals.law import Text
from bench.ideals.led_rounds import LedRequests, Rounds
from bench.running.asked import Check, among, target_cost
from bench.running.assembly import Assembly
from bench.running.bench_prompts import Prompt, load
from bench.running.bench_service import DRAFTER, TARGET, pair_config
from bench.running.host import settings_of
from bench.running.slow_passes import LEAST_S, SLOW_PASSES
from bench.running.target_states import TargetStates
from bench.running.targets import MAX_CONTEXT, SHIPPED, prepared
from bench.running.texts import Decoded, decode
from bench.suites.service.single_suite import prompt_ids
from outrider.actors.draft.state.draft_settings import DraftSettings
from outrider.actors.speculation.noise.seeds import derive_seed
from outrider.actors.speculation.options import Speculation
from outrider.client import Client, SpeculationOptions

KEYS = ("part", "num_sequences", "temperature", "category")
"""What tells rows apart."""

MAX_NODES, MAX_DEPTH = 16, 8
"""Of the candidates in a target pass, whoever drafts."""

AT_ONCE = 4
"""Slots of the target: of eight sequences four begin when others have ended."""

SLOW = "slow"
"""Part name of the target as shipped whose passes sleep until as much time is over as a large model takes: it leaves the processor to drafters, as
one on a device of its own does."""

SLOW_LABEL = f"as shipped, with passes of {1e3 * LEAST_S:.0f} ms (emulated)"

LOOKS = ("led", "served")


def _category(word: str) -> None:
    among(sorted({prompt.category for prompt in load()}))(word)


CHOICES: dict[str, Check] = {
    "part": lambda word: word == SLOW or target_cost(word),
    "parts": _category,
    "drafting": among(LOOKS),
}
"""What its options may say."""

WITHOUT_MODEL = ("prompt_lookup", "suffix", "repeat_last", "consensus")

OF_STATES = ("mlp_speculator", "dspark", "ctc", "eagle3", "hidden_reuse")
"""Drafters that read the demonstration target's hidden states, for that target only."""

OF_TARGET = (*OF_STATES, "diffusion")
"""Shipped drafters that were trained for the demonstration target and borrow its tables of tokens. A deepened target has the same ones, and the same
hidden states in the layers that they read."""

WAYS: Mapping[str, tuple[str, ...]] = {
    "autoregressive": (DRAFTER,),
    "sorted": ("sorted",),
    **{name: (name,) for name in OF_TARGET},
    "prompt_lookup": ("prompt_lookup",),
    "suffix": ("suffix",),
    "suffix, again": ("suffix",),
    "repeat_last": ("repeat_last",),
    "consensus": ("consensus",),
    "consensus + prompt_lookup": ("consensus", "prompt_lookup"),
    **{
        f"{name} + prompt_lookup": (drafter, "prompt_lookup")
        for name, drafter in (
            ("autoregressive", DRAFTER),
            ("dspark", "dspark"),
            ("eagle3", "eagle3"),
        )
    },
}
"""Who works for a request, by the name in the table. What several bring together is only served, not led."""

OF_SIBLINGS = frozenset(way for way in WAYS if "consensus" in way)
"""Left out for one sequence, which has none."""


def run(
    *,
    target: str = "demo:target",
    draft: str = "demo:draft",
    part: str = SHIPPED,
    parts: Sequence[str] | None = None,
    levels: Sequence[int] = (1, 8),
    temperatures: Sequence[float] = (0.0, 0.8),
    runs: int | None = None,
    drafting: Sequence[str] = LOOKS,
    is_quick: bool = False,
) -> Iterator[dict[str, Any]]:
    """One row for each category, temperature and number of sequences.

    Args:
        target: The target model.
        draft: The draft model.
        part: Which target cost, see `bench.running.targets`; or `slow`.
        parts: Which categories.
        levels: Sequences of a request.
        temperatures: Those that are measured.
        runs: Prompts of each category.
        drafting: Which looks; `led` alone needs no quiet machine.
        is_quick: One short prompt of two categories.
    """
    by_category: dict[str, list[Prompt]] = {}
    for prompt in load():
        by_category.setdefault(prompt.category, []).append(prompt)
    categories = parts or sorted(by_category)[: 2 if is_quick else None]
    num_prompts, max_tokens = (1, 16) if is_quick else (runs or 3, 48)
    is_slow = part == SLOW
    alterations = {TARGET: [SLOW_PASSES]} if is_slow else None
    with prepared(target, SHIPPED if is_slow else part) as model:
        for num_sequences in levels:
            at_once = min(num_sequences, AT_ONCE)
            room = {"max_context": MAX_CONTEXT, "num_slots": at_once}
            config = pair_config(model.model, draft, both=room)
            config["drafters"] += [{"name": name, "method": name} for name in WITHOUT_MODEL]
            if target == "demo:target":
                nested = {"method": "sorted", "model": "demo:sorted", "num_threads": 1, **room}
                config["drafters"].append({"name": "sorted", **nested})
            if target == "demo:target":
                config["drafters"] += [
                    {
                        "name": name,
                        "method": name,
                        "model": f"demo:{MODELS.get(name, name)}",
                        "num_threads": 1,
                        **room,
                    }
                    for name in OF_TARGET
                    if "served" in drafting or name not in OF_STATES
                ]
            # Whoever drafts is at work all the time, also where it does not pay.
            config["speculation"]["adaptive"] = False
            served = config if "served" in drafting else {**config, "drafters": []}
            for temperature in temperatures:
                with (
                    Assembly(served, alterations=alterations) as assembly,
                    Client(assembly.address) as client,
                ):
                    comparison = Comparison(
                        client,
                        config,
                        looks=drafting,
                        num_sequences=num_sequences,
                        at_once=at_once,
                        temperature=temperature,
                        max_tokens=max_tokens,
                    )
                    for category in categories:
                        yield {
                            "part": part,
                            "target": SLOW_LABEL if is_slow else model.label,
                            "num_sequences": num_sequences,
                            "at_once": at_once,
                            "temperature": temperature,
                            "category": category,
                            **comparison.of(by_category[category][:num_prompts]),
                        }


class Comparison:
    """All ways of drafting for one service, temperature and number of sequences."""

    def __init__(
        self,
        client: Client,
        config: Mapping[str, Any],
        *,
        looks: Sequence[str],
        num_sequences: int,
        at_once: int,
        temperature: float,
        max_tokens: int,
    ) -> None:
        """
        Args:
            client: Of the service.
            config: Its configuration, drafters included.
            looks: Of `LOOKS`.
            num_sequences: Of a request.
            at_once: Slots of the target.
            temperature: Of sampling.
            max_tokens: Of a sequence.
        """
        self._client = client
        self._looks = looks
        self._num_sequences, self._at_once = num_sequences, at_once
        self._temperature = temperature
        self._max_tokens = max_tokens
        there = {drafter.get("name", DRAFTER) for drafter in config["drafters"]}
        self._ways = [
            way
            for way, drafters in WAYS.items()
            if there.issuperset(drafters) and (num_sequences > 1 or way not in OF_SIBLINGS)
        ]
        speculation = Speculation(max_nodes=MAX_NODES, max_depth=MAX_DEPTH)
        lockstep = {**config, "speculation": {**config["speculation"], "lockstep": True}}
        names = {name for way in self._ways for name in WAYS[way]}
        states = TargetStates("demo:target") if names & {*OF_STATES} else None
        self._led = {
            name: LedRequests(_settings(lockstep, name), speculation, temperature, states)
            for name in names
        }

    def of(self, prompts: Sequence[Prompt]) -> dict[str, Any]:
        """What a row says of some prompts."""
        plain = self._decode(prompts)
        said: dict[str, Any] = {
            "prompts": len(prompts),
            "max_tokens": self._max_tokens,
            "max_nodes": MAX_NODES,
            "ways": {way: {} for way in self._ways},
        }
        if "led" in self._looks:
            requests = self._texts(prompts, plain)
            for way, told in said["ways"].items():
                told |= self._lead(WAYS[way], requests)
        if "served" in self._looks:
            # The first time does not count: whatever is done once is done.
            plain = self._decode(prompts)
            served = {way: self._decode(prompts, WAYS[way]) for way in self._ways}
            after = self._decode(prompts)
            pace = (plain.num_tokens + after.num_tokens) / (plain.total_s + after.total_s)
            for way, told in said["ways"].items():
                told["served"] = _served(plain, served[way], pace)
        return said

    def _decode(self, prompts: Sequence[Prompt], drafters: tuple[str, ...] = ()) -> Decoded:
        speculation = SpeculationOptions(enabled=False)
        if drafters:
            speculation = SpeculationOptions(
                enabled=True, drafters=drafters, max_nodes=MAX_NODES, max_depth=MAX_DEPTH
            )
        return decode(
            self._client,
            prompts,
            temperature=self._temperature,
            max_tokens=self._max_tokens,
            enabled=bool(drafters),
            num_sequences=self._num_sequences,
            speculation=speculation,
        )

    def _texts(self, prompts: Sequence[Prompt], plain: Decoded) -> list[list[Text]]:
        """The sequences of each request."""
        outputs = iter(plain.texts)
        return [
            [
                Text(prompt=ids, output=next(outputs), seed=derive_seed(prompt.id, index))
                for index in range(self._num_sequences)
            ]
            for prompt in prompts
            for ids in [prompt_ids(self._client, prompt)]
        ]

    def _lead(self, drafters: Sequence[str], requests: Sequence[Sequence[Text]]) -> dict[str, Any]:
        if len(drafters) > 1:
            return {}
        found = {"led": self._along(drafters[0], requests, self._at_once)}
        if drafters[0] == "consensus":
            # The hardest case: all begin together, so that few have siblings ahead of them.
            found["led_together"] = self._along(drafters[0], requests, self._num_sequences)
        return found

    def _along(
        self, drafter: str, requests: Sequence[Sequence[Text]], at_once: int
    ) -> dict[str, Any]:
        rounds = Rounds()
        for texts in requests:
            self._led[drafter].lead(texts, rounds, at_once=at_once)
        return asdict(rounds)


def _settings(config: Mapping[str, Any], name: str) -> DraftSettings:
    settings = settings_of({"config": config, "name": name, "host": "127.0.0.1"})
    assert isinstance(settings, DraftSettings), "it is a drafter's name"
    return settings


def _served(plain: Decoded, ours: Decoded, pace: float) -> dict[str, Any]:
    pairs = zip(plain.texts, ours.texts, strict=True)
    return {
        "different": sum(one != other for one, other in pairs),
        "tokens": ours.num_tokens,
        "plain_s": ours.num_tokens / pace,
        "seconds": ours.total_s,
        "passes": sum(one.rounds + one.plain_passes for one in ours.stats),
        "wire_bytes": sum(one.wire_bytes for one in ours.stats),
    }
