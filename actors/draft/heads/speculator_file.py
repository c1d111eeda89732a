"""A speculator's net in its folder."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from outrider.actors.draft.heads.speculator_config import SpeculatorConfig
from outrider.actors.draft.heads.speculator_net import SpeculatorNet
from outrider.actors.draft.on_states.net_folder import load_net, read_config
from outrider.actors.draft.on_states.target_tables import stored_ids, tables_for


def load_speculator(folder: Path, *, target: str = "") -> SpeculatorNet:
    """The net, float32, on the CPU, not to be trained.

    Args:
        folder: The speculator's.
        target: Where the target's tables are, if it borrows them; empty: where the configuration says.

    Raises:
        NetFolderError: It does not fit; the message says what.
    """
    config = read_config(folder, SpeculatorConfig, target=target)
    embedding, head, ids = None, None, None
    if config.tables == "target":
        tables = tables_for(folder, config, target=target)
        embedding, head = tables.embedding_VD, tables.head_KD
    else:
        ids = stored_ids(folder, config.vocab_size, target=target)
    build = partial(SpeculatorNet, config, embedding_VD=embedding, head_VD=head, draft_ids=ids)
    return load_net(folder, build, target=target)
