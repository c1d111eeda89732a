"""The ideal of many requests at once, and eta beside it: `actors/speculation/ideal.py` with a plain pass over all of them as the unit. Pure.

- *c* is a draft pass over all sessions, alone on the machine; *kappa* what a pass over their trees costs, by the curve of passes
  that was timed alone. Both are the least that they can be, so the ideal is rather too high than too low.
- Prompts gain nothing from candidates. Their share *p* of plain decoding's time at the target stays, so the ideal of the whole is
  1 / (p + (1 - p) / ideal of decoding) (Amdahl 1967).
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bench.figures.passes import VERIFY
from bench.ideals.efficiency import best_tree, told
from bench.ideals.law import Replay
from bench.running.targets import BenchTarget
from outrider.actors.speculation.ideal import drafter_bound, ideal, law_of, mean_run
from outrider.client.timeline.timeline_model import WORK, Slice, Timeline

PREFILL = "prefill"
"""Name of the slices of passes with rows of prompts; rows of decoding sessions may be among them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CrowdPasses:
    """What target passes over many sessions took in a run. 0 where there were none."""

    plain_s: float
    """Seconds a session in passes without candidates or prompts."""

    tree_s: float
    """The same in passes with candidates."""

    sessions: float
    """Mean sessions of a pass without prompts."""

    prompt_share: float
    """Of the time in passes, what prompts took: passes with prompts, less what their decoding rows would take by themselves."""


def crowd_passes(timeline: Timeline) -> CrowdPasses:
    """The target passes of a timeline."""
    found = [one for one in timeline.slices if one.track == WORK]
    decoding = [one for one in found if one.name == VERIFY]
    with_prompts = [one for one in found if one.name == PREFILL]
    plain_s = _session_s([one for one in decoding if not one.args["nodes"]])
    prompts_s = sum(
        max(0.0, 1e-6 * one.duration_us - plain_s * one.args["committed"]) for one in with_prompts
    )
    whole_s = 1e-6 * sum(one.duration_us for one in (*decoding, *with_prompts))
    return CrowdPasses(
        plain_s=plain_s,
        tree_s=_session_s([one for one in decoding if one.args["nodes"]]),
        sessions=statistics.fmean(one.args["sessions"] for one in decoding) if decoding else 0.0,
        prompt_share=prompts_s / whole_s if whole_s else 0.0,
    )


def _session_s(slices: Sequence[Slice]) -> float:
    sessions = sum(one.args["sessions"] for one in slices)
    return 1e-6 * sum(one.duration_us for one in slices) / sessions if sessions else 0.0


def load_efficiency(
    speed_up: float,
    *,
    concurrency: int,
    plain: CrowdPasses,
    pipelined: CrowdPasses,
    replayed: Replay,
    target: BenchTarget,
    draft: BenchTarget,
) -> dict[str, Any]:
    """What a result row of many requests says of the ideal.

    Args:
        speed_up: Throughput over that of plain decoding, prompts included.
        concurrency: Requests at once.
        plain: Passes of plain decoding; seconds a session times sessions is the unit.
        pipelined: Passes with speculation on.
        replayed: What the drafter would have foreseen of the same text.
        target: Its curve tells what rows cost.
        draft: Its curve tells what a draft pass over all sessions costs.
    """
    unit_s = plain.plain_s * concurrency
    law = law_of(replayed.hits if not all(replayed.hits) else [*replayed.hits, False])
    draft_cost = draft.seconds(concurrency) / unit_s
    base_s = target.seconds(concurrency)
    tokens, cost = best_tree(
        {
            size: (tokens, 1.0 + (target.seconds(concurrency * (1 + size)) - base_s) / unit_s)
            for size, tokens in replayed.tokens_per_pass.items()
        }
    )
    decoding = ideal(
        law, tokens_per_pass=tokens, pass_cost=cost, draft_cost=draft_cost, round_trip=0.0
    )
    share = plain.prompt_share
    best = 1.0 / (share + (1.0 - share) / decoding)
    return {
        "unit_ms": 1e3 * unit_s,
        "draft_cost": draft_cost,
        "pass_cost": pipelined.tree_s / plain.plain_s if plain.plain_s else 0.0,
        "sessions_per_pass": {"plain": plain.sessions, "speculative": pipelined.sessions},
        "prompt_share": share,
        "law": told(law),
        "mean_run": mean_run(law),
        "replayed_tokens_per_pass": {
            str(size): tokens for size, tokens in replayed.tokens_per_pass.items()
        },
        "drafter_bound": drafter_bound(law, draft_cost=draft_cost, round_trip=0.0),
        "target_bound": max(1.0, tokens / cost),
        "ideal_decoding": decoding,
        "ideal": best,
        "eta": speed_up / best,
    }
