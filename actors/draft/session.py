"""One session at the drafter: what is committed as far as it knows, and the tree that grows below it.

Pure. The text is the target's; the drafter only follows. A verdict that continues our text extends it; anything else is
stale, or shows that we lost the thread and must ask for the rest:

    verdict ends at or before our text                stale, nothing changes
    verdict begins after our text                     ask for the tokens after our length
    verdict overlaps, hash of the result differs      our text is wrong: ask for all of it
    verdict continues our text                        extend
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from outrider.actors.draft.events import Attach, Resync, SessionNews, Verdict
from outrider.actors.draft.ripening import Ripening
from outrider.actors.draft.rounds import FrozenNews, Rounds
from outrider.actors.draft.thrift import Thrift
from outrider.actors.draft.tree import DraftTree, TreeNews
from outrider.actors.speculation import base_hash
from outrider.actors.speculation.policies import TreeMask

LOOKAHEAD = 2
"""The tree may be this many times as deep as one target pass verifies, so that the next tree grows while a pass runs."""


URGENT_NEWS = 3
"""Levels of a new tree that go out one by one: the target may wait for them. What comes later finds it busy."""


GAP_SHARE = 0.125
"""Part of a round trip between two messages that are not urgent. Near targets never notice: a draft pass takes longer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stale:
    """The message says nothing new."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Extend:
    """The text goes on with these tokens."""

    tokens: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewrite:
    """Our text was wrong after `keep` tokens; this is what follows."""

    keep: int
    tokens: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """Tokens are missing: ask for those after the first `length`."""

    length: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken:
    """The target contradicts itself: the session cannot go on here."""

    message: str


Step = Stale | Extend | Rewrite | Ask | Broken
"""What a message means for a session."""


class DraftSession:
    """State of one session. Owned by one thread."""

    def __init__(self, attach: Attach) -> None:
        self.key = attach.key
        self.request_id = attach.request_id
        self.sampling = attach.sampling
        self.speculation = attach.speculation
        self.prompt_length = attach.prompt_length
        self.vocab_size = attach.vocab_size
        """Token ids of the target; none beyond is proposed."""
        self.tokens = list(attach.tokens)
        self.hash = base_hash.extend_all(base_hash.EMPTY, attach.tokens)
        self.tree = DraftTree()
        self.frozen: Rounds | None = None
        """Trees of a verifier that tests frozen ones, instead of `tree`."""
        self.epoch = 0
        self.credits: int | None = None
        """Nodes that the target allows below the base; None until it said."""
        self.least_value = 0.0
        """Nodes that are worth less are not run until a verdict makes them worth more."""
        self.least_sent = 0.0
        """Nodes that are worth less are kept back until a verdict makes them worth more, where bytes are dear."""
        self.thrift: Thrift | None = None
        """Which part of that floor holds at present; None: all of it."""
        is_built = attach.speculation.policies.tree_mask is TreeMask.BUILT
        self.tree_mask: Literal["sliced", "built"] = "built" if is_built else "sliced"
        """How the engine makes the masks of the session's passes."""
        self.roots: tuple[int, ...] = ()
        """The target's own candidates for the next token, the likeliest first."""
        self.asked_at: float | None = None
        """When the missing tokens were asked for; None if none are missing."""
        self.is_waiting = False
        """Lockstep: the tree was sent, the verdict is awaited."""
        self.urgent_news = URGENT_NEWS
        """How many more news go out at once, because the target has nothing of ours below the base."""
        self.ripens_until = -math.inf
        """Until then the target waits for our next message, and the tree may grow before it goes out."""
        self.ripening = Ripening()
        """When it has grown enough."""
        self.num_messages = 0
        """Messages with nodes of `tree` so far."""
        self.hold_until = 0.0
        """When not urgent, news gather until then: the target is busy, and each message costs both sides time."""
        self.round_trip_s = attach.round_trip_s
        """Seconds to the target and back."""
        self.link_gap_s = GAP_SHARE * attach.round_trip_s
        """Seconds that news gather after others went out: what is long on its way anyway may as well travel together."""
        self.gap_s = self.link_gap_s
        """The same, or a part of the target's pass if that is longer."""

    @property
    def length(self) -> int:
        """Number of committed tokens."""
        return len(self.tokens)

    @property
    def final_length(self) -> int:
        """Number of tokens after which the session is over."""
        return self.prompt_length + self.sampling.max_tokens

    @property
    def is_resting(self) -> bool:
        """The target wants nothing, though the text goes on."""
        return self.credits == 0 and self.final_length - self.length > 1

    def judge_verdict(self, verdict: Verdict) -> Step:
        """What a verdict means. Changes nothing."""
        return self._continue(verdict.length, verdict.hash, verdict.tokens)

    def judge_resync(self, resync: Resync) -> Step:
        """What a resync means. Changes nothing."""
        start = resync.length - len(resync.tokens)
        if start < 0:
            return Broken(
                message=f"the target sent {len(resync.tokens)} tokens that end at length "
                f"{resync.length}; attach the drafter again"
            )
        step = self._continue(resync.length, resync.hash, resync.tokens)
        if not isinstance(step, Ask) and not (isinstance(step, Stale) and start == 0):
            return step
        if start > self.length:
            return Ask(length=self.length)
        tokens = self.tokens[:start] + list(resync.tokens)
        if base_hash.extend_all(base_hash.EMPTY, tokens) != resync.hash:
            if start > 0:
                return Ask(length=0)
            return Broken(
                message=f"the hash of the {resync.length} tokens that the target sent is not the "
                "one it stated; attach the drafter again"
            )
        keep = _common_prefix(self.tokens, tokens)
        if keep == self.length == len(tokens):
            return Stale()
        return Rewrite(keep=keep, tokens=tuple(tokens[keep:]))

    def _continue(self, length: int, hash_: int, tokens: Sequence[int]) -> Step:
        start = length - len(tokens)
        if start > self.length:
            return Ask(length=self.length)
        if length < self.length or start < 0:
            return Stale()
        fresh = tuple(tokens[self.length - start :])
        if base_hash.extend_all(self.hash, fresh) != hash_:
            return Ask(length=0)
        return Extend(tokens=fresh) if fresh else Stale()

    def append(self, tokens: Sequence[int]) -> None:
        """Takes tokens as committed. The tree is the drafter's part."""
        self.tokens.extend(tokens)
        self.hash = base_hash.extend_all(self.hash, tokens)

    def replace(self, keep: int, tokens: Sequence[int]) -> None:
        """Takes other tokens as committed after the first `keep`, and forgets the tree."""
        self.tokens[keep:] = tokens
        self.hash = base_hash.extend_all(base_hash.EMPTY, self.tokens)
        self.tree.clear()

    def take_news(self, limit: int) -> SessionNews | None:
        """What the target has not heard of yet, if the credits allow any.

        Args:
            limit: Greatest number of nodes below the base, whatever the credits.
        """
        if self.frozen is not None:
            trees = () if self.credits == 0 else self.frozen.take_news()
            return self._news(TreeNews(tokens=[], parents=[], estimates=b""), trees)
        if self.credits is not None:
            limit = min(limit, self.credits)
        floor = self.least_sent * (self.thrift.share if self.thrift is not None else 1.0)
        news = self.tree.take_news(limit, floor, number=self.num_messages + 1)
        if news is None:
            return None
        if self.thrift is not None:
            self.thrift.sent(news.tokens)
        self.num_messages += 1
        return self._news(news, ())

    def _news(self, tree: TreeNews, trees: tuple[FrozenNews, ...]) -> SessionNews | None:
        if not tree.tokens and not trees:
            return None
        return SessionNews(
            handle=self.key.handle,
            length=self.length,
            hash=self.hash,
            tree=tree,
            frozen=trees,
            number=self.num_messages,
        )

    def unsend(self, seen: int | None = None) -> None:
        """Takes what was sent as not sent: the target has nothing of it.

        Args:
            seen: Number of the last message that the target had taken in when it had nothing; what later ones hold is on its
                way. None: it has nothing at all.
        """
        self.tree.unsend(seen)
        if self.frozen is not None:
            self.frozen.unsend()

    def num_foreseen(self, tokens: Sequence[int]) -> int:
        """How many of these tokens were drafted, one below the other."""
        if self.frozen is not None:
            return self.frozen.num_foreseen(tokens)
        return len(self.tree.walk(tokens))


def _common_prefix(ours: Sequence[int], theirs: Sequence[int]) -> int:
    length = 0
    for our_token, their_token in zip(ours, theirs, strict=False):
        if our_token != their_token:
            break
        length += 1
    return length
