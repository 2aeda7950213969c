"""A judgement tells healthy sinks from ill ones, and adds notes; each halt has its remedy from the runbook."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

import pytest

from coordination.errors import Unavailable
from coordination.machines import recovery
from coordination.planning.offsets import DataLossPolicy, LostPrefix, OffsetReset, reconcile
from coordination.state import tree
from coordination.state.control import Control, RequestAuthor
from coordination.state.failures import Halt, HaltKind
from coordination.state.model import (
    Checkpoint,
    Header,
    LogView,
    Member,
    PartitionLog,
    PartitionState,
    Phase,
    Plan,
    TopicPartition,
    WorkerState,
)
from coordination.state.tree import KeeperInfo, KeeperView, Ledger, Summary
from coordination.zookeeper.full_tree import FullTree
from coordination.zookeeper.table_service_lock import ServiceOutcome, TableServiceRun
from sink.config import Settings
from sink.operations.health import HealthEvidence, Judgement, judge
from sink.operations.observed_sink import observed_sink
from sink.operations.remedies import DO, finding, halt_remedy
from sink.operations.status import OutsideStatus, status_of
from sink.telemetry.backlog import Trend, last_commit
from tests.unit.settings_kit import minimal_settings

WALL = 1_000_000.0
SOURCE = TopicPartition("orders", 0)
AWAY = Unavailable("Kafka gave no answer")
RUNBOOK = Path(__file__).resolve().parents[2] / "docs" / "runbook.md"


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Settings by which a commit is overdue after 60 s."""
    return minimal_settings(tmp_path, transaction__interval__ms="20s", coordinator__writestatus__timeout="30s")


def summary(number: int, at: float, outcome: Phase = Phase.COMMITTED, errors: int = 0) -> Summary:
    times = {"PLANNED": at - 5, outcome.value: at - 1, "ENDED": at}
    reason = "w2 did not report" if outcome is Phase.ABORTED else ""
    return Summary(number, number, outcome.value, "20260101000000000", 10, reason, times, errors)


def a_view(settings: Settings, committed_ago: float | None = 5.0, committed: int = 100) -> KeeperView:
    history = () if committed_ago is None else (summary(7, WALL - committed_ago),)
    member = Member("w1:1", "host", 1, "0.1", config=settings.config_digest)
    return KeeperView(
        info=KeeperInfo("uuid", settings.config_digest),
        info_version=0,
        members=(member,),
        contenders=(("election/lock-1", "w1:1"),),
        epoch=1,
        epoch_version=1,
        states={SOURCE: PartitionState("id", 0, committed, 1)},
        shard_versions={},
        ledger=Ledger(last=7, committed=7, history=history),
        ledger_version=1,
        transactions=(),
        incomplete_plan_paths=(),
        highest=7,
        halt=None,
    )


def evidence_of(
    settings: Settings,
    view: KeeperView,
    end: int | None = 100,
    waiting: float = 0.0,
    kafka_error: Unavailable | None = None,
) -> HealthEvidence:
    sink = observed_sink(settings)
    log = None if end is None else LogView("cluster", {SOURCE: PartitionLog("id", 0, end)})
    trend = Trend(30)
    if log is not None:
        before = replace(view, ledger=Ledger())
        trend.observe(before, LogView("cluster", {SOURCE: PartitionLog("id", 0, 100)}), WALL - waiting - 1)
        for after in (waiting, waiting / 2, 0.0):
            trend.observe(before, log, WALL - after)
    return HealthEvidence(sink, WALL, view, status_of(sink, FullTree(view), log or kafka_error, WALL), trend=trend)


def kinds(judgement: Judgement) -> tuple[list[str], list[str]]:
    return [reason.kind for reason in judgement.reasons], [note.kind for note in judgement.notes]


def test_three_intervals_or_the_write_deadline_whichever_is_longer(tmp_path: Path) -> None:
    assert minimal_settings(tmp_path, coordinator__writestatus__timeout="30s").commit_allowance == 180
    assert minimal_settings(tmp_path).commit_allowance == 300


