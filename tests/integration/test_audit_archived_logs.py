"""The audit reads log files whose commit is archived, which hudi-rs leaves out."""

from __future__ import annotations

import pytest
from kazoo.client import KazooClient

from sink.audit.audit import audit
from sink.audit.log import TopicAccess
from sink.hudi.instants import TIMELINE
from sink.hudi.table import TableOutcome
from tests.integration.conftest import Open
from tests.integration.rewrites_kit import At, other_services
from tests.integration.table_kit import SINK
from tests.integration.test_after_a_restore import LIMITS
from tests.integration.upsert_kit import BUCKETS, NO_METADATA, ON_READ, change, send

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]


@pytest.mark.thorough
def test_log_files_of_a_commit_that_was_open_when_a_compaction_was_planned_are_read_when_it_is_archived(
    open_upserts: Open, kafka, zookeeper_client: KazooClient
) -> None:
    upserts = open_upserts(**ON_READ, **BUCKETS, **NO_METADATA, **LIMITS, provenance__columns="true")
    send(kafka.address, upserts.topic, [change(key, 1) for key in range(4)])
    upserts.land((0, 0, 4))
    send(kafka.address, upserts.topic, [change(key, 2) for key in range(4)])
    upserts.land((0, 4, 8))
    send(kafka.address, upserts.topic, [change(0, 3), *(change(1, number) for number in range(4, 8))])
    instant = upserts.begin()
    written = upserts.write(instant, (0, 8, 9))

    def complete() -> None:
        assert upserts.complete(instant, written) is TableOutcome.COMPLETED
        for offset in range(9, 13):
            upserts.land((0, offset, offset + 1))

    begun = At("Compaction.scheduled", complete)
    results = other_services(upserts, zookeeper_client, begun).run()
    assert begun.reached
    assert not [result.reason for result in results if result.reason]
    assert not [name for name in upserts.hudi.names(TIMELINE) if name.startswith(instant)]
    report = audit(upserts.settings.base_path, SINK, TopicAccess(kafka.address), content=True, readers=("hudi-rs",))
    assert report.held, report.to_json()
    assert report.content is not None
    assert (report.content.compared, report.content.complete) == (4, True)
    assert "a commit of their log files is archived" in report.to_json()
