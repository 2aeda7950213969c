"""A fleet of four formats with one registry: patterns give topics their tables, and poisoned topics harm no others."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench.many_formats import Plan, run

pytestmark = [pytest.mark.integration, pytest.mark.thorough, pytest.mark.timeout(900)]


def test_topics_of_four_formats_land_once_beside_poisoned_ones_and_a_worker_that_is_killed(tmp_path: Path) -> None:
    fleet = run(Plan(topics=3, rate=5, interval=1, seconds=15), tmp_path)
    assert min(fleet.sender.sent[topic] for topic in fleet.healthy) > 0
