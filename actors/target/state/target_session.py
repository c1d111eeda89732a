"""What a target keeps of one session beside its row of the table: options, and what few sessions need."""

from __future__ import annotations

import numpy as np

from outrider.actors.speculation.noise.gumbel import NoiseCache
from outrider.actors.speculation.options import Sampling, Speculation
from outrider.actors.speculation.sampling.transforms import SamplingTransform
from outrider.actors.target.state.session_table import SessionTable
from outrider.actors.target.state.target_events import SessionOwner, Stats


class TargetSession:
    """One sequence that is being decoded. Its text and its numbers are in the table."""

    def __init__(
        self,
        table: SessionTable,
        row: int,
        *,
        owner: SessionOwner,
        sampling: Sampling,
        speculation: Speculation,
        transform: SamplingTransform,
        noise: NoiseCache | None,
        request_id: str,
    ) -> None:
        self._table = table
        self.row = row
        """Of the table; the slot."""
        self.owner = owner
        self.request_id = request_id
        """For logs."""
        self.sampling = sampling
        self.speculation = speculation
        self.transform = transform
        self.noise = noise

    @property
    def handle(self) -> int:
        """Names the session to drafters."""
        return int(self._table.handles_S[self.row])

    @property
    def length(self) -> int:
        """Number of committed tokens."""
        return int(self._table.lengths_S[self.row])

    @property
    def hash(self) -> int:
        """Rolling hash of the committed tokens."""
        return int(self._table.hashes_SL[self.row, self.length])

    @property
    def num_output(self) -> int:
        """Number of committed output tokens."""
        return self.length - int(self._table.prompts_S[self.row])

    @property
    def remaining(self) -> int:
        """Number of tokens that may still be committed."""
        return int(self._table.ends_S[self.row]) - self.length

    @property
    def near_tie(self) -> float:
        """Margin between scores below which a draw is a near tie."""
        return float(self._table.near_ties_S[self.row])

    def stats(self) -> Stats:
        """What speculation did so far."""
        table, row = self._table, self.row
        depth = int(np.count_nonzero(table.reached_SD[row]))
        return Stats(
            **{name: int(counts[row]) for name, counts in table.counts.items()},
            cached_tokens=int(table.reused_S[row]),
            reached_by_depth=table.reached_SD[row, :depth].tolist(),
            accepted_by_depth=table.accepted_SD[row, :depth].tolist(),
            prefill_s=float(table.prefill_s_S[row]),
            verify_s=float(table.verify_s_S[row]),
            draft_wait_s=float(table.draft_wait_s_S[row]),
        )
