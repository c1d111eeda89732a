"""What a coordinator may take where there are several. Pure.

A target's slots belong to all coordinators alike. Each may take what the others leave, so that one with all the work is not held
back by others without any. When somebody was refused, each keeps to an equal share until that is over: those above it give back as
their requests end, those below go on asking. The target alone decides; what is computed here only saves useless questions.
"""

from __future__ import annotations


def allowance(num_slots: int, *, coordinators: int, held_by_others: int, is_contended: bool) -> int:
    """Slots of a target that a coordinator may hold.

    Args:
        num_slots: Of the target.
        coordinators: That are connected to it.
        held_by_others: Slots that the others hold.
        is_contended: Some coordinator was refused lately.
    """
    own = share(num_slots, coordinators)
    return own if is_contended else max(num_slots - held_by_others, own)


def share(whole: int, coordinators: int) -> int:
    """An equal part of something, rounded up, so that none has nothing."""
    return -(-whole // max(1, coordinators))
