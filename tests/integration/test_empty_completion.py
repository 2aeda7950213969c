"""An instant whose completed file is empty, as a full local disk leaves it, is pending again when that file is deleted,
as the runbook says.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from coordination.errors import Corrupt
from coordination.state.model import InstantState
from sink.hudi.table import TableOutcome
from tests.integration.conftest import MakeDriver
from tests.integration.table_kit import CLUSTERING, Driver, allow, by_name, checkpoint

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600), pytest.mark.thorough]


def empty(driver: Driver, pattern: str) -> Path:
    [file] = Path(driver.settings.base_path, ".hoodie", "timeline").glob(pattern)
    file.write_bytes(b"")
    file.with_name(f".{file.name}.crc").unlink(missing_ok=True)
    return file


def test_a_transaction_whose_empty_completion_is_deleted_is_completed_again(make_driver: MakeDriver) -> None:
    driver = make_driver()
    driver.land(1)
    instant = driver.table.begin(2, 1)
    stats = driver.write(instant, 20)
    driver.table.complete(instant, stats, checkpoint(2), allow)
    file = empty(driver, f"{instant}_*.commit")
    with pytest.raises(Corrupt, match="is empty"):
        make_driver().table.view()
    file.unlink()
    table = make_driver().table
    assert table.view((instant,)).instants[instant] is InstantState.PENDING
    assert table.complete(instant, stats, checkpoint(2), allow) is TableOutcome.COMPLETED
    assert driver.count() == driver.count(metadata=False) == 20


def test_a_clustering_whose_empty_completion_is_deleted_is_planned_anew(make_driver: MakeDriver) -> None:
    driver = make_driver(**CLUSTERING)
    for number in (1, 2):
        driver.land(number)
    instant = by_name(driver.table.services())["clustering"].instant
    empty(driver, f"{instant}_*.replacecommit").unlink()
    assert driver.count() == driver.count(metadata=False) == 20
    table = make_driver(**CLUSTERING).table
    results = by_name(table.services())
    assert not [result.reason for result in results.values() if result.reason]
    assert results["clustering"].instant > instant
    assert driver.count() == driver.count(metadata=False) == 20
