"""Where a model's name leads: a table, a law, a shipped pair, a folder, or a hub."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from outrider.actors.engine.engine_settings import DEMO_PREFIX, LAW_PREFIX, TABULAR_PREFIX


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSource:
    """A resolved name."""

    location: str
    """A file for a table, the name of a law, else a folder or a hub id."""

    is_tabular: bool = False
    """Whether it is a table of distributions, a law's among them."""

    is_law: bool = False
    """Whether it is a law's table, which no file holds."""

    is_local: bool = True
    """Whether it lies on this machine."""


def resolve_model(model: str) -> ModelSource:
    """Finds what a model's name means; see `EngineSettings.model`.

    Raises:
        ValueError: The name is empty, or what it names is not there.
    """
    try:
        return _resolved(model)
    except (OSError, RuntimeError) as error:  # A name too long, a folder of others, nobody's home.
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise ValueError(f"model {model!r}: cannot be looked for: {reason}") from error


def _resolved(model: str) -> ModelSource:
    if not model:
        raise ValueError(
            "model is empty; name a folder, a hub id, tabular:FILE, law:NAME or demo:NAME"
        )
    if model.startswith(LAW_PREFIX):
        from outrider.actors.engine.tables.trigram_laws import check_law

        law = model.removeprefix(LAW_PREFIX)
        check_law(law)
        return ModelSource(location=law, is_tabular=True, is_law=True)
    if model.startswith(TABULAR_PREFIX):
        file = Path(model.removeprefix(TABULAR_PREFIX)).expanduser()
        if not file.is_file():
            raise ValueError(f"model {model!r}: there is no file {file}")
        return ModelSource(location=str(file), is_tabular=True)
    if model.startswith(DEMO_PREFIX):
        from outrider.actors import demo

        return ModelSource(location=str(demo.path(model.removeprefix(DEMO_PREFIX))))
    folder = Path(model).expanduser()
    if folder.is_dir():
        if not (folder / "config.json").is_file():
            raise ValueError(
                f"model {model!r}: the folder has no config.json; give a folder that save_pretrained wrote"
            )
        return ModelSource(location=str(folder))
    if model.startswith((".", "~", os.sep)) or model.count("/") > 1 or folder.exists():
        raise ValueError(
            f"model {model!r}: there is no such folder; give an existing one, or a hub id (owner/name)"
        )
    return ModelSource(location=model, is_local=False)
