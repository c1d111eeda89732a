"""What several tests of this folder serve: a table as target, a table near it and prompt lookup as drafters."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import yaml
from tests.service.head import Head, ray_head

from outrider.actors.engine.tables.tabular_engine import Table, random_table

VOCAB_SIZE = 64

MAX_CONTEXT = 60_000
"""Of the target. Texts of that length take many seconds: they hold their slots for as long as a test wants."""


def save_tables(folder: Path) -> tuple[Path, Path]:
    """A target of few likely tokens, and a drafter that is often right and often wrong."""
    target = random_table(VOCAB_SIZE, 2, seed=1, concentration=0.05)
    other = random_table(VOCAB_SIZE, 2, seed=2, concentration=0.05)
    mixed = 0.7 * np.exp(target.log_probs) + 0.3 * np.exp(other.log_probs)
    with np.errstate(divide="ignore"):
        log_probs = np.log(mixed / mixed.sum(axis=-1, keepdims=True)).astype(np.float32)
    target.save(folder / "target.npz")
    Table(log_probs=log_probs).save(folder / "draft.npz")
    return folder / "target.npz", folder / "draft.npz"


def write_config(folder: Path) -> Path:
    """The configuration of the service."""
    target, draft = save_tables(folder)
    config = {
        "service": {"listen": "127.0.0.1:0", "metrics": "127.0.0.1:0"},
        "cluster": {"lease_s": 5.0, "drain_s": 2.0, "restarts": {"backoff_s": 0.1}},
        "targets": [
            {
                "name": "table",
                "model": f"tabular:{target}",
                "num_slots": 4,
                "max_context": MAX_CONTEXT,
            }
        ],
        "drafters": [
            {"name": "near", "model": f"tabular:{draft}", "num_slots": 4},
            {"method": "prompt_lookup", "num_slots": 4},
        ],
    }
    file = folder / "service.yaml"
    file.write_text(yaml.safe_dump(config))
    return file


@pytest.fixture(scope="module")
def head() -> Iterator[Head]:
    """A Ray cluster of one node with a job server; ended with the module."""
    with ray_head() as made:
        yield made
