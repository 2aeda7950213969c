"""How many bad records a transaction may have, and what becomes of one that has more."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from coordination.planning.tolerance import NO_ERRORS, ErrorLimits
from coordination.state import codec
from coordination.state.failures import FailureKind
from coordination.state.messages import Complete
from coordination.state.model import QuarantinedRecords, Slice, SliceResult, WriteStatus
from tests.unit.machine_kit import Environment, new_term


def status(records: int, errors: int, incarnation: str = "w:1", first: int = 0) -> WriteStatus:
    one_slice = Slice("t", 0, first, first + records + errors, "id", 0)
    quarantined = (QuarantinedRecords(".hoodie/x", errors, "t", 0, first + 3, "no number"),) if errors else ()
    return WriteStatus(1, incarnation, (SliceResult(one_slice, records, 1, errors),), errors=quarantined)


@pytest.mark.parametrize(
    ("records", "errors", "limits", "exceeded"),
    [
        (990, 10, ErrorLimits(10, 0.5), False),
        (989, 11, ErrorLimits(10, 0.5), True),
        (50, 50, ErrorLimits(1000, 0.5), False),
        (49, 51, ErrorLimits(1000, 0.5), True),
        (0, 99, ErrorLimits(1000, 0.5), False),
        (0, 100, ErrorLimits(1000, 1.0), False),
        (1000, 0, NO_ERRORS, False),
        (1000, 1, NO_ERRORS, True),
    ],
)
def test_limits_are_those_of_the_whole_transaction(
    records: int, errors: int, limits: ErrorLimits, exceeded: bool
) -> None:
    of_one_status = limits.exceeded([status(records, errors)])
    half, remainder = errors // 2, errors - errors // 2
    of_two_statuses = limits.exceeded(
        [status(records, half), status(0, remainder, "w:2", first=5000)] if errors else []
    )
    assert (of_one_status is not None, of_two_statuses is not None) == (exceeded, exceeded)


def test_too_many_name_the_first_bad_record_the_counts_and_the_setting() -> None:
    failure = ErrorLimits(10, 0.5).exceeded([status(0, 30, "w:2", first=5000), status(1000, 20)])
    assert failure is not None
    assert (failure.kind, failure.topic, failure.partition, failure.offset) == (
        FailureKind.TOO_MANY_BAD_RECORDS,
        "t",
        0,
        3,
    )
    assert failure.reason == (
        "50 of 1,050 records are bad, more than errors.max.per.transaction=10 allows."
        " The first: t-0 offset 3: no number"
    )


@pytest.mark.parametrize("errors", [0, 2])
def test_bad_records_of_a_status_come_back_as_they_were(errors: int) -> None:
    assert codec.decode_status(codec.encode_status(status(5, errors)), "x") == status(5, errors)


def environment_with_bad_records(errors: int) -> Environment:
    class Bad(Environment):
        def write_status_of(self, header, incarnation, tasks):
            honest = super().write_status_of(header, incarnation, tasks)
            first, *later_results = honest.results
            first = replace(first, records=first.records - errors, errors=errors)
            results = (first, *later_results)
            one_slice = first.slice
            quarantine = (
                QuarantinedRecords(
                    f"p{one_slice.start}", errors, one_slice.topic, one_slice.partition, one_slice.start, "no number"
                ),
            )
            self.table.quarantined |= {quarantined.path: frozenset() for quarantined in quarantine}
            return replace(honest, results=results, errors=quarantine)

    return Bad()


def started(env: Environment, limits: ErrorLimits):
    term = new_term(env, errors=limits)
    term.until("STARTED")
    term.answer(term.perform(term.requested_operation))
    env.report()
    term.keeper_changed()
    return term


def test_a_transaction_with_few_bad_records_is_completed_with_where_they_are() -> None:
    complete = started(environment_with_bad_records(2), ErrorLimits(10, 0.5)).until(Complete)
    assert [quarantined.records for quarantined in complete.errors] == [2, 2]
    assert sum(result.errors for result in complete.checkpoint.results) == 4
    assert complete.attempt == 1


def test_one_with_too_many_is_aborted_and_halts_the_sink() -> None:
    env = environment_with_bad_records(6)
    term = started(env, ErrorLimits(10, 0.5))
    term.until("ABORTED")
    term.answer(term.perform(term.requested_operation))
    halt = env.view.halt
    assert halt is not None
    assert (halt.topic, halt.partition, halt.offset) == ("orders", 0, 0)
    assert "12 of 50 records are bad, more than errors.max.per.transaction=10 allows" in halt.reason


def test_bad_records_that_nobody_has_set_aside_cost_the_attempt() -> None:
    env = environment_with_bad_records(2)
    written = env.write_status_of

    def without_bad_records(*args):
        return codec.decode_status(without_errors(written(*args)), "x")

    env.write_status_of = without_bad_records  # type: ignore[method-assign]
    term = started(env, ErrorLimits(10, 0.5))
    term.until("ABORTED")
    assert term.notes("transaction.aborted")[0]["reason"] == "bad records were counted that nobody has set aside"


def without_errors(status: WriteStatus) -> bytes:
    document = json.loads(codec.encode_status(status))
    return json.dumps({**document, "errors": []}).encode()
