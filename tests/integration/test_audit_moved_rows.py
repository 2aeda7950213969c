"""The audit knows rows that Hudi writes again when a key's change comes late."""

from __future__ import annotations

from typing import Any

import pytest

from sink.audit.audit import audit
from sink.audit.log import TopicAccess
from tests.integration.conftest import Open
from tests.integration.table_kit import SINK
from tests.integration.upsert_kit import INDEXES, ON_READ, change, send

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]


ELSEWHERE = {"partition__field__name": "number"}
"""The late change is in another table partition than the row."""


def _case(name: str, *settings: dict[str, str], thorough: bool = True) -> Any:
    merged = {name: value for each in settings for name, value in each.items()}
    return pytest.param(merged, id=name, marks=[pytest.mark.thorough] if thorough else [])


@pytest.mark.parametrize(
    "more",
    [
        _case("on read, record, elsewhere", ON_READ, INDEXES["record"], ELSEWHERE, thorough=False),
        _case("on read, record", ON_READ, INDEXES["record"], thorough=False),
        _case("on read, bucket", ON_READ, INDEXES["bucket"]),
        _case("on write, record, elsewhere", INDEXES["record"], ELSEWHERE),
        _case("on write, record", INDEXES["record"]),
        _case("on write, bloom", INDEXES["bloom"]),
    ],
)
def test_a_row_that_a_late_change_of_its_key_leaves_is_that_of_its_record(
    open_upserts: Open, kafka, more: dict[str, str]
) -> None:
    """Hudi may write the row again, in the name of the late change's commit."""
    more = {**more, "ordering__field__name": "at"}
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
