"""Arrays in bytes: the form of every packed message. A frame is a version, the numbers of the arrays' entries, and the arrays.

Little-endian, without padding. What is read is checked against the frame's length before anything is looked at, so bytes that
are no frame are refused whole.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

VERSION = 1
"""Of every frame. Peers of another are refused when they shake hands; here it guards against bytes that are no frame."""

MAX_TOKENS = 1 << 20
"""Sessions and tokens of one frame, at most."""

_COUNT = np.dtype("<u4")

_WRAP = 1 << 32


class BadFrame(ValueError):
    """The bytes are no frame of the kind that was expected; the message says why."""


def pack(counts: Sequence[int], arrays: Sequence[Array]) -> bytes:
    """A frame.

    Args:
        counts: Numbers that `unpack` needs to know the arrays' lengths.
        arrays: In the order in which they are read; each little-endian of the type that the reader expects.
    """
    head = np.array([VERSION, *counts], _COUNT)
    return b"".join([head.tobytes(), *(array.tobytes() for array in arrays)])


class Reader:
    """Takes a frame apart."""

    def __init__(self, frame: bytes, num_counts: int, largest: int) -> None:
        """Reads the counts.

        Args:
            frame: The bytes.
            num_counts: How many counts there are.
            largest: Greatest count that is taken.

        Raises:
            BadFrame: It is too short, of another version, or a count is too large.
        """
        size = _COUNT.itemsize * (num_counts + 1)
        if len(frame) < size:
            raise BadFrame(f"a frame of {len(frame)} bytes; at least {size} are needed")
        head = struct.unpack_from(f"<{num_counts + 1}I", frame)
        if head[0] != VERSION:
            raise BadFrame(f"a frame of version {head[0]}; this release reads {VERSION}")
        if max(head[1:], default=0) > largest:
            raise BadFrame(f"a frame of {max(head[1:])} entries; at most {largest} are taken")
        self.counts: list[int] = list(head[1:])
        self._frame = frame
        self._at = size

    def take(self, dtype: str, count: int) -> Array:
        """The next array.

        Raises:
            BadFrame: The frame ends before it does.
        """
        kind = np.dtype(dtype)
        size = kind.itemsize * count
        if self._at + size > len(self._frame):
            raise BadFrame(f"a frame of {len(self._frame)} bytes ends within its arrays")
        array = np.frombuffer(self._frame, kind, count, self._at)
        self._at += size
        return array

    def take_numbers(self, layout: str) -> list[int]:
        """The next numbers.

        Args:
            layout: Of `struct`.

        Raises:
            BadFrame: The frame ends before they do.
        """
        size = struct.calcsize(layout)
        if self._at + size > len(self._frame):
            raise BadFrame(f"a frame of {len(self._frame)} bytes ends within its arrays")
        numbers = list(struct.unpack_from(layout, self._frame, self._at))
        self._at += size
        return numbers

    def end(self) -> None:
        """Makes sure that nothing is left.

        Raises:
            BadFrame: Something is.
        """
        if self._at != len(self._frame):
            raise BadFrame(f"a frame has {len(self._frame) - self._at} bytes too many")


def narrow(largest: int) -> str:
    """The type of token ids up to this one."""
    return "<u2" if largest < 1 << 16 else "<u4"


def microseconds(seconds: float) -> int:
    """A time as frames hold it: from 0 to somewhat more than an hour."""
    return min(round(max(seconds, 0.0) * 1e6), 0xFFFFFFFF)


def clock_us(seconds: float) -> int:
    """What a clock shows, as frames hold it: microseconds, beginning anew after somewhat more than an hour. Never 0, which stands for none."""
    return max(round(seconds * 1e6) % _WRAP, 1)


def since_s(shown_us: int, now: float) -> float:
    """Seconds since a clock showed this, at most half an hour ago; negative if it is ahead.

    Args:
        shown_us: As `clock_us` gave it.
        now: What the same clock shows, in seconds.
    """
    return 1e-6 * ((round(now * 1e6) - shown_us + _WRAP // 2) % _WRAP - _WRAP // 2)
