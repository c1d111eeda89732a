"""The truth of one session at the target: committed tokens, their hashes, the candidate pool, what is known of drafters.

Owned by the worker's thread. Holds no model state but the number of its slot.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace

from outrider.actors.speculation import base_hash
from outrider.actors.speculation.noise import NoiseCache
from outrider.actors.speculation.options import Sampling, Speculation
from outrider.actors.speculation.policies import Roots
from outrider.actors.speculation.pool import CandidatePool
from outrider.actors.speculation.transforms import SamplingTransform
from outrider.actors.speculation.verifiers.registry import METHODS
from outrider.actors.target.events import Finish, Owner, Stats
from outrider.actors.target.held import HeldTrees
from outrider.actors.target.patience import Patience

POOL_CAPACITY = 256
"""Candidate nodes held for one session. Far above what a pass takes; bounds a drafter that runs wild."""

RECENT_VERDICTS = 64
"""Verdicts whose time is remembered, to tell how long candidates took; older candidates are late by any measure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rooted:
    """The target's own candidates for the next token, the likeliest first."""

    tokens: tuple[int, ...] = ()
    values: tuple[float, ...] = ()
    """Expected frequency with which each is drawn."""


class Session:
    """One sequence that is being decoded."""

    def __init__(
        self,
        *,
        owner: Owner,
        handle: int,
        group: int,
        slot: int,
        prompt: Sequence[int],
        committed: Sequence[int],
        sampling: Sampling,
        speculation: Speculation,
        drafters: tuple[str, ...],
        transform: SamplingTransform,
        noise: NoiseCache | None,
        stop_tokens: frozenset[int],
        near_tie: float = 0.0,
        request_id: str = "",
    ) -> None:
        self.owner = owner
        self.request_id = request_id
        """For logs."""
        self.handle = handle
        self.group = group
        self.slot = slot
        self.tokens: list[int] = [*prompt, *committed]
        self.prompt_length = len(prompt)
        self.sampling = sampling
        self.speculation = speculation
        self.drafters = drafters
        self.transform = transform
        self.noise = noise
        self.stop_tokens = stop_tokens
        self.near_tie = near_tie
        """Margin between scores below which a draw is a near tie."""
        self.stats = Stats()
        self.patience = Patience()
        self.pool = CandidatePool(len(self.tokens), POOL_CAPACITY)
        needs_trees = METHODS[speculation.verifier].needs_draft_probs
        self.trees = HeldTrees(speculation.verifier) if needs_trees else None
        """Frozen trees, for a verifier that tests them; the pool stays empty then. Otherwise None."""
        wants_roots = speculation.enabled and speculation.policies.roots is Roots.TARGET
        self.rooted = Rooted() if wants_roots and not needs_trees else None
        """The target's own candidates for the next token; None if the request wants none."""
        self.epoch = 0
        self.allowed = frozenset(drafters)
        """Drafters whose candidates are taken."""
        self.finish: Finish | None = None
        """Why the session is over, once it is."""
        self.last_round = 0
        """Number of tokens that the last round committed."""
        self.joined: set[str] = set()
        """Drafters that have shown up for this session; only they get verdicts."""
        self.taken = float(speculation.max_nodes)
        """Mean number of candidates that a pass took of those at hand."""
        self.seen: dict[str, int] = {}
        """By drafter the number of its last candidates that were taken in, since it joined."""
        self.is_started = False
        """Prefix reuse was looked for and the first rows were run."""
        self.wait_since: float | None = None
        """When the target, free, began to wait for candidates of this session."""
        self.last_verdict = 0.0
        self.waits_until: float | None = None
        """Until then the next pass waits for candidates, as the drafters were told: each lets its tree grow, and sends it once.
        None: they were told nothing."""
        self.answered: set[str] = set()
        """Drafters whose candidates below the text have come since the last verdict."""
        self.ripens = False
        """The last verdict left the pool empty: a new tree is coming in, level by level."""
        self.last_part = 0.0
        """When the last part of it came."""
        self.rested_from: int | None = None
        """While the drafters rest: number of tokens that they were told of; None while they work."""
        self._verdict_times: OrderedDict[int, float] = OrderedDict()
        self._hashes: list[int] = [base_hash.EMPTY]
        # Kept rather than computed: a plan looks at them in every session.
        self.length = 0
        """Number of committed tokens, prompt included."""
        self.hash = base_hash.EMPTY
        """Rolling hash of the committed tokens."""
        self.remaining = sampling.max_tokens + self.prompt_length
        """Number of tokens that may still be committed."""
        self._take_in(self.tokens)

    @property
    def num_output(self) -> int:
        """Number of committed output tokens."""
        return self.length - self.prompt_length

    def hash_at(self, length: int) -> int | None:
        """Rolling hash of the first `length` tokens, None if there are not so many."""
        return self._hashes[length] if 0 <= length < len(self._hashes) else None

    def limit_nodes(self, max_nodes: int) -> None:
        """Sets the greatest number of candidate nodes in a pass."""
        self.speculation = replace(self.speculation, max_nodes=max_nodes)

    def commit(self, tokens: Sequence[int], now: float) -> int:
        """Appends committed tokens and re-roots the pool.

        Returns:
            Number of candidates that became stale.
        """
        self.tokens.extend(tokens)
        self._take_in(tokens)
        self.transform.commit(tokens)
        self.epoch += 1
        self.last_round = len(tokens)
        self.last_verdict = now
        self._verdict_times[self.length] = now
        if len(self._verdict_times) > RECENT_VERDICTS:
            self._verdict_times.popitem(last=False)
        passed = self.trees.advance(self.length) if self.trees is not None else 0
        stale = passed + self.pool.reroot(tokens)
        self.ripens = self.pool.size == 0
        self.waits_until = None
        self.answered.clear()
        self.last_part = now
        return stale

    @property
    def has_candidates(self) -> bool:
        """True if there is something to verify below the committed text."""
        if self.trees is not None:
            return self.trees.has(self.length, self.hash)
        return self.pool.size > 0

    def is_answered(self, live_drafters: frozenset[str]) -> bool:
        """Whether all drafters were told to let their trees grow, and have sent them."""
        return self.waits_until is not None and self.answered.issuperset(
            self.joined & live_drafters
        )

    def take_verdict_time(self, length: int) -> float | None:
        """When the text became so long, in seconds of the worker's clock; None if that is long ago or was asked before."""
        return self._verdict_times.pop(length, None)

    def _take_in(self, tokens: Sequence[int]) -> None:
        """Notes what is known of the text besides its tokens."""
        value = self.hash
        for token in tokens:
            value = base_hash.extend(value, token)
            self._hashes.append(value)
        self.hash = value
        self.length += len(tokens)
        self.remaining -= len(tokens)
