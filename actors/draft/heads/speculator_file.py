"""The folder of a speculator: `config.json`, `model.safetensors`, and a card. No code in it."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import nn

from outrider.actors.draft.heads.speculator_config import KIND, SpeculatorConfig
from outrider.actors.draft.heads.speculator_net import SpeculatorNet
from outrider.actors.engine.checkpoint.model_source import resolve_model

CONFIG, WEIGHTS, CARD = "config.json", "model.safetensors", "README.md"
LARGEST_CONFIG = 1 << 20
"""Bytes of a `config.json`, at most."""

EMBEDDINGS = ("model.embed_tokens.weight", "transformer.wte.weight", "gpt_neox.embed_in.weight")
HEADS = ("lm_head.weight", "embed_out.weight")
"""What the tables are called in files of transformers, for the families that there are. A model without a head has its embedding for one."""


class SpeculatorError(ValueError):
    """A folder that cannot be loaded; the message says why."""


def read_config(folder: Path) -> SpeculatorConfig:
    """The shape of the speculator in a folder.

    Raises:
        SpeculatorError: There is none, or it is wrong.
    """
    path = folder / CONFIG
    try:
        if path.stat().st_size > LARGEST_CONFIG:
            raise ValueError(f"more than {LARGEST_CONFIG} bytes")
        return SpeculatorConfig.from_json(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        raise SpeculatorError(f"{path}: no {KIND} ({error})") from error


def load_speculator(folder: Path, *, target: str | None = None) -> SpeculatorNet:
    """The net, float32, on the CPU, not to be trained.

    Shapes and types are compared with what the configuration asks for before any weight is read, and nothing may be missing or left over.

    Args:
        folder: The speculator's.
        target: Where the target's tables are; None: where the configuration says.

    Raises:
        SpeculatorError: See above.
    """
    config = read_config(folder)
    embedding, head = None, None
    if config.tables == "target":
        place = _place_of(config, folder, target)
        embedding, head = target_tables(place, config)
        if config.tables_digest and digest_of(embedding, head) != config.tables_digest:
            raise SpeculatorError(
                f"{folder}: was trained for another target than {place}, whose embedding and head differ; train it for "
                "this one, or give the option target"
            )
    net = SpeculatorNet(config, embedding_VD=embedding, head_VD=head)
    wanted = net.state_dict()
    path = folder / WEIGHTS
    try:
        with safe_open(path, framework="pt") as file:
            names = set(file.keys())
            if names != wanted.keys():
                missing, others = sorted(wanted.keys() - names), sorted(names - wanted.keys())
                raise SpeculatorError(
                    f"{path}: missing {', '.join(missing) or 'nothing'}; left over "
                    f"{', '.join(others) or 'nothing'}; written for another shape?"
                )
            for name, value in wanted.items():
                _check_entry(path, name, file.get_slice(name), tuple(value.shape))
            loaded = {name: file.get_tensor(name).float() for name in wanted}
    except SpeculatorError:
        raise
    except Exception as error:
        raise SpeculatorError(f"{path}: cannot be read ({error})") from error
    if not all(bool(value.isfinite().all()) for value in loaded.values()):
        raise SpeculatorError(f"{path}: a weight is not finite")
    net.load_state_dict(loaded)
    return net.requires_grad_(False).eval()


def save_speculator(folder: Path, net: SpeculatorNet, card: str) -> None:
    """Writes a folder, weights in bfloat16; a reader sees the old one or the new.

    Args:
        folder: Where.
        net: The net.
        card: The text of its `README.md`.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    partial = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    state = {k: v.detach().to("cpu", torch.bfloat16).contiguous() for k, v in _state(net).items()}
    save_file(state, partial / WEIGHTS, metadata={"format": "pt"})
    content = json.dumps(net.config.as_json(), indent=2)
    (partial / CONFIG).write_text(content + "\n", encoding="utf-8")
    (partial / CARD).write_text(card, encoding="utf-8")
    (partial / WEIGHTS).chmod(0o644)
    retired = folder.with_name(f".{folder.name}.old")
    shutil.rmtree(retired, ignore_errors=True)
    if folder.exists():
        folder.rename(retired)
    partial.rename(folder)
    shutil.rmtree(retired, ignore_errors=True)


def digest_of(embedding_VD: torch.Tensor, head_VD: torch.Tensor) -> str:
    """Says whether two pairs of tables are the same, whatever the type of their numbers was."""
    digest = hashlib.sha256()
    for table in (embedding_VD, head_VD):
        digest.update(table.detach().to("cpu", torch.float32).contiguous().numpy().data)
    return digest.hexdigest()


def weights_digest(folder: Path) -> str:
    """Digest of the shape and the weights, as they lie in the folder."""
    digest = hashlib.sha256((folder / CONFIG).read_bytes())
    digest.update((folder / WEIGHTS).read_bytes())
    return digest.hexdigest()


def target_tables(target: str, config: SpeculatorConfig) -> tuple[torch.Tensor, torch.Tensor]:
    """Embedding and head of a target [V, D], float32, read from its files without loading the model.

    Raises:
        SpeculatorError: They are not there, or of other shapes.
    """
    try:
        source = resolve_model(target)
    except ValueError as error:
        raise SpeculatorError(str(error)) from error
    folder = Path(source.location)
    if source.is_tabular or not source.is_local:
        raise SpeculatorError(
            f"{target!r}: the speculator borrows the target's tables of tokens, so name a folder on this machine"
        )
    files = sorted(folder.glob("*.safetensors"))
    embedding = _table(files, EMBEDDINGS, config)
    if embedding is None:
        raise SpeculatorError(f"{folder}: none of {', '.join(EMBEDDINGS)} in its safetensors files")
    head = _table(files, HEADS, config)
    return embedding, embedding if head is None else head


def _table(
    files: list[Path], names: tuple[str, ...], config: SpeculatorConfig
) -> torch.Tensor | None:
    shape = (config.vocab_size, config.width)
    for path in files:
        with safe_open(path, framework="pt") as file:
            for name in names:
                if name in file.keys():  # noqa: SIM118 - it is no mapping
                    _check_entry(path, name, file.get_slice(name), shape)
                    table: torch.Tensor = file.get_tensor(name)
                    return table.float()
    return None


def _check_entry(path: Path, name: str, entry: object, shape: tuple[int, ...]) -> None:
    """Refuses a tensor of another shape, or of a type that is no floating-point one."""
    found = tuple(entry.get_shape())  # type: ignore[attr-defined]  # untyped in safetensors
    kind = entry.get_dtype()  # type: ignore[attr-defined]  # as above
    if found != shape or kind not in ("F32", "F16", "BF16"):
        raise SpeculatorError(
            f"{path}: {name} is {kind} {found}; F32, F16 or BF16 {shape} is needed"
        )


def _place_of(config: SpeculatorConfig, folder: Path, target: str | None) -> str:
    place = target or config.target
    if not place:
        raise SpeculatorError(
            f"{folder}: borrows the tables of a target that it does not name; give the option target"
        )
    beside = folder / place
    return str(beside.resolve()) if place.startswith(".") and beside.is_dir() else place


def _state(net: nn.Module) -> dict[str, torch.Tensor]:
    return dict(net.state_dict())
