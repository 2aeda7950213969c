"""Lists what an operator has to do, worst first: for one sink in full, for a fleet with a line for each sink.

It judges one reading of a sink as the workers judge their own health (`sink.operations.health`). Pure; raises nothing.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from coordination.state.incarnations import worker_of
from coordination.state.tree import KeeperView
from sink.commands.common import text_table
from sink.operations.health import HealthEvidence, Judgement, duration, judge
from sink.operations.observed_sink import ObservedSink
from sink.operations.remedies import Finding, finding
from sink.operations.status import FORMAT, Status
from sink.telemetry.backlog import Trend, last_commit

SHOWN = 10
URGENT = frozenset({"halted", "refused", "no-tree", "no-coordinator", "zookeeper", "znode", "other-version"})
"""Kinds of findings that stop all commits."""


@dataclass(frozen=True, slots=True)
class SinkReport:
    """One reading of a sink; `status` is None if it could not be read."""

    name: str
    status: Status | None
    judgement: Judgement
    committed_at: float | None = None
    paused: bool = False

    @property
    def urgency(self) -> int:
        """3: nothing is committed; 2: the sink is unhealthy; 1: there are notes; 0: nothing needs doing."""
        if any(reason.kind in URGENT for reason in self.judgement.reasons):
            return 3
        return 2 if self.judgement.reasons else 1 if self.judgement.notes else 0

    @property
    def state(self) -> str:
        kinds = {reason.kind for reason in self.judgement.reasons}
        if "halted" in kinds:
            return "HALTED"
        if "refused" in kinds:
            return "cannot be used"
        if self.status is None or self.judgement.reasons:
            return "unhealthy"
        if self.paused:
            return "paused"
        return "aborting" if self.committed_at is None and self.status.history else "committing"

    def to_json(self) -> dict[str, Any]:
        """Returns the document of `sink status --json`: the status and the judgement."""
        status_document = {"format": FORMAT, "sink": self.name} if self.status is None else self.status.to_json()
        return {
            **status_document,
            "healthy": self.judgement.healthy,
            "reasons": [reason.to_json() for reason in self.judgement.reasons],
            "notes": [note.to_json() for note in self.judgement.notes],
        }


def report_on(sink: ObservedSink, view: KeeperView, status: Status, trend: Trend) -> SinkReport:
    """Judges a sink. `trend` has seen the view."""
    evidence = HealthEvidence(sink, time.time(), view, status, trend=trend)
    return SinkReport(sink.name, status, judge(evidence), last_commit(view), bool(evidence.paused))


def unread(name: str, kind: str, reason: str) -> SinkReport:
    """Returns the report on a sink that has no status, for a reason of this kind."""
    return SinkReport(name, None, Judgement((finding(kind, reason),)))


def needs(reports: Sequence[SinkReport]) -> Iterator[RenderableType]:
    """Yields the findings of these sinks, worst first; nothing if nothing needs doing."""
    issues = [(report, reason, True) for report in _worst_first(reports) for reason in report.judgement.reasons]
    issues += [(report, note, False) for report in _worst_first(reports) for note in report.judgement.notes]
    if not issues:
        return
    yield Text("What needs doing first", style="bold")
    for report, issue, is_ill in issues[:SHOWN]:
        yield _need(issue, is_ill, report.name if len(reports) > 1 else "")
    if len(issues) > SHOWN:
        yield Text(f"and {len(issues) - SHOWN} more", style="dim")


def _need(issue: Finding, is_ill: bool, sink: str) -> Text:
    colour = "red" if is_ill else "yellow"
    return Text.assemble(
        "  ",
        (f"{sink}: " if sink else "", "bold"),
        (f"{issue.kind}: ", f"bold {colour}"),
        (f"{issue.text.removesuffix('.')}.", colour),
        f" {issue.do}" if issue.do else "",
        (f" [docs/runbook.md#{issue.section}]" if issue.section else "", "dim"),
    )


def overview(reports: Sequence[SinkReport], now: float) -> Group:
    """Returns a table with a line for each sink, below what needs doing."""
    names = ("sink", "state", "coordinator", "workers>", "lag>", "last commit>", "open>", "needs")
    rows = (_overview_row(report, now) for report in _worst_first(reports))
    return Group(*needs(reports), text_table(names, rows, f"{len(reports)} sinks"))


def _overview_row(report: SinkReport, now: float) -> Sequence[RenderableType]:
    status = report.status
    worst = next(iter((*report.judgement.reasons, *report.judgement.notes)), None)
    return (
        Text(report.name, style="bold"),
        Text(report.state, style=_COLOURS[report.urgency]),
        "" if status is None else worker_of(status.coordinator) if status.coordinator else "none",
        "" if status is None else str(len(status.members)),
        "" if status is None or status.lag is None else f"{status.lag:,}",
        "" if report.committed_at is None else f"{duration(now - report.committed_at)} ago",
        "" if status is None else str(len(status.transactions)),
        "" if worst is None else worst.kind,
    )


_COLOURS = ("green", "yellow", "red", "bold red")


def _worst_first(reports: Sequence[SinkReport]) -> list[SinkReport]:
    lags = {id(report): 0 if report.status is None else report.status.lag or 0 for report in reports}
    return sorted(reports, key=lambda report: (-report.urgency, -lags[id(report)], report.name))
