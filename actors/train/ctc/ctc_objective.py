"""What frames are trained on: the strings behind random places of texts, summed over the ways in which frames can hold them.

Sources: Graves et al. 2006 (CTC); Wen et al. 2024, arXiv 2412.00061, for drafting. `prefix` is ours: the same sum for the law that drafts, in which a
string need not end with the labels, and each label has its own term, as slots have in DFlash.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F

from outrider.actors.train.block.block_objective import SLOT_DECAY
from outrider.actors.train.loop.data_parallel import count_of_all

NEVER = -1e4
"""Logarithm of nothing, finite so that it has gradients."""


def ctc_loss(frames: torch.Tensor, labels_NL: torch.Tensor) -> torch.Tensor:
    """Mean of -log P(labels) over those that fit into the frames, divided by L.

    Args:
        frames: Log-probabilities [N, U, V + 1], blank last.
        labels_NL: The strings. One with as many adjacent repeats that it needs more than U frames counts nothing.
    """
    num, frame_count, width = frames.shape
    length = labels_NL.shape[1]
    loss_N = F.ctc_loss(
        frames.transpose(0, 1),
        labels_NL,
        torch.full((num,), frame_count),
        torch.full((num,), length),
        blank=width - 1,
        reduction="none",
        zero_infinity=True,
    )
    fits_N = length + (labels_NL[:, 1:] == labels_NL[:, :-1]).sum(1) <= frame_count
    return loss_N.sum() / (count_of_all(fits_N.float().sum()).clamp(min=1e-6) * length)


def prefix_log_masses(frames: torch.Tensor, labels_NL: torch.Tensor) -> torch.Tensor:
    """log Pref of the first 1 .. L labels, shape (N, L): the mass of all strings that begin with them (`draft/ctc/prefix_masses`)."""
    said = frames[:, :, :-1].gather(2, labels_NL[:, None].expand(-1, frames.shape[1], -1))
    blank_NU = frames[:, :, -1]
    never = torch.full_like(said[:, 0], NEVER)
    repeats_NL = F.pad(labels_NL[:, 1:] == labels_NL[:, :-1], (1, 0))
    # By number of labels said: the last frame was blank, or the last label.
    empty_N1 = torch.zeros_like(never[:, :1])
    blanked, spoken = torch.cat((empty_N1, never), 1), torch.cat((empty_N1 + NEVER, never), 1)
    first_said = []
    for u in range(frames.shape[1]):
        before = torch.where(repeats_NL, NEVER, spoken[:, :-1])
        enters = said[:, u] + torch.logaddexp(blanked[:, :-1], before)
        first_said.append(enters)
        stays = torch.logaddexp(blanked, spoken) + blank_NU[:, u, None]
        again = torch.logaddexp(enters, said[:, u] + spoken[:, 1:])
        blanked, spoken = stays, torch.cat((empty_N1 + NEVER, again), 1)
    return torch.stack(first_said).logsumexp(0)


def prefix_loss(frames: torch.Tensor, labels_NL: torch.Tensor) -> torch.Tensor:
    """Weighted mean of -log q(label | labels before), where the string may also end instead; a label counts exp(-k / 4), as a slot does."""
    masses_NL = prefix_log_masses(frames, labels_NL)
    terms_NL = F.pad(masses_NL[:, :-1], (1, 0)) - masses_NL
    weights_L = torch.exp(-torch.arange(terms_NL.shape[1], device=frames.device) / SLOT_DECAY)
    fits_NL = (masses_NL > NEVER / 2).float() * weights_L
    return (terms_NL * fits_NL).sum() / count_of_all(fits_NL.sum())
