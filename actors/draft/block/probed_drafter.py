"""Drafting with blocks whose layout is found out while serving, from the first known tokens that the target tells states before.

What the files say is a claim, and known tokens decide (`layout_probe`). The states of a block do not depend on the reading, so another one needs no
pass over the text: trees are dropped and grown from the same blocks. It is settled once; texts are the target's own by any reading.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import structlog
import torch
from numpy.typing import NDArray

from outrider.actors.draft.block.block_drafter import BlockDrafter
from outrider.actors.draft.block.block_engine import BlockEngine
from outrider.actors.draft.block.block_net import BlockNet
from outrider.actors.draft.block.context_cache import ContextCache
from outrider.actors.draft.block.layout_probe import LEAST, NUM_READINGS, Layout, LayoutProbe
from outrider.actors.draft.model.fitting import STAND_IN
from outrider.actors.draft.state.draft_sessions import DraftSession, DraftSessions
from outrider.actors.draft.trees.forest import Int64s

_log = structlog.get_logger(__name__)

LEAST_BLOCK = NUM_READINGS
"""Slots of a block that has one for each reading."""

AT_ONCE = 8
"""Blocks of a pass: as much memory as drafting for so many sessions takes."""


class ProbedBlockDrafter(BlockDrafter):
    """See the module. `Noted`."""

    def __init__(self, sessions: DraftSessions, blocks: BlockEngine, **growth: Any) -> None:
        """Arguments as `BlockDrafter`."""
        super().__init__(sessions, blocks, **growth)
        self.note = ""
        """What was found of the layout; empty: not known yet."""
        is_wide = blocks.net.config.block >= LEAST_BLOCK
        self._probe = LayoutProbe() if is_wide else None
        self._anchors_S = np.ones(len(sessions.sessions), np.int64)
        """Where the next block of each session is scored: the first at 1, which sees one state."""

    def attach(self, session: DraftSession) -> None:
        """See `Drafter`."""
        super().attach(session)
        self._anchors_S[session.row] = 1

    def rewrite(self, session: DraftSession, keep: int) -> None:
        """See `Drafter`."""
        super().rewrite(session, keep)
        self._anchors_S[session.row] = min(self._anchors_S[session.row], max(keep, 1))

    def take_features(
        self, session: DraftSession, start: int, features_TLD: NDArray[np.float32]
    ) -> None:
        """See `FeatureReader`; scores the blocks whose tokens are known by now."""
        super().take_features(session, start, features_TLD)
        if self._probe is None:
            return
        found = self._probe.add(self._scored(session))
        if found is not None:
            self._probe = None
            self._settle(found)

    def _scored(self, session: DraftSession) -> NDArray[np.bool_]:
        """Hits of a session's next blocks, each known token asked about once: `LEAST` of the newest ones at most."""
        blocks, row = self._blocks, session.row
        slot = np.array([self.models.slots_S[row]])
        newest = int(blocks.context.newest(slot)[0])
        # The token behind the anchor is known, and the target has told the states before it.
        end = min(newest + 2, session.length - 1)
        anchors_N = np.arange(max(int(self._anchors_S[row]), end - LEAST), end)
        self._anchors_S[row] = max(int(self._anchors_S[row]), end)
        # A block that does not see the state before it is none that is drafted with.
        anchors_N = anchors_N[blocks.context.has(slot, anchors_N - 1)]
        text_T = np.where(session.text_T < blocks.spec.vocab_size, session.text_T, STAND_IN)
        return slot_hits(blocks.net, blocks.context, int(slot[0]), text_T, anchors_N)

    def _settle(self, found: Layout) -> None:
        """Reads slots as found from now on, and tells of it."""
        blocks = self._blocks
        read = blocks.net.config.first_slot
        self.note = found.note(read)
        tell = _log.info if found.first_slot == read else _log.warning
        tell("layout of slots", model=blocks.spec.name, found=self.note)
        if found.first_slot in (None, read):
            return
        blocks.read_from(found.first_slot)
        for session in self._sessions:
            if self.models.is_expanded_S[session.row]:
                self._begin_anew(session, session.length)


@torch.inference_mode()
def slot_hits(
    net: BlockNet, context: ContextCache, slot: int, text_T: Int64s, anchors_N: Int64s
) -> NDArray[np.bool_]:
    """Which known tokens the slots of blocks foresee, by each reading of `layout_probe`.

    A block is asked for the token behind its first, which is the one that it is told: by reading f slot f predicts it. The Markov head is left out, since
    it says the same to every slot: of two that are both right half of the time nobody can tell which one is.

    Args:
        net: The net; its blocks have `LEAST_BLOCK` slots at least.
        context: What the target told.
        slot: Of the text.
        text_T: Known tokens, those behind the anchors among them.
        anchors_N: Positions of the blocks' first slots.

    Returns:
        Whether the likeliest token of the slot of each reading is the known one behind the anchor; bool [N, readings].
    """
    device, block = context.device, net.config.block
    told_B = torch.arange(block, device=device) < 1
    hits = [np.zeros((0, NUM_READINGS), np.bool_)]
    for start in range(0, len(anchors_N), AT_ONCE):
        anchors_P = anchors_N[start : start + AT_ONCE]
        first_P1, label_P1 = (
            torch.from_numpy(text_T[anchors_P + k, None]).to(device) for k in range(2)
        )
        rows, seen_PC = context.before(np.full(len(anchors_P), slot), anchors_P)
        states_PBD = net.states(
            first_P1.expand(-1, block),
            told_B.expand(len(anchors_P), -1),
            torch.from_numpy(anchors_P).to(device),
            rows,
            torch.from_numpy(seen_PC).to(device),
        )
        likeliest_P3 = net.likeliest(states_PBD[:, :NUM_READINGS])
        hits.append(likeliest_P3.eq(label_P1).cpu().numpy())
    return np.concatenate(hits)
