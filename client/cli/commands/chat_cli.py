"""`outrider chat`: a conversation in the terminal."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from outrider.client.blocking import Client
from outrider.client.cli.shared import flags
from outrider.client.cli.shared.exits import failure_of, tell, usage_error
from outrider.client.cli.shared.printing import TextWriter, summary_line, token_texts
from outrider.client.cli.shared.service_options import ServiceAddress, connecting
from outrider.client.connection.errors import OutriderError
from outrider.client.messages.request_options import Message, SamplingOptions, SpeculationOptions
from outrider.client.messages.results import Admission, Completion, TextChunk

_HELP = "/exit ends, /reset forgets the conversation; Ctrl-C stops an answer."


@connecting
@flags.request_options(
    sampling=(
        "temperature",
        "top_p",
        "top_k",
        "min_p",
        "repetition_penalty",
        "presence_penalty",
        "frequency_penalty",
        "seed",
        "max_tokens",
        "stop",
    ),
    speculation=("enabled", "drafters"),
)
def chat(
    service: ServiceAddress,
    sampling: SamplingOptions,
    speculation: SpeculationOptions,
    model: flags.Model = "",
    system: Annotated[str | None, typer.Option("--system", help="A system message.")] = None,
    timeout_s: flags.TimeoutS = flags.TIMEOUT_DEFAULT,
    show_origin: Annotated[
        bool, typer.Option("--show-origin", help="Colour the text by who proposed each token.")
    ] = False,
    stats: Annotated[
        bool, typer.Option("--stats", help="Say after each answer what speculation did.")
    ] = False,
) -> None:
    """Talk with a model. /exit ends, /reset forgets the conversation; Ctrl-C stops an answer."""
    with service.client(timeout_s=timeout_s) as client:
        conversation = Conversation(
            client,
            model=model,
            system=system,
            sampling=sampling,
            speculation=speculation,
            show_origin=show_origin,
            stats=stats,
        )
        talk(conversation)


class Conversation:
    """The turns so far, and how to get the next."""

    def __init__(
        self,
        client: Client,
        *,
        model: str,
        system: str | None,
        sampling: SamplingOptions,
        speculation: SpeculationOptions,
        show_origin: bool,
        stats: bool,
    ) -> None:
        self._client = client
        self._model = model
        self._beginning = [Message("system", system)] if system is not None else []
        self._sampling = sampling
        self._speculation = speculation
        self._show_origin = show_origin
        self._stats = stats
        self.turns = list(self._beginning)

    def reset(self) -> None:
        """Forgets all but the system message."""
        self.turns = list(self._beginning)

    def answer(self, text: str) -> None:
        """Sends a user's turn and writes the answer as it comes.

        An answer stopped by Ctrl-C stays as far as it came; a failed one leaves the conversation as it was.

        Raises:
            OutriderError: The request failed.
        """
        asked = [*self.turns, Message("user", text)]
        said: list[str] = []
        writer = TextWriter(token_texts(self._client, self._model) if self._show_origin else None)
        stream = self._client.stream(
            messages=asked,
            model=self._model,
            sampling=self._sampling,
            speculation=self._speculation,
        )
        try:
            with stream:
                for event in stream:
                    match event:
                        case Admission():
                            writer.admit(event)
                        case TextChunk():
                            said.append(event.text)
                            writer.write(event)
                        case Completion() if self._stats:
                            print(
                                f"\n[{summary_line(event, emulated=writer.emulated)}]",
                                end="",
                                file=sys.stderr,
                            )
        except KeyboardInterrupt:
            print(" [stopped]", end="", file=sys.stderr)
        finally:
            print(flush=True)
        self.turns = [*asked, Message("assistant", "".join(said))]


def talk(conversation: Conversation) -> None:
    """Reads turns until the end of input or /exit.

    Raises:
        OutriderError: A request failed, and nobody is there to see it.
        CommandFailure: A line is not text.
    """
    is_interactive = sys.stdin.isatty()
    if is_interactive:
        print(_HELP, file=sys.stderr)
    while True:
        try:
            line = input("> " if is_interactive else "").strip()
            # Where the locale is not UTF-8, Python reads what is no text as halves of characters.
            line.encode()
        except EOFError:
            return
        except UnicodeError as error:
            raise usage_error(f"the line is not UTF-8: {error}") from None
        match line:
            case "":
                continue
            case "/exit" | "/quit":
                return
            case "/reset":
                conversation.reset()
            case "/help":
                print(_HELP, file=sys.stderr)
            case _:
                try:
                    conversation.answer(line)
                except OutriderError as error:
                    if not is_interactive:
                        raise
                    tell(failure_of(error), as_json=False)
