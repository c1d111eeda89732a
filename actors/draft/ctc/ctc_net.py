"""A block drafter whose slots are frames: each holds a token or blank, and the string is what is left when they are collapsed.

Source: Wen et al. 2024, arXiv 2412.00061, for the loss and the blank; the block is DFlash's (`block_net.BlockNet`, whose h and U these are):

    F_u = log softmax([U_u; w . h_u + b])                    frame u = 1 .. B over the V tokens and, last, blank

Collapsing deletes adjacent repeats, then blanks: `a a - a b` is `a a b`. Blank is a logit of its own and no token, so every token can be drafted.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from outrider.actors.draft.block.block_config import BlockConfig
from outrider.actors.draft.block.block_net import BlockNet


class CtcNet(BlockNet):
    """See the module."""

    def __init__(
        self,
        config: BlockConfig,
        *,
        embedding_VD: Tensor,
        head_VD: Tensor,
        draft_ids: Tensor | None = None,
    ) -> None:
        """As `BlockNet`. Raises ValueError also for a head with fewer rows than tokens, which frames are not made for."""
        if draft_ids is not None:
            raise ValueError("frames need a head with a row for every token")
        super().__init__(config, embedding_VD=embedding_VD, head_VD=head_VD)
        self.blank_weight = nn.Parameter(torch.zeros(config.width))
        self.blank_bias = nn.Parameter(torch.zeros(1))

    def frames(self, states: Tensor) -> Tensor:
        """F of states h [.., D]; log-probabilities [.., V + 1], float32, blank last."""
        blank = (states * self.blank_weight).sum(-1, keepdim=True) + self.blank_bias
        return torch.cat((self.unary(states), blank), dim=-1).float().log_softmax(-1)
