"""When the fleet commits: by records, by bytes, by time, and not for nothing."""

from __future__ import annotations

import pytest

from tests.fleet import produce
from tests.integration.conftest import PARTITIONS, RECORDS, MakeFleet

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

ENDS = dict.fromkeys(range(PARTITIONS), RECORDS // PARTITIONS)
NEVER = 86_400_000
INTERVAL = 2


def test_a_backlog_is_eaten_in_transactions_of_so_many_bytes_without_waiting_for_the_interval(
    make_fleet: MakeFleet,
) -> None:
    # The events weigh about 42 bytes each. The first estimate is 1 KiB.
    fleet = make_fleet(**{"flush.bytes": "100KB", "flush.size": 1_000_000, "transaction.interval.ms": NEVER})
    fleet.start("w1")
    fleet.wait("all but a rest landed", lambda view: sum(s.end for s in view.states.values()) > RECORDS - 2500)
    sizes = [transaction.records for transaction in fleet.view().ledger.history if transaction.outcome == "COMMITTED"]
    assert max(sizes) * 42 <= 110_000
    assert max(sizes) > 5 * sizes[0]
    assert len(sizes) >= 5


def test_what_trickles_in_waits_for_the_interval_and_nothing_is_committed_for_nothing(make_fleet: MakeFleet) -> None:
    fleet = make_fleet(**{"flush.size": 1_000_000, "transaction.interval.ms": 1000 * INTERVAL})
    fleet.start("w1")
    fleet.wait_landed(ENDS)
    for batch in range(3):
        produce(fleet.kafka, fleet.topic, 30, PARTITIONS, first=RECORDS + 30 * batch)
        fleet.wait_landed({p: end + 10 * (batch + 1) for p, end in ENDS.items()})
    history = fleet.view().ledger.history
    # Not one transaction for each thirty: they may be seen in two parts. A wall clock may be adjusted meanwhile by a
    # little. The first interval is shorter, and within each of the others a batch may be planned late.
    planned = [transaction.times["PLANNED"] for transaction in history]
    assert planned[-1] - planned[0] > (len(planned) - 2) * INTERVAL - 0.1
    assert all(transaction.records for transaction in history)
    fleet.assert_exactly_once(RECORDS + 90)


def test_empty_commits_are_made_where_they_are_asked_for(make_fleet: MakeFleet) -> None:
    fleet = make_fleet(records=30, **{"transaction.interval.ms": 500, "hoodie.allow.empty.commit": "true"})
    fleet.start("w1")
    fleet.wait_landed(dict.fromkeys(range(PARTITIONS), 10))
    fleet.wait(
        "commits without records",
        lambda view: (
            sum(transaction.records == 0 and transaction.outcome == "COMMITTED" for transaction in view.ledger.history)
            >= 3
        ),
    )
    fleet.assert_exactly_once(30)
    assert len(list((fleet.table / ".hoodie" / "timeline").glob("*.commit"))) >= 4
