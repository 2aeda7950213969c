"""A table that was restored goes on for years: its readers see the newest rows, and its index knows where they are."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.integration.conftest import Open
from tests.integration.rewrites_kit import complete_twice, service_client
from tests.integration.table_kit import CLUSTERING, by_name
from tests.integration.test_rewrites import die_before_the_timeline
from tests.integration.upsert_kit import (
    BUCKETS,
    INDEXES,
    NO_METADATA,
    ON_READ,
    Upserts,
    assert_rows,
    change,
    send,
)

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

LIMITS = {
    "hoodie__keep__min__commits": "2",
    "hoodie__keep__max__commits": "3",
    "hoodie__clean__commits__retained": "1",
    "hoodie__compact__inline__max__delta__commits": "1",
}
_SENT: Counter[str] = Counter()
"""Records that each topic holds."""


def land(upserts: Upserts, *changes: tuple[int, int]) -> str:
    """Sends changes, each a key and its new number, and lands all that has not landed. Returns the instant."""
    send(upserts.settings.bootstrap, upserts.topic, [change(key, number) for key, number in changes])
    _SENT[upserts.topic] += len(changes)
    start = max((end.end for end in upserts.ends.values()), default=0)
    instant = upserts.begin()
    upserts.complete(instant, upserts.write(instant, (0, start, _SENT[upserts.topic])))
    return instant


def timeline(upserts: Upserts) -> list[str]:
    return sorted(path.name for path in Path(upserts.settings.base_path, ".hoodie", "timeline").iterdir())


@pytest.mark.parametrize(
    "more",
    [
        pytest.param({**ON_READ, **BUCKETS, **NO_METADATA}, id="no metadata table"),
        pytest.param({**ON_READ, **INDEXES["record"]}, id="metadata table", marks=pytest.mark.thorough),
    ],
)
def test_commits_after_a_restore_are_archived_with_it_and_readers_see_the_newest_rows(
    open_upserts: Open, more: dict[str, str]
) -> None:
    upserts = open_upserts(**more, **LIMITS)
    saved = land(upserts, (1, 1), (2, 2))
    upserts.hudi.client.savepoint(saved, "test", "a savepoint")
    upserts.hudi.client.restoreToSavepoint(saved)
    upserts.hudi.client.deleteSavepoint(saved)
    assert any(name.endswith(".restore") for name in timeline(upserts))
    for number in range(3, 15):
        land(upserts, (1, number))
        if number % 3 == 0:
            assert not [service for service in upserts.table.services() if service.reason]
            upserts.table.metadata_services()
        rows = {1: {"at": number, "number": number}, 2: {"at": 2, "number": 2}}
        assert_rows(upserts, rows)
    assert list(Path(upserts.settings.base_path, ".hoodie", "timeline", "history").glob("*.parquet"))
    assert not any(".restore" in name for name in timeline(upserts))


def test_keys_are_where_they_were_after_a_restore(open_upserts: Open) -> None:
    eager = {"hoodie__compact__inline__max__delta__commits": "1", "hoodie__metadata__compact__max__delta__commits": "6"}
    upserts = open_upserts(**ON_READ, **INDEXES["record"], **CLUSTERING, **eager, hoodie__metadata__enable="true")
    land(upserts, (1, 1), (2, 2))
    saved = land(upserts, (1, 3))
    upserts.hudi.client.savepoint(saved, "test", "a savepoint")
    number, ends = upserts.number, dict(upserts.ends)
    land(upserts, (1, 4), (3, 5))
    results = by_name(upserts.table.services())
    assert results["clustering"].instant
    for _ in range(3):
        land(upserts, (4, 6))
        upserts.table.metadata_services()
    upserts.hudi.client.restoreToSavepoint(saved)
    upserts.number, upserts.ends = number, ends
    assert_rows(upserts, {1: {"at": 3, "number": 3}, 2: {"at": 2, "number": 2}})
    land(upserts, (1, 7), (3, 8), (4, 9))
    rows = {1: 7, 2: 2, 3: 8, 4: 9}
    assert_rows(upserts, {key: {"at": number, "number": number} for key, number in rows.items()})


def test_a_compaction_that_died_before_a_restore_is_carried_out_after_it(open_upserts: Open) -> None:
    """The restore adds to the metadata table what the dead process has written, and the next attempt deletes."""
    upserts = open_upserts(**ON_READ, **BUCKETS, **LIMITS)
    land(upserts, (1, 1), (2, 2))
    land(upserts, (1, 3))
    instant = die_before_the_timeline(service_client(upserts))
    saved = land(upserts, (1, 4))
    upserts.hudi.client.savepoint(saved, "test", "a savepoint")
    upserts.hudi.client.restoreToSavepoint(saved)
    land(upserts, (1, 5))
    assert by_name(upserts.table.services())["compaction"].instant == instant
    assert_rows(upserts, {1: {"at": 5, "number": 5}, 2: {"at": 2, "number": 2}})


def test_what_is_pending_holds_back_what_is_later_and_nothing_else(open_upserts: Open) -> None:
    upserts = open_upserts(**ON_READ, **BUCKETS, **NO_METADATA, **LIMITS)
    early = [land(upserts, (1, number)) for number in range(1, 4)]
    pending = Path(upserts.settings.base_path, ".hoodie", "timeline", f"{early[2]}.savepoint.inflight")
    pending.touch()
    for number in range(4, 12):
        land(upserts, (1, number))
        if number % 2:
            assert not [service for service in upserts.table.services() if service.reason]
    kept = {name[:17] for name in timeline(upserts) if name[:17].isdigit()}
    assert not kept & set(early[:2])
    assert early[2] in kept
    pending.unlink()
    land(upserts, (1, 12))
    assert not [service for service in upserts.table.services() if service.reason]
    assert not any(name.startswith(early[2]) for name in timeline(upserts))
    assert_rows(upserts, {1: {"at": 12, "number": 12}})


def test_a_metadata_table_that_has_an_instant_twice_is_made_anew_by_the_next_transaction(open_upserts: Open) -> None:
    """A process that stood still in a compaction may complete it there a second time when it wakes."""
    upserts = open_upserts(**ON_READ, **BUCKETS, **LIMITS)
    for number in (1, 2, 3):
        land(upserts, (1, number))
    twice = complete_twice(Path(upserts.settings.base_path))
    land(upserts, (1, 4))
    assert not twice.exists()
    assert_rows(upserts, {1: {"at": 4, "number": 4}})
