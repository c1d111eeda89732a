"""Frozen trees between the real workers: greedy texts, drafting ahead, and a network that loses, repeats and reorders."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from structlog.testing import capture_logs
from tests.actors.pair.pair import Pair, Wire, blurred, texts_alone

from outrider.actors.draft.service.draft_messages import message_of
from outrider.actors.draft.state.draft_events import CandidatesSent
from outrider.actors.engine.tables.tabular_engine import random_table
from outrider.actors.frozen import frozen_candidates, law_frame
from outrider.actors.speculation.choice.verifier_registry import VERIFIERS
from outrider.actors.speculation.options import Sampling, Speculation
from outrider.actors.speculation.trees import level_shapes
from outrider.actors.speculation.verify.acceptance import Acceptance
from outrider.actors.target.state.target_events import Finish, Finished
from outrider.actors.target.verify import frozen_verdict
from outrider.v1 import target_pb2

VOCAB = 12
TARGET = random_table(VOCAB, 2, seed=9, concentration=0.3)
"""Its greedy text after the usual prompt holds eleven of the twelve tokens."""

DRAFT = blurred(TARGET, random_table(VOCAB, 2, seed=109, concentration=0.3), 0.3)
"""Agrees with it about most of them."""

FROZEN = [
    verifier
    for verifier, method in VERIFIERS.items()
    if method.needs_frozen_tree and method.is_lossless
]
GREEDY = Sampling(seed=1, max_tokens=60, temperature=0.0)
SAMPLED = Sampling(seed=1, max_tokens=300, temperature=0.9, top_p=0.95)


def plain(sampling: Sampling) -> list[int]:
    """The text without a drafter."""
    return texts_alone(TARGET, [sampling])[0]


@pytest.mark.parametrize("verifier", FROZEN)
def test_greedy_texts_are_those_of_plain_decoding(verifier: str) -> None:
    """At temperature 0 every verifier gives the text of plain decoding, penalties and bias included, in fewer passes."""
    penalised = replace(GREEDY, repetition_penalty=1.3, frequency_penalty=0.2, logit_bias={2: 1.0})
    pair = Pair(TARGET, DRAFT)
    for session, sampling in enumerate((GREEDY, penalised)):
        pair.open(session, sampling, Speculation(verifier=verifier))
    pair.run()
    for session, sampling in enumerate((GREEDY, penalised)):
        assert pair.texts[session] == plain(sampling)
        assert pair.stats(session).accepted > 20


@pytest.mark.parametrize("verifier", FROZEN)
def test_a_perfect_drafter_is_accepted_whole(verifier: str) -> None:
    """With equal models every greedy chain survives, and so does the prediction of what follows it."""
    pair = Pair(TARGET, TARGET)
    shape = level_shapes.chain(4)
    pair.open(0, GREEDY, Speculation(verifier=verifier, tree_shape=shape))
    pair.run()
    stats = pair.stats(0)
    assert stats.accepted == stats.verified
    # The first verdict may come before anything was drafted.
    assert pair.draft.stats.foreseen >= pair.draft.stats.committed - 5
    # The first pass may come before the first tree; later trees lie ready when their base is reached.
    assert stats.plain_passes <= 2
    assert stats.stale <= 2 * shape.num_nodes


def test_trees_lie_ready_for_predicted_texts() -> None:
    """After a verdict that was foreseen, the target verifies the next tree though the drafter has not moved since."""
    pair = Pair(TARGET, TARGET)
    pair.open(0, GREEDY, Speculation(verifier="block"))
    while len(pair.commits[0]) < 3:
        pair.step(drafts=100)
    before = len(pair.texts[0])
    pair.step(drafts=0)
    assert len(pair.commits[0]) == 4
    assert len(pair.texts[0]) - before == 5


class Chaos:
    """A network that loses, repeats, delays and reorders whole messages."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)
        self._delayed: Wire = []

    def __call__(self, wire: Wire) -> Wire:
        for message in wire:
            self._delayed.extend([message] * self._rng.choice([0, 1, 1, 1, 2, 3]))
        self._rng.shuffle(self._delayed)
        count = self._rng.randint(0, len(self._delayed))
        arrived, self._delayed = self._delayed[:count], self._delayed[count:]
        return arrived


@pytest.mark.parametrize("verifier", FROZEN)
def test_a_bad_network_changes_no_greedy_text(verifier: str) -> None:
    """Lost, repeated, late and reordered trees change the number of passes, not the text."""
    pair = Pair(TARGET, DRAFT, meddle=Chaos(5))
    for session in range(3):
        pair.open(session, GREEDY, Speculation(verifier=verifier))
    pair.run()
    assert set(map(tuple, pair.texts.values())) == {tuple(plain(GREEDY))}
    assert sum(pair.stats(session).accepted for session in range(3)) > 0


