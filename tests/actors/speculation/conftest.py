"""One thread for all tests here: the machine is shared, and no result may depend on the number."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Restore the number of threads afterwards, for tests elsewhere and for those that change it."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
