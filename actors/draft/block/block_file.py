"""The folder of a block drafter: `config.json`, `model.safetensors`, and a card. No code in it.

Tensors are named as in DeepSpec's files. The target's embedding and head are not among them; they are read from the target's folder.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from outrider.actors.draft.block.block_config import KIND, BlockConfig
from outrider.actors.draft.block.block_net import BlockNet
from outrider.actors.engine.checkpoint.model_source import resolve_model

CONFIG, WEIGHTS, CARD = "config.json", "model.safetensors", "README.md"
LARGEST_CONFIG = 1 << 20
"""Bytes of a `config.json`, at most."""

EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"
"""The tables in files of transformers. A model without a head has its embedding for one."""


class BlockFileError(ValueError):
    """A folder that cannot be loaded; the message says why."""


def read_block_config(folder: Path) -> BlockConfig:
    """The shape of the drafter in a folder.

    Raises:
        BlockFileError: There is none, or it is wrong.
    """
    path = folder / CONFIG
    try:
        if path.stat().st_size > LARGEST_CONFIG:
            raise ValueError(f"more than {LARGEST_CONFIG} bytes")
        content = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(content, dict):
            raise ValueError("not an object")  # noqa: TRY004 - of the file, not of a call
        return BlockConfig.from_json(content)
    except (OSError, ValueError) as error:
        raise BlockFileError(f"{path}: no {KIND} ({error})") from error


def load_block_net(folder: Path, *, target: str = "") -> BlockNet:
    """The model, float32, on the CPU, not to be trained.

    Shapes and types are compared with what the configuration asks for before any weight is read, and nothing may be missing or left over.

    Args:
        folder: The drafter's.
        target: Where the target's tables are; empty: where the configuration says.

    Raises:
        BlockFileError: See above.
    """
    config = read_block_config(folder)
    embedding, head = read_tables(_place_of(config, folder, target), config)
    net = BlockNet(config, embedding_VD=embedding, head_VD=head)
    wanted = net.state_dict()
    path = folder / WEIGHTS
    try:
        with safe_open(path, framework="pt") as file:
            names = set(file.keys())
            if names != wanted.keys():
                missing, others = sorted(wanted.keys() - names), sorted(names - wanted.keys())
                raise BlockFileError(
                    f"{path}: missing {', '.join(missing) or 'nothing'}; left over "
                    f"{', '.join(others) or 'nothing'}; written for another shape?"
                )
            for name, value in wanted.items():
                _check_entry(path, name, file.get_slice(name), tuple(value.shape))
            loaded = {name: file.get_tensor(name).float() for name in wanted}
    except BlockFileError:
        raise
    except Exception as error:
        raise BlockFileError(f"{path}: cannot be read ({error})") from error
    for name, value in loaded.items():
        if not bool(value.isfinite().all()):
            raise BlockFileError(f"{path}: {name} holds a number that is not finite")
    net.load_state_dict(loaded)
    return net.requires_grad_(False).eval()


def save_block_net(folder: Path, net: BlockNet, card: str) -> None:
    """Writes a folder, weights in bfloat16; a reader sees the old one or the new.

    Args:
        folder: Where.
        net: The model.
        card: The text of its `README.md`.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    partial = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    state = {
        name: value.detach().to("cpu", torch.bfloat16).contiguous()
        for name, value in net.state_dict().items()
    }
    save_file(state, partial / WEIGHTS, metadata={"format": "pt"})
    content = json.dumps(net.config.as_json(), indent=2)
    (partial / CONFIG).write_text(content + "\n", encoding="utf-8")
    (partial / CARD).write_text(card, encoding="utf-8")
    (partial / WEIGHTS).chmod(0o644)
    shutil.rmtree(folder, ignore_errors=True)
    partial.rename(folder)


def block_digest(folder: Path) -> str:
    """Digest of the shape and the weights, as they lie in the folder."""
    digest = hashlib.sha256((folder / CONFIG).read_bytes())
    digest.update((folder / WEIGHTS).read_bytes())
    return digest.hexdigest()


def read_tables(target: str, config: BlockConfig) -> tuple[Tensor, Tensor]:
    """Embedding and head of a target [V, D], float32, read from its files without loading the model.

    Raises:
        BlockFileError: They are not there, or of other shapes.
    """
    try:
        source = resolve_model(target)
    except ValueError as error:
        raise BlockFileError(str(error)) from error
    if source.is_tabular or not source.is_local:
        raise BlockFileError(
            f"{target!r}: the drafter borrows the target's tables of tokens, so name a folder on this machine"
        )
    found: dict[str, Tensor] = {}
    shape = (config.vocab_size, config.width)
    for path in sorted(Path(source.location).glob("*.safetensors")):
        with safe_open(path, framework="pt") as file:
            for name in {EMBEDDING, HEAD} & set(file.keys()):
                _check_entry(path, name, file.get_slice(name), shape)
                found[name] = file.get_tensor(name).float()
    if EMBEDDING not in found:
        raise BlockFileError(f"{source.location}: no {EMBEDDING} in its safetensors files")
    return found[EMBEDDING], found.get(HEAD, found[EMBEDDING])


def _check_entry(path: Path, name: str, entry: object, shape: tuple[int, ...]) -> None:
    """Refuses a tensor of another shape, or of a type that is no floating-point one."""
    found = tuple(entry.get_shape())  # type: ignore[attr-defined]  # untyped in safetensors
    kind = entry.get_dtype()  # type: ignore[attr-defined]  # as above
    if found != shape or kind not in ("F32", "F16", "BF16"):
        raise BlockFileError(
            f"{path}: {name} is {kind} {found}; F32, F16 or BF16 {shape} is needed"
        )


def _place_of(config: BlockConfig, folder: Path, target: str) -> str:
    place = target or config.target
    if not place:
        raise BlockFileError(
            f"{folder}: borrows the tables of a target that it does not name; give the option target"
        )
    return str((folder / place).resolve()) if place.startswith(".") else place
