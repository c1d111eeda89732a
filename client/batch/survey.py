"""The whole input, looked through before any work, and compared with what is done already. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from outrider.client.batch.answer import Answer
from outrider.client.batch.record import Entry, Rejection, duplicate, parse
from outrider.client.connection.errors import InvalidRequest

MAX_SHOWN = 20
"""Faulty lines that a refusal names."""

NumberedLine = tuple[int, bytes]
"""A line of the input and its number, from 1."""


@dataclass(slots=True, kw_only=True)
class Survey:
    """What the input holds. Keeps names, not records: the input is read again when it is run."""

    model: str = ""
    """Of records that name none."""

    line_by_id: dict[str, int] = field(default_factory=dict)
    """Every answer that there will be, by its id, and the line that it answers."""

    id_by_custom: dict[str, str] = field(default_factory=dict)
    """The answer of every line with a custom_id of its own, by it."""

    lines_by_duplicate: dict[str, list[int]] = field(default_factory=dict)
    """The lines of each custom_id that names several records. None of them is run: nobody could tell whose the answer is."""

    rejections: list[Rejection] = field(default_factory=list)
    """The lines that cannot be run, in their order."""

    def entries(self, lines: Iterable[NumberedLine]) -> Iterator[Entry]:
        """What each line asks for, when the input is read again.

        Raises:
            InvalidRequest: The input is not what it was.
        """
        for line, raw in lines:
            entry = parse(line, raw, model=self.model)
            if entry.custom_id in self.lines_by_duplicate:
                shared = self.lines_by_duplicate[entry.custom_id]
                entry = duplicate(line, entry.id, entry.custom_id, shared)
            if self.line_by_id.get(entry.id) != line:
                raise InvalidRequest(f"line {line} of the input has changed while it was run")
            yield entry


def survey(lines: Iterable[NumberedLine], *, model: str = "") -> Survey:
    """Looks through the input.

    Args:
        lines: All of it.
        model: Of records that name none.

    Raises:
        InvalidRequest: It holds no line.
    """
    found = Survey(model=model)
    sharing: dict[str, list[tuple[int, str]]] = {}
    rejected: dict[str, Rejection] = {}
    for line, raw in lines:
        entry = parse(line, raw, model=model)
        if entry.custom_id in found.id_by_custom:
            sharing.setdefault(entry.custom_id, []).append((line, entry.id))
            continue
        if entry.custom_id:
            found.id_by_custom[entry.custom_id] = entry.id
        found.line_by_id[entry.id] = line
        if isinstance(entry, Rejection):
            rejected[entry.id] = entry
    for custom_id, later in sharing.items():
        first_id = found.id_by_custom.pop(custom_id)
        rejected.pop(first_id, None)
        named = [(found.line_by_id.pop(first_id), first_id), *later]
        shared = found.lines_by_duplicate[custom_id] = [line for line, _ in named]
        for line, record_id in named:
            twin = duplicate(line, record_id, custom_id, shared)
            found.line_by_id[twin.id] = line
            rejected[twin.id] = twin
    if not found.line_by_id:
        raise InvalidRequest("the input holds no record")
    found.rejections = sorted(rejected.values(), key=lambda rejection: rejection.line)
    return found


def strictly(found: Survey) -> None:
    """Refuses an input with lines that cannot be run.

    Raises:
        InvalidRequest: There are some; names the first few.
    """
    if not found.rejections:
        return
    lines = [rejection.problem.message for rejection in found.rejections[:MAX_SHOWN]]
    if len(found.rejections) > MAX_SHOWN:
        lines.append(f"and {len(found.rejections) - MAX_SHOWN} more")
    raise InvalidRequest(
        f"{len(found.rejections)} lines of the input cannot be run:\n  " + "\n  ".join(lines)
    )


def done_ids(
    found: Survey, answers: Iterable[Answer], *, fingerprints: Mapping[str, str]
) -> set[str]:
    """The answers that the output holds already.

    Args:
        found: The input.
        answers: Of the output.
        fingerprints: Of the models that are served now, by name.

    Raises:
        InvalidRequest: The output is not that of this input, or of these models; an answer is there twice.
    """
    done: set[str] = set()
    for answer in answers:
        named = f"the answer to {answer.custom_id!r}" if answer.custom_id else f"answer {answer.id}"
        if answer.id in done:
            raise InvalidRequest(f"the output holds {named} twice")
        if answer.id not in found.line_by_id:
            changed = (
                answer.custom_id in found.id_by_custom
                or answer.custom_id in found.lines_by_duplicate
            )
            raise InvalidRequest(
                f"the output holds {named}, whose record "
                + ("has changed since (or --model has)" if changed else "the input does not hold")
                + "; take another output, or remove the line from this one"
            )
        is_known = not fingerprints or answer.fingerprint in fingerprints.values()
        if answer.fingerprint and not is_known:
            raise InvalidRequest(
                f"the output holds {named} by a model {answer.model!r} that is not the one that is served now (other weights, another type or "
                "tokenizer); "
                "take another output"
            )
        done.add(answer.id)
    return done
