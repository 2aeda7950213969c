"""The audit knows rows that Hudi writes again when a key's change comes late, in another table partition."""

from __future__ import annotations

import pytest

from sink.audit.audit import audit
from sink.audit.log import TopicAccess
from tests.integration.conftest import Open
from tests.integration.table_kit import SINK
from tests.integration.upsert_kit import INDEXES, ON_READ, change, send

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]


@pytest.mark.parametrize("kind", [ON_READ, pytest.param({}, marks=pytest.mark.thorough)], ids=["on read", "on write"])
def test_a_row_that_a_late_change_in_another_table_partition_does_not_move_is_that_of_its_record(
    open_upserts: Open, kafka, kind: dict[str, str]
) -> None:
    """Hudi writes the row again, in the name of the late change's commit."""
    more = {**kind, **INDEXES["record"], "partition__field__name": "number", "ordering__field__name": "at"}
    upserts = open_upserts(**more, provenance__columns="true")
    send(kafka.address, upserts.topic, [change(key, 10, number=1) for key in (1, 2, 3)])
    upserts.land((0, 0, 3))
    deletion = change(3, 5, number=2, _hoodie_is_deleted=True)
    send(kafka.address, upserts.topic, [change(1, 5, number=2), change(2, 20, number=2), deletion])
    upserts.land((0, 3, 6))
    access = TopicAccess(kafka.address)
    report = audit(upserts.settings.base_path, SINK, access, global_keys=True, content=True)
    assert report.held, report.to_json()
    assert report.content is not None
    assert (report.content.compared, report.content.complete) == (3, True)
