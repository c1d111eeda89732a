"""transformers' own `generate` on the same weights, prompts, seeds and threads: plain, assisted, and prompt lookup.

Run as a process of its own (`python -m bench.baseline`), so that its threads are set before torch starts and nothing of the
service shares its memory. Reads a JSON request on standard input, writes a JSON answer.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer


def main() -> None:
    """Answers one request."""
    request = json.load(sys.stdin)
    torch.set_num_threads(request["threads"])
    tokenizer = AutoTokenizer.from_pretrained(request["target"])
    target = AutoModelForCausalLM.from_pretrained(request["target"], dtype=torch.float32).eval()
    draft = AutoModelForCausalLM.from_pretrained(request["draft"], dtype=torch.float32).eval()
    modes: dict[str, dict[str, Any]] = {
        "plain": {},
        "assisted": {"assistant_model": draft},
        "prompt_lookup": {"prompt_lookup_num_tokens": 4},
    }
    answer: dict[str, list[float]] = {}
    greedy: dict[str, list[list[int]]] = {}
    for mode in request["modes"]:
        rates = []
        for run in range(request["runs"] + 1):
            tokens, seconds, texts = _run(target, tokenizer, request, modes[mode])
            if run:
                rates.append(tokens / seconds)
        answer[mode] = rates
        greedy[mode] = texts
    json.dump({"tokens_per_s": answer, "tokens": greedy}, sys.stdout)


def _run(
    target: Any, tokenizer: Any, request: dict[str, Any], mode: dict[str, Any]
) -> tuple[int, float, list[list[int]]]:
    temperature = request["temperature"]
    sampling = (
        {"do_sample": True, "temperature": temperature, "top_k": 0, "top_p": 1.0}
        if temperature
        else {"do_sample": False}
    )
    tokens, seconds, texts = 0, 0.0, []
    for number, ids in enumerate(request["prompts"]):
        torch.manual_seed(number)
        inputs = torch.tensor([ids])
        began = time.perf_counter()
        with torch.inference_mode():
            output = target.generate(
                inputs,
                attention_mask=torch.ones_like(inputs),
                max_new_tokens=request["max_tokens"],
                pad_token_id=tokenizer.eos_token_id,
                **sampling,
                **mode,
            )
        seconds += time.perf_counter() - began
        new = output[0, len(ids) :].tolist()
        tokens += len(new)
        texts.append(new)
    return tokens, seconds, texts


if __name__ == "__main__":
    main()