def test_lost_verdicts_are_asked_for() -> None:
    """A drafter that lost the thread is told the rest, draws again there, and changes no greedy text."""
    rng = random.Random(3)
    pair = Pair(TARGET, DRAFT)
    sampling = replace(GREEDY, max_tokens=400, frequency_penalty=0.1)
    pair.open(0, sampling, Speculation(verifier="mcsd_without_replacement"))
    pair.step()
    pair.is_lost = lambda: rng.random() < 0.3
    pair.run()
    assert pair.texts[0] == plain(sampling)
    assert pair.draft.stats.resyncs > 3
    assert not pair.draft.stats.failures
    assert pair.stats(0).accepted > 20


def test_repeated_trees_are_verified_once() -> None:
    """A message that comes three times gives the same text as one that comes once: one verdict a base."""
    texts = []
    for copies in (1, 3):
        pair = Pair(TARGET, DRAFT, seed=2, meddle=lambda wire, n=copies: wire * n)  # type: ignore[misc]
        pair.open(0, SAMPLED, Speculation(verifier="traversal"))
        pair.run()
        texts.append(pair.texts[0])
        assert pair.stats(0).accepted > 50
    assert texts[0] == texts[1]


def test_a_second_tree_for_a_base_is_dropped() -> None:
    """The first tree that arrives for a base is the one that is verified, whatever a later one offers."""
    texts = []
    for is_second_sent in (False, True):
        pair = Pair(TARGET, DRAFT, seed=2)

        def both(wire: Wire, second: bool = is_second_sent) -> Wire:
            if not second:
                return wire
            copies = []
            for message in wire:
                copy = target_pb2.DrafterMessage.FromString(message.SerializeToString())
                # The same numbers in other places: trees that fit, and are others.
                _cut_to_the_first(copy.candidates)
                copies.append(copy)
            return wire + copies

        pair.meddle = both
        pair.open(0, SAMPLED, Speculation(verifier="kseq"))
        pair.run()
        texts.append(pair.texts[0])
    assert texts[0] == texts[1]


def _cut_to_the_first(batch: target_pb2.CandidateBatch) -> None:
    trees = []
    for found in frozen_candidates.decode(batch, VOCAB):
        for one in found.trees_E:
            whole = one.frozen.tree
            cut = replace(
                whole,
                tokens_N=whole.tokens_N[:1],
                parents_N=(-1,),
                sources_N=whole.sources_N[:1],
            )
            frozen = law_frame.FrozenTree(tree=cut, rows=one.frozen.rows[:1])
            trees.append(replace(one, round=one.round + 1000, frozen=frozen))
    batch.CopyFrom(frozen_candidates.encode(trees))


def test_stop_tokens_and_lengths_end_a_text_inside_an_accepted_run() -> None:
    """Nothing follows the first stop token, and no text is longer than asked for."""
    whole = plain(GREEDY)
    stop = whole[7]
    sampling = replace(GREEDY, stop_token_ids=(stop,))
    for max_tokens in (1, 2, 3, 60):
        pair = Pair(TARGET, TARGET)
        options = replace(sampling, max_tokens=max_tokens)
        pair.open(0, options, Speculation(verifier="mcsd_without_replacement"))
        pair.run()
        assert pair.texts[0] == whole[: min(whole.index(stop) + 1, max_tokens)]
        end = pair.ends[0]
        assert isinstance(end, Finished)
        assert end.reason is (
            Finish.STOP_TOKEN if whole.index(stop) < max_tokens else Finish.LENGTH
        )


def test_logprobs_come_with_every_token() -> None:
    """A request that asks for log-probabilities gets those of plain decoding."""
    reports: list[list[object]] = []
    for is_attached in (True, False):
        pair = Pair(TARGET, TARGET)
        seen: list[object] = []
        deliver = pair.deliver

        def spy(output: object, seen: list[object] = seen, deliver: object = deliver) -> None:
            if getattr(output, "logprobs", None) is not None:
                seen.extend(output.logprobs)  # type: ignore[attr-defined]
            deliver(output)  # type: ignore[operator]

        pair.deliver = spy  # type: ignore[method-assign]
        sampling = replace(GREEDY, logprobs=2)
        pair.open(0, sampling, Speculation(verifier="block"), is_attached=is_attached)
        pair.run()
        assert len(seen) == len(pair.texts[0])
        reports.append(seen)
    assert reports[0] == reports[1]


