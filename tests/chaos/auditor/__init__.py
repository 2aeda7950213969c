"""Holds what a run left against the events that Kafka acknowledged, without a line of the sink's code.

hudi-rs reads the tables, as they stand on storage, merge-on-read ones with their logs.
"""

from __future__ import annotations

from pathlib import Path

from tests.chaos.auditor import appended, changes, errors
from tests.chaos.auditor.log import read_log
from tests.chaos.auditor.tables import committed_instants, rows_of

ACKNOWLEDGED = "acknowledged.txt"
FINDINGS = (*appended.FINDINGS, *changes.FINDINGS, *errors.FINDINGS)


def audit(directory: Path) -> dict[str, object]:
    """Counts `table`, `table_errors` and the acknowledged events, and how often each finding occurred."""
    log, table = read_log(directory / ACKNOWLEDGED), directory / "table"
    if log.rule == "append":
        rows = rows_of(table, appended.COLUMNS)
        found = appended.find(rows, log.sent)
    else:
        rows = rows_of(table, changes.COLUMNS)
        found = changes.find(rows, log.sent, ordered=log.rule == "by-at")
    aside = rows_of(directory / "table_errors", errors.COLUMNS)
    found |= errors.find(aside, log.sent, committed_instants(table))
    bad = sum(each.mark == "bad" for each in log.sent)
    counted = {"acknowledged": len(log.sent), "bad": bad, "rows": len(rows), "errors": len(aside)}
    examples = {name: [str(each) for each in where[:5]] for name, where in found.items() if where}
    return {**counted, **{name: len(found.get(name, ())) for name in sorted(set(FINDINGS))}, "examples": examples}
