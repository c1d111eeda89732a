"""Is it right, before how fast is it: trees with and without graphs, noise and draws of the device and of the host."""

from __future__ import annotations

import random
from collections.abc import Sequence

import torch

from bench.gpu.gpu_work import SETTINGS, open_in, pass_over
from outrider.actors.engine.models.transformers_engine import TransformersEngine
from outrider.actors.engine.protocol import Logits, Moves, Rows
from outrider.actors.speculation.noise.gumbel import GumbelNoise
from outrider.actors.speculation.verify import coupled_draws
from outrider.actors.speculation.verify.coupled_draws import Walk
from outrider.actors.target.state.target_state import TargetState
from outrider.actors.target.verify.device_drawing import DeviceDraws
from outrider.actors.target.verify.plain_drawing import Drawer
from outrider.actors.tracing.recorder import Recorder

TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 0.1, torch.float16: 0.03}
"""Greatest root mean square difference of logits with and without graphs, relative to their root mean square. In float32 a wrong
mask gives 0.3 and more, rounding 1e-6; in bfloat16 rounding alone gives some hundredths."""


class Differs(RuntimeError):
    """What should be equal is not: no timing is worth anything."""


def tree_logits(engine: TransformersEngine, *, rounds: int, seed: int) -> list[torch.Tensor]:
    """Logits of random ragged batches of trees, grown and rebased; each shape comes often enough to be recorded."""
    rng = random.Random(seed)
    slots = [engine.acquire() for _ in range(min(3, engine.num_slots))]
    found = []
    for slot in slots:
        prompt = [rng.randrange(engine.spec.vocab_size) for _ in range(rng.randint(3, 40))]
        chain = range(-1, len(prompt) - 1)
        engine.forward([Rows(slot=slot, tokens=prompt, parents=chain, logits="none")])
        engine.rebase(Moves.one(slot, range(len(prompt))))
    for _ in range(rounds):
        batch, sizes = [], []
        for slot in rng.sample(slots, rng.randint(1, len(slots))):
            size = rng.choice([1, 5, 17])
            parents = [-1, *(rng.randrange(row) for row in range(1, size))]
            tokens = [rng.randrange(engine.spec.vocab_size) for _ in range(size)]
            batch.append(Rows(slot=slot, tokens=tokens, parents=parents))
            sizes.append(parents)
        found.append(engine.forward(batch).values_RV)
        for rows, parents in zip(batch, sizes, strict=True):
            path = [rng.randrange(len(parents))]
            while parents[path[0]] >= 0:
                path.insert(0, parents[path[0]])
            keeps = engine.cached(rows.slot) + len(path) < 200
            if keeps:
                engine.rebase(Moves.one(rows.slot, path))
            else:
                engine.truncate(rows.slot, engine.cached(rows.slot))
    for slot in slots:
        engine.release(slot)
    return found


def compare_logits(
    expected: Sequence[torch.Tensor], actual: Sequence[torch.Tensor], dtype: torch.dtype
) -> dict[str, float]:
    """How far logits lie apart.

    Raises:
        Differs: Further than rounding explains.
    """
    worst, equal, total = 0.0, 0, 0
    for one_RV, other_RV in zip(expected, actual, strict=True):
        error = float((one_RV - other_RV).square().mean().sqrt() / one_RV.square().mean().sqrt())
        # A number that is not finite fails the comparison too.
        if not error <= TOLERANCE[dtype]:
            raise Differs(
                f"logits with graphs differ by {error:.3g} of their size from those without, limit "
                f"{TOLERANCE[dtype]} in {dtype}"
            )
        worst = max(worst, error)
        equal += int((one_RV.argmax(-1) == other_RV.argmax(-1)).sum())
        total += len(one_RV)
    return {"logits_error": worst, "equal_greedy": equal / total}


def check_noise(device: torch.device) -> None:
    """Compares the noise of a device with the CPU's, bit by bit.

    Raises:
        Differs: A bit differs.
    """
    seeds, positions = [0, 3, 2**64 - 1], [0, 777, 123456]
    made = [
        GumbelNoise(128256, where).rows_many(seeds, positions).cpu().view(torch.int32)
        for where in (torch.device("cpu"), device)
    ]
    if not torch.equal(*made):
        raise Differs(f"the noise on {device} has other bits than on a CPU")


def check_draws(engine: TransformersEngine, *, rounds: int) -> None:
    """Compares the walks of a device with those of the host, on the same logits.

    Raises:
        Differs: A walk differs.
    """
    rng, state = random.Random(0), TargetState(engine, SETTINGS, Recorder())
    draws = DeviceDraws(engine, state.table, state.sessions)
    vocab_size, device = engine.spec.vocab_size, engine.spec.device
    for number in range(rounds):
        count = rng.choice([0, 16, 32])
        parents = [rng.randint(-1, node - 1) for node in range(count)]
        values_RV = torch.randn(1 + count, vocab_size, device=device) * 4.0
        row = open_in(state, [0], seed=number, temperature=rng.choice([0.0, 0.7, 1.0]))
        session = state.sessions[row]
        # The draws themselves are the tokens of half the nodes, so that walks are long.
        drawn = [Drawer(session, values_RV[:1], [])(-1) for _ in range(count)]
        tokens = [rng.choice([token, rng.randrange(vocab_size)]) for token in drawn]
        logits = Logits(values_RV=values_RV, offsets=(0, 1 + count))
        pass_ = pass_over([row], [(tokens, parents)])
        found = draws.start(pass_, logits)()
        drawer = Drawer(session, values_RV, tokens)
        expected = coupled_draws.walk(tokens, parents, drawer, session.remaining)
        length = len(expected.tokens)
        walk = None
        if found is not None and found.counts_E.tolist() == [length]:
            walk = Walk(
                path=tuple(found.nodes_ET[0, : length - 1].tolist()),
                tokens=tuple(found.tokens_ET[0, :length].tolist()),
            )
        if walk != expected:
            raise Differs(f"the walk on {device} is {found}, on the host {expected}")
        engine.release(row)
