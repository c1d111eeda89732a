"""Candidates that are plain decoding's own draws, fifty seeds for each sampling option: all are accepted, as they are due.

Random candidates are rejected at once, so what a row below a candidate makes of its path hardly matters to them. Here every
round goes to the last candidate: scores must be those of the whole path, and the path must end where the text does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any, Literal

import numpy as np
import pytest
import torch
from tests.actors.target.state.chaos import Harness, candidates, commits_of, opening, run_plain
from tests.actors.target.state.passing import Sessions

from outrider.actors.engine.engine_settings import EngineSettings
from outrider.actors.engine.tables.tabular_engine import TabularEngine, random_table
from outrider.actors.frozen.frozen_candidates import FrozenBatch, FrozenCandidates
from outrider.actors.frozen.law_frame import FrozenTree
from outrider.actors.frozen.sparse_rows import SparseRow
from outrider.actors.speculation.choice.verifier_registry import VERIFIERS
from outrider.actors.speculation.noise.gumbel import GumbelNoise
from outrider.actors.speculation.options import Sampling, Speculation
from outrider.actors.speculation.sampling.draw import draw
from outrider.actors.speculation.sampling.transforms import SamplingTransform
from outrider.actors.speculation.trees import base_hash
from outrider.actors.speculation.trees.draft_tree import DraftTree, Replacement
from outrider.actors.target.state.target_events import CandidatesReceived, DrafterJoined, Finished
from outrider.actors.target.verify import commit
from outrider.actors.target.verify.frozen_verdict import TargetRows

CPU = torch.device("cpu")
VOCAB, EOS = 6, 5
LENGTH = 3
"""Of a prompt."""
TOKENS, DEPTH = 11, 4
"""Of an output, and of the candidates of a round; not a multiple of a round, so that the last one is cut."""
SEEDS, SESSIONS = 50, 25
"""More seeds than prompts; sessions of a pass: their candidates fit into one."""

TABLE = random_table(VOCAB, 2, seed=1, concentration=0.7, eos_token_ids=(EOS,))
NOISE = GumbelNoise(VOCAB, CPU)

BASE = Sampling(seed=0, max_tokens=TOKENS, ignore_eos=True)
OPTIONS: dict[str, Sampling] = {
    "temperature": replace(BASE, temperature=0.7),
    "low temperature": replace(BASE, temperature=0.05),
    "greedy": replace(BASE, temperature=0.0, frequency_penalty=0.9),
    "top_k": replace(BASE, top_k=3, frequency_penalty=0.5),
    "top_p": replace(BASE, top_p=0.7, frequency_penalty=0.5),
    "min_p": replace(BASE, min_p=0.2, frequency_penalty=0.5),
    "repetition": replace(BASE, repetition_penalty=1.6),
    "presence": replace(BASE, presence_penalty=1.5),
    "frequency": replace(BASE, frequency_penalty=0.9),
    "bias": replace(BASE, logit_bias={0: -100.0, 3: 1.5, 4: -2.0}),
    "output shorter than min_tokens": replace(
        BASE, ignore_eos=False, min_tokens=3 * TOKENS, stop_token_ids=(2,)
    ),
    "min_tokens within a path": replace(
        BASE, ignore_eos=False, min_tokens=3, stop_token_ids=(1, 2)
    ),
    "stop tokens": replace(BASE, stop_token_ids=(4,)),
    "end of text": replace(BASE, ignore_eos=False),
}


def stops(sampling: Sampling) -> set[int]:
    """What ends an output."""
    return {*sampling.stop_token_ids, *(() if sampling.ignore_eos else (EOS,))}


def prompt_of(seed: int) -> tuple[int, ...]:
    """Different ones, for a text without noise."""
    return (1, seed % VOCAB, seed // VOCAB % VOCAB)


def logits_after(text: Sequence[int]) -> torch.Tensor:
    """The model's row, float32 (1, V)."""
    return torch.from_numpy(TABLE.log_probs[tuple(text[-2:])].astype(np.float32))[None]


def transform_of(sampling: Sampling) -> SamplingTransform:
    """Of a session without output."""
    return SamplingTransform(
        sampling,
        vocab_size=VOCAB,
        prompt=prompt_of(sampling.seed),
        eos_token_ids=(EOS,),
        device=CPU,
    )


