"""The target's embedding and head, which draft nets borrow: read from the target's own files, without loading the model."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import torch
from safetensors import safe_open

from outrider.actors.draft.on_states.net_folder import NetFolderError, check_entry
from outrider.actors.engine.checkpoint.model_source import resolve_model

EMBEDDINGS = ("model.embed_tokens.weight", "transformer.wte.weight", "gpt_neox.embed_in.weight")
HEADS = ("lm_head.weight", "embed_out.weight")
"""What the tables are called in files of transformers, for the families that there are. A model without a head has its embedding for one."""


class Borrows(Protocol):
    """The shape of a net that borrows them."""

    @property
    def vocab_size(self) -> int: ...

    @property
    def width(self) -> int: ...

    @property
    def target(self) -> str:
        """Where they are: a folder, a hub id or `demo:NAME`; a relative folder is meant from the net's own. Empty: not said."""
        ...

    @property
    def tables_digest(self) -> str:
        """Their `digest_of`; empty: not known, and not checked."""
        ...


def borrowed_tables(
    folder: Path, config: Borrows, *, target: str = ""
) -> tuple[torch.Tensor, torch.Tensor]:
    """Embedding and head [V, D], float32, for the net in a folder.

    Args:
        folder: The net's.
        config: Its shape.
        target: Where they are; empty: where the shape says.

    Raises:
        NetFolderError: They are not there, of other shapes, or not those that the net was trained with.
    """
    place = target or config.target
    if not place:
        raise NetFolderError(
            f"{folder}: borrows the tables of a target that it does not name; give the option target"
        )
    beside = folder / place
    if place.startswith(".") and beside.is_dir():
        place = str(beside.resolve())
    tables = target_tables(place, vocab_size=config.vocab_size, width=config.width)
    if config.tables_digest and digest_of(*tables) != config.tables_digest:
        raise NetFolderError(
            f"{folder}: was trained for another target than {place}, whose embedding and head differ; train it for "
            "this one, or give the option target"
        )
    return tables


def target_tables(target: str, *, vocab_size: int, width: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Embedding and head of a target [V, D], float32.

    Raises:
        NetFolderError: They are not there, or of other shapes.
    """
    try:
        source = resolve_model(target)
    except ValueError as error:
        raise NetFolderError(str(error)) from error
    if source.is_tabular or not source.is_local:
        raise NetFolderError(
            f"{target!r}: the drafter borrows the target's tables of tokens, so name a folder on this machine"
        )
    files = sorted(Path(source.location).glob("*.safetensors"))
    embedding = _table(files, EMBEDDINGS, (vocab_size, width))
    if embedding is None:
        raise NetFolderError(
            f"{source.location}: none of {', '.join(EMBEDDINGS)} in its safetensors files"
        )
    head = _table(files, HEADS, (vocab_size, width))
    return embedding, embedding if head is None else head


def digest_of(embedding_VD: torch.Tensor, head_VD: torch.Tensor) -> str:
    """Says whether two pairs of tables are the same, whatever the type of their numbers was."""
    digest = hashlib.sha256()
    for table in (embedding_VD, head_VD):
        digest.update(table.detach().to("cpu", torch.float32).contiguous().numpy().data)
    return digest.hexdigest()


def _table(
    files: Sequence[Path], names: Sequence[str], shape: tuple[int, int]
) -> torch.Tensor | None:
    for path in files:
        with safe_open(path, framework="pt") as file:
            for name in names:
                if name in file.keys():  # noqa: SIM118 - it is no mapping
                    check_entry(path, name, file.get_slice(name), shape)
                    table: torch.Tensor = file.get_tensor(name)
                    return table.float()
    return None
