"""Simulated runs go without garbage collection."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def without_collecting() -> Iterator[None]:
    """Disables garbage collection, which takes a third of a run and finds little. The one after the test looks only at
    what the test has made, not at every object of the process."""
    gc.freeze()
    gc.disable()
    yield
    gc.enable()
    gc.collect()
    gc.unfreeze()
