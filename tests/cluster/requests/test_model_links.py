"""The links of a model, as the roster has them."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from outrider.cluster.config.coordinator_settings import CoordinatorSettings
from outrider.cluster.requests.drafter_links import DrafterLinks
from outrider.cluster.requests.model_links import ModelLinks
from outrider.cluster.roster.roster import EMPTY, Member, Role

ADDRESS = "127.0.0.1:9"
UNKNOWN = -1
"""Slots of a target that is not known."""


async def test_a_target_that_has_left_leaves_nothing_in_the_queue() -> None:
    """Replicas that follow the load come and go for as long as the service runs."""
    settings = CoordinatorSettings(name="c", incarnation=1)
    drafters = DrafterLinks(settings, on_up=lambda name: None, on_defect=lambda reason: None)
    links = ModelLinks(
        settings,
        None,
        drafters,
        on_readiness=lambda is_ready: None,
        on_target_up=lambda: None,
        on_defect=lambda reason: None,
    )
    leaving = Member(
        name="t",
        role=Role.TARGET,
        address=ADDRESS,
        incarnation=1,
        model="m",
        pid=1,
        node_id="n",
        is_draining=True,
    )
    links.update(replace(EMPTY, version=1, members=(leaving,)))
    assert links.slots.admission.num_slots(ADDRESS) == 0
    links.update(replace(EMPTY, version=2))
    assert links.slots.admission.num_slots(ADDRESS) == UNKNOWN
    await links.stop()
    await asyncio.sleep(0.0)
