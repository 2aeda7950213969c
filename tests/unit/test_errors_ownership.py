"""Sinks that may write an errors table, and those that are refused."""

from __future__ import annotations

import pytest

from coordination.errors import TableError
from sink.bad_records.ownership import Owner, SinkPlace, owner_with

HERE = SinkPlace("/sink/orders", "/tables/orders")
OWNER = Owner("a lock", {"orders": HERE})


def test_the_first_commit_names_the_lock_or_gives_it_an_identity() -> None:
    assert owner_with(None, "a lock", "orders", HERE, "t") == OWNER
    assert len(owner_with(None, None, "orders", HERE, "t").lock) == 32


def test_sinks_that_share_the_lock_share_the_table_and_are_named_from_then_on() -> None:
    place = SinkPlace("/sink/bills", "/tables/bills")
    owner = owner_with(OWNER, "a lock", "bills", place, "t")
    assert owner == Owner("a lock", {"orders": HERE, "bills": place})
    assert Owner.decode(owner.encode()) == owner


def test_an_emptied_ensemble_gets_its_identity_back_from_a_sink_that_the_table_knows() -> None:
    assert owner_with(OWNER, None, "orders", HERE, "t") == OWNER


def test_a_table_that_was_moved_with_its_errors_table_goes_on() -> None:
    moved = SinkPlace(HERE.znode, "/elsewhere/orders")
    assert owner_with(OWNER, "a lock", "orders", moved, "t") == Owner("a lock", {"orders": moved})


@pytest.mark.parametrize(
    ("lock", "name", "place", "sentence"),
    [
        ("another", "orders", HERE, "The lock of this fleet is another, so that the two would not wait"),
        (None, "bills", HERE, "this ZooKeeper has none.*start one of its sinks first: orders"),
        (None, "orders", SinkPlace(HERE.znode, "/tables/copy"), "this ZooKeeper has none"),
        (
            "a lock",
            "orders",
            SinkPlace("/test/orders", "/tables/orders"),
            "another sink orders, at the znode /sink/orders",
        ),
    ],
)
def test_a_sink_of_another_fleet_or_of_a_name_in_use_is_refused(
    lock: str | None, name: str, place: SinkPlace, sentence: str
) -> None:
    with pytest.raises(TableError, match=rf"^t: .*{sentence}"):
        owner_with(OWNER, lock, name, place, "t")
