"""pytest distributes the tests as tests/conftest.py says."""

from __future__ import annotations

import pytest


def test_a_file_stays_on_one_process(request: pytest.FixtureRequest) -> None:
    """Some versions of pytest ignore groups, and only a longer run would show it."""
    if not request.config.getoption("loadgroup", default=False):
        pytest.skip("tests are not distributed by groups here: make test")
    assert request.node.nodeid.endswith(f"@{request.node.path}")
