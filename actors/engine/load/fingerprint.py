"""Digests that say whether two processes hold the same model."""

from __future__ import annotations

import functools
import hashlib
import json
from pathlib import Path

import torch
from transformers import PreTrainedModel

CHUNK_BYTES = 1 << 22
"""Bytes read at a time while hashing: enough to be as fast as the disk, little memory."""

VOLATILE_KEYS = frozenset(
    {"_name_or_path", "transformers_version", "dtype", "torch_dtype", "_attn_implementation"}
)
"""Keys of a configuration that say how a model was loaded or saved, not what it is."""


def model_fingerprint(model: PreTrainedModel, folder: Path | None) -> str:
    """Digest of weights and configuration.

    Args:
        model: The loaded model, from whose tensors the digest is made where there are no weight files.
        folder: Where its safetensors files lie. Files are hashed as they are, so equal weights in other shards differ.
    """
    config = {k: v for k, v in model.config.to_dict().items() if k not in VOLATILE_KEYS}
    digest = hashlib.sha256(json.dumps(config, sort_keys=True, default=str).encode())
    files = sorted(folder.glob("*.safetensors")) if folder else []
    for file in files:
        status = file.stat()
        digest.update(_file_digest(file.resolve(), status.st_size, status.st_mtime_ns))
    if not files:
        for name, tensor in sorted(model.state_dict().items()):
            octets = tensor.detach().cpu().contiguous().flatten().view(torch.uint8)
            digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
            digest.update(octets.numpy().data)
    return digest.hexdigest()


@functools.lru_cache(maxsize=256)
def _file_digest(file: Path, size: int, modified_ns: int) -> bytes:
    """Hash of a file; size and time are there so that a changed file is read again."""
    digest = hashlib.sha256()
    with file.open("rb") as stream:
        while chunk := stream.read(CHUNK_BYTES):
            digest.update(chunk)
    return digest.digest()
