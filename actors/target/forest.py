"""The trees of all sessions of a pass as one list of rows, for drawing them at once. Plain numbers; nothing on a device."""

from __future__ import annotations

from dataclasses import dataclass, field

from outrider.actors.speculation.transforms import is_greedy, is_plain
from outrider.actors.target.plan import Entry


@dataclass(slots=True)
class Forest:
    """The trees of a pass, one row for each root and node."""

    entries: list[Entry] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)
    """Row of each root; its nodes follow."""
    logits_rows: list[int] = field(default_factory=list)
    """Row of the pass's logits of each row."""
    parents: list[int] = field(default_factory=list)
    """Row of each parent; -1 for a root."""
    tokens: list[int] = field(default_factory=list)
    depths: list[int] = field(default_factory=list)
    noise_rows: list[int] = field(default_factory=list)
    """Row of the noise; -1 for none."""
    seeds: list[int] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)
    temperatures: list[float] = field(default_factory=list)

    def add(self, entry: Entry, last_logits: int) -> None:
        """Plants a session's tree, whose last node's logits are in the row before `last_logits`."""
        session, selection = entry.session, entry.selection
        sampling = session.sampling
        start, count = len(self.parents), 1 + len(selection.tokens)
        depths = [0]
        for parent in selection.parents:
            depths.append(depths[parent + 1] + 1)
        self.entries.append(entry)
        self.starts.append(start)
        self.logits_rows.extend(range(last_logits - count, last_logits))
        self.parents.append(-1)
        self.parents.extend([start + 1 + parent for parent in selection.parents])
        self.tokens.append(-1)
        self.tokens.extend(selection.tokens)
        self.depths.extend(depths)
        divides = is_plain(sampling) and not is_greedy(sampling)
        self.temperatures.extend([sampling.temperature if divides else 1.0] * count)
        if session.noise is None:
            self.noise_rows.extend([-1] * count)
            return
        # Rows of one depth share their noise.
        first, num_depths = len(self.seeds), 1 + max(depths)
        self.noise_rows.extend([first + depth for depth in depths])
        self.seeds.extend([session.noise.seed] * num_depths)
        self.positions.extend(range(session.length, session.length + num_depths))

    def rows(self, index: int) -> slice:
        """The rows of a tree."""
        start = self.starts[index]
        return slice(start, start + 1 + len(self.entries[index].selection.tokens))

    def paths(self, index: int) -> list[list[int]]:
        """The candidate tokens down to each row of a tree."""
        selection = self.entries[index].selection
        paths: list[list[int]] = [[]]
        for token, parent in zip(selection.tokens, selection.parents, strict=True):
            paths.append([*paths[parent + 1], token])
        return paths
