"""The target's embedding and head, which draft nets borrow: read from the target's own files, without loading the model."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import torch
from safetensors import safe_open

from outrider.actors.draft.checkpoints.checkpoint_format import Translation
from outrider.actors.draft.checkpoints.tensor_files import (
    KINDS,
    pickled,
    read_tensors,
    weight_files,
)
from outrider.actors.draft.checkpoints.tensor_shapes import check_shape
from outrider.actors.draft.on_states.known_formats import FoundCheckpoint, found_in
from outrider.actors.draft.on_states.net_folder import (
    NetFolderError,
    number_table,
)
from outrider.actors.draft.on_states.net_tables import NetTables, draft_ids_of
from outrider.actors.engine.checkpoint.hub import CONFIG, hub_folder
from outrider.actors.engine.checkpoint.model_source import resolve_model

INDEX = "model.safetensors.index.json"
"""Says which file has which tensor, where there are several."""

EMBEDDINGS = (
    "model.embed_tokens.weight",
    "transformer.wte.weight",
    "transformer.word_embeddings.weight",
    "gpt_neox.embed_in.weight",
    "model.decoder.embed_tokens.weight",
    "wte.weight",
    "word_embeddings.weight",
    "language_model.model.embed_tokens.weight",
    "model.language_model.embed_tokens.weight",
)
HEADS = ("lm_head.weight", "embed_out.weight", "language_model.lm_head.weight")
"""What the tables are called in files of transformers, for the families that there are; without `transformer.` where the model was saved without a head, the
last ones in those of models that see, too. A model
without a head has its embedding for one."""


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


def tables_for(folder: Path, config: Borrows, *, target: str = "") -> NetTables:
    """The tables of tokens of the net in a folder: those of its own files, and the target's for what these lack.

    Args:
        folder: The net's.
        config: Its shape.
        target: Where the target's are; empty: where the shape says.

    Raises:
        NetFolderError: They are not there, of other shapes, or not those that the net was trained with.
    """
    vocab_size, width = config.vocab_size, config.width
    own: dict[str, torch.Tensor] = {}
    ids = None
    try:
        found = found_in(folder)
        if found is not None:
            own, ids = _own_tables(found, found.translated(target), vocab_size, width)
    except (OSError, ValueError) as error:
        raise NetFolderError(f"{folder}: {error}") from error
    if len(own) < 2:
        embedding, head = _borrowed(folder, config, target)
        if "head" not in own and ids is not None:
            head = head[ids]
        own = {"embedding": embedding, "head": head, **own}
    return NetTables(own["embedding"], own["head"], ids)


def stored_ids(folder: Path, vocab_size: int, *, target: str = "") -> torch.Tensor | None:
    """The target's ids of the rows of a net's own reduced heads; None: they have all rows. Arguments and errors as `tables_for`."""
    try:
        found = found_in(folder)
        if found is None:
            return None
        return _own_tables(found, found.translated(target), vocab_size, 0)[1]
    except (OSError, ValueError) as error:
        raise NetFolderError(f"{folder}: {error}") from error


def _own_tables(
    found: FoundCheckpoint, translation: Translation, vocab_size: int, width: int
) -> tuple[dict[str, torch.Tensor], torch.Tensor | None]:
    """The tables that a checkpoint brings, and the ids of its head's rows."""
    shapes = found.checkpoint.shapes
    names = {"embedding": translation.embedding, "head": translation.head}
    table, mask = translation.draft_ids, translation.draft_mask
    if table in translation.tensors.values():
        # The net has the table among its own tensors.
        table = mask = ""
    rows = {"embedding": vocab_size, "head": vocab_size}
    if table:
        rows["head"] = shapes[table][0] if shapes[table] else 0
        check_shape(table, shapes[table], (rows["head"],))
        if mask:
            check_shape(mask, shapes[mask], (vocab_size,))
    for kind, name in names.items():
        if name:
            check_shape(name, shapes[name], (rows[kind], width))
    stored = read_tensors(found.folder, {one for one in (*names.values(), table, mask) if one})
    ids = None
    if table:
        ids = draft_ids_of(
            stored[table],
            stored[mask] if mask else None,
            vocab_size,
            is_absolute=translation.has_absolute_ids,
        )
    return {kind: number_table(name, stored[name]) for kind, name in names.items() if name}, ids


def _borrowed(folder: Path, config: Borrows, target: str) -> tuple[torch.Tensor, torch.Tensor]:
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
    if source.is_tabular:
        raise NetFolderError(
            f"{target!r}: has no tables of tokens that a drafter could borrow; name a folder or a hub id"
        )
    folder = Path(source.location) if source.is_local else _downloaded(source.location)
    files = weight_files(folder)
    embedding = _table(files, EMBEDDINGS, (vocab_size, width))
    if embedding is None:
        raise NetFolderError(f"{folder}: none of {', '.join(EMBEDDINGS)} in its files of weights")
    head = _table(files, HEADS, (vocab_size, width))
    return embedding, embedding if head is None else head


def _downloaded(model_id: str) -> Path:
    """The folder of the cache with those files of a hub's model that have its tables."""
    try:
        index = hub_folder(model_id, (CONFIG, INDEX)) / INDEX
        parts = json.loads(index.read_text())["weight_map"] if index.is_file() else {}
        holding = {parts[name] for name in (*EMBEDDINGS, *HEADS) if name in parts}
        return hub_folder(model_id, sorted(holding) or KINDS)
    except (KeyError, TypeError, ValueError) as error:
        raise NetFolderError(str(error)) from error


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
        try:
            if path.suffix == ".safetensors":
                with safe_open(path, framework="pt") as file:
                    stored = set(file.keys())
                    for name in (one for one in names if one in stored):
                        check_shape(name, tuple(file.get_slice(name).get_shape()), shape)
                        return number_table(name, file.get_tensor(name))
            else:
                tensors = dict(pickled(path))
                for name in (one for one in names if one in tensors):
                    check_shape(name, tuple(tensors[name].shape), shape)
                    return number_table(name, tensors[name])
        except Exception as error:
            raise NetFolderError(f"{path}: {error}") from error
    return None
