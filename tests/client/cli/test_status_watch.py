"""`outrider status --watch`."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from rich.console import Console

from outrider.client.cli.commands import status_cli as status_module
from outrider.client.cli.commands.status_watch import pace, watch
from outrider.client.connection.errors import Unauthorized, Unavailable
from outrider.client.messages.service_info import ActorInfo, Status

if TYPE_CHECKING:
    from tests.client.cli.conftest import Run
    from tests.client.conftest import FakeService


def actor(name: str, role: str, *, counts: tuple[int, int, int], incarnation: int = 1) -> ActorInfo:
    """An actor with tokens, verified and accepted candidates."""
    tokens, verified, accepted = counts
    return ActorInfo(
        name=name,
        role=role,
        address="a:1",
        incarnation=incarnation,
        ready=True,
        sessions=2,
        capacity=8,
        tokens=tokens,
        verified=verified,
        accepted=accepted,
    )


def state(*actors: ActorInfo) -> Status:
    """A service of these."""
    return Status(
        version="1",
        uptime_s=9,
        running=2,
        waiting=1,
        finished=5,
        accepting=True,
        actors=actors,
    )


BEFORE = state(
    actor("t", "target", counts=(100, 40, 10)), actor("d", "drafter", counts=(0, 40, 10))
)
AFTER = state(actor("t", "target", counts=(150, 60, 25)), actor("d", "drafter", counts=(0, 60, 25)))


def test_pace_is_what_happened_in_between() -> None:
    """Tokens a second of targets, acceptance of both; nothing without a look before."""
    passed = pace(BEFORE, AFTER, 2.0)
    assert passed.tokens_per_s == 25.0
    assert passed.acceptance == 0.75
    assert passed.actors == {"t": (25.0, 0.75), "d": (None, 0.75)}
    assert pace(None, AFTER, 2.0).tokens_per_s is None


def test_a_new_start_begins_anew() -> None:
    """Counters that fell are no negative pace; the drafter's, which the target counts, neither."""
    restarted = state(
        actor("t", "target", counts=(3, 1, 0), incarnation=2),
        actor("d", "drafter", counts=(0, 1, 0)),
    )
    passed = pace(BEFORE, restarted, 2.0)
    assert passed.tokens_per_s is None
    assert passed.actors == {"d": (None, None)}


class Ended(Exception):
    """The test has seen enough."""


def shown(looks: list[Status | Exception], *, is_terminal: bool) -> str:
    """What watching shows of these looks, two seconds apart."""
    left: Iterator[Status | Exception] = iter(looks)
    file = io.StringIO()
    clock = iter(range(0, 1_000, 2))

    def look() -> Status:
        found = next(left)
        if isinstance(found, Exception):
            raise found
        return found

    def wait(seconds: float) -> None:
        assert seconds == 2.0
        if len(waited) + 1 == len(looks):
            raise KeyboardInterrupt
        waited.append(seconds)

    waited: list[float] = []
    console = Console(file=file, force_terminal=is_terminal, width=100, color_system=None)
    with pytest.raises(KeyboardInterrupt):
        watch(look, "h:1", 2.0, wait=wait, clock_s=lambda: float(next(clock)), console=console)
    return file.getvalue()


def test_a_terminal_gets_a_table_that_is_drawn_over(capsys: pytest.CaptureFixture[str]) -> None:
    """Its cursor is shown again at the end."""
    text = shown([BEFORE, AFTER], is_terminal=True)
    last = text.rpartition("outrider 1, up 9 s")[2]
    assert "25.0 tokens/s, 75% accepted; 2 of 2 actors ready" in last
    assert "2/8" in last
    assert text.count("\x1b[?25l") == text.count("\x1b[?25h") == 1


def test_a_pipe_gets_a_line_each_time(capsys: pytest.CaptureFixture[str]) -> None:
    """And a service that is gone for a while is told and asked again."""
    gone = Unavailable("nobody is there")
    shown([BEFORE, AFTER, gone, AFTER], is_terminal=False)
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(";")[0] for line in lines] == [
        "2 running, 1 waiting, 5 finished",
        "2 running, 1 waiting, 5 finished",
        "h:1: nobody is there",
        "2 running, 1 waiting, 5 finished",
    ]
    assert "; - tokens/s, - accepted" in lines[0].replace("-  tokens", "- tokens")
    assert "25.0 tokens/s, 75% accepted" in lines[1]
    assert "- tokens/s" in lines[3]


def test_who_is_not_admitted_is_not_asking_for_ever() -> None:
    """The same token will be refused the next time, too."""
    looks = iter([BEFORE])

    def look() -> Status:
        for found in looks:
            return found
        raise Unauthorized("this token is not known")

    with pytest.raises(Unauthorized, match="not known"):
        watch(look, "h:1", 2.0, wait=lambda seconds: None, console=Console(file=io.StringIO()))


def test_the_command_ends_cleanly(
    run: Run, fake: FakeService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C is no failure here; and what cannot be is said before anything is asked."""
    looks: list[Status] = []

    def once(look: object, address: str, interval_s: float) -> None:
        assert callable(look)
        looks.append(look())
        assert (address, interval_s) == (fake.address, 0.5)
        raise KeyboardInterrupt

    monkeypatch.setattr(status_module, "watch", once)
    result = run("status", "-a", fake.address, "--watch", "--interval", "0.5")
    assert result.exit_code == 0
    assert looks[0].finished == 3
    assert run("status", "-a", fake.address, "--watch", "--json").exit_code == 2
    assert run("status", "-a", fake.address, "--watch", "--interval", "0").exit_code == 2


def test_whoever_is_not_ready_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    """With the reason, below the table."""
    down = replace(AFTER.actors[1], ready=False, problem="it started again")
    text = shown([BEFORE, state(AFTER.actors[0], down)], is_terminal=True)
    assert "d is not ready: it started again" in text
    assert "1 of 2 actors ready" in text
