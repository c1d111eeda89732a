"""Trigram laws by name: a target and drafters that agree with it as often as the name says. No weights, no files.

`law:agree70` is a target, `law:agree70/draft` its drafter and `law:agree70/draft-2` another with errors of its own. The number is
the percentage of draws at temperature 0.8 that are the drafter's first candidate, under coupled sampling with shared noise
(`CALIBRATED`), from 35 to 95. With 70 the first candidates are right with .70/.15/.06/.03, 97 % are among eight: much like a 1 M
drafter of a 5 M target (docs/emulation.md). A law is the same at every start.

How: after the last two tokens c the target's logits are `s_c * x`, x normal for each token, `s_c` log-normal (some places in
a text are foreseeable, others not); a drafter's are `s_c * (x + e_c * y)`, y its own normal draw and `e_c` log-normal around the
error that the percentage asks for (at some places it is much worse than elsewhere).
"""

from __future__ import annotations

import re
from functools import lru_cache

import numpy as np

from outrider.actors.engine.engine_settings import LAW_PREFIX
from outrider.actors.engine.tables.token_table import Table

VOCAB_SIZE = 96
"""The printable ASCII characters and the end of a line: what is shown for the tokens."""

SCALE = 3.0
"""Median of the scale of a context's logits: the likeliest token has .44 in the mean at temperature 1."""

SCALE_SPREAD = 0.5
"""Standard deviation of its logarithm."""

ERROR_SPREAD = 0.6
"""Standard deviation of the logarithm of a drafter's error."""

CALIBRATED = {
    35: 0.856,
    40: 0.7232,
    45: 0.6129,
    50: 0.5202,
    55: 0.4391,
    60: 0.3674,
    65: 0.305,
    70: 0.2492,
    75: 0.1984,
    80: 0.1531,
    85: 0.1112,
    90: 0.0712,
    95: 0.0351,
}
"""Percentage of draws at temperature 0.8 that are the drafter's first candidate, and the median error of the drafter that gives
it: found over all contexts with six draws of the noise each, to .002."""

_NAME = re.compile(r"agree(\d\d)(?:/draft(?:-([1-9]\d?))?)?")


def law_names() -> str:
    """The names that there are, for messages."""
    least, most = min(CALIBRATED), max(CALIBRATED)
    return (
        f"{LAW_PREFIX}agreeNN for a target and {LAW_PREFIX}agreeNN/draft for its drafter, NN from {least} to {most}; "
        f"{LAW_PREFIX}agreeNN/draft-2 and so on for further drafters"
    )


def check_law(name: str) -> None:
    """Refuses what is no law's name.

    Args:
        name: Without the prefix.

    Raises:
        ValueError: There is no such law; the message says which there are.
    """
    found = _NAME.fullmatch(name)
    if found is None or not min(CALIBRATED) <= int(found[1]) <= max(CALIBRATED):
        raise ValueError(f"there is no law {name!r}; there are {law_names()}")


@lru_cache(maxsize=2)
def law_table(name: str) -> Table:
    """The distributions of a law.

    Args:
        name: Without the prefix.

    Raises:
        ValueError: There is no such law.
    """
    check_law(name)
    found = _NAME.fullmatch(name)
    assert found is not None, "checked"
    percent, is_draft = int(found[1]), "/" in name
    shape = (VOCAB_SIZE, VOCAB_SIZE, VOCAB_SIZE)
    target = np.random.Generator(np.random.PCG64(0))
    logits = target.standard_normal(shape, dtype=np.float32)
    scales = np.exp(SCALE_SPREAD * target.standard_normal((*shape[:2], 1))).astype(np.float32)
    if is_draft:
        draft = np.random.Generator(np.random.PCG64(int(found[2] or 1)))
        errors = np.exp(ERROR_SPREAD * draft.standard_normal((*shape[:2], 1))).astype(np.float32)
        errors *= np.float32(_error(percent))
        logits += errors * draft.standard_normal(shape, dtype=np.float32)
    logits *= SCALE * scales
    logits -= logits.max(axis=-1, keepdims=True)
    logits -= np.log(np.exp(logits).sum(axis=-1, keepdims=True))
    return Table(log_probs=logits, name=LAW_PREFIX + name)


def _error(percent: int) -> float:
    """The median error with which so many first candidates are right."""
    percents = sorted(CALIBRATED)
    errors = [np.log(CALIBRATED[value]) for value in percents]
    return float(np.exp(np.interp(percent, percents, errors)))
