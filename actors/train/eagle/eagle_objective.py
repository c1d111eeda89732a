"""What an EAGLE-3 net is trained on: at every place of a text, the tokens that it would draft there, on its own states ("training-time test").

Source: Li et al. 2025, arXiv 2503.01840. Place i is the row of x[i+1] with the target's state of position i. Step s reads x[i+1+s] with the state that
step s-1 made at place i; it sees the rows of the target's states up to place i, and of those of its own steps that at place i alone.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from outrider.actors.draft.eagle.eagle_net import EagleNet
from outrider.actors.train.features.output_layer import Logits
from outrider.actors.train.loop.data_parallel import count_of_all, own_part, rows_of_all
from outrider.actors.train.loop.output_head import LEAST_REST, LISTED, head_loss, listed_rule


def num_places(row_length: int, num_steps: int) -> int:
    """Places of a row at which every step has a distribution of the target to learn."""
    return row_length - num_steps


class Unrolling:
    """The steps of a net at all places of some rows."""

    def __init__(
        self, net: EagleNet, tokens_BL: torch.Tensor, features_BLKD: torch.Tensor, num: int
    ) -> None:
        """
        Args:
            net: The net.
            tokens_BL: Rows of token ids.
            features_BLKD: The target's states at them, as `EagleConfig.taps`.
            num: Places of each row.
        """
        self._net, self._tokens_BL, self._num = net, tokens_BL, num
        self._places_N = torch.arange(num, device=tokens_BL.device)
        self._states_BND = net.fused(features_BLKD[:, :num])
        self._every: list[torch.Tensor] = []
        before_NN = self._places_N[:, None] - self._places_N
        self._sees_NN = (before_NN >= 0) & (before_NN < net.config.window)
        self._is_own_NN = before_NN == 0

    def step(self) -> torch.Tensor:
        """The next step on the text: s' of all places [B, N, D]. What it made is what the next one goes on with."""
        first = 1 + len(self._every)
        return self._run(self._tokens_BL[:, first : first + self._num], keeps=True)

    def instead(self, read_BN: torch.Tensor) -> torch.Tensor:
        """As `step` would be with other tokens; nothing goes on with it."""
        return self._run(read_BN, keeps=False)

    def steps(self, count: int) -> Iterator[torch.Tensor]:
        """So many steps on the text."""
        return (self.step() for _ in range(count))

    def _run(self, read_BN: torch.Tensor, *, keeps: bool) -> torch.Tensor:
        net, number = self._net, len(self._every)
        positions_BN = (self._places_N + 1 + number).expand(len(read_BN), -1)
        inputs = net.inputs(self._states_BND, read_BN)
        rows = net.keys_values(inputs, positions_BN)[0]
        every = torch.cat((*self._every, rows), dim=1)
        seen = torch.cat((self._sees_NN, *[self._is_own_NN] * number), dim=1)
        after: torch.Tensor = net.midlayer(
            self._states_BND, inputs, net.rotation(positions_BN), every, seen[None, None]
        )
        if keeps:
            self._every.append(rows)
            self._states_BND = net.fed_back(after)
        return after


def eagle_loss(
    net: EagleNet,
    tokens_BL: torch.Tensor,
    features_BLKD: torch.Tensor,
    last_BLD: torch.Tensor,
    places_BM: torch.Tensor,
    *,
    num_steps: int,
    decay: float,
    output: Logits,
) -> torch.Tensor:
    """Weighted mean over steps of the divergence from the target's distributions, nats a token.

    Args:
        net: What is trained.
        tokens_BL: Rows of token ids.
        features_BLKD: The target's states at them, as `EagleConfig.taps`.
        last_BLD: Its states after the final norm.
        places_BM: Places that count.
        num_steps: Steps.
        decay: Weight of a step as a part of that of the one before.
        output: The target's output layer.
    """
    unrolling = Unrolling(net, tokens_BL, features_BLKD, num_places(tokens_BL.shape[1], num_steps))
    total, weights = last_BLD.new_zeros(()), 0.0
    for number, states_BND in enumerate(unrolling.steps(num_steps)):
        weight = decay**number
        total = total + weight * law_loss(
            net,
            _at(states_BND, places_BM).flatten(0, 1),
            _at(last_BLD, places_BM + 1 + number).flatten(0, 1),
            output,
        )
        weights += weight
    return total / weights


def reuse_loss(
    net: EagleNet,
    tokens_BL: torch.Tensor,
    features_BLKD: torch.Tensor,
    last_BLD: torch.Tensor,
    places_BM: torch.Tensor,
    *,
    output: Logits,
    generator: torch.Generator,
) -> torch.Tensor:
    """Of states whose rows had read another token that the net thought likely, once the text's is put into them; as `eagle_loss`, step 1."""
    num = num_places(tokens_BL.shape[1], 2)
    with torch.no_grad():
        unrolling = Unrolling(net, tokens_BL, features_BLKD, num)
        likely_BN4 = net.logits(unrolling.step()).topk(4, dim=-1).indices
        written_BN = tokens_BL[:, 2 : 2 + num]
        shape = (rows_of_all(len(written_BN)), num)
        choice = own_part(torch.randint(0, 4, shape, generator=generator)).to(tokens_BL.device)
        read_BN = likely_BN4.gather(-1, choice[..., None])[..., 0]
        other_BN = torch.where(
            read_BN == written_BN,
            likely_BN4.gather(-1, (choice[..., None] + 1) % 4)[..., 0],
            read_BN,
        )
        states_BND = unrolling.instead(other_BN)
    moved = net.retold(
        _at(states_BND, places_BM),
        other_BN.gather(1, places_BM),
        written_BN.gather(1, places_BM),
    )
    return law_loss(net, moved.flatten(0, 1), _at(last_BLD, places_BM + 2).flatten(0, 1), output)


def law_loss(
    net: EagleNet, states_MD: torch.Tensor, last_MD: torch.Tensor, output: Logits
) -> torch.Tensor:
    """Mean divergence of the laws of states s' from those of the target's last states, nats; among the ids that the net proposes, of places where
    the target's likeliest is one of them."""
    ids = net.drafted_ids
    with torch.no_grad():
        logits_MV = output(last_MD)
        if ids is not None:
            counts_M = torch.isin(logits_MV.argmax(-1), ids)
            logits_MV = logits_MV[counts_M][:, ids]
        best = logits_MV.log_softmax(-1).topk(min(LISTED, logits_MV.shape[1]), sorted=False)
    if ids is not None:
        states_MD = states_MD[counts_M]
    if not count_of_all(len(states_MD)):
        return states_MD.sum()
    rule = listed_rule(best.indices, best.values, LEAST_REST)
    return head_loss(net.norm(states_MD), net.head(), rule)


def _at(values_BLD: torch.Tensor, places_BM: torch.Tensor) -> torch.Tensor:
    return values_BLD.gather(1, places_BM[..., None].expand(-1, -1, values_BLD.shape[-1]))
