"""The sequences that lost rows before, and the first that seeds choose: `make rewrites` has the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from math import inf
from pathlib import Path
from typing import Any

import pytest

from tests.rewrites.lab import Lab
from tests.rewrites.named import NAMED
from tests.rewrites.run import run_seeds, too_little
from tests.rewrites.world import SETTLINGS, World

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1800)]

SHORTEST = {
    "a compaction dies between metadata table and timeline": 1,
    "a column comes while a compaction is written": 0,
    "a rollback that another writer planned and left": 0,
}
"""Sequences whose losses show soonest, after so many runs of the services that follow their steps."""
SEQUENCES = 5
S3_SHARE = 0.2


@pytest.fixture(scope="module")
def lab(zookeeper: Any, kafka: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    opened = Lab(tmp_path_factory.mktemp("rewrites"), zookeeper.address, kafka.address)
    yield opened
    opened.close()


def run_named(lab: Lab, name: str, settlings: int) -> None:
    report = World.of(lab, list(NAMED).index(name), NAMED[name].profile, NAMED[name].steps, settlings).run()
    assert not report.failure, "\n".join(report.trace)


@pytest.mark.parametrize("name", SHORTEST)
def test_a_sequence_that_has_lost_rows_before_keeps_them(lab: Lab, name: str) -> None:
    run_named(lab, name, SHORTEST[name])


@pytest.mark.thorough
@pytest.mark.parametrize("name", NAMED)
def test_a_named_sequence_keeps_its_rows_through_two_runs_of_the_services(lab: Lab, name: str) -> None:
    run_named(lab, name, SETTLINGS)


@pytest.mark.thorough
@pytest.mark.timeout(3600)
def test_every_sequence_that_a_seed_chooses_keeps_every_commit(lab: Lab, tmp_path: Path) -> None:
    results = tmp_path / "results.tsv"
    reports = run_seeds(lab, range(SEQUENCES), results, False, inf, S3_SHARE)
    assert not [(report.seed, report.failure) for report in reports if report.failure]
    assert len(reports) == SEQUENCES
    totals: Counter[str] = Counter()
    for report in reports:
        totals.update(report.counts)
    assert not too_little(totals, len(reports))
