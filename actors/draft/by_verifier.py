"""Two ways of drafting with one model, chosen for each session by its verifier.

Verifiers that ask for nothing but tokens get trees of likely draws, grown without end; those that test frozen trees get
tokens drawn from the model. Both share the model's slots, and take turns if both have sessions.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from outrider.actors.draft.autoregressive import AutoregressiveDrafter
from outrider.actors.draft.drafter import Progress
from outrider.actors.draft.sampled import SampledDrafter
from outrider.actors.draft.session import DraftSession
from outrider.actors.speculation.verifiers.registry import METHODS


class DrafterByVerifier:
    """Hands each session to the method that its verifier needs."""

    def __init__(self, *, coupled: AutoregressiveDrafter, sampled: SampledDrafter) -> None:
        """Takes the two methods, which use the same engine."""
        self._coupled = coupled
        self._sampled = sampled
        self._sampled_last = False

    @property
    def num_slots(self) -> int:
        """Sessions that can be served at a time, by both methods together."""
        return self._coupled.num_slots

    @property
    def num_free_slots(self) -> int:
        """Sessions that can be attached."""
        return self._coupled.num_free_slots

    def attach(self, session: DraftSession) -> None:
        """Makes room for a session.

        Raises:
            NoRoom: Every slot is taken.
            CannotDraft: The session is not one that its method can serve.
        """
        self._of(session).attach(session)

    def detach(self, session: DraftSession) -> None:
        """Frees the session's slot."""
        self._of(session).detach(session)

    def extend(self, session: DraftSession, tokens: Sequence[int]) -> None:
        """Takes tokens as committed."""
        self._of(session).extend(session, tokens)

    def rewrite(self, session: DraftSession, keep: int, tokens: Sequence[int]) -> None:
        """Takes other tokens as committed after the first `keep`."""
        self._of(session).rewrite(session, keep, tokens)

    def is_complete(self, session: DraftSession) -> bool:
        """True if the tree will not grow before the next verdict."""
        return self._of(session).is_complete(session)

    def draft(self, sessions: Collection[DraftSession]) -> Progress:
        """Runs one pass of one method: the one that had no turn last, if it has work."""
        sampled = [session for session in sessions if _is_sampled(session)]
        if not sampled:
            return self._coupled.draft(sessions)
        coupled = [session for session in sessions if not _is_sampled(session)]
        for _ in range(2):
            self._sampled_last = not self._sampled_last
            progress = (
                self._sampled.draft(sampled) if self._sampled_last else self._coupled.draft(coupled)
            )
            if progress.worked:
                break
        return progress

    def _of(self, session: DraftSession) -> AutoregressiveDrafter | SampledDrafter:
        return self._sampled if _is_sampled(session) else self._coupled


def _is_sampled(session: DraftSession) -> bool:
    return METHODS[session.speculation.verifier].needs_draft_probs
