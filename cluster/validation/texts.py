"""Text, conversations and token ids of requests, checked and turned into each other."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial

from outrider.cluster.text.text_tokenizer import TextCodec
from outrider.cluster.validation.limits import Limits
from outrider.cluster.validation.prompt import (
    check_chat,
    check_length_of_text,
    check_number_of_ids,
    check_prompt,
    check_text,
    check_token_ids,
)
from outrider.cluster.validation.refusals import invalid
from outrider.v1 import generation_pb2

LONG_TEXT = 16 * 1024
"""Characters from which tokenising happens in a thread: below it takes less than a millisecond or two, and a thread
would cost more than it saves."""


class Texts:
    """What the tokenizer does for requests; refuses what cannot be tokenised."""

    def __init__(self, codec: TextCodec | None) -> None:
        """Takes the tokenizer; None serves token ids only."""
        self._codec = codec

    async def prompt(
        self, request: generation_pb2.GenerateRequest, limits: Limits
    ) -> list[int] | tuple[int, ...]:
        """The prompt's token ids, checked."""
        match request.WhichOneof("prompt"):
            case "text":
                field = "text"
                check_text(request.text, limits)
                if not request.text:
                    raise invalid("text", "is empty: the prompt needs at least one token")
                prompt = await self._encode(request.text, field, add_special_tokens=True)
            case "chat":
                field = "chat.messages"
                prompt = await self._encode_chat(request.chat, limits)
            case "tokens":
                field = "tokens.ids"
                prompt = list(request.tokens.ids)
            case _:
                raise invalid("prompt", "is absent: set text, tokens or chat")
        check_prompt(prompt, limits, field)
        return prompt

    async def tokenize(
        self, request: generation_pb2.TokenizeRequest, limits: Limits
    ) -> generation_pb2.TokenizeResponse:
        """Turns text or a conversation into token ids."""
        match request.WhichOneof("input"):
            case "text":
                check_length_of_text(request.text)
                check_text(request.text, replace(limits, max_token_chars=None))
                special = request.add_special_tokens or not request.HasField("add_special_tokens")
                ids = await self._encode(request.text, "text", add_special_tokens=special)
            case "chat":
                ids = await self._encode_chat(request.chat, limits)
            case _:
                raise invalid("input", "is absent: set text or chat")
        return generation_pb2.TokenizeResponse(ids=ids)

    async def detokenize(
        self, request: generation_pb2.DetokenizeRequest, limits: Limits
    ) -> generation_pb2.DetokenizeResponse:
        """Turns token ids into text."""
        codec = self._codec
        check_number_of_ids(request.ids)
        check_token_ids(request.ids, limits, "ids")
        if codec is None:
            raise invalid("ids", "cannot be shown: this service has no tokenizer")
        ids = list(request.ids)
        if request.skip_special_tokens or not request.HasField("skip_special_tokens"):
            ids = [token for token in ids if token not in codec.special_ids]
        if len(ids) <= LONG_TEXT:
            return generation_pb2.DetokenizeResponse(text=codec.decode(ids))
        return generation_pb2.DetokenizeResponse(text=await asyncio.to_thread(codec.decode, ids))

    async def _encode(self, text: str, field: str, *, add_special_tokens: bool) -> list[int]:
        codec = self._codec
        assert codec is not None, "text is refused where there is no tokenizer"
        encode = partial(codec.encode, text, add_special_tokens=add_special_tokens)
        try:
            return encode() if len(text) <= LONG_TEXT else await asyncio.to_thread(encode)
        except ValueError as error:
            raise invalid(field, f"cannot be tokenised: {error}; send token ids") from error

    async def _encode_chat(self, chat: generation_pb2.ChatMessages, limits: Limits) -> list[int]:
        turns = check_chat(chat, limits)
        assert self._codec is not None, "chat is refused where there is no tokenizer"
        try:
            text = self._codec.render_chat(turns)
        except ValueError as error:
            raise invalid(
                "chat.messages", f"do not fit the model's chat template: {error}"
            ) from error
        # The template writes its own special tokens.
        return await self._encode(text, "chat.messages", add_special_tokens=False)
