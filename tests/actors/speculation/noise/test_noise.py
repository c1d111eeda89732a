"""The noise: its definition, and that all ways to it give the same bits."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.actors.speculation.one_device import OneDevice
from torch import Tensor

from outrider.actors.speculation.noise import gumbel, gumbel_host
from outrider.actors.speculation.noise.gumbel import (
    GumbelNoise,
    NoiseCache,
    default_block,
    key_halves,
)
from outrider.actors.speculation.noise.gumbel_table import (
    BIN_MASK,
    BIN_SHIFT,
    PLACE_MASK,
    gumbel_table,
)
from outrider.actors.speculation.noise.seeds import NUM_SEEDS, mix_pair

CPU = torch.device("cpu")
VOCAB = 4096

GOLDEN = (  # seed, position, token id, bits of the noise
    (0, 0, 0, 1051037764),  # 0.323366
    (0, 0, 1, 1076437416),  # 2.642679
    (0, 1, 0, 1086217713),  # 5.948967
    (1, 0, 0, 1059249187),  # 0.636172
    (42, 17, 1234, -1075112424),  # -1.836612
    (42, 18, 1234, 1066460253),  # 1.131969
    (9223372036854775808, 5, 99, 1079836100),  # 3.452989
    (18446744073709551615, 1000000, 128255, -1088796764),  # -0.602656
    (12345678901234567890, 3, 50256, 1068726520),  # 1.402129
    (7, 2147483648, 3, 1063996598),  # 0.919139
    (7, 100, 4095, 1056250007),  # 0.478703
    (4294967296, 0, 0, -1089533784),  # -0.558726
)


@pytest.fixture(scope="module")
def noise() -> GumbelNoise:
    """Noise of a vocabulary as large as the demonstration models'."""
    return GumbelNoise(VOCAB, CPU)


def scalar_noise(seed: int, position: int, token_id: int) -> np.float32:
    """The definition once more, in unbounded integers and one value at a time."""
    mask = 2**32 - 1
    rounds = ((0xED5AD4BB, 11), (0xAC4C1B51, 15), (0x31848BAB, 14))
    value = (token_id + 0x9E3779B9) & mask
    value ^= value >> 17
    for multiplier, shift in rounds:
        value = value * multiplier & mask
        value ^= value >> shift
    key = mix_pair(seed, position)
    value ^= key & mask
    for number, (multiplier, shift) in enumerate(rounds):
        value = value * multiplier & mask
        value ^= value >> shift
        if number == 0:
            value = (value + (key >> 32)) & mask
    signed = np.float32(value - 2**32 if value >= 2**31 else value) + np.float32(0.5)
    bits = int(signed.view(np.int32))
    values, slopes = gumbel_table()
    place = np.float32(bits & PLACE_MASK)
    at_bin = (bits >> BIN_SHIFT) & BIN_MASK
    return np.float32(values[at_bin] + slopes[at_bin] * place)


def test_noise_never_changes() -> None:
    """Golden values: a seed that was given to a user keeps its text."""
    noise = GumbelNoise(128256, CPU)
    for seed, position, token_id, bits in GOLDEN:
        value = noise.at(seed, torch.tensor([position]), torch.tensor([[token_id]]))
        assert (seed, position, token_id, int(value.view(torch.int32))) == (
            seed,
            position,
            token_id,
            bits,
        )


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    seed=st.integers(0, NUM_SEEDS - 1),
    position=st.integers(0, 2**40),
    token_id=st.integers(0, VOCAB - 1),
)
def test_noise_is_what_the_definition_says(seed: int, position: int, token_id: int) -> None:
    """Tensor arithmetic wraps, shifts and rounds as unbounded integers, masked, do."""
    noise = GumbelNoise(VOCAB, CPU)
    value = noise.at(seed, torch.tensor([position]), torch.tensor([[token_id]]))
    assert np.float32(value.item()) == scalar_noise(seed, position, token_id)


def test_chosen_ids_have_the_bits_of_the_rows(noise: GumbelNoise) -> None:
    """A drafter that looks at a few ids and a target that looks at all see the same noise."""
    generator = torch.Generator().manual_seed(0)
    positions_M = torch.randint(0, 9000, (40,), generator=generator)
    ids_MK = torch.randint(0, VOCAB, (40, 33), generator=generator)
    seeds = [mix_pair(5, index % 7) for index in range(40)]
    rows_MV = noise.rows_many(seeds, positions_M.tolist())
    assert torch.equal(noise.at_many(seeds, positions_M, ids_MK), rows_MV.gather(1, ids_MK))
    assert torch.equal(
        noise.at(seeds[3], positions_M, ids_MK),
        noise.rows_many([seeds[3]] * 40, positions_M.tolist()).gather(1, ids_MK),
    )
    alone = [noise.rows(s, p, 1) for s, p in zip(seeds, positions_M.tolist(), strict=True)]
    assert torch.equal(torch.cat(alone), rows_MV)


