"""Trains the decision model of a draft model: from two checkpoints and some texts to a file of a few kilobytes.

As Lu et al. 2024, arXiv 2409.10644: binary cross-entropy, both outcomes weighted alike, Adam at 1e-3, batches of 50, ten
epochs, the weights that did best on held-out texts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from transformers.utils import logging as transformers_logging

from outrider.actors.draft.stopping.stop_model_file import save_decision
from outrider.actors.speculation.stop_model import NUM_FEATURES, NUM_HIDDEN, DecisionModel, Float32s
from outrider.actors.train.demo.train_demo import choose_device
from outrider.actors.train.features.frozen_target import FrozenTarget, load_target
from outrider.actors.train.loop.result_folder import check_folder
from outrider.actors.train.stop_model.stop_model_samples import (
    WAYS,
    Samples,
    beginnings,
    collect,
    join,
    write_texts,
)
from outrider.actors.train.text.corpus import CorpusSource, check
from outrider.actors.train.text.sources import SOURCES
from outrider.actors.train.training_errors import TrainError

EPOCHS = 10
BATCH = 50
RATE = 1e-3
HELD_OUT = 6
"""One text in so many is held out."""

SEED = 0
"""Of everything that is drawn."""

PROMPT_LENGTH = 32
"""Tokens of each text that the target is given."""

THRESHOLD = 0.4
"""Scores above it go on drafting, unless a request says otherwise; what the report counts."""


@dataclass(frozen=True, kw_only=True)
class WayReport:
    """How well the model foresees one way of drawing and testing, on held-out texts.

    Attributes:
        accepted: Frequency of acceptance.
        area: Probability that an accepted row has a greater score than a refused one (area under the ROC curve).
        goes_on: Share of rows with a score above the threshold of 0.4.
        accepted_if_on: Frequency of acceptance among those.
        accepted_if_off: Frequency among the others.
    """

    accepted: float
    area: float
    goes_on: float
    accepted_if_on: float
    accepted_if_off: float


@dataclass(frozen=True, kw_only=True)
class DecisionReport:
    """What was trained.

    Attributes:
        file: Where the model was written.
        samples: Rows it was trained on and held out.
        ways: By way of drawing and testing, see `decision_samples`.
    """

    file: str
    samples: int
    ways: dict[str, WayReport]


def train_decision(
    data_dir: Path,
    target_dir: Path,
    draft_dirs: Sequence[Path],
    *,
    texts: int = 240,
    length: int = 128,
    prompt_length: int = PROMPT_LENGTH,
    device: str = "auto",
    sources: tuple[CorpusSource, ...] = SOURCES,
) -> list[DecisionReport]:
    """Trains a decision model for each draft model and writes it into that model's folder.

    Args:
        data_dir: Folder with the training texts.
        target_dir: Folder of the target.
        draft_dirs: Folders of the draft models, with the target's tokenizer.
        texts: How many texts the target writes.
        length: Tokens of each, the given ones included.
        prompt_length: Tokens that it is given.
        device: `auto`, `cpu` or `cuda`.
        sources: What the texts begin with.

    Raises:
        DataError: A training file is missing, or texts are too few.
        TrainError: An argument is out of range, a folder holds no model or gets no file, or tokenizers or vocabularies differ.
    """
    if texts < 2 * HELD_OUT:
        raise TrainError(f"texts is {texts}; give at least {2 * HELD_OUT}")
    if length <= prompt_length:
        raise TrainError(f"length is {length}; give more than the {prompt_length} that are given")
    for folder in (target_dir, *draft_dirs):
        if not (folder / "config.json").is_file():
            raise TrainError(f"{folder}: no model there; give a folder with a config.json")
    check(data_dir, sources)
    transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    on = choose_device(device)
    for folder in draft_dirs:
        check_folder(folder, "draft")
    target = load_target(str(target_dir.absolute()), on)
    drafts = {folder: _draft(folder, target) for folder in draft_dirs}
    prompts = beginnings(data_dir, sources, target.tokenizer, count=texts, length=prompt_length)
    written = write_texts(target.model, prompts, length, SEED)
    return [
        _train_one(folder, draft, target, written, prompt_length)
        for folder, draft in drafts.items()
    ]


def _draft(folder: Path, target: FrozenTarget) -> FrozenTarget:
    """A draft model. Raises TrainError where it is none of this target's."""
    draft = load_target(str(folder.absolute()), target.device, "draft")
    if draft.tokenizer_fingerprint != target.tokenizer_fingerprint:
        raise TrainError(f"{folder}: its tokenizer is not the target's")
    if len(draft.head_VD) != len(target.head_VD):
        raise TrainError(
            f"{folder}: {len(draft.head_VD)} token ids, and the target has {len(target.head_VD)}"
        )
    return draft


