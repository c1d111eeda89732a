"""`outrider chat`, driven through stdin."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING
from unittest.mock import Mock

import grpc
import pytest

from outrider.client.blocking import Client
from outrider.client.cli.commands.chat_cli import Conversation, talk
from outrider.client.cli.shared.exits import CommandFailure
from outrider.client.messages.request_options import SamplingOptions, SpeculationOptions

if TYPE_CHECKING:
    from tests.client.cli.conftest import Run
    from tests.client.conftest import Failure, FakeService

    from outrider.client.cli.shared.printing import TextWriter
    from outrider.client.messages.results import TextChunk


def test_history_is_kept(run: Run, fake: FakeService) -> None:
    """The second question goes out with the first and its answer."""
    result = run(
        "chat",
        *("-a", fake.address, "--system", "be brief", "--seed", "3"),
        stdin="one\n\ntwo\n/exit\nthree\n",
    )
    assert result.exit_code == 0, result.output
    answer = fake.output(3).decode(errors="replace")
    assert [(turn.role, turn.content) for turn in fake.requests[1].chat.messages] == [
        ("system", "be brief"),
        ("user", "one"),
        ("assistant", answer),
        ("user", "two"),
    ]
    assert len(fake.requests) == 2
    assert f"{answer}\n{answer}\n" == result.stdout


def test_reset_forgets_all_but_the_system_message(run: Run, fake: FakeService) -> None:
    """/reset begins again."""
    run("chat", "-a", fake.address, "--system", "s", stdin="one\n/reset\ntwo\n")
    assert [turn.content for turn in fake.requests[1].chat.messages] == ["s", "two"]


def test_error_without_a_reader_ends_the_command(
    run: Run, fake: FakeService, failure: type[Failure]
) -> None:
    """In a script a failed turn ends with the exit code of its cause."""
    fake.failures = [failure(code=grpc.StatusCode.FAILED_PRECONDITION, details="no chat template")]
    result = run("chat", "-a", fake.address, stdin="one\ntwo\n")
    assert result.exit_code == 2
    assert "no chat template" in result.stderr
    assert len(fake.requests) == 1


@pytest.mark.parametrize("handler", ["strict", "surrogateescape"])
def test_a_line_that_is_no_text_is_refused(monkeypatch: pytest.MonkeyPatch, handler: str) -> None:
    """In every locale: where it is not UTF-8, Python reads such bytes as halves of characters."""
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"\xff\xfe\n"), "utf-8", handler))
    with pytest.raises(CommandFailure, match="not UTF-8"):
        talk(Mock())


def test_interrupted_answer_stays_as_far_as_it_came(
    fake: FakeService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C ends the answer at the service; the conversation goes on."""

    def interrupt(writer: TextWriter, chunk: TextChunk) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("outrider.client.cli.shared.printing.TextWriter.write", interrupt)
    fake.stall_after = 6
    with Client(fake.address) as client:
        conversation = Conversation(
            client,
            model="",
            system=None,
            sampling=SamplingOptions(seed=3),
            speculation=SpeculationOptions(),
            show_origin=False,
            stats=False,
        )
        conversation.answer("one")
        assert fake.ended.wait(60)
    assert [turn.role for turn in conversation.turns] == ["user", "assistant"]
    assert conversation.turns[1].content == fake.output(3)[:3].decode()
