"""A sample of a batch, run again plainly: whether texts are the same, and how much faster speculation was.

The sample is decoded by speculation again too, in turns with plain decoding and as many at once, so that both have the
same load. Times of the batch itself would have been taken under another.
"""

from __future__ import annotations

import asyncio
import heapq
import time
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass

from outrider.client.async_client import AsyncClient
from outrider.client.batch.answer import Answer
from outrider.client.batch.batch_run import ask
from outrider.client.batch.record import BatchRecord, Entry
from outrider.client.measuring.figures import RequestSample, compare, total_stats
from outrider.client.messages.request_options import SAME_TEXT


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """Plain against speculative decoding of a sample."""

    records: int
    equal: int
    """Records of which the text in the output is that of plain decoding."""

    near_tie: tuple[str, ...]
    """By custom_id, those with another text and a draw so close that rounding can explain it."""

    different: tuple[str, ...]
    """By custom_id, those with another text and no such draw."""

    plain_tokens_per_s: float
    tokens_per_s: float
    speed_up: float
    """Tokens a second, speculative over plain."""

    speed_up_by_category: dict[str, float]
    """Of the time that records took, plain over speculative."""

    def as_dict(self) -> dict[str, object]:
        """For programs."""
        return asdict(self)


def is_comparable(record: BatchRecord) -> bool:
    """True if plain decoding must give the record's text, and is another way of decoding it."""
    return record.speculation.verifier in SAME_TEXT and record.speculation.enabled is not False


def sample(entries: Iterable[Entry], succeeded: Container[str], count: int) -> list[BatchRecord]:
    """Some records that can be compared, the same ones each time: ids are digests, and their order is as good as chance.

    Args:
        entries: Of the input.
        succeeded: The ids to choose from.
        count: How many.
    """
    fit = (
        entry
        for entry in entries
        if isinstance(entry, BatchRecord) and entry.id in succeeded and is_comparable(entry)
    )
    return heapq.nsmallest(count, fit, key=lambda record: record.id)


async def measure_baseline(
    client: AsyncClient,
    records: Sequence[BatchRecord],
    answers: Mapping[str, Answer],
    *,
    concurrency: int,
) -> Baseline:
    """Decodes each record plainly and by speculation.

    Args:
        client: What to send through.
        records: The sample, at least one.
        answers: What the output says of them, by id.
        concurrency: How many run at once.

    Raises:
        OutriderError: A request failed.
    """
    samples: dict[bool, list[RequestSample]] = {True: [], False: []}
    wall_s = {True: 0.0, False: 0.0}
    texts: dict[str, tuple[str, ...]] = {}
    for turn, start in enumerate(range(0, len(records), concurrency)):
        chunk = records[start : start + concurrency]
        for is_plain in (True, False) if turn % 2 == 0 else (False, True):
            began_s = time.perf_counter()
            results = await asyncio.gather(
                *(
                    _measure(
                        client,
                        start + place,
                        record,
                        model_fingerprint=answers[record.id].fingerprint,
                        is_plain=is_plain,
                    )
                    for place, record in enumerate(chunk)
                )
            )
            wall_s[is_plain] += time.perf_counter() - began_s
            samples[is_plain] += [measured for measured, _ in results]
            if is_plain:
                texts |= {record.id: said for record, (_, said) in zip(chunk, results, strict=True)}
    equal, near_tie, different = 0, [], []
    for record, plain in zip(records, samples[True], strict=True):
        answer = answers[record.id]
        if answer.texts == texts[record.id]:
            equal += 1
        elif answer.stats.near_ties or plain.stats.near_ties:
            near_tie.append(record.custom_id)
        else:
            different.append(record.custom_id)
    comparison = compare(
        samples[True], samples[False], plain_wall_s=wall_s[True], speculative_wall_s=wall_s[False]
    )
    tokens = {kind: sum(len(one.token_ids) for one in samples[kind]) for kind in samples}
    return Baseline(
        records=len(records),
        equal=equal,
        near_tie=tuple(near_tie),
        different=tuple(different),
        plain_tokens_per_s=tokens[True] / wall_s[True],
        tokens_per_s=tokens[False] / wall_s[False],
        speed_up=comparison.speed_up,
        speed_up_by_category=comparison.speed_up_by_category,
    )


async def _measure(
    client: AsyncClient, place: int, record: BatchRecord, *, model_fingerprint: str, is_plain: bool
) -> tuple[RequestSample, tuple[str, ...]]:
    """Decodes one record, and takes its time."""
    began_s = time.perf_counter()
    generation = await ask(client, record, model_fingerprint=model_fingerprint, is_plain=is_plain)
    total_s = time.perf_counter() - began_s
    measured = RequestSample(
        prompt=place,
        category=record.category,
        seed=record.sampling.seed or 0,
        token_ids=tuple(token for output in generation.outputs for token in output.token_ids),
        first_token_s=min(output.completion.timing.first_token_s for output in generation.outputs),
        total_s=total_s,
        token_s=None,
        stats=total_stats([output.completion.speculation for output in generation.outputs]),
    )
    return measured, tuple(output.text for output in generation.outputs)
