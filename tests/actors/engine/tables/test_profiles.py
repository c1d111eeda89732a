"""How long passes take on devices that are not there."""

from __future__ import annotations

import pytest

from outrider.actors.engine.profiles import draft_profile, find_profile, known_profiles

SIZES = (1, 8, 64, 512)


@pytest.mark.parametrize("name", [*known_profiles(), "10ms+10us", "1ms+2us+3us/session+1ms/1k"])
def test_more_work_never_takes_less(name: str) -> None:
    """In rows, in sessions with a row and a context each, and in context; and every profile says where it comes from."""
    profile = find_profile(name)
    assert (profile.name, bool(profile.origin)) == (name, True)
    by_rows = [profile.seconds(rows=rows, sessions=1, context=1000) for rows in SIZES]
    by_sessions = [profile.seconds(rows=n, sessions=n, context=1000 * n) for n in SIZES]
    by_context = [profile.seconds(rows=8, sessions=8, context=1000 * n) for n in SIZES]
    for seconds in (by_rows, by_sessions, by_context):
        assert seconds == sorted(seconds)
        assert 0.0 < seconds[0] < 1.0


@pytest.mark.parametrize(
    ("name", "published_ms"),
    [
        # gpt-fast's README, Llama-2 70 B, bf16, batch one, A100s limited to 330 W.
        ("a100x2-70b", 1e3 / 21.32),
        ("a100x4-70b", 1e3 / 38.01),
        ("a100x8-70b", 1e3 / 62.50),
        # SSD (2603.03251), Llama-3.1 70 B on 4 H100, plain decoding.
        ("h100x4-70b", 1e3 / 54.7),
    ],
)
def test_near_what_was_published(name: str, published_ms: float) -> None:
    """A token of one request, within 15 %."""
    seconds = find_profile(name).seconds(rows=1, sessions=1, context=100)
    assert 1e3 * seconds == pytest.approx(published_ms, rel=0.15)


def test_more_gpus_are_faster() -> None:
    """For one request of a large model; and a tree of 32 rows costs little more than one row where weights are the limit."""
    times = [
        find_profile(f"h100x{n}-70b").seconds(rows=1, sessions=1, context=0) for n in (2, 4, 8)
    ]
    assert times == sorted(times, reverse=True)
    one = find_profile("h100-8b")
    tree = one.seconds(rows=32, sessions=1, context=500)
    assert tree < 1.05 * one.seconds(rows=1, sessions=1, context=500)


def test_free_names() -> None:
    """The figures are those of the name."""
    profile = find_profile("10ms+10us+5us/session+20us/1k")
    seconds = profile.seconds(rows=3, sessions=2, context=500)
    assert seconds == pytest.approx(10e-3 + 3 * 10e-6 + 2 * 5e-6 + 0.5 * 20e-6)
    assert find_profile("2ms").seconds(rows=9, sessions=9, context=9) == pytest.approx(2e-3)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("h200-8b", "there are DEVICE-MODEL .* of a100, h100, l4 with 1b, 8b, 70b"),
        ("h100x9-8b", "there is no profile"),
        (f"h100x{'9' * 5000}-8b", "there is no profile"),
        ("h100x\N{FULLWIDTH DIGIT FOUR}-70b", "there is no profile"),
        ("\N{ARABIC-INDIC DIGIT ONE}0ms", "there is no profile"),
        ("h100-70b", "no room on 1 of h100"),
        ("10ms+", "such as 10ms"),
        ("5us/row", "such as 10ms"),
        ("", "this-machine"),
        ("0ms+1us", "more than 0"),
        ("100s", "no figure more than 60 seconds"),
    ],
)
def test_unknown_names(name: str, message: str) -> None:
    """The message says which there are."""
    with pytest.raises(ValueError, match=message):
        find_profile(name)


def test_the_drafters_device() -> None:
    """Follows where it can."""
    assert draft_profile("h100x4-70b") == "h100-1b"
    assert draft_profile("this-machine") == "this-machine-draft"
    with pytest.raises(ValueError, match="name both"):
        draft_profile("10ms+10us")
