"""What feedback costs a target: bytes a token, processor time of the thread that runs passes, and of the one that packs. No network.

The shipped target decodes; each round it gets a tree of sixteen candidates that holds the next four tokens of its text, which is what a good
drafter would send. Passes with and without taps come by turns, in one process.
"""

from __future__ import annotations

import logging
import statistics
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import structlog

from outrider.actors.engine.engine_settings import EngineSettings
from outrider.actors.engine.load.load_engine import load_engine
from outrider.actors.engine.protocol import Engine
from outrider.actors.exchange.candidates import Candidates
from outrider.actors.exchange.feedback_offer import offer_for
from outrider.actors.exchange.feedback_request import FeedbackRequest
from outrider.actors.speculation.options import Sampling, Speculation
from outrider.actors.speculation.trees import base_hash
from outrider.actors.target.service.feedback_queue import pack
from outrider.actors.target.state.target_events import (
    CandidatesReceived,
    CommitFrame,
    DrafterJoined,
    FeedbackClosed,
    FeedbackOpened,
    FeedbackReady,
    Opened,
    OpenSession,
    Output,
    SessionOwner,
)
from outrider.actors.target.state.target_settings import TargetSettings
from outrider.actors.target.target_worker import TargetWorker

KEYS = ("asked", "sessions")
"""What tells rows apart."""

PROMPT = tuple(range(300, 364))

TOKENS = 160
"""Decoded by each session."""

RIGHT = 4
"""Candidates of a tree that are the text."""

NODES = 16
"""Candidates of a tree."""

REQUESTS = {
    "after the norm": FeedbackRequest(layers=("norm",)),
    "3 layers": FeedbackRequest(layers=(2, 10, 17)),
    "5 layers": FeedbackRequest(layers=(1, 5, 9, 13, 17)),
    "8 likeliest": FeedbackRequest(top_k=8),
}


def run(*, runs: int | None = None, is_quick: bool = False) -> Iterator[dict[str, Any]]:
    """One row for each thing that is asked for and number of sessions.

    Args:
        runs: Texts of each, with and without.
        is_quick: Few.
    """
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    repeats = runs or (1 if is_quick else 5)
    for sessions in (1, 8):
        engine = load_engine(
            EngineSettings(model="demo:target", num_slots=sessions, max_context=512, num_threads=1)
        )
        texts = _Decoding(engine, sessions).texts()
        for asked, request in REQUESTS.items():
            plain, told = [], []
            for _ in range(repeats):
                plain.append(_Decoding(engine, sessions, texts=texts))
                told.append(_Decoding(engine, sessions, texts=texts, request=request))
                for one in (plain[-1], told[-1]):
                    if one.texts() != texts:
                        raise AssertionError("feedback changed a text")
            tokens = sessions * TOKENS * repeats
            yield {
                "asked": asked,
                "sessions": sessions,
                "runs": repeats,
                "width": engine.spec.width,
                "prompt": 1 + len(PROMPT),
                "tokens": TOKENS,
                "bytes_per_token": sum(one.num_bytes for one in told) / tokens,
                "tokens_per_pass": tokens / sessions / sum(len(one.steps_s) for one in plain),
                "pass_us": 1e6 * statistics.median(s for one in plain for s in one.steps_s),
                "pass_told_us": 1e6 * statistics.median(s for one in told for s in one.steps_s),
                "pack_us": 1e6 * statistics.median(s for one in told for s in one.packs_s),
            }


