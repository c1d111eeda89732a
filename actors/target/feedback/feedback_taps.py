"""Which rows of a pass drafters asked for: tapped when it is planned, picked when it is known what became text.

A pass computes a row for each token of a chain (a part of a prompt, or the last committed token) and for each candidate. The chain and the
candidates that were drawn are the text's next positions; the last token of a round has no row yet. Rows are picked after the verdict
has gone out, and read, rounded and packed on another thread.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from outrider.actors.engine.protocol import Logits, Taps
from outrider.actors.engine.staging import to_device, to_host
from outrider.actors.exchange.features import RejectedNodes
from outrider.actors.exchange.feedback_request import FeedbackRequest
from outrider.actors.speculation.trees.path_keys import Int64s
from outrider.actors.speculation.trees.ragged import ranges, rank_within, sizes_of, starts_of
from outrider.actors.target.state.passes import Pass, Round
from outrider.actors.target.state.session_table import Bools, SessionTable
from outrider.actors.target.state.target_events import (
    FeedbackOpened,
    FeedbackReady,
    ReadStates,
    ReadTops,
)
from outrider.actors.target.verify.walks import Walks


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Asked:
    """What was asked of a pass."""

    pass_: Pass
    firsts_E: Int64s
    """Position of each entry's first row."""
    tapped_E: Bools
    layers: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Path:
    """The rows of a pass that became text, of some entries one behind the other."""

    counts_E: Int64s
    rows_R: Int64s
    """Of the batch."""


class FeedbackTaps:
    """The subscriptions of a target's drafters. The worker's thread."""

    def __init__(self, table: SessionTable) -> None:
        """
        Args:
            table: The sessions.
        """
        self._table = table
        self._opened: dict[int, FeedbackOpened] = {}
        """By number of the drafter."""
        self._asked: _Asked | None = None

    def open(self, number: int, event: FeedbackOpened) -> None:
        """A drafter subscribes; what it asked for before is forgotten."""
        self._opened[number] = event

    def close(self, number: int) -> None:
        """A drafter wants nothing any more."""
        self._opened.pop(number, None)

    def ask(self, pass_: Pass, *, is_resting: bool) -> None:
        """Taps a pass that is about to be run. Drafters at rest miss it.

        Args:
            pass_: The pass.
            is_resting: Drafters are told to rest.
        """
        self._asked = None
        if not self._opened or is_resting:
            return
        table, rows_E = self._table, pass_.rows_E
        tapped_E = np.zeros(len(rows_E), np.bool_)
        for number in self._opened:
            tapped_E |= table.allowed_SD[rows_E, number]
        if not tapped_E.any():
            return
        wanted = {layer for one in self._opened.values() for layer in one.layers}
        layers = tuple(sorted(wanted))
        self._asked = _Asked(
            pass_=pass_,
            firsts_E=table.cached_S[rows_E],
            tapped_E=tapped_E,
            layers=layers,
        )
        if layers:
            starts_E = pass_.batch.starts_E
            rows_K = ranges(starts_E[:-1][tapped_E], sizes_of(starts_E)[tapped_E])
            pass_.batch.taps = Taps(layers=layers, rows_K=rows_K)

    def pick(self, pass_: Pass, walks: Walks, done: Round, logits: Logits) -> list[FeedbackReady]:
        """What drafters are to hear of a pass.

        Args:
            pass_: The pass.
            walks: What was decided.
            done: What was committed.
            logits: What came of it.
        """
        asked, self._asked = self._asked, None
        if asked is None or asked.pass_ is not pass_:
            return []
        kept_E = np.zeros(len(pass_.rows_E), np.int64)
        kept_E[done.entries_E] = np.maximum(done.counts_E - 1, 0)
        goes_on_E = np.ones(len(pass_.rows_E), np.bool_)
        goes_on_E[done.entries_E] = ~done.over_E
        ready = []
        for number, opened in self._opened.items():
            is_told_E = self._table.allowed_SD[pass_.rows_E, number] & goes_on_E & asked.tapped_E
            entries = is_told_E.nonzero()[0]
            if len(entries):
                picked = _Picked(asked, opened, entries, walks.nodes_ET, kept_E, logits)
                ready += picked.states(self._table) + picked.tops(self._table)
        return ready


