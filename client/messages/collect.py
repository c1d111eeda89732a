"""Gathers the events of a stream into one whole result. Pure."""

from __future__ import annotations

from outrider.client.connection.errors import ServiceError
from outrider.client.messages.results import (
    Admission,
    Completion,
    Event,
    Generation,
    Output,
    TextChunk,
    Token,
)


class ResultCollector:
    """Takes the events of one stream, in order."""

    def __init__(self) -> None:
        self._admission: Admission | None = None
        self._texts: dict[int, list[str]] = {}
        self._tokens: dict[int, list[Token]] = {}
        self._completions: dict[int, Completion] = {}

    def add(self, event: Event) -> None:
        """Takes one event."""
        match event:
            case Admission():
                self._admission = event
            case TextChunk():
                self._texts.setdefault(event.index, []).append(event.text)
                self._tokens.setdefault(event.index, []).extend(event.tokens)
            case Completion():
                self._completions[event.index] = event

    def result(self, *, resumes: int) -> Generation:
        """The whole result.

        Args:
            resumes: How often the stream was taken up again.

        Raises:
            ServiceError: The stream held no admission or no completion.
        """
        if self._admission is None or not self._completions:
            raise ServiceError("the stream ended without an admission and a completion")
        return Generation(
            admission=self._admission,
            outputs=tuple(
                Output(
                    index=index,
                    text="".join(self._texts.get(index, ())),
                    tokens=tuple(self._tokens.get(index, ())),
                    completion=completion,
                )
                for index, completion in sorted(self._completions.items())
            ),
            resumes=resumes,
        )