def _train_one(
    folder: Path,
    draft: FrozenTarget,
    target: FrozenTarget,
    written_BL: torch.Tensor,
    prompt_length: int,
) -> DecisionReport:
    models = target.model, draft.model
    samples = join(list(collect(*models, written_BL, prompt_length=prompt_length, seed=SEED)))
    is_held_N = samples.texts_N % HELD_OUT == 0
    model = fit(samples, is_held_N)
    ways = {
        way: _report(model, samples, is_held_N & (samples.ways_N == index))
        for index, way in enumerate(WAYS)
    }
    file = save_decision(
        folder,
        model,
        draft=draft.fingerprint,
        report={
            "samples": len(is_held_N),
            "held out": {way: vars(report) for way, report in ways.items()},
        },
    )
    return DecisionReport(file=str(file), samples=len(is_held_N), ways=ways)


def fit(samples: Samples, is_held_N: NDArray[np.bool_]) -> DecisionModel:
    """Fits the model to the samples that are not held out; keeps the epoch that did best on the others."""
    torch.manual_seed(SEED)
    net = nn.Sequential(
        nn.Linear(NUM_FEATURES, NUM_HIDDEN), nn.ReLU(), nn.Linear(NUM_HIDDEN, 1), nn.Flatten(0)
    )
    optimizer = torch.optim.Adam(net.parameters(), RATE)
    accepted_N = torch.from_numpy(samples.accepted_N.astype(np.float32))
    features_NF = torch.from_numpy(samples.features_NF)
    share = float(samples.accepted_N.mean())
    if not 0.0 < share < 1.0:
        raise TrainError(f"{share:.0%} of the candidates were accepted; nothing can be learned")
    weights_N = torch.where(accepted_N > 0, 0.5 / share, 0.5 / (1.0 - share))
    train = np.flatnonzero(~is_held_N)
    held = torch.from_numpy(np.flatnonzero(is_held_N))
    best, best_loss = _weights(net), float("inf")
    for epoch in range(EPOCHS):
        order = torch.from_numpy(np.random.default_rng([SEED, epoch]).permutation(train))
        for batch in torch.split(order, BATCH):
            loss = nn.functional.binary_cross_entropy_with_logits(
                net(features_NF[batch]), accepted_N[batch], weight=weights_N[batch]
            )
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        with torch.no_grad():
            held_loss = float(
                nn.functional.binary_cross_entropy_with_logits(
                    net(features_NF[held]), accepted_N[held], weight=weights_N[held]
                )
            )
        if held_loss < best_loss:
            best, best_loss = _weights(net), held_loss
    return best


def _weights(net: nn.Sequential) -> DecisionModel:
    state = {name: tensor.detach().numpy().copy() for name, tensor in net.state_dict().items()}
    return DecisionModel(
        hidden_FH=state["0.weight"].T.copy(),
        hidden_bias_H=state["0.bias"],
        output_H=state["2.weight"][0],
        output_bias=float(state["2.bias"][0]),
    )


def _report(model: DecisionModel, samples: Samples, chosen_N: NDArray[np.bool_]) -> WayReport:
    scores_N = model.scores(samples.features_NF[chosen_N])
    accepted_N = samples.accepted_N[chosen_N]
    is_on_N = scores_N > THRESHOLD
    return WayReport(
        accepted=_mean(accepted_N),
        area=_area(scores_N, accepted_N),
        goes_on=_mean(is_on_N),
        accepted_if_on=_mean(accepted_N[is_on_N]),
        accepted_if_off=_mean(accepted_N[~is_on_N]),
    )


def _mean(outcomes_N: NDArray[np.bool_]) -> float:
    return round(float(outcomes_N.mean()), 3) if len(outcomes_N) else 0.0


def _area(scores_N: Float32s, accepted_N: NDArray[np.bool_]) -> float:
    """Area under the ROC curve by the rank sum; one half where one outcome is missing."""
    num_yes, num_no = int(accepted_N.sum()), int((~accepted_N).sum())
    if not num_yes or not num_no:
        return 0.5
    ranks_N = np.empty(len(scores_N))
    ranks_N[np.argsort(scores_N, kind="stable")] = np.arange(1, len(scores_N) + 1)
    over = float(ranks_N[accepted_N].sum()) - num_yes * (num_yes + 1) / 2
    return round(over / (num_yes * num_no), 3)
