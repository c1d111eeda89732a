"""Stop strings in streamed text."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import example, given
from hypothesis import strategies as st

from outrider.cluster.text.stops import Passed, StopStrings

texts = st.text(alphabet="abc", max_size=24)
stop_lists = st.lists(st.text(alphabet="abc", min_size=1, max_size=4), min_size=1, max_size=3)


def reference(text: str, stops: tuple[str, ...]) -> tuple[str, str | None]:
    """Reads character by character: output and stop string."""
    for end in range(1, len(text) + 1):
        completed = [stop for stop in stops if text[:end].endswith(stop)]
        if completed:
            longest = max(completed, key=len)
            return text[: end - len(longest)], longest
    return text, None


def pieces(text: str, cuts: list[int]) -> list[str]:
    """A text cut at some places."""
    ends = sorted({0, len(text), *(cut % (len(text) + 1) for cut in cuts)})
    return [text[start:end] for start, end in pairwise(ends)]


@example(text="ab", stops=["ab", "b"], cuts=[])
@given(text=texts, stops=stop_lists, cuts=st.lists(st.integers(0, 50), max_size=8))
def test_the_output_does_not_depend_on_the_cuts(
    text: str, stops: list[str], cuts: list[int]
) -> None:
    """However the text is cut, the output ends before the stop string that is completed first."""
    matcher, output, stop = StopStrings(tuple(stops)), "", None
    for piece in pieces(text, cuts):
        passed = matcher.feed(piece)
        output += passed.text
        if passed.stop is not None:
            stop = passed.stop
            break
    else:
        output += matcher.flush()
    assert (output, stop) == reference(text, tuple(stops))


@given(text=texts, stops=stop_lists)
def test_no_more_is_held_back_than_may_become_a_stop_string(text: str, stops: list[str]) -> None:
    """What is held back is the longest end of the text that begins a stop string."""
    expected, stop = reference(text, tuple(stops))
    if stop is not None:
        return
    passed = StopStrings(tuple(stops)).feed(text)
    held = text[len(passed.text) :]
    beginnings = [s[:n] for s in stops for n in range(1, len(s))]
    assert held == max((b for b in beginnings if text.endswith(b)), key=len, default="")
    assert expected == text


def test_an_unarmed_stop_string_is_text() -> None:
    """A stop string completed too early is output, and one that begins in it may still end the output."""
    matcher = StopStrings(("aba",))
    early = matcher.feed("xab", armed=False)
    still_early = matcher.feed("a", armed=False)
    late = matcher.feed("ba!")
    assert early.text + still_early.text + late.text == "xab"
    assert late.stop == "aba"


def test_an_unarmed_stop_string_that_is_held_back_stays_text() -> None:
    """Held back for the sake of a longer one, it does not end the output later."""
    matcher = StopStrings(("ab", "abc"))
    assert matcher.feed("ab", armed=False).text == ""
    assert matcher.feed("x") == Passed(text="abx", stop=None)


def test_without_stop_strings_text_passes() -> None:
    """Nothing is held back."""
    assert StopStrings(()).feed("abc").text == "abc"