class _Picked:
    """Some entries of a pass, for one drafter."""

    def __init__(
        self,
        asked: _Asked,
        opened: FeedbackOpened,
        entries: Int64s,
        nodes_ET: Int64s,
        kept_E: Int64s,
        logits: Logits,
    ) -> None:
        self._asked = asked
        self._pass = asked.pass_
        self._opened = opened
        self._request: FeedbackRequest = opened.request
        self._entries = entries
        self._kept_E = kept_E[entries]
        """Candidates of each entry that became text."""
        is_kept = np.arange(nodes_ET.shape[1]) < self._kept_E[:, None]
        self._nodes_A = nodes_ET[entries][is_kept]
        """Those, by place in their entry, one entry behind the other."""
        self._logits = logits

    def states(self, table: SessionTable) -> list[FeedbackReady]:
        """Hidden states along the text, and of candidates beside it."""
        hidden_KLD = self._logits.hidden_KLD
        if not self._opened.layers or hidden_KLD is None:
            return []
        path = self._path()
        read = self._read(hidden_KLD, self._places(path.rows_R, path.counts_E))
        firsts_E = self._asked.firsts_E[self._entries]
        ready = [self._ready(table, firsts_E, path.counts_E, states=read)]
        if self._request.wants_rejected:
            ready += self._rejected(table, hidden_KLD)
        return ready

    def tops(self, table: SessionTable) -> list[FeedbackReady]:
        """The likeliest tokens after the last position of each chain and after the candidates that became text."""
        top_k, pass_ = self._request.top_k, self._pass
        draws_E = pass_.draws_E[self._entries]
        if not top_k or not draws_E.any():
            return []
        counts_E = np.where(draws_E, 1 + self._kept_E, 0)
        starts_E = starts_of(counts_E)
        roots_E = pass_.roots_E()[self._entries]
        places_R = np.empty(starts_E[-1], np.int64)
        places_R[starts_E[:-1][draws_E]] = roots_E[draws_E]
        kept_E = np.where(draws_E, self._kept_E, 0)
        places_R[ranges(starts_E[:-1] + 1, kept_E)] = np.repeat(roots_E + 1, kept_E) + self._nodes_A
        firsts_E = (self._asked.firsts_E + pass_.chains_E - 1)[self._entries]
        read = _read_tops(self._logits.values_RV, places_R, top_k)
        return [self._ready(table, firsts_E, counts_E, tops=read)]

    def _path(self) -> _Path:
        """Chain and drawn candidates of each entry."""
        chains_E = self._pass.chains_E[self._entries]
        begins_E = self._pass.batch.starts_E[self._entries]
        counts_E = chains_E + self._kept_E
        starts_E = starts_of(counts_E)
        rows_R = np.empty(starts_E[-1], np.int64)
        rows_R[ranges(starts_E[:-1], chains_E)] = ranges(begins_E, chains_E)
        rows_R[ranges(starts_E[:-1] + chains_E, self._kept_E)] = (
            np.repeat(begins_E + chains_E, self._kept_E) + self._nodes_A
        )
        return _Path(counts_E=counts_E, rows_R=rows_R)

    def _places(self, rows_R: Int64s, counts_E: Int64s) -> Int64s:
        """Where rows of the batch are among the tapped ones."""
        sizes_E = np.where(self._asked.tapped_E, sizes_of(self._pass.batch.starts_E), 0)
        shifts_E = (starts_of(sizes_E)[:-1] - self._pass.batch.starts_E[:-1])[self._entries]
        return rows_R + np.repeat(shifts_E, counts_E)

    def _rejected(self, table: SessionTable, hidden_KLD: Tensor) -> list[FeedbackReady]:
        """The candidates that were not drawn."""
        pass_, entries = self._pass, self._entries
        sizes_E = sizes_of(pass_.starts_E)[entries]
        nodes_N = ranges(pass_.starts_E[entries], sizes_E)
        starts_E = starts_of(sizes_E)
        drawn_N = np.zeros(len(nodes_N), np.bool_)
        drawn_N[np.repeat(starts_E[:-1], self._kept_E) + self._nodes_A] = True
        if drawn_N.all():
            return []
        of_entry_N = np.repeat(np.arange(len(entries)), sizes_E)
        parents_N = pass_.parents_N[nodes_N]
        links_N = np.where(parents_N < 0, -1, parents_N + starts_E[:-1][of_entry_N])
        roots_E = (self._asked.firsts_E + pass_.chains_E - 1)[entries]
        # The rank of each candidate among those of its entry that were not drawn; the last place stands for the text.
        ranks_N = np.full(len(nodes_N) + 1, -1)
        ranks_N[:-1][~drawn_N] = rank_within(of_entry_N[~drawn_N])
        nodes = RejectedNodes(
            tokens_R=pass_.tokens_N[nodes_N][~drawn_N],
            parents_R=ranks_N[links_N][~drawn_N],
            positions_R=(roots_E[of_entry_N] + pass_.depths_N[nodes_N])[~drawn_N],
        )
        counts_E = np.bincount(of_entry_N[~drawn_N], minlength=len(entries))
        begins_E = (pass_.batch.starts_E[:-1] + pass_.chains_E)[entries]
        rows_N = np.arange(len(nodes_N)) - np.repeat(starts_E[:-1] - begins_E, sizes_E)
        read = self._read(hidden_KLD, self._places(rows_N, sizes_E)[~drawn_N])
        return [self._ready(table, roots_E + 1, counts_E, states=read, rejected=nodes)]

    def _read(self, hidden_KLD: Tensor, places_R: Int64s) -> ReadStates:
        """Begins to bring states to the host."""
        columns = [self._asked.layers.index(layer) for layer in self._opened.layers]
        if hidden_KLD.device.type == "cpu":
            # What is not written again may be read later.
            return lambda: _bits(hidden_KLD[torch.from_numpy(places_R)][:, columns])
        device = hidden_KLD.device
        picked_RLD = hidden_KLD.index_select(0, to_device(places_R, device))
        if columns != list(range(len(self._asked.layers))):
            picked_RLD = picked_RLD[:, columns]
        arriving = to_host(picked_RLD.to(torch.bfloat16))
        return lambda: _bits(arriving())

    def _ready(
        self,
        table: SessionTable,
        firsts_E: Int64s,
        counts_E: Int64s,
        *,
        states: ReadStates | None = None,
        tops: ReadTops | None = None,
        rejected: RejectedNodes | None = None,
    ) -> FeedbackReady:
        some = counts_E > 0
        return FeedbackReady(
            drafter=self._opened.drafter,
            handles_E=table.handles_S[self._pass.rows_E[self._entries[some]]],
            firsts_E=firsts_E[some],
            starts_E=starts_of(counts_E[some]),
            states=states,
            tops=tops,
            rejected=rejected,
        )


def _bits(states_RLD: Tensor) -> np.ndarray[tuple[int, ...], np.dtype[np.uint16]]:
    """The bits of the states as bfloat16 numbers."""
    bits = states_RLD.to(torch.bfloat16).contiguous().view(torch.int16)
    return bits.numpy().view(np.uint16)


def _read_tops(values_RV: Tensor, places_R: Int64s, top_k: int) -> ReadTops:
    """Begins to bring the likeliest tokens of some rows of logits to the host."""

    def likeliest() -> tuple[Tensor, Tensor]:
        rows_RV = values_RV.index_select(0, to_device(places_R, values_RV.device))
        found = rows_RV.log_softmax(-1).topk(min(top_k, rows_RV.shape[-1]), dim=-1)
        return found.indices, found.values

    if values_RV.device.type == "cpu":

        def read() -> tuple[Int64s, np.ndarray[tuple[int, ...], np.dtype[np.float32]]]:
            tokens_RK, logprobs_RK = likeliest()
            return tokens_RK.numpy(), logprobs_RK.numpy()

        return read
    tokens, logprobs = (to_host(part) for part in likeliest())
    return lambda: (tokens().numpy(), logprobs().numpy())
