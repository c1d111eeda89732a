"""Tokenizers, by the same names as engines, and digests to compare them."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

from outrider.actors.engine.source import resolve_model

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

COMPARED_PARTS = ("normalizer", "pre_tokenizer", "model", "added_tokens")
"""Parts of a tokenizer's definition that decide which ids a text gets; the others frame or decode."""


def load_tokenizer(
    model: str, *, allow_remote_code: bool = False
) -> PreTrainedTokenizerBase | None:
    """Loads a model's tokenizer.

    Args:
        model: As `EngineSettings.model`.
        allow_remote_code: Runs code from the model's repository.

    Returns:
        The tokenizer; None for a table of distributions, which has none.

    Raises:
        ValueError: The name leads nowhere, or there is no tokenizer.
    """
    source = resolve_model(model)
    if source.is_tabular:
        return None
    from transformers import AutoTokenizer

    try:
        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(
            source.location, trust_remote_code=allow_remote_code
        )
    except (AttributeError, ImportError, KeyError, OSError, TypeError, ValueError) as error:
        raise ValueError(
            f"model {model!r}: its tokenizer cannot be loaded: {error}; "
            "save the tokenizer beside the model"
        ) from error
    return tokenizer


def tokenizer_fingerprint(tokenizer: PreTrainedTokenizerBase) -> str:
    """Digest of what decides a text's token ids: vocabulary, merges, normalisation, special tokens.

    Equal for equal tokenizers wherever they were saved. Chat templates, padding and paths do not count.
    """
    definition: dict[str, Any] = {
        "vocabulary": sorted(tokenizer.get_vocab().items(), key=lambda item: item[1]),
        "special_tokens": sorted(
            zip(tokenizer.all_special_ids, tokenizer.all_special_tokens, strict=True)
        ),
    }
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is not None:
        parts = json.loads(backend.to_str())
        definition["parts"] = {part: parts.get(part) for part in COMPARED_PARTS}
    text = json.dumps(definition, sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()
