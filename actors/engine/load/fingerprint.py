"""Digests that say whether two processes hold the same model."""

from __future__ import annotations

import functools
import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import torch
from transformers import PreTrainedModel

from outrider.actors.engine.checkpoint.weight_files import weight_files

CHUNK_BYTES = 1 << 22
"""Bytes read at a time while hashing: enough to be as fast as the disk, little memory."""

VOLATILE_KEYS = frozenset(
    {"_name_or_path", "transformers_version", "dtype", "torch_dtype", "_attn_implementation"}
)
"""Keys of a configuration that say how a model was loaded or saved, not what it is."""


@contextmanager
def hashing_beside(folder: Path | None) -> Iterator[None]:
    """Hashes a folder's weight files on a thread meanwhile, so that `model_fingerprint` finds them hashed.

    Hashing takes as long as reading; it leaves the interpreter to others. Where the block fails, nobody waits for the thread.

    Args:
        folder: Where the safetensors files lie; None: nothing is done.
    """

    def work() -> None:
        with suppress(OSError):  # Whoever loads the file says it better.
            for file in weight_files(folder):
                _digest_of(file)

    thread = threading.Thread(target=work, name="fingerprint", daemon=True)
    thread.start()
    yield
    thread.join()


def model_fingerprint(model: PreTrainedModel, folder: Path | None) -> str:
    """Digest of weights and configuration.

    Args:
        model: The loaded model, from whose tensors the digest is made where there are no weight files.
        folder: Where its safetensors files lie. Files are hashed as they are, so equal weights in other shards differ.
    """
    config = {k: v for k, v in model.config.to_dict().items() if k not in VOLATILE_KEYS}
    digest = hashlib.sha256(json.dumps(config, sort_keys=True, default=str).encode())
    files = weight_files(folder)
    for file in files:
        digest.update(_digest_of(file))
    if not files:
        for name, tensor in sorted(model.state_dict().items()):
            octets = tensor.detach().cpu().contiguous().flatten().view(torch.uint8)
            digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
            digest.update(octets.numpy().data)
    return digest.hexdigest()


def _digest_of(file: Path) -> bytes:
    status = file.stat()
    return _file_digest(file.resolve(), status.st_size, status.st_mtime_ns)


@functools.lru_cache(maxsize=256)
def _file_digest(file: Path, size: int, modified_ns: int) -> bytes:
    """Hash of a file; size and time are there so that a changed file is read again."""
    digest = hashlib.sha256()
    with file.open("rb") as stream:
        while chunk := stream.read(CHUNK_BYTES):
            digest.update(chunk)
    return digest.digest()