@cache
def draws(name: str, seed: int) -> tuple[list[int], list[torch.Tensor]]:
    """Plain decoding token by token, on beyond where the output ends: tokens, and the scores of each, (V,)."""
    sampling = replace(OPTIONS[name], seed=seed)
    transform = transform_of(sampling)
    count = TOKENS + DEPTH + 1
    noise_DV = NOISE.rows(seed, LENGTH, count) if transform.uses_noise else None
    tokens: list[int] = []
    rows: list[torch.Tensor] = []
    for place in range(count):
        scores_1V = transform.apply(logits_after([*prompt_of(seed), *tokens]), [[]], [place])
        noise_1V = None if noise_DV is None else noise_DV[place : place + 1]
        tokens.append(int(draw(scores_1V, noise_1V)[0]))
        rows.append(scores_1V[0])
        transform.commit(tokens[-1:])
    return tokens, rows


def output(name: str, seed: int) -> list[int]:
    """What plain decoding gives."""
    tokens = draws(name, seed)[0][:TOKENS]
    ends = [place for place, token in enumerate(tokens) if token in stops(OPTIONS[name])]
    return tokens[: ends[0] + 1] if ends else tokens


def batches() -> list[range]:
    """The seeds of each harness."""
    return [range(first, first + SESSIONS) for first in range(0, SEEDS, SESSIONS)]


def harness(device_draws: Literal["auto", "on"] = "auto") -> Harness:
    """A target that waits for its candidates and finds all of them worth their rows."""
    settings = EngineSettings(model="x", num_slots=SESSIONS, max_scratch=64, max_context=64)
    return Harness(TabularEngine(TABLE, settings), lockstep=True, device_draws=device_draws)


def openings(name: str, seeds: Sequence[int], speculation: Speculation | None = None) -> list[Any]:
    """One session a seed."""
    return [
        opening(
            seed,
            replace(OPTIONS[name], seed=seed),
            prompt=prompt_of(seed),
            speculation=speculation,
        )
        for seed in seeds
    ]


def with_decoys(chain: Sequence[int]) -> tuple[list[int], list[int], bytes]:
    """Each token of a chain behind a sibling that is not drawn; parents as on the wire."""
    tokens: list[int] = []
    parents: list[int] = []
    for token in chain:
        parent = len(tokens)
        tokens += [(token + 1) % VOCAB, token]
        parents += [parent, parent]
    return tokens, parents, b"\xff" * len(tokens)


def faults(name: str, device_draws: Literal["auto", "on"]) -> int:
    """Sessions, of those of all seeds, whose text or whose candidates' fate is not what plain decoding says."""
    found = 0
    for seeds in batches():
        ours = harness(device_draws)
        ours.worker.post(DrafterJoined(drafter="d"))
        for event in openings(name, seeds):
            ours.worker.post(event)
        sent: dict[tuple[int, int], int] = {}
        for _ in range(20 * TOKENS):
            for seed in ours.opened() - {s for s in seeds if ours.end(s)}:
                place = len(ours.committed(seed))
                if (seed, place) in sent:
                    continue
                sent[seed, place] = min(DEPTH, TOKENS - place - 1)
                chain = draws(name, seed)[0][place : place + DEPTH]
                text = [*prompt_of(seed), *ours.committed(seed)]
                message = candidates(text, with_decoys(chain), handle=ours.handle(seed))
                ours.worker.post(message)
            if all(ours.end(seed) for seed in seeds):
                break
            wait_s = ours.worker.step()
            ours.now += wait_s or 0.0
        found += sum(not _is_plain(ours, name, seed, sent) for seed in seeds)
    return found