def test_short_contexts_and_small_scratch_are_respected() -> None:
    """A drafter whose context ends before the text does drafts as far as it goes, and nothing breaks."""
    pair = Pair(TARGET, DRAFT, max_context=70)
    pair.open(0, replace(GREEDY, max_tokens=67), Speculation(verifier="traversal"))
    pair.run()
    assert pair.texts[0] == plain(replace(GREEDY, max_tokens=67))
    assert not pair.draft.stats.failures


def test_the_wire_carries_a_tree_bit_for_bit() -> None:
    """What the target verifies against is what the drafter drew from, to the last bit, in draw order."""
    handles: set[int] = set()
    pair = Pair(TARGET, DRAFT)
    for number, verifier in enumerate(FROZEN):
        pair.open(number, SAMPLED, Speculation(verifier=verifier))
    for _ in range(200):
        pair.draft.run_once()
        for report in pair.reports:
            if not isinstance(report, CandidatesSent):
                continue
            handles |= {one.handle for one in report.own_trees}
            message = message_of(report).SerializeToString()
            batch = target_pb2.DrafterMessage.FromString(message).candidates
            assert not batch.frame
            arrived = [
                one for found in frozen_candidates.decode(batch, VOCAB) for one in found.trees_E
            ]
            for one, event in zip(report.own_trees, arrived, strict=True):
                assert (event.handle, event.round) == (one.handle, one.round)
                assert (event.base_length, event.base_hash) == (one.base_length, one.base_hash)
                assert event.frozen.tree == one.frozen.tree
                for theirs, ours in zip(event.frozen.rows, one.frozen.rows, strict=True):
                    assert theirs.ids_K.tobytes() == ours.ids_K.tobytes()
                    assert theirs.weights_K.tobytes() == ours.weights_K.tobytes()
        pair.reports.clear()
    assert len(handles) == len(FROZEN)


def test_growing_and_frozen_trees_share_passes() -> None:
    """Each session's candidates are decided in their own way, in the same passes."""
    pair = Pair(TARGET, DRAFT)
    verifiers = ("coupled", "block", "exact_match", "traversal")
    for session, verifier in enumerate(verifiers):
        pair.open(session, GREEDY, Speculation(verifier=verifier))
    pair.run()
    assert set(map(tuple, pair.texts.values())) == {tuple(plain(GREEDY))}
    assert all(pair.stats(session).accepted > 20 for session in range(len(verifiers)))


def test_a_verifier_that_fails_costs_its_candidates_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pass is run again without them, for every session."""

    def fail(**_: object) -> Acceptance:
        raise ArithmeticError("of the verifier")

    failing = replace(VERIFIERS["kseq"], verify=fail)
    monkeypatch.setattr(frozen_verdict, "VERIFIERS", {**VERIFIERS, "kseq": failing})
    pair = Pair(TARGET, DRAFT)
    with capture_logs() as logs:
        for session, verifier in enumerate(("kseq", "block")):
            pair.open(session, GREEDY, Speculation(verifier=verifier))
        pair.run()
    assert set(map(tuple, pair.texts.values())) == {tuple(plain(GREEDY))}
    assert pair.stats(0).accepted == 0
    assert "target pass failed" in {log["event"] for log in logs}


def test_when_a_tree_is_sent_depends_on_no_token_of_it() -> None:
    """Not all of many sessions have their turn in a pass of the drafter. A tree is not sooner complete for rows that had few tokens to draw."""
    sampling = replace(SAMPLED, top_p=0.7)
    bush = Speculation(verifier="traversal", tree_shape=level_shapes.parse("3,3,1"), max_nodes=64)
    drawn: set[tuple[int, ...]] = set()
    passes: set[tuple[int, ...]] = set()
    for seed in range(2):
        pair = Pair(TARGET, DRAFT, seed=seed)
        for session in range(12):
            pair.open(session, replace(sampling, seed=session), bush, is_attached=False)
        for session in range(12):
            pair.attach(session, (1, 2, 0), sampling, bush)
        pair.step(drafts=1)
        complete: dict[int, tuple[int, int]] = {}
        for number in range(30):
            pair.draft.run_once()
            sent = [one for one in pair.reports if isinstance(one, CandidatesSent)]
            for tree in (tree for one in sent for tree in one.own_trees):
                complete.setdefault(tree.handle, (number, tree.num_nodes))
            pair.reports.clear()
        first = [complete[handle] for handle in pair.handles.values()]
        passes.add(tuple(number for number, _ in first))
        drawn.add(tuple(size for _, size in first))
    assert len(drawn) == 2
    assert len(passes) == 1
