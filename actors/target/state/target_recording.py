"""What a target records for a timeline: its passes, its waits, and what became of every candidate.

Hooks of the worker and of the parts of a pass. Each costs a look at `is_on` while nobody traces. The worker's thread only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from outrider.actors.speculation.trees.path_keys import Int64s
from outrider.actors.speculation.trees.ragged import sizes_of
from outrider.actors.target.candidates.candidate_store import CandidateStore, NodeFate
from outrider.actors.target.state.passes import Pass, Round
from outrider.actors.target.state.session_table import SessionTable
from outrider.actors.target.state.target_events import CandidatesReceived
from outrider.actors.target.state.target_session import TargetSession
from outrider.actors.tracing.recorder import Arg, Recorder, args_of, fill
from outrider.v1 import trace_pb2

FATES = ("accepted", "rejected", "foreseen", "never_chosen")
"""What may become of a candidate."""

WORK = "passes"
"""The track of what the worker does."""


class TargetRecording:
    """Records of one target."""

    def __init__(
        self,
        recorder: Recorder,
        table: SessionTable,
        stores: Sequence[CandidateStore],
        sessions: Mapping[int, TargetSession],
        drafters: Sequence[str],
    ) -> None:
        """Records nothing until the recorder is on.

        Args:
            recorder: Takes the records.
            table: The sessions.
            stores: Their candidates.
            sessions: By row.
            drafters: Names, by number.
        """
        self._table = table
        self._stores = stores
        self._sessions = sessions
        self._drafters = drafters
        self._recorder = recorder
        self._shares: list[trace_pb2.TraceShare] = []
        self._totals: Counter[str] = Counter()

    @property
    def is_on(self) -> bool:
        """Whether anyone wants records."""
        return self._recorder.is_on

    # -- what the worker does ----------------------------------------------------------------------------------------

    def begin_wait(self) -> None:
        """The worker goes to sleep."""
        self._recorder.enter(WORK, self._why)

    def end_wait(self) -> None:
        """It woke up."""
        self._recorder.leave()

    def begin_pass(self) -> None:
        """A pass begins."""
        self._shares = []
        self._totals.clear()
        self._recorder.enter(WORK, "verify")

    def end_pass(self, pass_: Pass, *, model_s: float) -> None:
        """A pass is over, and everyone was told what came of it.

        Args:
            pass_: What was run.
            model_s: Seconds in the model.
        """
        if not self._recorder.is_on:
            self._recorder.leave()
            return
        settled = {share.handle for share in self._shares}
        nothing = args_of({"nodes": 0, "depth": 0, "committed": 0})
        shares = self._shares + [
            trace_pb2.TraceShare(handle=handle, args=nothing)
            # Also of a session that is over: its row is given away later.
            for handle in self._table.handles_S[pass_.rows_E].tolist()
            if handle not in settled
        ]
        self._recorder.leave(
            name="prefill" if pass_.has_prompt else "verify",
            args={
                "sessions": len(shares),
                "rows": pass_.batch.num_rows,
                "model_us": round(max(model_s, 0.0) * 1e6, 3),
                **{name: self._totals[name] for name in ("nodes", "committed", *FATES)},
            },
            shares=shares,
        )

    # -- what becomes of candidates ----------------------------------------------------------------------------------

    def taken(
        self,
        event: CandidatesReceived,
        waited_s: float,
        rows_E: Int64s,
        *,
        stale_E: Int64s,
        fresh_E: Int64s | None = None,
        refused_E: Int64s | None = None,
    ) -> None:
        """Candidates were taken in.

        Args:
            event: The candidates.
            waited_s: Since they came.
            rows_E: Row of each entry's session; negative: there is none.
            stale_E: Nodes off the text.
            fresh_E: Nodes that are new; None: none.
            refused_E: Nodes without room; None: none.
        """
        if event.message is None or not self._recorder.is_on:
            return
        found = event.candidates
        sizes_E = sizes_of(found.starts_E)
        waited_ns = max(int(waited_s * 1e9), 0)
        for entry in range(len(rows_E)):
            args: dict[str, Arg] = {
                "drafter": event.message.args.words["drafter"],
                "number": event.message.args.numbers["number"],
                "nodes": int(sizes_E[entry]),
                "fresh": 0 if fresh_E is None else int(fresh_E[entry]),
                "stale": int(stale_E[entry]),
                "refused": 0 if refused_E is None else int(refused_E[entry]),
            }
            self._recorder.add(
                trace_pb2.TraceSpan(
                    name="candidates",
                    track="waiting to be taken in",
                    start_ns=self._recorder.clock_ns() - waited_ns,
                    duration_ns=waited_ns,
                    args=args_of(args),
                    handles=[int(found.handles_E[entry])],
                )
            )

    def decided(self, pass_: Pass, done: Round) -> None:
        """A round is decided and about to be committed.

        Args:
            pass_: What was run.
            done: What will be committed.
        """
        for index, entry in enumerate(done.entries_E.tolist()):
            row, count = int(done.rows_E[index]), int(done.counts_E[index])
            nodes = range(int(pass_.starts_E[entry]), int(pass_.starts_E[entry + 1]))
            found = self._fates(pass_, row, nodes, done, index)
            counts: dict[str, Counter[str]] = {}
            for node in found:
                nobody = Counter(dict.fromkeys(FATES, 0))
                counts.setdefault(self._name(node), nobody)[node.fate] += 1
            args: dict[str, Arg] = {
                "nodes": len(nodes),
                "depth": max((node.depth for node in found[: len(nodes)]), default=0),
                "committed": count,
            }
            if counts:
                args["fates"] = counts
            share = trace_pb2.TraceShare(handle=int(self._table.handles_S[row]))
            fill(share.args, args)
            if self._recorder.wants_nodes:
                share.marks.extend(map(self._mark, found))
            self._shares.append(share)
            self._totals.update({"nodes": len(nodes), "committed": count})
            for fates in counts.values():
                self._totals.update(fates)

    def _fates(
        self, pass_: Pass, row: int, nodes: range, done: Round, index: int
    ) -> list[NodeFate]:
        """What becomes of each candidate of one session, those of the pass first; those that stay are left out."""
        found: list[NodeFate] = []
        depths: list[int] = []
        for node in nodes:
            parent = int(pass_.parents_N[node])
            depths.append(1 if parent < 0 else depths[parent] + 1)
            fate = "accepted" if done.drawn_N[node] else "rejected"
            estimate = float(pass_.estimates_N[node])
            found.append(NodeFate(int(pass_.drafters_N[node]), depths[-1], estimate, fate))
        columns = set(pass_.columns_N[nodes.start : nodes.stop].tolist())
        committed = tuple(done.tokens_ET[index, : done.counts_E[index]].tolist())
        for store in self._stores:
            found += store.fates(row, committed, columns, is_over=bool(done.over_E[index]))
        return found

    def _name(self, node: NodeFate) -> str:
        return self._drafters[node.drafter] if node.drafter >= 0 else "target"

    def _mark(self, node: NodeFate) -> trace_pb2.TraceMark:
        args: dict[str, Arg] = {
            "drafter": self._name(node),
            "depth": node.depth,
            "estimate": round(node.estimate, 3),
        }
        return trace_pb2.TraceMark(name=node.fate.replace("_", " "), args=args_of(args))

    def _why(self) -> str:
        """What the worker sleeps for."""
        rows = self._table.used_S.nonzero()[0]
        if not len(rows):
            return "no session"
        if any(store.has(rows).any() for store in self._stores):
            return "lets a tree grow"
        return "waits for candidates"
