"""Tokenizers, by the same names as engines, and digests to compare them."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

from outrider.actors.engine.checkpoint.model_source import resolve_model

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

COMPARED_PARTS = ("normalizer", "pre_tokenizer", "model")
"""Parts of a tokenizer that decide, with its added tokens, which ids a text gets; the others frame or decode."""


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
    except Exception as error:  # The library of tokenizers raises nothing more special.
        raise ValueError(
            f"model {model!r}: its tokenizer cannot be loaded: {error}; "
            "save the tokenizer beside the model"
        ) from error
    return tokenizer


def tokenizer_fingerprint(tokenizer: PreTrainedTokenizerBase) -> str:
    """Digest of what decides a text's token ids: vocabulary, merges, normalisation, added tokens.

    Equal for equal tokenizers wherever they were saved. Chat templates, paths, and which token ends a text, fills up or stands for another
    role do not count: a model and one that was fine-tuned from it read a text alike.
    """
    backend: Any = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        vocabulary = sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])
        # A text is cut at special tokens first, whatever their role.
        special = sorted({*tokenizer.all_special_tokens})
        return hashlib.sha256(json.dumps([special, vocabulary]).encode()).hexdigest()
    added = sorted(
        (token, text.__getstate__()) for token, text in backend.get_added_tokens_decoder().items()
    )
    digest = hashlib.sha256(json.dumps(added).encode())
    for part in COMPARED_PARTS:
        found = getattr(backend, part)
        # The part as JSON, vocabulary and merges in order. Parsing all of it to pick it apart takes a second per 100,000 tokens.
        digest.update(b"" if found is None else found.__getstate__())
        digest.update(b"\0")
    return digest.hexdigest()
