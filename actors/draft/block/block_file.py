"""A block drafter's net in its folder. Tensors are named as in DeepSpec's files; embedding and head are the target's and not among them."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from outrider.actors.draft.block.block_config import BlockConfig
from outrider.actors.draft.block.block_net import BlockNet
from outrider.actors.draft.on_states.net_folder import load_net, read_config
from outrider.actors.draft.on_states.target_tables import tables_for


def load_block_net(
    folder: Path,
    *,
    target: str = "",
    config_of: type[BlockConfig] = BlockConfig,
    net_of: type[BlockNet] = BlockNet,
) -> BlockNet:
    """The net, float32, on the CPU, not to be trained.

    Args:
        folder: The drafter's.
        target: Where the target's tables are; empty: where the configuration says.
        config_of: Kind of its shape.
        net_of: Kind of the net.

    Raises:
        NetFolderError: It does not fit; the message says what.
    """
    config = read_config(folder, config_of, target=target)
    tables = tables_for(folder, config, target=target)
    build = partial(
        net_of,
        config,
        embedding_VD=tables.embedding_VD,
        head_VD=tables.head_KD,
        draft_ids=tables.draft_ids,
    )
    return load_net(folder, build, target=target)
