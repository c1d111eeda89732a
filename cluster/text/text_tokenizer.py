"""The model's tokenizer as the coordinator uses it: text and chat to ids, ids to text. Laws have none: each of their tokens is one character.

Loading takes seconds (transformers); everything else is quick and may be called from any thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, cast

from outrider.actors.engine.engine_settings import LAW_PREFIX
from outrider.actors.engine.tables.trigram_laws import VOCAB_SIZE
from outrider.cluster.text.byte_tokens import ByteTokens, NamedTokens

NORMALISED = 8
"""Characters of a text that a normaliser makes one of, at most: composition (NFC, NFKC) joins up to four."""

END_OF_LINE = VOCAB_SIZE - 1
"""Token id of the end of a line; those below are the printable ASCII characters, the space first."""

UNKNOWN = ord("?") - ord(" ")
"""Token id of every other character."""


class TextCodec(Protocol):
    """What the coordinator needs of a tokenizer."""

    special_ids: frozenset[int]
    """Token ids that have no text."""

    has_chat_template: bool
    """Whether `render_chat` works."""

    max_token_chars: int | None
    """Characters that one token can stand for, at most; None if that is not known."""

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        """Token ids of a text.

        Raises:
            ValueError: It holds what the tokenizer has no token for.
        """
        ...

    def decode(self, ids: Sequence[int]) -> str:
        """Text of token ids, special tokens included; bytes that are not UTF-8 become U+FFFD."""
        ...

    def render_chat(self, turns: Sequence[tuple[str, str]]) -> str:
        """Text of a conversation of (role, content), up to where the answer starts.

        Raises:
            ValueError: The chat template refuses the conversation, or fails on it.
        """
        ...


class _AddedToken(Protocol):
    """The part of `tokenizers.AddedToken` that is used."""

    special: bool


class _FastTokenizer(NamedTokens, Protocol):
    """The part of `tokenizers.Tokenizer` that is used."""

    normalizer: object | None

    def decode(self, ids: Sequence[int], skip_special_tokens: bool) -> str: ...

    def get_vocab(self, with_added_tokens: bool) -> dict[str, int]: ...

    def get_added_tokens_decoder(self) -> dict[int, _AddedToken]: ...


class _PretrainedTokenizer(Protocol):
    """The part of a transformers tokenizer that is used."""

    all_special_ids: list[int]
    chat_template: str | None
    backend_tokenizer: _FastTokenizer

    def __len__(self) -> int: ...

    def encode(self, text: str, add_special_tokens: bool, verbose: bool) -> list[int]: ...

    def decode(
        self, ids: Sequence[int], skip_special_tokens: bool, clean_up_tokenization_spaces: bool
    ) -> str: ...

    def apply_chat_template(
        self, conversation: list[dict[str, str]], tokenize: bool, add_generation_prompt: bool
    ) -> str: ...


class PretrainedCodec:
    """A transformers tokenizer as a `TextCodec`."""

    def __init__(self, tokenizer: _PretrainedTokenizer) -> None:
        self._tokenizer = tokenizer
        # The Rust tokenizer decodes a few tokens in microseconds; the wrapper around it takes ten times that.
        self._fast: _FastTokenizer | None = getattr(tokenizer, "backend_tokenizer", None)
        self._bytes = ByteTokens(self._fast) if self._fast is not None else None
        self._num_tokens = len(tokenizer)
        self.special_ids = frozenset(tokenizer.all_special_ids).union(self._marked_special())
        self.has_chat_template = bool(tokenizer.chat_template)
        self.max_token_chars = self._longest_token()

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        """Token ids of a text."""
        try:
            # Not verbose: a text that is too long is refused; it need not be warned of in the log as well.
            return self._tokenizer.encode(
                text, add_special_tokens=add_special_tokens, verbose=False
            )
        except Exception as error:  # The Rust library raises no more than that.
            raise ValueError(str(error)) from error

    def decode(self, ids: Sequence[int]) -> str:
        """Text of token ids, special tokens included; bytes that are not UTF-8 become U+FFFD."""
        if self._bytes is not None and self._bytes.are_in(ids):
            return self._bytes.decode(ids)
        if self._fast is not None:
            return self._fast.decode(ids, skip_special_tokens=False)
        # Without Rust, tokenizers fail on ids that they lack, and models are often wider.
        known = [token for token in ids if token < self._num_tokens]
        return self._tokenizer.decode(
            known, skip_special_tokens=False, clean_up_tokenization_spaces=False
        )

    def render_chat(self, turns: Sequence[tuple[str, str]]) -> str:
        """Text of a conversation, by the tokenizer's own template, which runs in a sandbox."""
        conversation = [{"role": role, "content": content} for role, content in turns]
        try:
            return self._tokenizer.apply_chat_template(
                conversation, tokenize=False, add_generation_prompt=True
            )
        except Exception as error:  # A template is a program, which may fail in any way.
            raise ValueError(str(error) or type(error).__name__) from error

    def _marked_special(self) -> set[int]:
        """Tokens that are special although none has a name such as end of text: turns and headers of a chat."""
        if self._fast is None:
            return set()
        added = self._fast.get_added_tokens_decoder()
        return {token for token, marked in added.items() if marked.special}

    def _longest_token(self) -> int | None:
        """Characters that the longest token can stand for; more where a normaliser shortens the text before it is cut."""
        if self._fast is None:
            return None
        longest = max(map(len, self._fast.get_vocab(with_added_tokens=True)), default=None)
        if longest is None or self._fast.normalizer is None:
            return longest
        return longest * NORMALISED


class LawCodec:
    """A `TextCodec` of characters, for laws (`actors/engine/tables/trigram_laws.py`)."""

    special_ids: frozenset[int] = frozenset()
    has_chat_template = True
    max_token_chars: int | None = 1

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        """Token ids of a text."""
        return [_token(char) for char in text]

    def decode(self, ids: Sequence[int]) -> str:
        """Text of token ids."""
        return "".join("\n" if token == END_OF_LINE else chr(ord(" ") + token) for token in ids)

    def render_chat(self, turns: Sequence[tuple[str, str]]) -> str:
        """Text of a conversation: a line for each turn."""
        return "".join(f"{role}: {content}\n" for role, content in turns) + "assistant: "


def _token(char: str) -> int:
    if char == "\n":
        return END_OF_LINE
    return ord(char) - ord(" ") if " " <= char <= "~" else UNKNOWN


def load(path_or_id: str, *, allow_remote_code: bool = False) -> TextCodec:
    """Loads a tokenizer.

    Args:
        path_or_id: Folder or hub id, or `law:NAME`, whose tokens are characters.
        allow_remote_code: Runs code that comes with it, as the actors of its model do.

    Raises:
        ValueError: There is no tokenizer that can be loaded.
    """
    if path_or_id.startswith(LAW_PREFIX):
        return LawCodec()
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(path_or_id, trust_remote_code=allow_remote_code)
    except (AttributeError, ImportError, KeyError, OSError, TypeError, ValueError) as error:
        advice = "save the tokenizer (tokenizer.json) beside the model"
        if "trust_remote_code" in str(error):
            advice = "set allow_remote_code of the target if you trust that code"
        raise ValueError(
            f"cannot load a tokenizer from {path_or_id!r}: {str(error).partition(chr(10))[0]}; {advice}"
        ) from error
    return PretrainedCodec(cast(_PretrainedTokenizer, tokenizer))
