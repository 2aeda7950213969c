"""Each halt leads to its own row of the runbook, from the page, from `sink status` and from the log."""

from __future__ import annotations

import io
import json
import logging
import re
from pathlib import Path

import pytest

from coordination.state.messages import Note
from sink.operations.remedies import DO, halt_remedy
from sink.runtime.notes import Observer
from sink.telemetry.logs import configure
from sink.telemetry.metrics import ProcessMetrics
from tests.unit.settings_kit import minimal_settings

RUNBOOK = Path(__file__).resolve().parents[2] / "docs" / "runbook.md"
HALTS = {
    "20 of 30 records are bad, more than errors.max.ratio": "halt-too-many-bad-records",
    "/lake/orders/.hoodie/.sink_errors/2026: bad records are gone": "halt-bad-records-gone",
    "orders-0: offsets [5, 10) were deleted from the log": "halt-offsets-deleted",
    "orders-0: the topic was deleted and created again": "halt-topic-recreated",
    "orders-0: the broker has no such topic or partition": "halt-partitions-gone",
    "orders-0: the log was truncated to 5": "halt-log-truncated",
    "Kafka: orders-0 offset 5: CRC32C. The broker's log is damaged there": "halt-log-damaged",
    "orders-0: the log is not the one that was read: before offset 5": "halt-log-changed",
    "schema registry: id 7 is not the schema that it was: earlier": "halt-schema-changed",
    "the table was filled from the Kafka cluster a, this one is b": "halt-another-cluster",
    "the sink began to read the Kafka cluster a, this one is b": "halt-another-cluster",
    "/lake/t: sink a has landed t-0 up to offset 10 into this table, and sink b would": "halt-landed-by-another",
    "/lake/t: changed by another writer: the table's record key: id; the settings": "halt-table-changed",
    "the table already holds file ids of transaction 7": "halt-file-ids",
    "another fleet commits under the sink name": "halt-another-fleet",
    "transaction 7 is PREPARED, but its plan is gone": "halt-znodes-gone",
    "ZooKeeper records transaction 7, the table 5": "halt-table-behind",
    "a `sink reset` or `sink adopt` was interrupted": "halt-reset-interrupted",
    "something new": "halts",
}


def anchors() -> set[str]:
    text = RUNBOOK.read_text()
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {*re.findall(r'<a id="([\w-]+)">', text), *(heading.lower().replace(" ", "-") for heading in headings)}


@pytest.mark.parametrize(("reason", "section"), HALTS.items())
def test_a_halt_leads_to_its_row(reason: str, section: str) -> None:
    assert halt_remedy(reason).section == section
    assert section in anchors()


def test_every_row_is_led_to_and_every_other_finding_has_a_section() -> None:
    rows = {anchor for anchor in anchors() if anchor.startswith("halt-")}
    # A bad record has a section of its own; damage has no sentence of its own.
    assert rows - set(HALTS.values()) == {"halt-bad-record", "halt-unreadable"}
    assert halt_remedy("orders-0 offset 5: no JSON", at_offset=True).section in anchors()
    assert {section for _, section in DO.values() if section} <= anchors()


@pytest.mark.parametrize(
    ("reason", "section"),
    [
        ("orders-0: the log was truncated to 5", "halt-log-truncated"),
        ("orders-0 offset 5: value: no JSON", "a-bad-record"),
    ],
)
def test_the_log_line_of_a_halt_leads_there_too(reason: str, section: str, tmp_path: Path) -> None:
    out = io.StringIO()
    configure(stream=out)
    try:
        Observer(minimal_settings(tmp_path), ProcessMetrics().sink("orders")).note(
            Note("sink.halted", (("reason", reason),))
        )
    finally:
        logging.getLogger().handlers.clear()
    # What an earlier test of this process has left may log too: a gateway to a JVM that ended, when it is collected.
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    halts = [line for line in lines if line["event"] == "sink.halted"]
    assert [line["runbook"] for line in halts] == [f"docs/runbook.md#{section}"]
