"""What a drafter runs and sends is what the plain loop says: which nodes and texts, which candidates, and whether these go out now."""

from __future__ import annotations

import random

import pytest
from tests.actors.draft.bench import (
    DRAFT_TABLE,
    TARGET_TABLE,
    VOCAB_SIZE,
    MiniTarget,
    TableBench,
    frame_of,
    make_attach,
    news_of,
)
from tests.actors.draft.plain_drafting import (
    PlainChoice,
    PlainFrame,
    PlainLimits,
    PlainLink,
    PlainNode,
    PlainPass,
    PlainSession,
    decide,
)

from outrider.actors.draft.model.model_pass import ModelPass
from outrider.actors.draft.sending.unsent import node_bytes
from outrider.actors.draft.state.draft_events import CandidatesSent
from outrider.actors.exchange.candidates import ENTRY_BYTES
from outrider.actors.exchange.frames import clock_us, since_s
from outrider.actors.exchange.verdicts import TargetActivity
from outrider.actors.speculation.options import Sampling, Speculation

TOKENS = 48
"""That each text may still grow by."""


class Scene:
    """A drafter with some targets, which say what they like, and the same in plain numbers."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = random.Random(seed)
        price = rng.choice([250.0, 1_200.0, 3_500.0, 1e6])
        max_ahead, max_scratch = rng.choice([4, 8, 24]), rng.choice([6, 96])
        chunk = rng.choice([4, 32])
        self.bench = TableBench(
            DRAFT_TABLE,
            num_slots=4,
            width=rng.choice([2, 4]),
            max_ahead=max_ahead,
            max_scratch=max_scratch,
            prefill_chunk=chunk,
            bytes_per_token=price,
        )
        self.limits = PlainLimits(
            max_ahead=max_ahead,
            max_scratch=max_scratch,
            chunk=min(chunk, max_scratch),
            byte=1.0 / price,
            node_bytes=node_bytes(make_attach().vocab_size),
            session_bytes=ENTRY_BYTES,
        )
        self.core = self.bench.worker.core
        self.links: dict[int, PlainLink] = {}
        self.targets: list[MiniTarget] = []
        self.depths: list[int] = []
        self.passes: list[PlainPass] = []
        self.now = 1.0
        self.each_s = rng.choice([0.0, 1e-5, 4e-4])
        """Seconds of a row."""
        self.share = rng.choice([1.0, 0.85, 0.4])
        """Of a target's sessions that a pass of it has."""
        for handle in range(rng.randint(1, 4)):
            self._attach(handle)
        self.core.take_reports()

    def _attach(self, handle: int) -> None:
        rng, link = self.rng, self.rng.randint(1, 2)
        known = self.links.setdefault(link, PlainLink(round_trip_s=rng.choice([0.0, 0.003, 0.02])))
        self.depths.append(2 * rng.randint(1, 4))
        attach = make_attach(
            handle=handle,
            link=link,
            tokens=[rng.randrange(VOCAB_SIZE) for _ in range(rng.choice([2, 20, 60]))],
            sampling=Sampling(seed=rng.randrange(2**60), max_tokens=TOKENS, stop_token_ids=(3,)),
            speculation=Speculation(max_depth=self.depths[-1] // 2),
            round_trip_s=known.round_trip_s,
        )
        self.core.take(attach, self.now)
        self.targets.append(MiniTarget(TARGET_TABLE, attach))

    def left(self, target: MiniTarget) -> int:
        """Tokens that a text may still grow by."""
        session = self.bench.sessions.find(target.key)
        assert session is not None
        return session.final_length - session.length

    def hear(self) -> None:
        """One of the targets tells what a pass of it has committed."""
        rng, link = self.rng, self.rng.choice(list(self.links))
        own = [target for target in self.targets if target.key.link == link]
        own = [one for one in own if self.left(one) > 3 and rng.random() < self.share]
        if not own:
            return
        wait_s = rng.choice([0.0, 0.0, rng.uniform(0.0, 0.02)])
        target = TargetActivity(
            pass_s=rng.uniform(0.002, 0.02),
            free_s=0.0 if wait_s else rng.uniform(0.0, 0.02),
            wait_s=wait_s,
            floor=rng.choice([0.0, rng.uniform(0.0, 0.05), rng.uniform(0.0, 1.0)]),
        )
        verdicts = []
        for one in own:
            one.credits = rng.choice([0, 6, 64, 64])
            number = int(self.bench.sessions.numbers_S[self.bench.row(one.key)])
            verdicts.append(
                one.decide(
                    rng.randint(1, 3), starving=rng.random() < 0.5, seen=rng.randint(0, number)
                )
            )
        trip_s = rng.choice([None, -0.001, 0.0004, 0.004, 0.004, 0.03, 5.0])
        echo_us = 0 if trip_s is None else clock_us(self.now - trip_s)
        event = frame_of(verdicts, link=link, target=target, echo_us=echo_us)
        self.core.take(event, self.now)
        said = event.verdicts.target
        self.links[link].told.append(
            PlainFrame(
                at=self.now,
                sessions=len(verdicts),
                tokens=sum(len(verdict.tokens) for verdict in verdicts),
                pass_s=said.pass_s,
                free_s=said.free_s,
                wait_s=said.wait_s,
                floor=said.floor,
                trip_s=None if trip_s is None else since_s(echo_us, self.now),
            )
        )
        self.links[link].sent.clear()

    def plain(self) -> list[PlainSession]:
        """All sessions."""
        sessions = self.bench.sessions
        made = []
        for target, depth in zip(self.targets, self.depths, strict=True):
            row, tree = self.bench.row(target.key), self.bench.tree(target.key)
            cells = zip(
                tree.parents, tree.depths, tree.values, tree.scratch, tree.sent, strict=True
            )
            cached = self.bench.engine.cached(self.bench.slot(target.key))
            made.append(
                PlainSession(
                    link=target.key.link,
                    nodes=[
                        PlainNode(
                            parent=parent,
                            depth=level,
                            value=value,
                            is_run=scratch >= 0,
                            is_sent=sent > 0,
                            is_last=scratch < -1,
                        )
                        for parent, level, value, scratch, sent in cells
                    ],
                    unread=target.length - cached,
                    most_nodes=int(sessions.credits_S[row]),
                    deepest=min(depth, self.left(target)),
                    is_awaited=bool(sessions.is_awaited_S[row]),
                )
            )
        return made

    def turn(self) -> tuple[PlainChoice, PlainChoice]:
        """One more turn of the drafter: what the plain loop wants, and what is done."""
        if self.rng.random() < 0.4:
            self.hear()
        sessions = self.plain()
        wanted = decide(sessions, self.links, self.passes, self.limits, self.now)
        plan = self.core.begin(self.now)
        done = PlainChoice(gathers=wanted.gathers, is_long=wanted.is_long)
        for frame in self.core.take_reports():
            if isinstance(frame, CandidatesSent):
                self._sent(frame, done)
        for name in {sessions[place].link for place in done.sends}:
            waits = any(
                one.is_awaited and one.link == name and place not in done.sends
                for place, one in enumerate(sessions)
            )
            self.links[name].sent.append((self.now, waits))
        if plan is None:
            self.now += self.rng.uniform(0.0, 0.004)
            return wanted, done
        assert isinstance(plan, ModelPass)
        places = {self.bench.row(target.key): n for n, target in enumerate(self.targets)}
        reading = slice(plan.num_reading)
        for row, count in zip(plan.rows_E[reading], plan.counts_E[reading], strict=True):
            done.reads[places[int(row)]] = int(count)
        for row, node in zip(plan.rows_K.tolist(), plan.nodes_K.tolist(), strict=True):
            done.runs.setdefault(places[row], set()).add(node - 1)
        done.seconds = plan.seconds
        self._run(plan, sessions, done)
        return wanted, done

    def _sent(self, frame: CandidatesSent, done: PlainChoice) -> None:
        for news in news_of(frame):
            paths = self.bench.tree(self.targets[news.handle].key).paths
            done.sends[news.handle] = {paths.index(path) for path in news.paths}

    def _run(self, plan: ModelPass, sessions: list[PlainSession], done: PlainChoice) -> None:
        assert plan.batch is not None
        self.core.finish(plan, self.bench.engine.forward(plan.batch))
        value = children = 0.0
        for place, (before, target) in enumerate(zip(sessions, self.targets, strict=True)):
            told = self.links[before.link].told
            floor = 10.0 * self.limits.byte * self.limits.node_bytes
            floor = max(floor, told[-1].floor) if told else floor
            grown = self.bench.tree(target.key).values[len(before.nodes) :]
            ran = [before.nodes[node].value for node in done.runs.get(place, ())]
            if done.reads.get(place) == before.unread:
                ran.append(1.0)
            value += sum(max(worth - floor, 0.0) for worth in ran)
            children += sum(max(worth - floor, 0.0) for worth in grown)
        is_awaited = any(one.is_awaited and one.most_nodes > 0 for one in sessions)
        rows = plan.batch.num_rows
        seconds = (0.001 + self.each_s * rows) * self.rng.choice([0.9, 1.0, 1.1, 5.0])
        self.now += seconds
        self.passes.append(
            PlainPass(
                rows=rows,
                seconds=seconds,
                value=value,
                children=children,
                is_awaited=is_awaited,
                was_long=done.is_long,
            )
        )


@pytest.mark.parametrize("start", range(0, 160, 20))
def test_a_drafter_does_what_the_plain_loop_says(start: int) -> None:
    """Over random turns: near and far targets that wait and that do not, dear and cheap bytes and rows, long texts, rests, lost messages."""
    for seed in range(start, start + 20):
        scene = Scene(seed)
        for turn in range(25):
            wanted, done = scene.turn()
            assert done.reads == wanted.reads, (seed, turn)
            assert done.runs == wanted.runs, (seed, turn)
            assert done.sends == wanted.sends, (seed, turn)
            assert done.seconds == pytest.approx(wanted.seconds), (seed, turn)


def test_both_ways_are_met() -> None:
    """Such a test is of no use if nothing is kept back, nothing goes out, or texts never stand in the way."""
    choices = [scene.turn()[0] for scene in map(Scene, range(20)) for _ in range(25)]
    alone = [one for one in choices if one.reads and one.is_long]
    together = [one for one in choices if one.reads and not one.is_long]
    sends = [one for one in choices if one.sends]
    gathers = [one for one in choices if one.gathers]
    runs = [one for one in choices if one.runs]
    for met in (alone, together, sends, gathers, runs):
        assert 0.05 < len(met) / len(choices) < 0.9