@pytest.mark.parametrize("vocab_size", [1, 7, 1000, 70_001])
def test_rows_do_not_depend_on_chunks_threads_or_vocabulary(
    vocab_size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However the work is cut, and whatever other tokens there are, a token's noise is the same."""
    expected = GumbelNoise(vocab_size, CPU).rows(9, 3, 5)
    assert torch.equal(GumbelNoise(vocab_size + 13, CPU).rows(9, 3, 5)[:, :vocab_size], expected)
    torch.set_num_threads(2)
    assert torch.equal(GumbelNoise(vocab_size, CPU).rows(9, 3, 5), expected)
    for chunk in (999, 2500, 10**6):
        monkeypatch.setattr(gumbel_host, "_CHUNK", chunk)
        assert torch.equal(GumbelNoise(vocab_size, CPU).rows(9, 3, 5), expected)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_noise_has_the_same_bits_on_a_gpu() -> None:
    """Integer arithmetic, conversion, multiplication and addition agree; nothing else is used."""
    cpu, gpu = GumbelNoise(128_257, CPU), GumbelNoise(128_257, torch.device("cuda"))
    for seed in (0, 1, NUM_SEEDS - 1):
        assert torch.equal(gpu.rows(seed, 100, 32).cpu(), cpu.rows(seed, 100, 32))
    ids_MK = torch.arange(6 * 50).view(6, 50) * 401
    positions_M = torch.arange(6)
    on_gpu = gpu.at(7, positions_M.cuda(), ids_MK.cuda())
    assert torch.equal(on_gpu.cpu(), cpu.at(7, positions_M, ids_MK))


def test_extreme_hashes_give_finite_noise(noise: GumbelNoise) -> None:
    """The ends of the range, the places where rounding carries into the next power of two, and the middle."""
    edges = [0, 1, 2, 3, 2**24 - 1, 2**24, 2**24 + 1, 2**30 - 1, 2**31 - 1, 2**31 - 64, 2**31 - 65]
    ascending = sorted({*edges, *(2**32 - 1 - edge for edge in edges)})
    hash_M1 = torch.tensor(ascending).to(torch.int32).unsqueeze(1)
    values_M1 = noise.of_hashes(hash_M1)
    assert values_M1[0].item() == pytest.approx(22.8739, abs=1e-4)
    assert values_M1[-1].item() == pytest.approx(-3.1300, abs=1e-4)
    assert bool((values_M1.diff(dim=0) <= 0).all())


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda noise: noise.rows(-1, 0, 1), "seed is -1"),
        (lambda noise: noise.rows(2**64, 0, 1), "seed is 18446744073709551616"),
        (lambda noise: noise.rows(0, -1, 1), "position is -1"),
        (lambda noise: noise.rows_many([1, 2], [1]), "2 seeds for 1 positions"),
        (lambda noise: noise.at_many([1, 2], [1, 2], torch.zeros(3, 1).long()), r"shape \(3, 1\)"),
        (lambda noise: GumbelNoise(0, CPU), "vocab_size is 0"),
    ],
)
def test_bad_input_is_refused(noise: GumbelNoise, call, message: str) -> None:  # type: ignore[no-untyped-def]
    """The message names what was wrong and its value."""
    with pytest.raises(ValueError, match=message):
        call(noise)


def test_no_rows_is_an_empty_tensor(noise: GumbelNoise) -> None:
    """Nothing asked for, nothing computed."""
    assert noise.rows(1, 5, 0).shape == (0, VOCAB)
    assert noise.at(1, torch.empty(0).long(), torch.empty(0, 4).long()).shape == (0, 4)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    ranges=st.lists(st.tuples(st.integers(0, 60), st.integers(0, 20)), max_size=12),
    block=st.integers(1, 16),
)
def test_cache_gives_the_rows(ranges: list[tuple[int, int]], block: int) -> None:
    """In any order of asking, with bounded memory, and without touching what was handed out."""
    noise = GumbelNoise(5, CPU)
    cache = NoiseCache(noise, 4, block=block)
    handed_out = []
    for start, count in ranges:
        rows = cache.row_range(start, start + count)
        assert torch.equal(rows, noise.rows(4, start, count))
        assert cache.num_rows <= max(20, block) + 20 + block
        handed_out.append((rows, rows.clone()))
    assert all(torch.equal(rows, copy) for rows, copy in handed_out)


