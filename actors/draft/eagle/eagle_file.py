"""An EAGLE-3 net in its folder. Tensors are named as in the authors' files (`eagle_net`); borrowed tables are not among them."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from outrider.actors.draft.eagle.eagle_config import EagleConfig
from outrider.actors.draft.eagle.eagle_net import EagleNet
from outrider.actors.draft.on_states.net_folder import load_net, read_config
from outrider.actors.draft.on_states.target_tables import tables_for


def load_eagle(folder: Path, *, target: str = "") -> EagleNet:
    """The net, float32, on the CPU, not to be trained.

    Args:
        folder: The drafter's.
        target: Where the target's tables are, if it borrows any; empty: where the configuration says.

    Raises:
        NetFolderError: It does not fit; the message says what.
    """
    config = read_config(folder, EagleConfig, target=target)
    embedding, head = None, None
    if not (config.owns_embedding and config.owns_head):
        tables = tables_for(folder, config, target=target)
        embedding, head = tables.embedding_VD, tables.head_KD
    build = partial(EagleNet, config, embedding_VD=embedding, head_VD=head)
    return load_net(folder, build, target=target)
