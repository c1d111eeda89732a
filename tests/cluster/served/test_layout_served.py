"""A block drafter whose files name the wrong layout, through coordinator, target and drafter: all real but the target's model."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.actors.draft.block.trained_block import counting_table, library_folder, trained
from tests.actors.draft.linear_head import spec_of
from tests.cluster.front import Serve
from tests.cluster.served.test_feedback_served import Served, generate, request, until

from outrider.actors.draft.service.draft_server import DraftServer
from outrider.actors.draft.state.draft_settings import DraftSettings
from outrider.actors.engine.engine_settings import EngineSettings
from outrider.client.messages.result_wire import status_from_proto


async def test_status_tells_which_layout_was_found(
    tmp_path: Path, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing at first; once found, what it is and what the files said, by the drafter's name. Texts are plain decoding's throughout."""
    table = tmp_path / "table.npz"
    counting_table().save(table)
    folder = library_folder(tmp_path / "d", trained(1), said=True)
    served = Served(table, spec_of(table), monkeypatch)
    engine = EngineSettings(model=str(folder), num_slots=2, max_context=512, num_threads=1)
    served.drafter = DraftServer(
        DraftSettings(name="head", incarnation=1, method="dspark", engine=engine)
    )
    async with served.running(serve) as front:
        status = await until(front, lambda status: any(one.ready for one in status.actors))
        assert not any(one.note for one in status.actors)
        for seed in range(3):
            plain, _ = await generate(front, request(seed, enabled=False, max_tokens=100))
            text, _ = await generate(front, request(seed, max_tokens=100))
            assert text == plain
        status = await until(front, lambda status: any(one.note for one in status.actors))
        told = status_from_proto(status).actors
        ((name, note),) = [(one.name, one.note) for one in told if one.note]
        assert name == "head"
        assert note.startswith("it was read with sample_from_anchor: true, but each slot predicts")
