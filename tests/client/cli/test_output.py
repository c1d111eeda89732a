"""Writing results."""

from __future__ import annotations

import json
import math

import pytest

from outrider.client.batch.batch_summary import BatchSummary
from outrider.client.batch.whole_batch import BatchReport
from outrider.client.cli.reports.batch_report import print_report
from outrider.client.cli.reports.timeline_report import tell
from outrider.client.cli.shared.printing import (
    DRAFTER_STYLES,
    TARGET_STYLE,
    UNKNOWN_STYLE,
    TextWriter,
    event_as_dict,
    origin_style,
    print_json,
    print_line,
    print_table,
    printable,
    summary_line,
    table_of,
)
from outrider.client.messages.results import (
    Completion,
    FinishReason,
    Origin,
    SpeculationStats,
    TextChunk,
    Timing,
    Token,
    TokenLogprob,
    Usage,
)
from outrider.client.timeline.timeline_model import Timeline


def test_control_characters_do_not_reach_the_terminal() -> None:
    """A model cannot move the cursor or set the title; lines and tabs stay."""
    assert printable("a\x1b[2Jb\x9b1m\n\tc\x7f") == "a\ufffd[2Jb\ufffd1m\n\tc\ufffd"


def test_names_between_colons_stay(capsys: pytest.CaptureFixture[str]) -> None:
    """They are no pictures: a record may be called so, or a request, a drafter, a category."""
    print_line("'q:100:a' differs")
    print_table(table_of("category:100:", names=()))
    tell(Timeline(request_id="eval:100:a"), as_json=False)
    said = capsys.readouterr().out
    assert said.count(":100:") == 3


def test_what_is_no_number_is_null_in_json(capsys: pytest.CaptureFixture[str]) -> None:
    """The logarithm of a token that the model excludes, for instance: programs read strict JSON."""
    top = (TokenLogprob(id=1, logprob=-0.5), TokenLogprob(id=2, logprob=-math.inf))
    token = Token(id=1, origin=Origin.TARGET, logprob=math.nan, top_logprobs=top)
    print_json(event_as_dict(TextChunk(index=0, text="a", tokens=(token,))))

    def refuse(word: str) -> None:
        raise ValueError(word)

    (said,) = json.loads(capsys.readouterr().out, parse_constant=refuse)["tokens"]
    assert said["logprob"] is None
    assert [one["logprob"] for one in said["top_logprobs"]] == [-0.5, None]


def test_tabs_stay_with_colours(capsys: pytest.CaptureFixture[str]) -> None:
    """Showing where a text came from changes no character of it."""
    writer = TextWriter(lambda token: chr(token))
    text = "all:\n\tmake a\t\tb \n\n"
    for said in (text[:6], text[6:]):
        tokens = tuple(Token(id=ord(each), origin=Origin.TARGET) for each in said)
        writer.write(TextChunk(index=0, text=said, tokens=tokens))
    assert capsys.readouterr().out == text


def test_styles_tell_origins_apart() -> None:
    """Target and each drafter have styles of their own; more drafters than styles begin again."""
    names = tuple("abcdef")

    def drafted(name: str) -> str:
        return origin_style(Token(id=1, origin=Origin.DRAFTER, drafter=name), names)

    assert [drafted(name) for name in names] == [*DRAFTER_STYLES, DRAFTER_STYLES[0]]
    assert origin_style(Token(id=1, origin=Origin.TARGET), names) == TARGET_STYLE
    assert origin_style(None, names) == UNKNOWN_STYLE
    assert TARGET_STYLE not in DRAFTER_STYLES


def test_summary() -> None:
    """One line says what speculation did."""
    completion = Completion(
        index=0,
        finish_reason=FinishReason.STOP_TOKEN,
        usage=Usage(completion_tokens=40),
        speculation=SpeculationStats(mean_tokens_per_pass=2.5, verified=30, accepted=20),
        timing=Timing(total_s=0.5),
    )
    assert (
        summary_line(completion)
        == "40 tokens, 2.50 a target pass, 20 of 30 candidates accepted, 80.0 tokens/s, ended by stop token"
    )


@pytest.mark.parametrize("emulated", ["", "h100-8b, l4-1b"])
def test_the_speed_of_a_batch_is_said_to_be_emulated(
    emulated: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Beside the figure, and for programs."""
    report = BatchReport(
        records=1,
        done_before=0,
        concurrency=1,
        wall_s=2.0,
        tokens=10,
        summary=BatchSummary(),
        baseline=None,
        emulated=emulated,
    )
    print_report(report)
    said = "5.0 tokens/s; emulated: h100-8b, l4-1b\n" if emulated else "5.0 tokens/s\n"
    assert capsys.readouterr().out.endswith(said)
    assert report.as_dict()["emulated"] == emulated