@pytest.mark.parametrize(
    ("end", "waiting", "committed_ago", "reasons"),
    [
        (100, 0, 9000, []),  # no record has waited for hours
        (150, 10, 9000, []),  # records came a moment ago into a quiet topic
        (150, 50, 50, []),  # within what a commit may take
        (150, 500, 50, []),  # a backlog that lands bit by bit
        (150, 70, 70, ["not-committing"]),
        (150, 70, None, ["not-committing"]),  # no commit ever
    ],
)
def test_a_sink_is_ill_when_records_wait_and_no_commit_comes(
    settings: Settings, end: int, waiting: float, committed_ago: float | None, reasons: list[str]
) -> None:
    judgement = judge(evidence_of(settings, a_view(settings, committed_ago), end, waiting))
    assert kinds(judgement)[0] == reasons
    assert judgement.healthy == (not reasons)


@pytest.mark.parametrize("limit", ["15m", "1m"])
def test_an_open_kafka_transaction_is_told_and_makes_a_sink_ill_by_a_setting(tmp_path: Path, limit: str) -> None:
    settings = minimal_settings(tmp_path, kafka__open__transaction__limit=limit)
    held = LogView("cluster", {SOURCE: PartitionLog("id", 0, 100, 6_100)})
    evidence, view = evidence_of(settings, a_view(settings)), a_view(settings)
    for seconds in (70, 30, 0):
        evidence.trend.observe(view, held, WALL - seconds)
    evidence = replace(evidence, status=status_of(evidence.sink, FullTree(view), held, WALL))
    judgement = judge(evidence)
    assert kinds(judgement) == (([], ["open-transaction"]) if limit == "15m" else (["open-transaction"], []))
    [told] = judgement.reasons or judgement.notes
    since = datetime.fromtimestamp(WALL - 70, timezone.utc).strftime("%H:%M:%S")
    assert f"{SOURCE}: a Kafka transaction is open at offset 100, since" in told.text
    assert f"{since} UTC, and holds back 6,000 acknowledged offsets" in told.text
    # What can be read has landed: nobody is late, and the lag is not 0.
    assert (evidence.trend.age.known, evidence.status and evidence.status.lag) == (0, 6_000)
    evidence.trend.observe(view, LogView("cluster", {SOURCE: PartitionLog("id", 0, 6_100, 6_100)}), WALL)
    assert kinds(judge(evidence)) == ([], [])


def test_without_a_coordinator_a_sink_is_ill(settings: Settings) -> None:
    assert kinds(judge(evidence_of(settings, replace(a_view(settings), contenders=()))))[0] == ["no-coordinator"]


def test_a_halt_is_ill_and_comes_with_what_to_do(settings: Settings) -> None:
    halted = replace(
        a_view(settings), halt=Halt(HaltKind.BAD_RECORD, "orders-0 offset 7: no JSON", "orders", 0, 7, WALL)
    )
    [reason] = judge(evidence_of(settings, halted)).reasons
    assert (reason.kind, reason.section) == ("halted", "a-bad-record")
    assert "errors.tolerance=all" in reason.do


def test_a_pause_is_told_and_no_illness(settings: Settings) -> None:
    behind = evidence_of(settings, a_view(settings, 9000), 150, 100)
    assert kinds(judge(behind))[0] == ["not-committing"]
    paused = replace(a_view(settings, 9000), control=Control(paused=RequestAuthor("an operator", WALL)))
    reasons, notes = kinds(judge(replace(behind, view=paused)))
    assert (reasons, notes[0]) == ([], "paused")


def test_kafka_away_is_a_note_until_nobody_can_say_that_nothing_waits(settings: Settings) -> None:
    recent = judge(evidence_of(settings, a_view(settings, 10), None, kafka_error=AWAY))
    assert kinds(recent) == ([], ["kafka"])
    overdue = judge(evidence_of(settings, a_view(settings, 100), None, kafka_error=AWAY))
    assert kinds(overdue) == (["kafka"], ["kafka"])


def test_what_could_not_be_read_is_ill(settings: Settings) -> None:
    assert kinds(judge(HealthEvidence(observed_sink(settings), WALL)))[0] == ["not-read"]
    away = replace(evidence_of(settings, a_view(settings)), unread=finding("zookeeper", "no connection"))
    assert kinds(judge(away))[0] == ["zookeeper"]
    without_tree = judge(evidence_of(settings, replace(a_view(settings), info=None)))
    assert kinds(without_tree)[0] == ["no-tree"]


