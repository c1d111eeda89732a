"""A block drafter's net in its folder. Tensors are named as in DeepSpec's files; embedding and head are the target's and not among them."""

from __future__ import annotations

from pathlib import Path

from outrider.actors.draft.block.block_config import KIND, BlockConfig
from outrider.actors.draft.block.block_net import BlockNet
from outrider.actors.draft.on_states.net_folder import load_weights, read_config, save_folder
from outrider.actors.draft.on_states.target_tables import borrowed_tables


def load_block_net(folder: Path, *, target: str = "") -> BlockNet:
    """The net, float32, on the CPU, not to be trained.

    Args:
        folder: The drafter's.
        target: Where the target's tables are; empty: where the configuration says.

    Raises:
        NetFolderError: It does not fit; the message says what.
    """
    config = read_config(folder, KIND, BlockConfig.from_json)
    embedding, head = borrowed_tables(folder, config, target=target)
    net = BlockNet(config, embedding_VD=embedding, head_VD=head)
    load_weights(folder, net)
    return net


def save_block_net(folder: Path, net: BlockNet, card: str) -> None:
    """Writes a folder; see `save_folder`."""
    save_folder(folder, net, net.config.as_json(), card)
