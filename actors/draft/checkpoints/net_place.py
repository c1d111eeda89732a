"""Where the files of draft nets and of their targets are: in a folder, or on a hub."""

from __future__ import annotations

from pathlib import Path

from outrider.actors.draft.checkpoints.tensor_files import NET_FILES
from outrider.actors.engine.checkpoint.hub import hub_config, hub_folder
from outrider.actors.engine.checkpoint.model_source import resolve_model


def folder_of_config(model: str) -> Path | None:
    """The folder with the `config.json` of a model; None: a table has none, or it is not to be had from the hub.

    Raises:
        ValueError: There is no such folder.
    """
    source = resolve_model(model)
    if source.is_tabular:
        return None
    return Path(source.location) if source.is_local else hub_config(source.location)


def folder_of_net(model: str) -> Path:
    """The folder with all files of a draft net, downloaded if it is on a hub.

    Raises:
        ValueError: There is none.
    """
    source = resolve_model(model)
    if source.is_tabular:
        raise ValueError(f"model {model!r}: name the drafter's folder, or its hub id")
    return Path(source.location) if source.is_local else hub_folder(source.location, NET_FILES)
