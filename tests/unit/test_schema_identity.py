"""Schema ids are held against the fingerprints that earlier commits carry."""

from __future__ import annotations

import pytest

from coordination.planning.schema_identity import MOST_REMEMBERED, conflict, remembered
from coordination.state.codec import decode_checkpoint, encode_checkpoint
from coordination.state.failures import FailureKind
from coordination.state.messages import Complete
from tests.unit.machine_kit import Driver, Environment, new_term


def test_an_id_has_one_fingerprint_in_a_transaction_and_from_one_to_the_next() -> None:
    assert conflict({"7": "a"}, [("7", "a"), ("8", "b"), ("7", "a")]) is None
    for known, used in (({"7": "a"}, [("7", "b")]), ({}, [("7", "a"), ("7", "b")])):
        failure = conflict(known, used)
        assert failure is not None
        assert failure.kind is FailureKind.SCHEMA_CHANGED
        assert "id 7 is not the schema that it was" in failure.reason
        assert "schema.registry.url" in failure.reason


def test_what_was_used_last_is_remembered_in_bounded_space() -> None:
    known = {str(number): "f" for number in range(MOST_REMEMBERED)}
    after = remembered(known, [("0", "f"), ("new", "g")])
    assert len(after) == MOST_REMEMBERED
    assert list(after)[-2:] == ["0", "new"]
    assert "1" not in after


@pytest.fixture
def env() -> Environment:
    return Environment()


def committed(env: Environment, driver: Driver, number: int) -> Complete:
    driver.until("STARTED")
    driver.answer(driver.perform(driver.requested_operation))  # type: ignore[arg-type]
    env.report(number)
    driver.keeper_changed()
    complete = driver.until(Complete)
    driver.answer(driver.perform(complete))
    assert isinstance(complete, Complete)
    return complete


def test_a_schema_that_changes_under_its_id_halts_before_anything_is_prepared(env: Environment) -> None:
    env.schemas = (("7", "a"),)
    driver = new_term(env)
    checkpoint = committed(env, driver, 1).checkpoint
    assert checkpoint.schemas == {"7": "a"}
    assert decode_checkpoint(encode_checkpoint(checkpoint)) == checkpoint
    env.schemas = (("8", "b"),)
    assert committed(env, driver, 2).checkpoint.schemas == {"7": "a", "8": "b"}
    # Another coordinator learns it from the table.
    driver = new_term(env)
    env.schemas = (("7", "another"),)
    env.log.partitions[next(iter(env.log.partitions))].end = 1000
    driver.until("STARTED")
    driver.answer(driver.perform(driver.requested_operation))  # type: ignore[arg-type]
    env.report(3)
    driver.keeper_changed()
    driver.until("ABORTED")
    driver.answer(driver.perform(driver.requested_operation))  # type: ignore[arg-type]
    assert env.view.halt is not None
    assert "id 7 is not the schema that it was" in env.view.halt.reason
    assert env.table.view(()).checkpoint.number == 2  # type: ignore[union-attr]
