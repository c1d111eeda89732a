"""Progress and models on disk, written so that a kill at any moment leaves the last good copy."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import nn
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

from outrider.actors.train.loop.differing_settings import refusal
from outrider.actors.train.training_errors import ResumeError, TrainingFailed


@dataclass(frozen=True)
class Progress:
    """Where a run stands: `step` updates are done. The data of every step is fixed by its number.

    `decision` holds the fields of the `Decision` on how many there will be, None while that is open.
    """

    fingerprint: str
    step: int
    model: dict[str, torch.Tensor]
    optimizer: list[dict[str, Any]]
    random_state: torch.Tensor
    decision: dict[str, Any] | None = None


def save_progress(path: Path, progress: Progress) -> None:
    """Replace `path` in one rename.

    Raises:
        OSError: The disk is full, or cannot be written; what was saved before is still there.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    with partial.open("wb") as handle:
        try:
            torch.save(vars(progress), handle)
        except RuntimeError as error:
            # Of a full disk torch says only how far it came.
            if isinstance(error.__context__, OSError):
                raise error.__context__ from None
            raise
        handle.flush()
        os.fsync(handle.fileno())
    partial.replace(path)


def load_progress(path: Path, fingerprint: str) -> Progress | None:
    """What was saved, or None if nothing was.

    Raises:
        ResumeError: the file cannot be read, or comes from a run with other settings.
    """
    if not path.exists():
        return None
    try:
        progress = Progress(**torch.load(path, map_location="cpu", weights_only=True))
    except Exception as error:
        kind = type(error).__name__
        raise ResumeError(
            f"{path}: unreadable ({kind}); delete it or train without resume"
        ) from error
    if progress.fingerprint != fingerprint:
        raise ResumeError(refusal(path, progress.fingerprint, fingerprint))
    return progress


def save_tokenizer(folder: Path, tokenizer: PreTrainedTokenizerFast) -> None:
    """Write a tokenizer without the line breaks that make up half of its file."""
    tokenizer.save_pretrained(folder)
    path = folder / "tokenizer.json"
    content = json.loads(path.read_text(encoding="utf-8"))
    compact = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
    path.write_text(compact, encoding="utf-8")


def weights_digest(model: LlamaForCausalLM) -> str:
    """A short name for exactly these weights."""
    digest = hashlib.blake2b(digest_size=8)
    for name, value in sorted(model.state_dict().items()):
        digest.update(name.encode())
        digest.update(value.to("cpu", torch.float32).contiguous().numpy().tobytes())
    return digest.hexdigest()


def save_model(folder: Path, model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast) -> None:
    """Write a bfloat16 checkpoint with its tokenizer; a reader sees the old folder or the new."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    partial = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    copy = nn.Module.to(LlamaForCausalLM(model.config), torch.bfloat16)
    copy.load_state_dict({k: v.to("cpu", torch.bfloat16) for k, v in model.state_dict().items()})
    try:
        copy.save_pretrained(partial)
    except SafetensorError as error:
        raise TrainingFailed(f"{folder} cannot be written: {error}") from error
    save_tokenizer(partial, tokenizer)
    for file in partial.iterdir():
        file.chmod(0o644)
    replace_folder(partial, folder)


def replace_folder(partial: Path, folder: Path) -> None:
    """Put a finished folder in the place of an older one, if any."""
    retired = folder.with_name(f".{folder.name}.old")
    shutil.rmtree(retired, ignore_errors=True)
    if folder.exists():
        folder.rename(retired)
    partial.rename(folder)
    shutil.rmtree(retired, ignore_errors=True)
