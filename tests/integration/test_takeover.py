"""A fleet of real workers, broken in every phase; each test ends with the auditor."""

from __future__ import annotations

import signal

import pytest

from coordination.model import Phase
from sink.local.servers import Part
from tests.fleet import in_phase, produce, transaction_in
from tests.integration.conftest import PARTITIONS, RECORDS, MakeFleet

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

ENDS = dict.fromkeys(range(PARTITIONS), RECORDS // PARTITIONS)
UNDECIDED = ("Write:open a transaction.after", "Begin.after", "Write:STARTED.after", "Write:PREPARED.before")
"""Moments before a transaction's outcome is decided."""
PREPARED = "Write:PREPARED.after"
COMPLETED = "Complete.after"


def test_a_participant_killed_while_writing_costs_one_attempt(fleet: MakeFleet) -> None:
    it = fleet()
    it.start("w1")
    it.coordinator()
    victim = it.start("w2", "WriteSlices.before=wait")
    it.wait("both are members", lambda view: len(view.members) == 2)
    produce(it.kafka, it.topic, 3000, PARTITIONS, first=RECORDS)
    it.wait_fired("WriteSlices.before")
    before = it.view()
    victim.kill()
    view = it.wait_landed({p: end + 1000 for p, end in ENDS.items()})
    aborted = [s for s in view.ledger.history if s.outcome == "ABORTED"]
    assert any("left the fleet" in s.reason for s in aborted), (before, view.ledger)
    it.assert_exactly_once(RECORDS + 3000)


@pytest.mark.timeout(1200)
def test_what_a_killed_coordinator_left_is_rolled_back_recommitted_or_settled(fleet: MakeFleet) -> None:
    """Each is killed at a later moment of its transaction, and the next one finds what it left."""
    it = fleet()
    for place, point in enumerate((*UNDECIDED, PREPARED, COMPLETED), 1):
        it.start(f"w{place}", f"{point}=kill")
        it.wait_fired(point)
        if point == PREPARED:
            left = transaction_in(it.wait("PREPARED", in_phase(Phase.PREPARED)), Phase.PREPARED)
    assert transaction_in(it.view(), Phase.PREPARED).header == left.header
    it.start("last")
    assert [name for name, worker in it.workers.items() if worker.running] == ["last"]
    history = it.wait_landed(ENDS).ledger.history
    assert [s.outcome for s in history].count("ABORTED") >= len(UNDECIDED), history
    assert [s.instant for s in history if s.outcome == "COMMITTED"].count(left.header.instant) == 1, history
    it.assert_exactly_once(RECORDS)


def test_a_coordinator_paused_beyond_its_session_is_refused_and_rejoins(fleet: MakeFleet) -> None:
    it = fleet()
    paused = it.start("w1", "Write:PREPARED.before=stop")
    it.wait_fired("Write:PREPARED.before")
    old = it.view().coordinator
    paused.pause()
    it.start("w2")
    it.wait("w1's session has ended", lambda v: all(m.incarnation != old for m in v.members))
    it.wait_landed(ENDS)
    paused.resume()
    it.wait_for_log("w1", "session.lost")
    it.wait("w1 has rejoined", lambda v: any(m.worker == "w1" and m.incarnation != old for m in v.members))
    produce(it.kafka, it.topic, 3000, PARTITIONS, first=RECORDS)
    it.wait_landed({p: end + 1000 for p, end in ENDS.items()})
    it.assert_exactly_once(RECORDS + 3000)


def test_a_participant_paused_beyond_its_session_is_refused_and_rejoins(fleet: MakeFleet) -> None:
    it = fleet()
    it.start("w1")
    it.coordinator()
    paused = it.start("w2", "Write:write status.before=stop")
    it.wait("w2 has joined", lambda v: len(v.members) == 2)
    produce(it.kafka, it.topic, 3000, PARTITIONS, first=RECORDS)
    it.wait_fired("Write:write status.before")
    paused.pause()
    old = {m.incarnation for m in it.view().members if m.worker == "w2"}
    it.wait_landed({p: end + 1000 for p, end in ENDS.items()})
    paused.resume()
    it.wait_for_log("w2", "session.lost")
    it.wait("w2 has rejoined", lambda v: any(m.worker == "w2" and m.incarnation not in old for m in v.members))
    it.assert_exactly_once(RECORDS + 3000)


def test_only_the_python_of_a_committing_coordinator_is_paused(fleet: MakeFleet) -> None:
    it = fleet()
    paused = it.start("w1", "Complete.guarded=stop")
    it.wait_fired("Complete.guarded")
    it.start("w2")
    it.wait_landed(ENDS)
    paused.signal(signal.SIGCONT, Part.PYTHON)
    produce(it.kafka, it.topic, 3000, PARTITIONS, first=RECORDS)
    it.wait_landed({p: end + 1000 for p, end in ENDS.items()})
    it.assert_exactly_once(RECORDS + 3000)


def test_only_the_jvm_of_a_committing_coordinator_is_paused(fleet: MakeFleet) -> None:
    it = fleet()
    stuck = it.start("w1", "Complete.guarded=stop-jvm")
    it.wait_fired("Complete.guarded")
    it.start("w2")
    it.wait_landed(ENDS)
    it.wait("w1 has ended itself", lambda _: not stuck.running)
    it.assert_exactly_once(RECORDS)


def test_slices_that_miss_the_write_status_deadline_are_reformed_elsewhere(fleet: MakeFleet) -> None:
    it = fleet(**{"coordinator.writestatus.timeout": 5000})
    it.start("w1")
    it.coordinator()
    it.start("w2", "WriteSlices.before=wait")
    it.wait("w2 has joined", lambda v: len(v.members) == 2)
    produce(it.kafka, it.topic, 3000, PARTITIONS, first=RECORDS)
    view = it.wait_landed({p: end + 1000 for p, end in ENDS.items()})
    assert any("no write status of w2" in s.reason for s in view.ledger.history), view.ledger
    it.let_go("WriteSlices.before")
    it.assert_exactly_once(RECORDS + 3000)


def test_sigterm_and_ctrl_c_drain_and_exit_with_status_0(fleet: MakeFleet) -> None:
    it = fleet()
    first = it.start("w1")
    it.coordinator()
    last = it.start("w2")
    it.wait("both have joined", lambda v: len(v.members) == 2)
    first.signal(signal.SIGTERM, Part.PYTHON)
    it.wait("w1 has left", lambda v: all(m.worker != "w1" for m in v.members))
    assert first.wait(60) == 0
    it.wait_landed(ENDS)
    last.signal(signal.SIGINT, Part.PYTHON)
    assert last.wait(60) == 0
    assert not it.view().members
    it.assert_exactly_once(RECORDS)
