"""The last audit and the count of files reach the metrics, rarely, and fail nothing."""

from __future__ import annotations

from coordination.errors import Unavailable
from coordination.zookeeper.records import AuditAnswer
from sink.runtime.sinks.table_reports import AUDIT_SECONDS, FILES_SECONDS, TableMetricsReporter
from sink.telemetry.metrics import ProcessMetrics


class Sources:
    def __init__(self) -> None:
        self.now = 1000.0
        self.answer: AuditAnswer | None = None
        self.files: int | None = 3
        self.is_away = False
        self.counts = 0

    def last(self) -> AuditAnswer | None:
        if self.is_away:
            raise Unavailable("away")
        return self.answer

    def count(self) -> int | None:
        self.counts += 1
        return self.files


def lines(process: ProcessMetrics) -> list[str]:
    names = ("sink_audit", "sink_table_files")
    return [line for line in process.text().decode().splitlines() if line.startswith(names)]


def test_an_audit_shows_with_its_answer_and_files_with_their_number() -> None:
    sources, process = Sources(), ProcessMetrics()
    reports = TableMetricsReporter(sources, sources.count, process.sink("orders"), lambda: sources.now)
    reports.poll()
    reports.services_ran()
    assert lines(process) == ['sink_table_files{sink="orders"} 3.0']
    sources.answer = AuditAnswer(False, 77.0, "Not held", 6, 5)
    sources.now += AUDIT_SECONDS
    reports.poll()
    shown = [
        'sink_audit_timestamp_seconds{sink="orders"} 77.0',
        'sink_audit_held{sink="orders"} 0.0',
        'sink_audit_compared_rows{sink="orders"} 5.0',
    ]
    assert sorted(lines(process)) == sorted([*shown, 'sink_table_files{sink="orders"} 3.0'])
    process.sink("orders").not_serving()
    assert lines(process) == []


def test_files_are_counted_rarely_and_not_shown_where_nobody_counts_them() -> None:
    sources, process = Sources(), ProcessMetrics()
    reports = TableMetricsReporter(sources, sources.count, process.sink("orders"), lambda: sources.now)
    sources.files = None
    for _ in range(5):
        reports.services_ran()
        sources.now += 1
    assert (sources.counts, lines(process)) == (1, [])
    sources.now += FILES_SECONDS
    reports.services_ran()
    assert sources.counts == 2


def test_a_source_that_is_away_is_asked_again_and_fails_nothing() -> None:
    sources, process = Sources(), ProcessMetrics()
    reports = TableMetricsReporter(sources, sources.count, process.sink("orders"), lambda: sources.now)
    sources.is_away = True
    reports.poll()
    sources.is_away, sources.answer = False, AuditAnswer(True, 5.0, "Held")
    reports.poll()
    assert lines(process) == []
    sources.now += AUDIT_SECONDS
    reports.poll()
    assert len(lines(process)) == 3
