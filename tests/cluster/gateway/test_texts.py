"""Text and token ids, over real gRPC."""

from __future__ import annotations

from collections.abc import Sequence

import grpc
import pytest
from tests.cluster.asking import (
    PROMPT,
    Start,
    ask,
    bad,
    expected,
    generate,
    refusal,
)
from tests.cluster.scripted import EOS, ByteCodec, ScriptedTarget

from outrider.v1 import generation_pb2, sampling_pb2


async def test_text_and_tokens_turn_into_each_other(start: Start) -> None:
    """Short and long text, special tokens left out or not, a conversation."""
    front = await start()
    for text in ("héllo", "x" * 40_000):
        ids = (await front.stub.Tokenize(generation_pb2.TokenizeRequest(text=text))).ids
        detokenise = generation_pb2.DetokenizeRequest(ids=ids)
        assert (await front.stub.Detokenize(detokenise)).text == text
    special = generation_pb2.DetokenizeRequest(ids=[EOS, 97])
    assert (await front.stub.Detokenize(special)).text == "a"
    special.skip_special_tokens = False
    assert (await front.stub.Detokenize(special)).text == "\x00a"
    turn = generation_pb2.ChatMessage(role="user", content="hi")
    chat = generation_pb2.TokenizeRequest(chat=generation_pb2.ChatMessages(messages=[turn]))
    assert bytes((await front.stub.Tokenize(chat)).ids) == b"user: hi\n"


async def test_a_service_without_a_tokenizer_takes_token_ids(start: Start) -> None:
    """Ids in, ids out; text is refused with a way out."""
    front = await start(codec=None)
    tokens = generation_pb2.TokenIds(ids=list(PROMPT.encode()))
    output = await generate(
        front,
        generation_pb2.GenerateRequest(
            tokens=tokens, sampling=sampling_pb2.SamplingOptions(seed=3, max_tokens=5)
        ),
    )
    assert bytes(output.ids[0]).decode() == expected(5)
    assert output.text[0] == ""
    error = await refusal(front, ask())
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "send the prompt as tokens" in (error.details() or "")


async def test_hours_of_work_are_refused(start: Start) -> None:
    """No context bounds these two calls, so the length does; the field is named and the service goes on."""
    front = await start()
    with pytest.raises(grpc.aio.AioRpcError, match="text has 1048577 characters") as long:
        await front.stub.Tokenize(generation_pb2.TokenizeRequest(text="x" * (2**20 + 1)))
    assert long.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    with pytest.raises(grpc.aio.AioRpcError, match="ids holds 1048577 tokens") as many:
        await front.stub.Detokenize(generation_pb2.DetokenizeRequest(ids=[7] * (2**20 + 1)))
    assert many.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    told = await front.stub.Tokenize(generation_pb2.TokenizeRequest(text="ab"))
    assert list(told.ids) == [97, 98]


class PickyCodec(ByteCodec):
    """Has no token for some letter."""

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        """See `TextCodec`."""
        if "q" in text:
            raise ValueError("unknown token")
        return super().encode(text, add_special_tokens=add_special_tokens)


async def test_a_text_that_the_tokenizer_refuses_is_refused_by_its_field(start: Start) -> None:
    """Short or long, as text or in a conversation, and when it is to be tokenised only."""
    front = await start(codec=PickyCodec())
    turn = generation_pb2.ChatMessage(role="user", content="q")
    chat = generation_pb2.ChatMessages(messages=[turn])
    for field, asked in (("text", bad(text="q")), ("chat.messages", bad(chat=chat))):
        error = await refusal(front, asked)
        assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert error.details() == f"{field} cannot be tokenised: unknown token; send token ids"
    with pytest.raises(grpc.aio.AioRpcError, match="text cannot be tokenised") as long:
        await front.stub.Tokenize(generation_pb2.TokenizeRequest(text="q" * 40_000))
    assert long.value.code() is grpc.StatusCode.INVALID_ARGUMENT


class WordsCodec(ByteCodec):
    """Takes the space off the first word of what it decodes, as decoders of SentencePiece do."""

    def decode(self, ids: Sequence[int]) -> str:
        """See `TextCodec`."""
        return super().decode(ids).removeprefix(" ")


async def test_a_text_goes_on_with_its_space(start: Start, target: ScriptedTarget) -> None:
    """Prompt and output are one text if the prompt is text; an answer in a conversation, or to tokens, begins by itself."""
    target.script.token = lambda prompt, seed, position: b" a"[position % 2]
    front = await start(codec=WordsCodec())
    sampling = sampling_pb2.SamplingOptions(max_tokens=4, seed=1)
    request = generation_pb2.GenerateRequest(text="once", sampling=sampling)
    assert (await generate(front, request)).text[0] == " a a"
    request.sampling.stop.append(" a")
    stopped = await generate(front, request)
    assert stopped.text.get(0, "") == ""
    assert stopped.completions[0].stop == " a"

    turn = generation_pb2.ChatMessage(role="user", content="once")
    chat = generation_pb2.ChatMessages(messages=[turn])
    asked = generation_pb2.GenerateRequest(chat=chat, sampling=sampling)
    assert (await generate(front, asked)).text[0] == "a a"
    tokens = generation_pb2.TokenIds(ids=list(b"once"))
    asked = generation_pb2.GenerateRequest(tokens=tokens, sampling=sampling)
    assert (await generate(front, asked)).text[0] == "a a"
