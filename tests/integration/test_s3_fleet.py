"""A fleet on S3 lands every record exactly once, whoever is killed."""

from __future__ import annotations

import pytest

from tests.integration.conftest import METADATA, PARTITIONS, RECORDS, MakeFleet
from tests.storage.s3_server import Store

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

ENDS = dict.fromkeys(range(PARTITIONS), RECORDS // PARTITIONS)


def test_a_killed_coordinator_costs_nothing_on_s3(fleet: MakeFleet, s3: Store) -> None:
    base = f"s3a://{s3.make_bucket()}/orders"
    it = fleet(**METADATA, **s3.settings, **{"target.base.path": base})
    it.start("w1", "Complete.after=kill")
    it.start("w2")
    it.wait_fired("Complete.after")
    it.wait_landed(ENDS)
    it.assert_exactly_once(RECORDS)
    assert s3.secret_key not in it.logs()
