"""transformers on the same weights, prompts and threads: `generate` plain, assisted, with prompt lookup, and in batches.

A process of its own (`python -m bench.ideals.baseline`, a `bench.running.child`), so that nothing of the service shares its memory or
threads. Greedy outputs must be ours, token for token; when sampling, its draws are its own.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

import torch
from transformers import AutoModelForCausalLM, GenerationConfig

MODES = ("plain", "assisted", "prompt_lookup")
"""Ways of `generate`."""

LOOKUP_TOKENS = 4
"""Tokens that prompt lookup copies at a time. Its documentation shows 10; on a CPU fewer are faster."""

PAGE = 32
"""Tokens in a page of the paged cache. Its default of 256 would read mostly padding at these lengths."""

ANSWER_S = 60.0
"""Silence of continuous batching after which it counts as stuck."""


class Baseline:
    """Both models, loaded once."""

    def __init__(self, target: str, draft: str) -> None:
        self._target = _load(target)
        self._draft = _load(draft)

    def generate(self, order: dict[str, Any]) -> dict[str, Any]:
        """Decodes the prompts one after another.

        Args:
            order: `mode`, `threads`, `temperature`, `max_tokens` and `prompts` as token ids.

        Returns:
            `tokens_per_s`, and `tokens` of each prompt.
        """
        torch.set_num_threads(order["threads"])
        modes: dict[str, dict[str, Any]] = {
            "plain": {},
            "assisted": {"assistant_model": self._draft},
            "prompt_lookup": {"prompt_lookup_num_tokens": LOOKUP_TOKENS},
        }
        options = {**_sampling(order["temperature"]), **modes[order["mode"]]}
        seconds, texts = 0.0, []
        for number, ids in enumerate(order["prompts"]):
            torch.manual_seed(number)
            inputs = torch.tensor([ids])
            began = time.perf_counter()
            with torch.inference_mode():
                output = self._target.generate(
                    inputs,
                    attention_mask=torch.ones_like(inputs),
                    max_new_tokens=order["max_tokens"],
                    **options,
                )
            seconds += time.perf_counter() - began
            texts.append(output[0, len(ids) :].tolist())
        return {"tokens_per_s": sum(map(len, texts)) / seconds, "tokens": texts}

    def continuous(self, order: dict[str, Any]) -> dict[str, Any]:
        """Decodes the prompts with continuous batching, so many at once.

        Args:
            order: `concurrency`, `threads`, `prompts`, and `lengths`, the tokens that each gets.

        Returns:
            `tokens_per_s`, `tokens` of each prompt, `first_token_s` and `token_s` of each request; or `unavailable`, why it
            does not run here.
        """
        torch.set_num_threads(order["threads"])
        try:
            return self._continuous(order)
        except Exception as error:  # noqa: BLE001 - whatever it is, the suite goes on and says so
            return {"unavailable": f"{type(error).__name__}: {error}"}

    def _continuous(self, order: dict[str, Any]) -> dict[str, Any]:
        from transformers.generation.configuration_utils import ContinuousBatchingConfig

        prompts, lengths = order["prompts"], order["lengths"]
        concurrency = order["concurrency"]
        pages = -(-(max(map(len, prompts)) + max(lengths)) // PAGE) + 1
        config = ContinuousBatchingConfig(
            page_size=PAGE,
            num_blocks=pages * concurrency,
            max_batch_tokens=256,
            max_requests_per_batch=concurrency,
            auto_switch_to_flash=False,
        )
        generation = GenerationConfig(  # type: ignore[no-untyped-call]
            do_sample=False, eos_token_id=-1, pad_token_id=0, max_new_tokens=max(lengths)
        )
        began_s: dict[str, float] = {}
        numbers: dict[str, int] = {}
        results: dict[int, Any] = {}
        waiting = iter(enumerate(prompts))
        with self._target.continuous_batching_context_manager(
            generation_config=generation, continuous_batching_config=config, timeout=10
        ) as manager:

            def add_next() -> None:
                number, ids = next(waiting, (-1, []))
                if number < 0:
                    return
                name = f"request-{number}"
                numbers[name], began_s[name] = number, time.perf_counter()
                manager.add_request(
                    ids, request_id=name, max_new_tokens=lengths[number], record_timestamps=True
                )

            started = time.perf_counter()
            for _ in range(concurrency):
                add_next()
            while len(results) < len(prompts):
                result = manager.get_result(timeout=ANSWER_S)
                if result is None:
                    raise TimeoutError(
                        f"no result within {ANSWER_S:g} s, {len(results)} of {len(prompts)} requests are done"
                    )
                if result.error:
                    raise RuntimeError(str(result.error))
                if result.is_finished():
                    results[numbers[result.request_id]] = result
                    add_next()
            wall_s = time.perf_counter() - started
        ordered = [results[number] for number in range(len(prompts))]
        tokens = [list(result.generated_tokens) for result in ordered]
        return {
            "tokens_per_s": sum(map(len, tokens)) / wall_s,
            "tokens": tokens,
            "first_token_s": [r.timestamps[0] - began_s[r.request_id] for r in ordered],
            "token_s": [
                (r.timestamps[-1] - r.timestamps[0]) / max(len(r.timestamps) - 1, 1)
                for r in ordered
            ],
        }


def _load(folder: str) -> Any:
    model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    model.eval()
    # As in our runs, the end-of-text token is an ordinary one, so that all outputs have the same length.
    model.generation_config.eos_token_id = None
    model.generation_config.pad_token_id = 0
    return model


def _sampling(temperature: float) -> dict[str, Any]:
    if temperature == 0.0:
        return {"do_sample": False}
    return {"do_sample": True, "temperature": temperature, "top_k": 0, "top_p": 1.0}


def main() -> None:
    """Loads on the first line, then answers each."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # What transformers prints must not be taken for an answer.
    first = json.loads(sys.stdin.readline())
    baseline = Baseline(first["target"], first["draft"])
    print(json.dumps({"ready": True}), file=answers, flush=True)
    for line in sys.stdin:
        order = json.loads(line)
        work = baseline.continuous if "concurrency" in order else baseline.generate
        print(json.dumps(work(order)), file=answers, flush=True)


if __name__ == "__main__":
    main()