def test_a_sink_that_every_worker_refuses_is_ill_for_what_they_say(settings: Settings) -> None:
    refusal = OutsideStatus("w1", "refused", "/lake/orders is not a table")
    never_run = evidence_of(settings, replace(a_view(settings), info=None, contenders=(), members=()))
    assert never_run.status is not None
    judgement = judge(replace(never_run, status=replace(never_run.status, outside=(refusal,))))
    assert kinds(judgement) == (["refused"], [])
    assert judgement.reasons[0].text == "w1: /lake/orders is not a table"
    abandoned = evidence_of(settings, replace(a_view(settings), contenders=(), members=()))
    assert abandoned.status is not None
    assert kinds(judge(abandoned))[0] == ["no-coordinator"]
    assert kinds(judge(replace(abandoned, status=replace(abandoned.status, outside=(refusal,)))))[0] == ["refused"]


def test_one_worker_that_refuses_a_sink_is_told_while_others_run_it(settings: Settings) -> None:
    running = evidence_of(settings, a_view(settings))
    assert running.status is not None
    refusal = OutsideStatus("w2", "refused", "schema.ddl: no type BIGNIT")
    judgement = judge(replace(running, status=replace(running.status, outside=(refusal,))))
    assert kinds(judgement) == ([], ["outside"])


def test_what_needs_nobody_yet_is_told(settings: Settings) -> None:
    view = a_view(settings)
    history = (summary(7, WALL - 9, errors=3), summary(8, WALL - 5, Phase.ABORTED))
    view = replace(view, ledger=replace(view.ledger, history=history))
    evidence = evidence_of(settings, view)
    run = TableServiceRun(
        "w2", WALL, 7, (ServiceOutcome("clean", 1.0, "1"), ServiceOutcome("cluster", 1.0, "", "no space left"))
    )
    assert evidence.status is not None
    evidence = replace(
        evidence,
        status=replace(evidence.status, services=run),
        departed_workers=("w3",),
        troubles=("S3 does not answer",),
    )
    reasons, notes = kinds(judge(evidence))
    assert reasons == []
    assert notes == ["waits", "worker-gone", "aborts", "bad-records", "service-failed"]


def judged_services(settings: Settings, run: TableServiceRun) -> tuple[list[str], list[str]]:
    """Returns the texts of reasons and notes."""
    evidence = evidence_of(settings, a_view(settings))
    assert evidence.status is not None
    judgement = judge(replace(evidence, status=replace(evidence.status, services=run)))
    return [reason.text for reason in judgement.reasons], [note.text for note in judgement.notes]


def test_a_service_that_has_been_due_for_a_day_without_success_is_a_fault_and_before_that_a_note(
    settings: Settings,
) -> None:
    def failing(hours: float) -> TableServiceRun:
        return TableServiceRun("w2", WALL, 7, (ServiceOutcome("cleaning", 1.0, "", "no room", WALL - hours * 3600),))

    text = "the table service cleaning has been due for 25.0 h without success; the last attempt failed: no room"
    assert judged_services(settings, failing(23)) == ([], ["cleaning, on w2: no room"])
    assert judged_services(settings, failing(25)) == ([text], [])


def test_a_run_that_nobody_has_ended_for_a_day_is_a_fault(settings: Settings) -> None:
    ended = (ServiceOutcome("cleaning", 1.0, "1"), ServiceOutcome("archiving", 1.0))
    text = "the table services have been due for 30.0 h without success; no run has ended since"
    assert judged_services(settings, TableServiceRun("w2", 1.0, 7, ended, WALL - 30 * 3600)) == ([text], [])
    assert judged_services(settings, TableServiceRun(due=WALL - 30 * 3600)) == ([text], [])


def test_services_that_had_nothing_to_do_for_a_month_are_no_fault(settings: Settings) -> None:
    idle = (ServiceOutcome("cleaning", 1.0), ServiceOutcome("archiving", 1.0))
    assert judged_services(settings, TableServiceRun("w2", WALL - 30 * 86_400, 7, idle)) == ([], [])


@pytest.mark.parametrize(("ahead", "notes"), [(-3.0, []), (3.0, []), (40.0, ["clock"])])
@pytest.mark.parametrize("phase", [Phase.STARTED, Phase.COMMITTED])
def test_a_clock_behind_that_of_the_last_transaction_is_told(
    settings: Settings, ahead: float, notes: list[str], phase: Phase
) -> None:
    view = a_view(settings, 5.0 if phase is Phase.STARTED else -ahead)
    if phase is Phase.STARTED:
        times = {"PLANNED": WALL + ahead - 1, "STARTED": WALL + ahead}
        header = Header(8, 8, 1, 1, 7, phase, 60.0, "digest", times=times)
        view = replace(view, transactions=(tree.Transaction(header, 1, Plan({}), {}),))
    assert kinds(judge(evidence_of(settings, view))) == ([], notes)