class _Decoding:
    """Sessions of one target, decoded side by side."""

    def __init__(
        self,
        engine: Engine,
        sessions: int,
        texts: dict[int, list[int]] | None = None,
        request: FeedbackRequest | None = None,
    ) -> None:
        self.steps_s: list[float] = []
        """Of passes that decode, all of the thread's work."""
        self.packs_s: list[float] = []
        self.num_bytes = 0
        self._known = texts
        self._found: dict[int, list[int]] = {number: [] for number in range(sessions)}
        self._handles: dict[int, int] = {}
        self._outputs: list[Output] = []
        settings = TargetSettings(
            name="t",
            incarnation=1,
            model_name="m",
            engine=EngineSettings(model="demo:target"),
            prefix_reuse=False,
        )
        self._worker = TargetWorker(engine, settings, self._outputs.extend)
        self._worker.post(DrafterJoined(drafter="d"))
        self._revision = 0
        if request is not None:
            spec = engine.spec
            offer = offer_for(
                request,
                target="t",
                fingerprint=spec.fingerprint,
                num_blocks=spec.num_blocks,
                width=spec.width,
            )
            self._revision = offer.revision
            opened = FeedbackOpened(drafter="d", request=request, layers=offer.layers)
            self._worker.post(opened)
        for number in range(sessions):
            sampling = Sampling(seed=number, max_tokens=TOKENS, temperature=0.8, ignore_eos=True)
            self._worker.post(
                OpenSession(
                    owner=SessionOwner(stream=1, session=number),
                    group=0,
                    prompt=(number + 100, *PROMPT),
                    committed=(),
                    sampling=sampling,
                    speculation=Speculation(),
                    drafters={"d": 0},
                )
            )
        while any(len(text) < TOKENS for text in self._found.values()):
            self._step()
        self._worker.post(FeedbackClosed(drafter="d"))
        self._worker.step()

    def texts(self) -> dict[int, list[int]]:
        """What was decoded, by number of the session."""
        return self._found

    def _step(self) -> None:
        drafting = all(self._found.values())
        if drafting and self._known is not None:
            self._draft(self._known)
        began = time.thread_time()
        self._worker.step()
        if drafting:
            self.steps_s.append(time.thread_time() - began)
        outputs, self._outputs[:] = self._outputs[:], []
        for output in outputs:
            match output:
                case Opened():
                    self._handles[output.owner.session] = output.handle
                case CommitFrame():
                    starts = output.commits.starts_E.tolist()
                    for entry, number in enumerate(output.commits.sessions_E.tolist()):
                        tokens = output.commits.tokens_T[starts[entry] : starts[entry + 1]]
                        self._found[number] += tokens.tolist()
                case FeedbackReady():
                    began = time.thread_time()
                    frames = pack(output, self._revision)
                    self.packs_s.append(time.thread_time() - began)
                    self.num_bytes += sum(len(frame.data) for frame in frames)

    def _draft(self, known: dict[int, list[int]]) -> None:
        """A tree for each session: the next tokens of its text in a chain, and others beside each of them."""
        trees = []
        for number, found in self._found.items():
            chain = known[number][len(found) : len(found) + RIGHT]
            if chain:
                trees.append((number, chain))
        sizes = [NODES if len(chain) == RIGHT else len(chain) for _, chain in trees]
        tokens, parents, hashes, lengths = [], [], [], []
        for (number, chain), size in zip(trees, sizes, strict=True):
            text = [number + 100, *PROMPT, *self._found[number]]
            hashes.append(base_hash.extend_all(base_hash.EMPTY, text))
            lengths.append(len(text))
            others = [(token + 1 + wrong) % 4096 for wrong in range(3) for token in chain]
            tokens += [*chain, *others][:size]
            parents += [*range(-1, len(chain) - 1), *(list(range(-1, len(chain) - 1)) * 3)][:size]
        frame = Candidates(
            handles_E=np.array([self._handles[number] for number, _ in trees], np.uint64),
            lengths_E=np.array(lengths),
            hashes_E=np.array(hashes, np.uint64),
            numbers_E=np.ones(len(trees), np.int64),
            starts_E=np.concatenate(([0], np.cumsum(sizes, dtype=np.int64))),
            tokens_N=np.array(tokens),
            parents_N=np.array(parents),
            estimates_N=np.full(len(tokens), 250, np.uint8),
            num_bytes=100,
        )
        self._worker.post(CandidatesReceived(drafter="d", candidates=frame))
