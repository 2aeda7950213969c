"""`sink status` says what needs doing first, for one sink and for ten, in colour where that can be seen."""

from __future__ import annotations

import json
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console, Group

from coordination.state.failures import Halt, HaltKind
from coordination.state.model import LogView, PartitionLog, PartitionState, TopicPartition
from coordination.state.reading import TreeReader
from coordination.state.tree import KeeperInfo, KeeperView, Ledger, Summary
from coordination.zookeeper.full_tree import FullTree
from sink.commands.needs import SinkReport, needs, overview, report_on, unread
from sink.config import Settings
from sink.operations.observed_sink import observed_sink
from sink.operations.status import status_of
from sink.telemetry.backlog import Trend
from tests.unit.settings_kit import minimal_settings

NOW = 1_000_000.0
SOURCE = TopicPartition("orders", 0)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return minimal_settings(tmp_path)


def view(settings: Settings, committed_at: float = NOW - 5) -> KeeperView:
    times = {"PLANNED": committed_at - 1, "COMMITTED": committed_at}
    return replace(
        TreeReader().read({}),
        info=KeeperInfo("uuid", settings.config_digest),
        contenders=(("election/1", "w1:1"),),
        epoch=1,
        states={SOURCE: PartitionState("id", 0, 10, 0)},
        ledger=Ledger(7, 7, history=(Summary(7, 7, "COMMITTED", "1", 5, "", times),)),
    )


def report(settings: Settings, keeper_view: KeeperView, end: int = 10) -> SinkReport:
    log = LogView("c", {SOURCE: PartitionLog("id", 0, end)})
    trend = Trend(settings.normal_wait)
    trend.observe(keeper_view, log, NOW)
    sink = observed_sink(settings)
    return report_on(sink, keeper_view, status_of(sink, FullTree(keeper_view), log, NOW), trend)


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sink.commands.needs.time.time", lambda: NOW)


def printed(*parts: object, colours: bool = False) -> str:
    out = StringIO()
    Console(file=out, width=400, force_terminal=colours, color_system="standard" if colours else None).print(
        Group(*parts)  # type: ignore[arg-type]
    )
    return out.getvalue()


def test_a_sink_that_commits_needs_nothing(settings: Settings) -> None:
    healthy = report(settings, view(settings))
    assert (healthy.urgency, healthy.state) == (0, "committing")
    assert list(needs([healthy])) == []
    assert healthy.to_json()["healthy"] is True


def test_a_halt_comes_first_with_what_to_do_and_its_place_in_the_runbook(settings: Settings) -> None:
    reason = "orders-0: the log was truncated to 5, 10 had been read"
    halted = report(
        settings, replace(view(settings), halt=Halt(HaltKind.LOG_TRUNCATED, reason, "orders", 0, 5, NOW), contenders=())
    )
    assert (halted.urgency, halted.state) == (3, "HALTED")
    lines = printed(*needs([halted])).splitlines()
    assert lines[0] == "What needs doing first"
    assert lines[1].startswith(f"  halted: {reason}. Find out which records the broker lost.")
    assert lines[1].rstrip().endswith("[docs/runbook.md#halt-log-truncated]")
    assert lines[2].startswith("  no-coordinator: ")
    assert halted.to_json()["reasons"][0]["page"] == "docs/runbook.md#halt-log-truncated"


def test_a_sink_that_cannot_be_used_needs_its_settings_corrected(settings: Settings) -> None:
    refused = unread("people", "refused", "people.yaml, line 3: there is no such file. Correct it.")
    assert (refused.urgency, refused.state, refused.to_json()["healthy"]) == (3, "cannot be used", False)
    lines = printed(*needs([refused, report(settings, view(settings))])).splitlines()
    assert lines[1].startswith("  people: refused: people.yaml, line 3: there is no such file. Correct it. Correct ")


