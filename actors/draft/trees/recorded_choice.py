"""Scoring and choosing on a GPU, told once: some forty small kernels, which take longer to tell one by one than to run.

As with passes of a model (`engine/graphs`), rows are padded to a few numbers of rows, for each of which the work is recorded; its inputs come in one transfer, what was chosen
goes back in one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import structlog
import torch
from numpy.typing import NDArray
from torch import Tensor

from outrider.actors.draft.trees.forest import Float32s, Int64s
from outrider.actors.engine.graphs.cuda_graph import GraphRecorder, Run
from outrider.actors.engine.graphs.static_shape import ROWS
from outrider.actors.engine.staging import Staging, to_host

Int32s = NDArray[np.int32]

MOST_SCORES = 2**22
"""Scores of a recorded choice, at most: beyond, the device takes longer than telling it. Each of some eight tensors then has 16 MiB."""

_NUM_INPUTS = 6
"""Numbers of a row: an even one, so that they can travel as integers of 64 bits."""

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ChoiceInputs:
    """What decides beside the logits, on the device."""

    halves_2R: Tensor
    """int32; of the noise's keys."""
    inverse_temperatures_R1: Tensor
    """float32; likewise:"""
    sharpness_R1: Tensor
    is_coupled_R1: Tensor
    """1 where the noise counts, else 0."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LikelyTokens:
    """The best tokens of R rows."""

    stated_RW: Tensor
    """float32; their probabilities by the scores."""
    slopes_RW: Tensor
    """float32; score less the mean score."""
    tokens_RW: Tensor
    """int64."""


Choose = Callable[[Tensor, ChoiceInputs], LikelyTokens]
"""From logits (R, V), float32. Asks the device for nothing."""


class RecordedChoice:
    """Replays a choice for any number of rows up to `most`."""

    def __init__(
        self, choose: Choose, vocab_size: int, device: torch.device, recorder: GraphRecorder
    ) -> None:
        """Records all numbers of rows; where that fails, `most` is 0.

        Args:
            choose: What is recorded.
            vocab_size: Columns of logits.
            device: Where it runs.
            recorder: Records.
        """
        self._choose, self._recorder = choose, recorder
        self._rows = [rows for rows in ROWS if rows * vocab_size <= MOST_SCORES]
        self.most = max(self._rows, default=0)
        """Rows, at most."""
        self._logits_RV = torch.zeros(self.most, vocab_size, device=device)
        self._staging = Staging(self.most * _NUM_INPUTS // 2, device)
        self._runs: dict[int, Run] = {}
        self._record()

    @torch.inference_mode()
    def _record(self) -> None:
        try:
            for rows in self._rows:
                self._runs[rows] = self._recorder.record(partial(self._run, rows))
        except RuntimeError as error:
            self.most = 0
            _log.warning(
                "choices cannot be recorded; each is told kernel by kernel", reason=str(error)
            )

    @torch.inference_mode()
    def __call__(
        self,
        logits_RV: Tensor,
        halves_2R: Int32s,
        inverse_temperatures_R: Float32s,
        sharpness_R: Float32s,
        is_coupled_R: NDArray[np.bool_],
    ) -> tuple[Float32s, Float32s, Int64s]:
        """Stated probabilities, slopes and tokens, each (R, W), as `LikelyTokens` has them, on the host. At most `most` rows."""
        count = len(logits_RV)
        rows = next(rows for rows in self._rows if rows >= count)
        inputs_NR = np.zeros((_NUM_INPUTS, rows), np.int32)
        inputs_NR[:2, :count] = halves_2R
        for place, numbers_R in enumerate((inverse_temperatures_R, sharpness_R, is_coupled_R), 2):
            inputs_NR[place, :count] = numbers_R.astype(np.float32).view(np.int32)
        self._staging.fill([inputs_NR.reshape(-1).view(np.int64)])
        self._logits_RV[:count].copy_(logits_RV)
        bits_RX = to_host(self._runs[rows]()[:count])().numpy()
        stated_RW, slopes_RW, tokens_RW = np.split(bits_RX, 3, axis=1)
        return (
            stated_RW.view(np.float32),
            slopes_RW.view(np.float32),
            tokens_RW.astype(np.int64),
        )

    def _run(self, rows: int) -> Tensor:
        """The work: from the static inputs to what was chosen, as integers, (rows, 3 W)."""
        inputs_NR = (
            self._staging.buffer[: rows * _NUM_INPUTS // 2]
            .view(torch.int32)
            .view(_NUM_INPUTS, rows)
        )
        floats_3R1 = inputs_NR[2:5].view(torch.float32).unsqueeze(2)
        chosen = self._choose(
            self._logits_RV[:rows],
            ChoiceInputs(
                halves_2R=inputs_NR[:2],
                inverse_temperatures_R1=floats_3R1[0],
                sharpness_R1=floats_3R1[1],
                is_coupled_R1=floats_3R1[2],
            ),
        )
        parts = (
            chosen.stated_RW.view(torch.int32),
            chosen.slopes_RW.view(torch.int32),
            chosen.tokens_RW.to(torch.int32),
        )
        return torch.cat(parts, dim=1)
