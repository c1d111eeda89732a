"""Speculative output against plain output, token for token, for every drafter that the package can start, undisturbed and disturbed.

Disturbed are the network between drafters and target (jitter, connections cut), what the target tells them (messages lost, doubled,
overtaken, falsified: so they ask for the text again), and processes: drafters and the target are killed and started again while
requests run. Drafters are at work all the time, also where it does not pay. A row that differs, or that shows less than it must to be a
proof, is written, and then the suite fails. Parts are drafters.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bench.equality.disturbance import Disturbance
from bench.equality.shipped_drafters import Way, ways
from bench.network.relay import Relay
from bench.running.asked import Check, among
from bench.running.assembly import Assembly
from bench.running.bench_prompts import Prompt, load
from bench.running.bench_service import TARGET, pair_config
from bench.running.slow_passes import SLOW_PASSES
from bench.running.targets import MAX_CONTEXT
from bench.running.texts import Decoded, decode, differences
from outrider.client import Client

KEYS = ("drafter", "temperature", "condition")
"""What tells rows apart."""

DISTURBED = "disturbed"
CONDITIONS = ("undisturbed", DISTURBED)

CHOICES: dict[str, Check] = {
    "parts": lambda word: among(ways())(word),
    "drafting": among(CONDITIONS),
}
"""What its options may say."""

AT_ONCE = 16
"""Requests at a time, and slots."""

MORE = 24
"""Prompts that are decoded again at a time, until enough has happened."""

LEAST_ACCEPTED = 20
"""Candidates that a row must have seen accepted."""

MOST_S = 240.0
"""Seconds after which a disturbed row begins no more of them; it is then no proof."""

FAULTS = "bench.equality.message_faults:disturb_messages"


class EqualityFailed(RuntimeError):
    """Outputs differ, or a row proves nothing."""


def run(
    *,
    target: str = "demo:target",
    parts: Sequence[str] | None = None,
    num_prompts: int = 100,
    max_tokens: int = 64,
    temperatures: Sequence[float] = (0.0, 0.8),
    drafting: Sequence[str] = CONDITIONS,
    is_quick: bool = False,
) -> Iterator[dict[str, Any]]:
    """One row for each drafter, temperature and condition.

    Args:
        target: The target model.
        parts: Which drafters, or unions as `A + B`.
        num_prompts: How many.
        max_tokens: Of a sequence.
        temperatures: Those that are measured.
        drafting: Which conditions.
        is_quick: Few prompts.

    Raises:
        EqualityFailed: After the last row.
    """
    if is_quick:
        num_prompts, max_tokens = 24, 48
    prompts = load(num_prompts)
    known = ways()
    plain = PlainTexts(prompts, max_tokens)
    failures = []
    for name in parts or tuple(known):
        for row in _rows(target, known[name], plain, temperatures, drafting):
            row["no_proof"] = failures_of(row)
            yield row
            failures += row["no_proof"]
    if failures:
        raise EqualityFailed("; ".join(failures))


def _rows(
    target: str,
    way: Way,
    plain: PlainTexts,
    temperatures: Sequence[float],
    conditions: Sequence[str],
) -> Iterator[dict[str, Any]]:
    with (
        Relay() as relay,
        Assembly(
            configuration(target, way.drafters),
            alterations={TARGET: [SLOW_PASSES]},
            drafter_environment=relay.environment,
        ) as assembly,
        Client(assembly.address) as client,
    ):
        for condition in conditions:
            is_disturbed = condition == DISTURBED
            if is_disturbed:
                for name in way.drafters:
                    assembly.restart(name, alterations=[FAULTS])
            for temperature in temperatures:
                row = compare(
                    assembly,
                    client,
                    plain,
                    temperature=temperature,
                    num_sequences=way.num_sequences,
                    relay=relay if is_disturbed else None,
                )
                about = {"drafter": way.name, "temperature": temperature, "condition": condition}
                yield about | row


def configuration(target: str, drafters: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """A service in which these drafters are at work, whether it pays or not.

    Args:
        target: The target model.
        drafters: By name, their sections.
    """
    # Drafters have as much of the processor as the target, which sleeps for most of a pass.
    room = {"max_context": MAX_CONTEXT, "num_slots": AT_ONCE, "niceness": 0}
    config = pair_config(target, both=room)
    config["drafters"] = [
        {"name": name, **section, **({"num_threads": 1, **room} if "model" in section else {})}
        for name, section in drafters.items()
    ]
    config["speculation"]["adaptive"] = False
    return config


class PlainTexts:
    """What plain decoding says of the prompts, decoded when it is first wanted."""

    def __init__(self, prompts: Sequence[Prompt], max_tokens: int) -> None:
        """
        Args:
            prompts: Which.
            max_tokens: Of a sequence.
        """
        self.prompts = prompts
        self.max_tokens = max_tokens
        self._texts: dict[tuple[float, int], Decoded] = {}

    def of(self, client: Client, temperature: float, num_sequences: int) -> Decoded:
        """At a temperature, of so many sequences of each prompt."""
        key = temperature, num_sequences
        if key not in self._texts:
            self._texts[key] = self.decode(client, self.prompts, *key, enabled=False)
        return self._texts[key]

    def decode(
        self,
        client: Client,
        prompts: Sequence[Prompt],
        temperature: float,
        num_sequences: int,
        *,
        enabled: bool,
        may_begin: threading.Event | None = None,
    ) -> Decoded:
        """Decodes some of the prompts."""
        return decode(
            client,
            prompts,
            temperature=temperature,
            max_tokens=self.max_tokens,
            num_sequences=num_sequences,
            enabled=enabled,
            at_once=AT_ONCE,
            may_begin=may_begin,
        )


def compare(
    assembly: Assembly,
    client: Client,
    plain: PlainTexts,
    *,
    temperature: float,
    num_sequences: int = 1,
    relay: Relay | None = None,
) -> dict[str, Any]:
    """What a row says of a running service.

    Args:
        assembly: The service.
        client: Of it.
        plain: What is to come out.
        temperature: Of sampling.
        num_sequences: Of a request.
        relay: Between the drafters and the target; None: nothing is disturbed.
    """
    expected = plain.of(client, temperature, num_sequences)
    prompts = plain.prompts

    def again(some: Sequence[Prompt], may_begin: threading.Event | None = None) -> Decoded:
        return plain.decode(
            client, some, temperature, num_sequences, enabled=True, may_begin=may_begin
        )

    happened: dict[str, Any] = {}
    asked, deadline = list(prompts), time.monotonic() + MOST_S

    def wants_more(ours: Decoded) -> bool:
        return accepted(ours) < LEAST_ACCEPTED and time.monotonic() < deadline

    def add_some(ours: Decoded, may_begin: threading.Event | None = None) -> None:
        more = [prompts[i % len(prompts)] for i in range(len(asked), len(asked) + MORE)]
        ours.add(again(more, may_begin))
        asked.extend(more)

    if relay is None:
        ours = again(prompts)
        while wants_more(ours):
            add_some(ours)
    else:
        with Disturbance(assembly, relay, seed=int(10 * temperature)) as disturbance:
            ours = again(prompts, disturbance.may_begin)
            while disturbance.failure is None and (
                wants_more(ours) or (not disturbance.is_enough and time.monotonic() < deadline)
            ):
                add_some(ours, disturbance.may_begin)
        happened = {
            "restarts": disturbance.restarts,
            "resyncs": disturbance.resyncs,
            "cuts": disturbance.cuts,
            "target_restarts": disturbance.target_restarts,
            "is_enough": disturbance.is_enough,
            "failure": repr(disturbance.failure) if disturbance.failure else "",
        }
    texts = {
        prompt.id: expected.texts[i * num_sequences : (i + 1) * num_sequences]
        for i, prompt in enumerate(prompts)
    }
    wanted = Decoded(texts=[text for prompt in asked for text in texts[prompt.id]])
    return {
        "num_sequences": num_sequences,
        "prompts": len(prompts),
        "requests": len(asked),
        "max_tokens": plain.max_tokens,
        "tokens": ours.num_tokens,
        "different": differences(
            [prompt for prompt in asked for _ in range(num_sequences)], wanted, ours
        ),
        "near_ties_plain": expected.near_ties,
        "near_ties_speculative": ours.near_ties,
        "tokens_per_pass": ours.tokens_per_pass,
        "verified": sum(s.verified for s in ours.stats),
        "accepted": accepted(ours),
        **happened,
    }


def accepted(decoded: Decoded) -> int:
    """Candidates that became part of the texts."""
    return sum(stats.accepted for stats in decoded.stats)


def failures_of(row: Mapping[str, Any]) -> list[str]:
    """Why a row is no proof, in words; empty: it is one."""
    name = f"{row['drafter']} at temperature {row['temperature']:g}, {row['condition']}"
    found = []
    if row["different"]:
        found.append(f"{name}: {len(row['different'])} outputs differ from plain decoding")
    if row["accepted"] < LEAST_ACCEPTED:
        found.append(
            f"{name}: {row['accepted']} candidates were accepted, too few to prove something"
        )
    if not row.get("is_enough", True):
        found.append(
            f"{name}: {row['restarts']} restarts, {row['resyncs']} resyncs, {row['cuts']} cuts and "
            f"{row['target_restarts']} restarts of the target while decoding are too few to prove something {row['failure']}"
        )
    return found