def test_cache_computes_each_position_once_on_the_way_forward(
    monkeypatch: pytest.MonkeyPatch, noise: GumbelNoise
) -> None:
    """Walking along a session, tree by tree, computes blocks that follow each other without overlap."""
    computed: list[range] = []
    rows = GumbelNoise.rows

    def recorded(self: GumbelNoise, seed: int, start: int, count: int) -> Tensor:
        computed.append(range(start, start + count))
        return rows(self, seed, start, count)

    monkeypatch.setattr(GumbelNoise, "rows", recorded)
    cache = NoiseCache(noise, 1, block=16)
    for start in range(10, 200, 3):
        cache.row_range(start, start + 7)
    assert [position for block in computed for position in block] == list(
        range(10, computed[-1].stop)
    )
    assert {len(block) for block in computed} == {16}


def test_block_is_smaller_for_large_vocabularies() -> None:
    """A block stays near a megabyte."""
    assert [default_block(size) for size in (1, 4096, 32_000, 128_256)] == [16, 16, 8, 4]


SEEDS, POSITIONS = [0, 5, NUM_SEEDS - 1], [3, 0, 2**33]


def ways(noise: GumbelNoise) -> list[Tensor]:
    """The rows of three keys, in every way that there is to ask for them, and some of their values."""
    device = noise.device
    halves_2M = np.array(key_halves(SEEDS, POSITIONS), np.int32).reshape(2, 3)
    ids_MK = torch.arange(noise.vocab_size, device=device).expand(3, -1)
    return [
        noise.rows_many(SEEDS, POSITIONS),
        noise.of_pairs(np.array(SEEDS, np.uint64), np.array(POSITIONS, np.uint64)),
        noise.of_halves(halves_2M),
        noise.of_keys(torch.from_numpy(halves_2M).to(device)),
        noise.at_many(SEEDS, POSITIONS, ids_MK),
    ]


@pytest.mark.parametrize("on_host", [True, False])
@pytest.mark.parametrize("vocab_size", [1, 50, VOCAB])
def test_all_ways_to_the_noise_give_the_same_bits(
    vocab_size: int, on_host: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By NumPy, and by the operations that a device has; as the definition says."""
    if not on_host:
        monkeypatch.setattr(gumbel, "HostNoise", lambda _: None)
    noise = GumbelNoise(vocab_size, CPU)
    expected_MV = torch.tensor(
        [
            [scalar_noise(seed, position, token) for token in range(vocab_size)]
            for seed, position in zip(SEEDS, POSITIONS, strict=True)
        ],
        dtype=torch.float32,
    )
    assert all(torch.equal(found_MV, expected_MV) for found_MV in ways(noise))


def test_a_device_is_the_only_one() -> None:
    """What is asked for is where it is wanted, and nothing that is computed with is elsewhere."""
    with OneDevice():  # type: ignore[no-untyped-call]  # of torch
        noise = GumbelNoise(50, torch.device("meta"))
        cache = NoiseCache(noise, 1)
        found = [*ways(noise), cache.rows_after(4, [0, 2, 1]), cache.row_range(5, 8)]
    assert {tuple(rows.shape) for rows in found} == {(3, 50)}
    assert {(rows.device.type, rows.dtype) for rows in found} == {("meta", torch.float32)}


def test_the_default_type_of_numbers_does_not_matter() -> None:
    """It belongs to the process."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        found = ways(GumbelNoise(50, CPU))
        cached = NoiseCache(GumbelNoise(50, CPU), 1).row_range(0, 0)
    finally:
        torch.set_default_dtype(before)
    expected_MV = GumbelNoise(50, CPU).rows_many(SEEDS, POSITIONS)
    assert all(torch.equal(rows_MV, expected_MV) for rows_MV in found)
    assert cached.dtype == torch.float32


@pytest.mark.parametrize("offsets", [[0], [3], [0, 1, 1, 2], [2, 0]])
def test_rows_of_a_tree_are_at_their_depths(offsets: list[int]) -> None:
    """Position by position, again and again, whatever was asked for before."""
    noise = GumbelNoise(20, CPU)
    cache = NoiseCache(noise, 9, block=2)
    for start in (7, 8, 11, 5):
        rows_MV = cache.rows_after(start, offsets)
        expected = noise.rows_many([9] * len(offsets), [start + offset for offset in offsets])
        assert torch.equal(rows_MV, expected)
