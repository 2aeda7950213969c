"""Compares the tables of a run with the events that Kafka acknowledged, without a line of the sink's code.

hudi-rs reads the tables from storage, merge-on-read ones with their logs.
"""

from __future__ import annotations

from pathlib import Path

from tests.chaos.auditor import appended, changes, errors, others
from tests.chaos.auditor.log import read_log
from tests.chaos.auditor.tables import committed_instants, rows_of

ACKNOWLEDGED = "acknowledged.txt"
OTHERS = "others.txt"
FINDINGS = (*appended.FINDINGS, *changes.FINDINGS, *errors.FINDINGS, *others.FINDINGS)


def audit(directory: Path) -> dict[str, object]:
    """Counts `table`, `table_errors` and the acknowledged events, and how often each finding occurred."""
    log, table = read_log(directory / ACKNOWLEDGED), directory / "table"
    if log.rule == "append":
        rows, others_rows = others.split(rows_of(table, appended.COLUMNS))
        findings = appended.find(rows, log.events)
    else:
        rows, others_rows = others.split(rows_of(table, changes.COLUMNS))
        findings = changes.find(rows, log.events, ordered=log.rule == "by-at")
    error_rows = rows_of(directory / "table_errors", errors.COLUMNS)
    findings |= errors.find(error_rows, log.events, committed_instants(table))
    findings |= others.find(others_rows, directory / OTHERS)
    bad = sum(event.mark == "bad" for event in log.events)
    counts = {"acknowledged": len(log.events), "bad": bad, "rows": len(rows), "errors": len(error_rows)}
    examples = {name: [str(case) for case in cases[:5]] for name, cases in findings.items() if cases}
    return {**counts, **{name: len(findings.get(name, ())) for name in sorted(set(FINDINGS))}, "examples": examples}
