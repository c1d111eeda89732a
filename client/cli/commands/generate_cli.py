"""`outrider generate`: one prompt, its continuation."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import Annotated

import typer

from outrider.client.blocking_stream import GenerationStream
from outrider.client.cli.shared import flags
from outrider.client.cli.shared.exits import usage_error
from outrider.client.cli.shared.printing import (
    TextWriter,
    event_as_dict,
    print_json,
    printable,
    summary_line,
    token_texts,
)
from outrider.client.cli.shared.service_options import ServiceAddress, connecting
from outrider.client.connection.errors import InvalidRequest
from outrider.client.connection.wanted import shown
from outrider.client.messages.collect import ResultCollector
from outrider.client.messages.request_options import Message, SamplingOptions, SpeculationOptions
from outrider.client.messages.results import Admission, Completion, Generation, TextChunk


@connecting
@flags.request_options()
def generate(
    service: ServiceAddress,
    sampling: SamplingOptions,
    speculation: SpeculationOptions,
    prompt: Annotated[
        str | None, typer.Argument(help="The prompt; read from stdin if left out, or '-'.")
    ] = None,
    model: flags.Model = "",
    chat: Annotated[
        bool, typer.Option("--chat", help="The prompt is a user's message, not a text to continue.")
    ] = False,
    system: Annotated[
        str | None, typer.Option("--system", help="A system message; implies --chat.")
    ] = None,
    tokens: Annotated[
        str | None, typer.Option("--tokens", metavar="ID,ID,...", help="A prompt of token ids.")
    ] = None,
    request_id: Annotated[
        str | None, typer.Option("--request-id", help="Names the request. Default: a fresh name.")
    ] = None,
    timeout_s: flags.TimeoutS = flags.TIMEOUT_DEFAULT,
    show_origin: Annotated[
        bool, typer.Option("--show-origin", help="Colour the text by who proposed each token.")
    ] = False,
    stats: Annotated[
        bool, typer.Option("--stats", help="Say on stderr what speculation did.")
    ] = False,
    as_json: flags.AsJson = False,
    as_stream: Annotated[
        bool, typer.Option("--stream", help="With --json: one object an event, as they come.")
    ] = False,
) -> None:
    """Continue a text, or answer a message, and print the text as it comes."""
    if tokens is not None and (prompt is not None or chat or system is not None):
        raise usage_error(
            "--tokens is a prompt of its own; leave out the prompt, --chat and --system"
        )
    if as_stream and not as_json:
        raise usage_error("--stream goes with --json; text is always streamed")
    text = None if tokens is not None else read_prompt(prompt)
    is_chat = chat or system is not None
    turns = [Message("system", system)] if system is not None else []
    if is_chat and text is not None:
        turns.append(Message("user", text))
    with (
        service.client(timeout_s=timeout_s) as client,
        client.stream(
            None if is_chat else text,
            messages=turns if is_chat else None,
            tokens=parse_tokens(tokens) if tokens is not None else None,
            model=model,
            sampling=sampling,
            speculation=speculation,
            request_id=request_id,
        ) as stream,
    ):
        if as_json and as_stream:
            for event in stream:
                print_json(event_as_dict(event))
        elif as_json:
            print_json(asdict(collect(stream)))
        elif (sampling.n or 1) > 1:
            print_sequences(collect(stream), stats=stats)
        else:
            writer = TextWriter(token_texts(client, model) if show_origin else None)
            print_stream(stream, writer, stats=stats)


def read_prompt(argument: str | None) -> str:
    """The prompt, from the command line or from stdin.

    Raises:
        CommandFailure: There is none, or it is not text.
    """
    if argument not in (None, "-"):
        assert argument is not None
        return argument
    if argument is None and sys.stdin.isatty():
        raise usage_error("a prompt is needed: as an argument, or on stdin")
    try:
        return sys.stdin.buffer.read().decode()
    except UnicodeDecodeError as error:
        raise usage_error(f"the prompt on stdin is not UTF-8: {error}") from None


def parse_tokens(ids: str) -> list[int]:
    """Token ids from a list with commas.

    Raises:
        InvalidRequest: An entry is not a number.
    """
    try:
        return [int(token) for token in ids.split(",")]
    except ValueError:
        raise InvalidRequest(
            f"--tokens {shown(ids)} is not a list of token ids, for instance 12,7,80",
            field="tokens",
        ) from None


def collect(stream: GenerationStream) -> Generation:
    """The whole result of a stream."""
    collector = ResultCollector()
    for event in stream:
        collector.add(event)
    return collector.result(resumes=stream.resumes)


def print_stream(stream: GenerationStream, writer: TextWriter, *, stats: bool) -> None:
    """Writes text as it comes. Its line ends, too, where an error ends it."""
    is_amid = False
    try:
        for event in stream:
            match event:
                case Admission():
                    writer.admit(event)
                case TextChunk():
                    writer.write(event)
                    is_amid = True
                case Completion():
                    print(flush=True)
                    is_amid = False
                    if stats:
                        print(summary_line(event, emulated=writer.emulated), file=sys.stderr)
    finally:
        if is_amid:
            print(flush=True)


def print_sequences(result: Generation, *, stats: bool) -> None:
    """Writes several sequences, one after the other."""
    for output in result.outputs:
        print(f"--- {output.index + 1} of {len(result.outputs)} ---")
        print(printable(output.text) if sys.stdout.isatty() else output.text, flush=True)
        if stats:
            print(
                summary_line(output.completion, emulated=result.admission.emulated), file=sys.stderr
            )
