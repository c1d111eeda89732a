"""Files of models on a hub, through `huggingface_hub`: those in its cache that are current, else downloaded.

Where the hub does not answer, what the cache has counts. `HF_ENDPOINT`, `HF_HOME`, `HF_TOKEN` and `HF_HUB_OFFLINE` are heeded as in transformers.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from outrider.actors.engine.checkpoint.model_source import resolve_model

CONFIG = "config.json"


def hub_folder(model_id: str, patterns: Sequence[str]) -> Path:
    """The folder of the cache that has files of a model.

    Args:
        model_id: As owner/name.
        patterns: Names of the files that are wanted, as far as the hub has them.

    Raises:
        ValueError: The hub has no such model, keeps it from us or does not answer, and the cache has nothing.
    """
    from huggingface_hub import snapshot_download
    from huggingface_hub.utils.tqdm import (
        are_progress_bars_disabled,
        disable_progress_bars,
        enable_progress_bars,
    )

    draws = not are_progress_bars_disabled()
    disable_progress_bars()
    try:
        # Downloads of single files would try for half a minute to reach a hub that is not there.
        return Path(snapshot_download(model_id, allow_patterns=list(patterns)))
    # Errors of the network are those of whatever library it goes through.
    except Exception as error:
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        raise ValueError(
            f"model {model_id!r}: is the hub id right, and can the hub be reached? ({reason})"
        ) from error
    finally:
        if draws:
            enable_progress_bars()


@lru_cache(maxsize=64)
def hub_config(model_id: str) -> Path | None:
    """The folder of the cache with the `config.json` of a model; None: it is not to be had. Looked for once in a process."""
    try:
        folder = hub_folder(model_id, (CONFIG,))
    except ValueError:
        return None
    return folder if (folder / CONFIG).is_file() else None


def unseen(model: str) -> str | None:
    """That a model's `config.json` cannot be looked at from here, and why, in a sentence; None: it can, or a table has none."""
    try:
        source = resolve_model(model)
        if not source.is_local and hub_config(source.location) is None:
            hub_folder(source.location, (CONFIG,))
            raise ValueError(f"model {model!r}: the hub has no {CONFIG} of it")
    except ValueError as error:
        return f"not looked at: {error}"
    return None