def _is_plain(ours: Harness, name: str, seed: int, sent: dict[tuple[int, int], int]) -> bool:
    """The text, and rounds that are as long as their candidates unless the text ends before."""
    whole, end = output(name, seed), ours.end(seed)
    if ours.committed(seed) != whole or not isinstance(end, Finished):
        return False
    place = accepted = 0
    for round_ in commits_of(ours.outputs):
        if round_.owner.session == seed:
            length = sent.get((seed, place), 0)
            expected = whole[place : place + length + 1]
            origins = ([0] * length + [-1])[: len(expected)]
            if list(round_.tokens) != expected or list(round_.origins) != origins:
                return False
            accepted += origins.count(0)
            place += len(expected)
    return place == len(whole) and end.stats.accepted == accepted


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("device_draws", ["auto", "on"])
def test_plain_draws_are_accepted_to_the_last(
    name: str, device_draws: Literal["auto", "on"]
) -> None:
    """Drawn on the host and as on a device: the text, who proposed each token, and how many were accepted."""
    assert faults(name, device_draws) == 0


@pytest.mark.parametrize("name", OPTIONS)
def test_plain_decoding_is_one_draw_after_the_other(name: str) -> None:
    """What the others here are compared with."""
    for seeds in batches():
        texts = run_plain(harness(), openings(name, seeds))
        assert texts == {seed: output(name, seed) for seed in seeds}


def wrong_rows(name: str, *, is_every_row_read: bool) -> int:
    """Rows along paths of plain draws, siblings beside them, that are not bit for bit those of plain decoding."""
    found = 0
    settings = EngineSettings(model="x", num_slots=SEEDS, max_scratch=64, max_context=64)
    sessions = Sessions(TabularEngine(TABLE, settings))
    for seed in range(SEEDS):
        place = seed % 5
        drawn, scores = draws(name, seed)
        tokens, wire_parents, _ = with_decoys(drawn[place : place + DEPTH])
        parents = [parent - 1 for parent in wire_parents]
        text = [*prompt_of(seed), *drawn[:place]]
        paths: list[list[int]] = [[]]
        for token, parent in zip(tokens, parents, strict=True):
            paths.append([*paths[parent + 1], token])
        sampling = replace(OPTIONS[name], seed=seed)
        row = sessions.open(sampling, drawn[:place], prompt=prompt_of(seed))
        session = sessions.state.sessions[row]
        rows = TargetRows(
            session,
            torch.cat([logits_after([*text, *path]) for path in paths]),
            DraftTree(tokens_N=tuple(tokens), parents_N=tuple(parents)),
            is_every_row_read=is_every_row_read,
        )
        for depth in range(DEPTH + 1):
            expected_V = torch.softmax(scores[place + depth].double(), dim=-1).numpy()
            if session.noise is None:
                expected_V = np.eye(VOCAB)[drawn[place + depth]]
            found += rows[2 * depth].tobytes() != expected_V.tobytes()
    return found


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("is_every_row_read", [False, True])
def test_rows_for_frozen_trees_are_those_that_plain_decoding_draws_from(
    name: str, is_every_row_read: bool
) -> None:
    """Bit for bit, made one at a time or all at once."""
    assert wrong_rows(name, is_every_row_read=is_every_row_read) == 0


FROZEN = [
    verifier
    for verifier, method in VERIFIERS.items()
    if method.needs_frozen_tree and method.is_lossless
]


@cache
def chain_of(name: str, seed: int, replacement: Replacement) -> FrozenTree:
    """The first plain draws as a chain, with plain decoding's own laws: all of it must be accepted."""
    drawn, scores = draws(name, seed)
    rows = []
    for place in range(DEPTH):
        probs_V = torch.softmax(scores[place].double(), dim=-1).numpy()
        if OPTIONS[name].temperature == 0.0:
            probs_V = np.eye(VOCAB)[drawn[place]]
        ids_K = np.flatnonzero(probs_V)
        rows.append(SparseRow(ids_K=ids_K.astype(np.uint32), weights_K=probs_V[ids_K]))
    tree = DraftTree(
        tokens_N=tuple(drawn[:DEPTH]),
        parents_N=tuple(range(-1, DEPTH - 1)),
        sources_N=tuple(range(DEPTH)),
        replacement=replacement,
    )
    return FrozenTree(tree=tree, rows=tuple(rows))


