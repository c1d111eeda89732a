"""A diffusion drafter's net in its folder. Embedding and head are the target's and not among its tensors."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path

from outrider.actors.draft.diffusion.diffusion_config import DiffusionConfig
from outrider.actors.draft.diffusion.diffusion_net import DiffusionNet
from outrider.actors.draft.on_states.net_folder import load_net, read_config
from outrider.actors.draft.on_states.target_tables import tables_for


@dataclass(frozen=True, slots=True)
class _Tables:
    """What of the shape says which tables are borrowed."""

    vocab_size: int
    width: int
    target: str
    tables_digest: str


def load_diffusion_net(folder: Path, *, target: str = "") -> DiffusionNet:
    """The net, float32, on the CPU, not to be trained.

    Args:
        folder: The drafter's.
        target: Where the target's tables are; empty: where the configuration says.

    Raises:
        NetFolderError: It does not fit; the message says what.
    """
    config = read_config(folder, DiffusionConfig)
    wanted = _Tables(config.vocab_size, config.table_width, config.target, config.tables_digest)
    tables = tables_for(folder, wanted, target=target)
    build = partial(DiffusionNet, config, embedding_VD=tables.embedding_VD, head_VD=tables.head_KD)
    return load_net(folder, build)
