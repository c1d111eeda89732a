"""The causal law of collapsed strings: how likely each token is to come next, given the tokens so far. Pure.

For frames F[1..U] over tokens and blank, and a string y, let m[0, u] and m[1, u] be the mass of the paths over the first u frames that collapse to
exactly y and end in blank (or are empty), or in y's last token (Graves et al. 2006, prefix search). The mass of all strings that begin with y c is

    Pref(y c) = sum over u of F[u, c] (m[0, u-1] + [c is not y's last] m[1, u-1])

as frame u is where c is first said and what comes behind it sums to one. So q(c | y) = Pref(y c) / sum over c' of Pref(y c') is the exact law of the next
token, given that there is one. It costs a product of m with the frames, O(U V), and to go on to y c costs O(U):

    n[1, u] = F[u, c] (n[1, u-1] + m[0, u-1] + [c is not y's last] m[1, u-1]),   n[0, u] = F[u, blank] (n[0, u-1] + n[1, u-1])

Masses of one string are known up to a factor, which no law depends on: they are scaled to a greatest of one, so that long strings do not vanish.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from outrider.actors.draft.trees.forest import Float64s, Int64s

NO_TOKEN = -1
"""Last token of the empty string."""


def empty_string(blanks_NU: Float64s) -> Float64s:
    """m of the empty string, shape (N, 2, U + 1).

    Args:
        blanks_NU: Probability of blank in each frame.
    """
    masses = np.zeros((len(blanks_NU), 2, blanks_NU.shape[1] + 1))
    masses[:, 0, 0] = 1.0
    np.cumprod(blanks_NU, axis=1, out=masses[:, 0, 1:])
    return masses


def appended(
    masses: Float64s, repeats_N: NDArray[np.bool_], tokens_NU: Float64s, blanks_NU: Float64s
) -> Float64s:
    """m of strings with a token more, scaled.

    Args:
        masses: Of N strings, shape (N, 2, U + 1).
        repeats_N: Whether the token is the string's last.
        tokens_NU: The token's probability in each frame.
        blanks_NU: That of blank.
    """
    enters_NU = tokens_NU * _open(masses, repeats_N)
    grown = np.zeros_like(masses)
    for u in range(tokens_NU.shape[1]):
        grown[:, 1, u + 1] = enters_NU[:, u] + tokens_NU[:, u] * grown[:, 1, u]
        grown[:, 0, u + 1] = blanks_NU[:, u] * (grown[:, 0, u] + grown[:, 1, u])
    greatest_N = grown.max(axis=(1, 2), keepdims=True)
    scaled: Float64s = grown / np.where(greatest_N > 0.0, greatest_N, 1.0)
    return scaled


def next_masses(masses: Float64s, lasts_N: Int64s, frames: torch.Tensor) -> torch.Tensor:
    """Pref(y c) of every token c, up to a factor of each row, shape (N, V), float32.

    Args:
        masses: Of N strings, shape (N, 2, U + 1).
        lasts_N: The last token of each; `NO_TOKEN`: it is empty.
        frames: Probability of each token in each frame, shape (U, V), or (N, U, V) where strings are of several frames.
    """
    device = frames.device
    ended_NU, both_NU = masses[:, 0, :-1], masses[:, 0, :-1] + masses[:, 1, :-1]
    both = torch.from_numpy(both_NU.astype(np.float32)).to(device)
    prefixes_NV = both @ frames if frames.dim() == 2 else (both[:, None] @ frames)[:, 0]
    again = (lasts_N != NO_TOKEN).nonzero()[0]
    if len(again):
        rows, lasts = (
            torch.from_numpy(again).to(device),
            torch.from_numpy(lasts_N[again]).to(device),
        )
        ended = torch.from_numpy(ended_NU[again].astype(np.float32)).to(device)
        of_last = frames.expand(len(masses), -1, -1)[rows, :, lasts]
        prefixes_NV[rows, lasts] = (ended * of_last).sum(1)
    return prefixes_NV


def _open(masses: Float64s, repeats_N: NDArray[np.bool_]) -> Float64s:
    """Mass before each frame of the paths that a token may follow as a new one, shape (N, U)."""
    open_NU: Float64s = masses[:, 0, :-1] + np.where(repeats_N[:, None], 0.0, masses[:, 1, :-1])
    return open_NU