def frozen_faults(name: str, verifiers: Sequence[str]) -> Counter[str]:
    """Sessions whose first round does not commit the chain, up to a stop token within it.

    Sessions have verifiers in turn, which begins elsewhere for each option: so all of them meet every seed's uniforms.
    """
    found: Counter[str] = Counter()
    first = list(OPTIONS).index(name)
    turns = {seed: verifiers[(seed + first) % len(verifiers)] for seed in range(SEEDS)}
    for seeds in batches():
        ours = harness()
        ours.worker.post(DrafterJoined(drafter="d"))
        for handle, seed in enumerate(seeds, 1):
            verifier = turns[seed]
            ours.worker.post(*openings(name, [seed], Speculation(verifier=verifier)))
            chain = FrozenCandidates(
                handle=handle,
                base_length=LENGTH,
                base_hash=base_hash.extend_all(base_hash.EMPTY, prompt_of(seed)),
                round=1,
                frozen=chain_of(name, seed, min(VERIFIERS[verifier].replacements)),
            )
            batch = FrozenBatch(trees_E=(chain,), bytes_E=np.array([1]))
            ours.worker.post(CandidatesReceived(drafter="d", candidates=batch))
        ours.worker.step()
        rounds = {one.owner.session: one for one in commits_of(ours.outputs)}
        for seed in seeds:
            expected = output(name, seed)[:DEPTH]
            round_ = rounds[seed]
            count = DEPTH + 1 if expected[-1] not in stops(OPTIONS[name]) else len(expected)
            found[turns[seed]] += (
                list(round_.tokens[: len(expected)]) != expected
                or list(round_.origins) != ([0] * DEPTH + [-1])[:count]
                or len(round_.tokens) != count
            )
    return found


@pytest.mark.parametrize("name", OPTIONS)
def test_frozen_chains_of_plain_draws_are_accepted_to_the_last(name: str) -> None:
    """By every verifier, given plain decoding's own rows as the draft's."""
    assert frozen_faults(name, FROZEN) == dict.fromkeys(FROZEN, 0)


# Mistakes that must not pass.


apply = SamplingTransform.apply
Paths = Sequence[Sequence[int]]


def committed(paths: Paths, num_output: Sequence[int]) -> list[int]:
    """The committed output of each row, without its path."""
    return [num - len(path) for num, path in zip(num_output, paths, strict=True)]


def pathless(
    self: SamplingTransform, logits_NV: torch.Tensor, paths: Paths, num_output: Sequence[int]
) -> torch.Tensor:
    """All rows of a tree as if they were its root's."""
    return apply(self, logits_NV, [[]] * len(paths), committed(paths, num_output))


def shallow(
    self: SamplingTransform, logits_NV: torch.Tensor, paths: Paths, num_output: Sequence[int]
) -> torch.Tensor:
    """`min_tokens` counts the committed output only."""
    return apply(self, logits_NV, paths, committed(paths, num_output))


def unstopped(stops_EK: Any, tokens_ET: Any, counts_E: Any) -> tuple[Any, Any]:
    """A stop token ends a text, and is not the last one."""
    _, stopped_E = until_stop(stops_EK, tokens_ET, counts_E)
    return counts_E, stopped_E


until_stop = commit.until_stop


PENALISED = ("repetition", "presence", "frequency", "greedy")


@pytest.mark.parametrize("name", PENALISED)
def test_draws_that_ignore_the_path_are_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Penalties of the root's row everywhere."""
    monkeypatch.setattr(SamplingTransform, "apply", pathless)
    assert faults(name, "on") > SEEDS // 5
    assert faults(name, "auto") > SEEDS // 5


def test_min_tokens_without_depth_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """In draws on the host, in draws on a device, and in the rows for frozen trees."""
    name = "min_tokens within a path"
    monkeypatch.setattr(SamplingTransform, "apply", shallow)
    assert faults(name, "auto") > SEEDS // 10
    assert faults(name, "on") > SEEDS // 10
    for is_every_row_read in (False, True):
        assert wrong_rows(name, is_every_row_read=is_every_row_read) > SEEDS // 10
    assert frozen_faults(name, ["traversal"]).total() > SEEDS // 20
    assert frozen_faults(name, FROZEN).total() > SEEDS // 20


@pytest.mark.parametrize("name", ["stop tokens", "end of text"])
def test_texts_that_go_on_beyond_a_stop_are_caught(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Candidates below a stop token are not accepted, and say nothing of who proposed what."""
    monkeypatch.setattr(commit, "until_stop", unstopped)
    assert faults(name, "auto") > SEEDS // 5