def test_in_a_quiet_hour_nothing_is_told(settings: Settings) -> None:
    assert kinds(judge(evidence_of(settings, a_view(settings, 9000)))) == ([], [])


def test_the_last_commit_is_older_than_all_aborts_that_have_taken_its_place(settings: Settings) -> None:
    view = a_view(settings)
    aborts = tuple(summary(number, WALL - 100 + number, Phase.ABORTED) for number in range(10))
    assert last_commit(replace(view, ledger=replace(view.ledger, history=aborts))) == WALL - 105
    assert last_commit(replace(view, ledger=Ledger())) is None


@pytest.mark.parametrize(
    ("retention", "notes"),
    [
        (3600, []),
        (150, ["retention"]),  # more than half is gone, and nothing lands
        (105, ["retention"]),  # more than nine tenths
    ],
)
def test_a_retention_that_runs_out_before_the_records_land_is_told(
    settings: Settings, retention: float, notes: list[str]
) -> None:
    evidence = evidence_of(settings, a_view(settings, 50), 150, 100)
    assert kinds(judge(replace(evidence, retention={"orders": retention, "clicks": 1})))[1] == [*notes, "falls-behind"]


# Halts and the runbook


def halt_of(state: PartitionState | None, log: PartitionLog | None) -> HaltKind:
    decision = reconcile(SOURCE, state, log, DataLossPolicy.FAIL, OffsetReset.EARLIEST)
    return HaltKind.OFFSETS_DELETED if isinstance(decision, LostPrefix) else decision.kind  # type: ignore[union-attr]


STATE = PartitionState("id", 0, 50, 1)
SEEN = Checkpoint("orders", "theirs", "cluster", 2, 9, 8, "", {}, {})
HALTS = {
    "lost": (halt_of(STATE, PartitionLog("id", 70, 90)), "on.data.loss=skip"),
    "recreated": (halt_of(STATE, PartitionLog("other", 0, 90)), "--to earliest --topic"),
    "gone": (halt_of(STATE, None), "--to earliest --topic"),
    "truncated": (halt_of(STATE, PartitionLog("id", 0, 20)), "--offset"),
    "interrupted": (HaltKind.RESET_INTERRUPTED, "again"),
    "cluster": (HaltKind.ANOTHER_CLUSTER, "bootstrap.servers"),
    "twice": (HaltKind.LANDED_BY_ANOTHER, "--offset"),
    "changed": (HaltKind.TABLE_CHANGED, "Hudi's tools"),
    "ids": (HaltKind.FILE_IDS, "sink audit"),
    "prepared": (HaltKind.ZNODES_GONE, "--forget"),
    "ahead": (HaltKind.TABLE_BEHIND, "checkpoint"),
    "many": (HaltKind.TOO_MANY_BAD_RECORDS, "errors.max.ratio"),
    "record": (HaltKind.BAD_RECORD, "errors.tolerance=all"),
    "columns": (HaltKind.COLUMNS, "sink reset --yes"),
}


@pytest.mark.parametrize(("kind", "do"), HALTS.values(), ids=HALTS)
def test_each_halt_has_its_remedy(kind: HaltKind, do: str) -> None:
    assert do in halt_remedy(kind).do


def test_another_fleet_is_told_of_as_such(settings: Settings) -> None:
    foreign = recovery.foreign(SEEN, KeeperInfo("ours", ""), 3)
    assert foreign is not None
    assert "another sink.name" in halt_remedy(foreign.kind).do


def test_every_section_that_is_named_is_one_of_the_runbook(settings: Settings) -> None:
    text = RUNBOOK.read_text()
    titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    anchors = set(re.findall(r'<a id="([^"]+)"></a>', text))
    anchors |= {re.sub(r"[^\w -]", "", title).strip().lower().replace(" ", "-") for title in titles}
    named_sections = {section for _, section in DO.values()} | {halt_remedy(kind).section for kind in HaltKind}
    assert named_sections - {""} <= anchors


def test_a_member_that_drains_is_no_news(settings: Settings) -> None:
    view = a_view(settings)
    draining = replace(view, members=(replace(view.members[0], state=WorkerState.DRAINING),))
    assert kinds(judge(evidence_of(settings, draining))) == ([], [])
