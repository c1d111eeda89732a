"""What the drafter's own work costs: time of a round of one session, with a table as the model; medians of rounds.

    python -m bench.running.led_core

A scripted target commits what the real one would, in frames over all sessions; passes take no time but that of the table.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

import numpy as np
import torch

from outrider.actors.draft.draft_core import DraftCore
from outrider.actors.draft.model.growing_drafter import AutoregressiveDrafter, num_nodes_of
from outrider.actors.draft.state.draft_events import (
    AttachSession,
    CandidatesSent,
    SessionKey,
    VerdictsReceived,
)
from outrider.actors.draft.state.draft_sessions import DraftSessions
from outrider.actors.engine.engine_settings import EngineSettings
from outrider.actors.engine.tables.tabular_engine import Table, TabularEngine, random_table
from outrider.actors.exchange import candidates, verdicts
from outrider.actors.exchange.verdicts import TargetActivity, Verdicts
from outrider.actors.speculation.noise.gumbel import GumbelNoise
from outrider.actors.speculation.options import Sampling, Speculation
from outrider.actors.speculation.trees import base_hash
from outrider.actors.speculation.trees.ragged import starts_of

MAX_AHEAD = 128


class Timed:
    """An engine whose own time is told apart."""

    def __init__(self, engine: TabularEngine) -> None:
        self._engine = engine
        self.seconds = 0.0
        self.passes = 0
        self.rows = 0

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._engine, name)
        if name not in ("forward", "rebase", "truncate"):
            return value

        def timed(*args: Any) -> Any:
            began = time.perf_counter()
            try:
                return value(*args)
            finally:
                self.seconds += time.perf_counter() - began
                if name == "forward":
                    self.passes += 1
                    self.rows += args[0].num_rows

        return timed


class Scripted:
    """A target of many sessions: commits the draws that the table and the shared noise make, along what it was sent."""

    def __init__(self, table: Table, num: int, credits: int) -> None:
        self.table = table
        self.texts = [[session % table.vocab_size, 1, 2] for session in range(num)]
        self.hashes = [base_hash.extend_all(base_hash.EMPTY, text) for text in self.texts]
        self.epoch = 0
        self.credits = credits
        self.trees: list[set[tuple[int, ...]]] = [set() for _ in range(num)]
        self.seen = [0] * num
        self._noise = GumbelNoise(table.vocab_size, torch.device("cpu"))
        self.committed = 0

    def hear(self, frame: CandidatesSent) -> int:
        """Takes candidates in; their bytes."""
        if frame.candidates is None:
            return 0
        data = candidates.encode(frame.candidates)
        arrived = candidates.decode(data, self.table.vocab_size)
        tokens, parents = arrived.tokens_N.tolist(), arrived.parents_N.tolist()
        for entry, handle in enumerate(arrived.handles_E.tolist()):
            start, end = arrived.starts_E[entry : entry + 2].tolist()
            since = tuple(self.texts[handle][int(arrived.lengths_E[entry]) :])
            paths: list[tuple[int, ...]] = []
            for token, parent in zip(tokens[start:end], parents[start:end], strict=True):
                paths.append((*(paths[parent] if parent >= 0 else ()), token))
            self.seen[handle] = int(arrived.numbers_E[entry])
            self.trees[handle] |= {
                p[len(since) :] for p in paths if len(p) > len(since) and p[: len(since)] == since
            }
        return len(data)

    def commit(self, target: TargetActivity) -> VerdictsReceived:
        """A pass over all sessions."""
        self.epoch += 1
        rounds: list[list[int]] = []
        for session, text in enumerate(self.texts):
            tree, fresh = self.trees[session], []
            while True:
                scores = torch.from_numpy(self.table.log_probs_after(text)).float() / 0.8
                scores += self._noise.rows(session, len(text), 1)[0]
                token = int(scores.argmax())
                fresh.append(token)
                text.append(token)
                if tuple(fresh) not in tree or len(fresh) > 8:
                    break
            done = tuple(fresh)
            self.trees[session] = {
                p[len(done) :] for p in tree if p[: len(done)] == done and len(p) > len(done)
            }
            self.hashes[session] = base_hash.extend_all(self.hashes[session], fresh)
            rounds.append(fresh)
            self.committed += len(fresh)
        num = len(rounds)
        made = Verdicts(
            target=target,
            handles_E=np.arange(num, dtype=np.uint64),
            epochs_E=np.full(num, self.epoch),
            lengths_E=np.array([len(text) for text in self.texts]),
            hashes_E=np.array(self.hashes, np.uint64),
            credits_E=np.full(num, self.credits),
            seen_E=np.array(self.seen),
            starving_E=np.array([not tree for tree in self.trees]),
            starts_E=starts_of(np.array([len(fresh) for fresh in rounds])),
            tokens_T=np.array([t for fresh in rounds for t in fresh]),
            root_starts_E=np.zeros(num + 1, np.int64),
            roots_T=np.zeros(0, np.int64),
        )
        return VerdictsReceived(link=1, verdicts=verdicts.decode(verdicts.encode(made)))


def measure(
    num: int, *, vocab_size: int, rounds: int, floor: float, credits: int, levels: int
) -> str:
    """One row of the table."""
    target_table = random_table(vocab_size, 1, seed=1, concentration=0.05)
    other = random_table(vocab_size, 1, seed=2, concentration=0.3)
    probs = 0.85 * np.exp(target_table.log_probs) + 0.15 * np.exp(other.log_probs)
    draft_table = Table(log_probs=np.log(probs), name="blurred")
    settings = EngineSettings(model="table", num_slots=num, max_context=1 << 16, max_scratch=256)
    engine = Timed(TabularEngine(draft_table, settings))
    sessions = DraftSessions(num, num_nodes_of(4, MAX_AHEAD))
    drafter = AutoregressiveDrafter(
        sessions,
        engine,
        width=4,
        max_ahead=MAX_AHEAD,
        prefill_chunk=256,
    )
    core = DraftCore(sessions, drafter, max_ahead=MAX_AHEAD, bytes_per_token=180.0)
    target = Scripted(target_table, num, credits)
    for session, text in enumerate(target.texts):
        core.take(
            AttachSession(
                key=SessionKey(1, session),
                tokens=tuple(text),
                prompt_length=len(text),
                sampling=Sampling(seed=session, max_tokens=1 << 14, temperature=0.8),
                speculation=Speculation(),
                vocab_size=vocab_size,
            ),
            0.0,
        )
    core.take_reports()
    now = 0.0
    owns: list[float] = []
    tables: list[float] = []
    num_bytes = messages = 0
    warm = rounds // 4
    frame: VerdictsReceived | None = None
    for round_ in range(rounds + warm):
        if round_ == warm:
            owns, tables = [], []
            engine.passes = engine.rows = num_bytes = messages = target.committed = 0
        engine.seconds = 0.0
        began = time.perf_counter()
        if frame is not None:
            core.take(frame, now)
        for _ in range(levels):
            now += 1e-3
            plan = core.begin(now)
            if plan is None:
                break
            now += 2e-3
            core.finish(plan, engine.forward(plan.batch))
        now += 20e-3
        core.begin(now)
        reports = core.take_reports()
        owns.append(time.perf_counter() - began - engine.seconds)
        tables.append(engine.seconds)
        for report in reports:
            if isinstance(report, CandidatesSent):
                num_bytes += target.hear(report)
                messages += 1
        frame = target.commit(TargetActivity(pass_s=25e-3, free_s=25e-3, floor=floor))
    own, table = (1e6 * statistics.median(times) / num for times in (owns, tables))
    least = 1e6 * min(owns) / num
    return (
        f"{num:9d} {own:12.0f} {least:8.0f} {table:10.0f} {engine.passes / rounds:8.1f}"
        f" {engine.rows / rounds / num:8.1f} {target.committed / rounds / num:8.2f} {messages / rounds:9.2f}"
        f" {num_bytes / max(target.committed, 1):8.0f}"
    )


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--vocab", type=int, default=128, help="token ids of the table")
    parser.add_argument("--sessions", type=int, nargs="*", default=[1, 4, 16, 64])
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--floor", type=float, default=0.05, help="of the target")
    parser.add_argument("--credits", type=int, default=64)
    parser.add_argument("--levels", type=int, default=4, help="draft passes a round, at most")
    told = parser.parse_args()
    torch.set_num_threads(1)
    print(
        "sessions  own us/round    least   table us   passes  rows/ses   tokens  messages  bytes/token"
    )
    for num in told.sessions:
        print(
            measure(
                num,
                vocab_size=told.vocab,
                rounds=told.rounds,
                floor=told.floor,
                credits=told.credits,
                levels=told.levels,
            ),
            flush=True,
        )


if __name__ == "__main__":
    main()
