"""The page of architectures is made anew without what people wrote into it being lost."""

from __future__ import annotations

from bench.families.family_table import BY_HAND, PAGE, TABLE, Verdict, page


def test_what_is_written_by_hand_stays() -> None:
    """The section on draft checkpoints, word by word, before the table; and making it twice changes nothing."""
    old = PAGE.read_text()
    verdicts = [Verdict(name="llama", refused="")]
    made = page(verdicts, old)
    section = old[old.index(BY_HAND) : old.index(TABLE)]
    assert section in made
    assert made.index(BY_HAND) < made.index(TABLE) < made.index("| llama |")
    assert page(verdicts, made) == made
