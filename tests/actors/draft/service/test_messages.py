"""The worker's events and reports on the wire."""

from __future__ import annotations

import pytest
from tests.actors.draft.bench import TARGET_TABLE, MiniTarget, make_attach
from tests.actors.draft.scripted_target import verdict_message

from outrider.actors.draft.choice.drafter_registry import DRAFTERS, served_verifiers
from outrider.actors.draft.service.draft_messages import (
    attach_from_proto,
    event_from_proto,
    message_of,
)
from outrider.actors.draft.state.draft_events import (
    AttachSession,
    Closed,
    Resynced,
    ResyncWanted,
    SessionKey,
    VerdictsReceived,
)
from outrider.actors.exchange.frames import BadFrame
from outrider.actors.speculation.options import Speculation
from outrider.actors.speculation.policies import LengthChoice
from outrider.v1 import draft_pb2, sampling_pb2, target_pb2, tree_pb2

TOKENS_ONLY = served_verifiers(DRAFTERS["prompt_lookup"])


def attach(message: draft_pb2.AttachSession, key: SessionKey) -> AttachSession:
    """The event of a command to a drafter without a model."""
    return attach_from_proto(message, key, TOKENS_ONLY, (LengthChoice.FULL,))


def attach_message() -> draft_pb2.AttachSession:
    return draft_pb2.AttachSession(
        session=3,
        handle=8,
        tokens=[5, 6, 7],
        prompt_length=2,
        sampling=sampling_pb2.SamplingOptions(seed=2**64 - 1, max_tokens=20, temperature=0.5),
        speculation=sampling_pb2.SpeculationOptions(max_depth=3),
    )


def test_an_attach_command_becomes_an_event() -> None:
    """Options keep their values, absent ones their defaults; the seed keeps its 64 bits."""
    event = attach(attach_message(), SessionKey(4, 8))
    assert event.key == SessionKey(4, 8)
    assert (event.tokens, event.prompt_length) == ((5, 6, 7), 2)
    assert (event.sampling.seed, event.sampling.temperature) == (2**64 - 1, 0.5)
    assert (event.speculation.max_depth, event.speculation.max_nodes) == (
        3,
        Speculation().max_nodes,
    )


@pytest.mark.parametrize(
    ("change", "word"),
    [
        (draft_pb2.AttachSession(prompt_length=1), "tokens"),
        (draft_pb2.AttachSession(tokens=[1], prompt_length=2), "prompt_length"),
        (draft_pb2.AttachSession(tokens=[1], prompt_length=0), "prompt_length"),
        (draft_pb2.AttachSession(tokens=[1], prompt_length=1), "seed"),
    ],
)
def test_a_wrong_attach_command_is_named(change: draft_pb2.AttachSession, word: str) -> None:
    """The error says which field is wrong."""
    with pytest.raises(ValueError, match=word):
        attach(change, SessionKey(1, 1))


@pytest.mark.parametrize(
    ("options", "word"),
    [
        (
            sampling_pb2.SpeculationOptions(verifier=sampling_pb2.VERIFIER_TRAVERSAL),
            "traversal.*coupled",
        ),
        (sampling_pb2.SpeculationOptions(max_nodes=0), "max_nodes"),
        (sampling_pb2.SpeculationOptions(max_depth=0), "max_depth"),
    ],
)
def test_speculation_that_is_not_served_is_named(
    options: sampling_pb2.SpeculationOptions, word: str
) -> None:
    """A verifier that needs more than tokens, or an empty tree, is refused."""
    message = attach_message()
    message.speculation.CopyFrom(options)
    with pytest.raises(ValueError, match=word):
        attach(message, SessionKey(1, 1))


def test_what_a_target_says_becomes_events() -> None:
    """Verdicts are read as a frame; the other messages are the link's session's."""
    verdict = MiniTarget(TARGET_TABLE, make_attach()).commit(2, starving=True)
    event = event_from_proto(verdict_message(verdict), 7)
    assert isinstance(event, VerdictsReceived)
    assert event.link == 7
    assert event.verdicts.tokens_T.tolist() == verdict.verdicts.tokens_T.tolist()
    assert event.verdicts.starving_E.tolist() == [True]
    base = tree_pb2.Base(length=9, hash=2**64 - 3)
    resync = target_pb2.Resync(handle=1, epoch=2, base=base, tokens=[4], credits=6)
    assert event_from_proto(target_pb2.VerdictMessage(resync=resync), 7) == Resynced(
        key=SessionKey(7, 1), epoch=2, length=9, hash=2**64 - 3, tokens=(4,), credits=6
    )
    closed = target_pb2.VerdictMessage(closed=target_pb2.SessionClosed(handle=1))
    assert event_from_proto(closed, 7) == Closed(key=SessionKey(7, 1))
    assert event_from_proto(target_pb2.VerdictMessage(), 7) is None


def test_bytes_that_are_no_verdicts_are_refused() -> None:
    """The whole frame, with the reason."""
    batch = target_pb2.VerdictBatch(frame=b"nonsense")
    with pytest.raises(BadFrame):
        event_from_proto(target_pb2.VerdictMessage(verdicts=batch), 7)


def test_requests_reach_the_wire() -> None:
    """Which session, and from where on."""
    message = message_of(ResyncWanted(key=SessionKey(1, 5), length=3))
    assert (message.resync.handle, message.resync.length) == (5, 3)
