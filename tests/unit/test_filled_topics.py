"""A worker sees when the records of a topic fill no column."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from message_kit import record_columns
from settings_kit import minimal_settings
from structlog.testing import capture_logs

from sink.write.rows.filled_topics import FilledTopics, TopicsSeen, UnfilledWarnings, unfilled_topics
from sink.write.rows.record_columns import separate_bad
from sink.write.rows.row_spec import spec_of, table_schema

UPSERT = {"write__operation": "upsert", "record__key__fields": "id", "delete__key__format": "json"}


def seen(directory: Path, *batches: tuple[str, Any], **settings: str) -> TopicsSeen:
    """Returns what a task sees whose batches have one record each, of a topic and a value. The keys have an id."""
    loaded = minimal_settings(directory, **settings)
    spec = spec_of(loaded.table, loaded.records, table_schema(loaded.table, loaded.records))
    decode, topics = spec.decoder(), FilledTopics(spec)
    for topic, value in batches:
        _, rows, bad = separate_bad(record_columns(({"id": 1}, value)), topic, decode)
        assert not bad
        topics.add(topic, rows)
    return topics.seen()


def test_a_topic_is_filled_by_one_value_in_any_column(tmp_path: Path) -> None:
    batches = (("a", {"ID2": 1}), ("a", {"kind": "x"}), ("b", {"more": 1}), ("b", {}), ("c", {"id": 1}), ("c", {}))
    assert unfilled_topics([seen(tmp_path, *batches)]) == {"b": 2}


def test_a_topic_that_another_task_saw_filled_is_filled() -> None:
    tasks = [TopicsSeen(frozenset("a"), {"b": 1}), TopicsSeen(frozenset("b")), TopicsSeen(unfilled={"a": 1, "c": 2})]
    assert unfilled_topics([*tasks, TopicsSeen(unfilled={"c": 3})]) == {"c": 5}


def test_deletes_and_undecoded_values_have_nothing_to_fill(tmp_path: Path) -> None:
    settings = {**UPSERT, "record__key__fields": "_kafka_key", "key__format": "string", "delete__key__format": "none"}
    assert seen(tmp_path, ("a", None), ("a", {"_hoodie_is_deleted": True}), **settings) == TopicsSeen()
    raw = {"schema__ddl": "value string", "value__format": "string"}
    assert seen(tmp_path, ("a", None), **raw) == TopicsSeen()


def test_a_topic_that_fills_no_column_is_warned_of_once() -> None:
    warnings = UnfilledWarnings(["id", "name"])
    with capture_logs() as logs:
        for _ in range(2):
            warnings.warn([TopicsSeen(frozenset("a"), {"orders": 3, "a": 1})])
    assert [(log["event"], log["topic"], log["records"], log["columns"]) for log in logs] == [
        ("records.without_columns", "orders", 3, "id, name")
    ]