def aborts(*planned_ago: float) -> tuple[Summary, ...]:
    return tuple(
        Summary(number, 1, "ABORTED", None, 5, "no room", {"PLANNED": NOW - ago, "ABORTED": NOW - ago + 60})
        for number, ago in enumerate(planned_ago, 8)
    )


def test_records_that_may_have_come_a_moment_ago_into_a_quiet_topic_are_a_note(settings: Settings) -> None:
    late = report(settings, view(settings, committed_at=NOW - 4000), end=30)
    assert (late.urgency, late.state) == (1, "committing")
    assert "20 offsets wait, the oldest for at most 67 min; last commit 67 min ago" in printed(*needs([late]))


def test_records_of_transactions_that_were_aborted_wait_since_the_first_of_them(settings: Settings) -> None:
    keeper_view = view(settings, committed_at=NOW - 9000)
    history = (*aborts(9500), *keeper_view.ledger.history, *aborts(4000, 60))
    stuck = report(settings, replace(keeper_view, ledger=replace(keeper_view.ledger, history=history)), end=30)
    assert (stuck.urgency, stuck.state) == (2, "unhealthy")
    assert "20 offsets wait, the oldest for 67 min; last commit 2.5 h ago" in printed(*needs([stuck]))


def test_a_sink_whose_transactions_were_all_aborted_is_not_committing(settings: Settings) -> None:
    begun = report(settings, replace(view(settings), ledger=Ledger(8, 0, history=aborts(60))), end=30)
    assert (begun.urgency, begun.state) == (1, "aborting")
    stuck = report(settings, replace(view(settings), ledger=Ledger(9, 0, history=aborts(4000, 60))), end=30)
    assert (stuck.urgency, stuck.state) == (2, "unhealthy")
    assert "the oldest for 67 min; last commit never" in printed(*needs([stuck]))


def eleven_reports(settings: Settings) -> list[SinkReport]:
    """Returns reports on eight sinks that land, one that is halted, one far behind, and one that cannot be read."""
    halted = replace(view(settings), halt=Halt(HaltKind.OTHER, "broken", at=NOW))
    reports = [replace(report(settings, view(settings)), name=f"sink{number}") for number in range(8)]
    reports.append(replace(report(settings, halted), name="halted-one"))
    reports.append(replace(report(settings, view(settings, NOW - 4000), end=30), name="late-one"))
    return [*reports, unread("torn-one", "znode", "epoch: cannot be read")]


def replace_name(settings: Settings, name: str) -> Settings:
    return settings.model_copy(update={"name": name})


def test_of_ten_sinks_the_one_with_most_to_do_is_first_and_each_has_a_line(settings: Settings) -> None:
    lines = [line.rstrip() for line in printed(overview(eleven_reports(settings), NOW)).splitlines()]
    first, table = lines[: lines.index("11 sinks")], lines[lines.index("11 sinks") + 2 :]
    assert [line.split(":")[0].strip() for line in first[1:4]] == ["halted-one", "torn-one", "late-one"]
    assert [line.split()[0] for line in table[:3]] == ["halted-one", "torn-one", "late-one"]
    assert table[0].split()[:3] == ["halted-one", "HALTED", "w1"]
    assert len(table) == 11
    assert table[-1].split() == ["sink7", "committing", "w1", "0", "0", "5", "s", "ago", "0"]


def test_colours_go_to_a_terminal_only_and_not_where_nobody_wants_them(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    reports = eleven_reports(settings)
    assert "\x1b[" not in printed(overview(reports, NOW))
    assert "\x1b[1;31m" in printed(overview(reports, NOW), colours=True)
    monkeypatch.setenv("NO_COLOR", "1")
    assert "31m" not in printed(overview(reports, NOW), colours=True)


def test_the_json_of_a_sink_that_cannot_be_read_says_so(settings: Settings) -> None:
    document = unread(settings.name, "znode", "epoch: cannot be read").to_json()
    assert json.loads(json.dumps(document))["reasons"][0]["kind"] == "znode"
    assert document["healthy"] is False
