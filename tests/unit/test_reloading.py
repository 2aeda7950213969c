"""A process that reads its configuration again takes up new sinks, lets go of removed ones, and refuses the rest."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from sink.config import Configuration, load_configuration
from sink.runtime.process import hosting
from sink.runtime.process.hosting import FleetChanges

SHARED = {
    "zookeeper.connect": "zk:2181",
    "kafka.bootstrap.servers": "kafka:9092",
    "schema.ddl": "id BIGINT",
    "worker.id": "w1",
}


def fleet(directory: Path, sinks: dict[str, dict[str, object]], **shared: object) -> Configuration:
    file = directory / "fleet.yaml"
    defaults = {name: {"kafka.topic.names": name, "target.base.path": f"/lake/{name}"} for name in sinks}
    settings_by_sink = {
        name: settings if "kafka.topic.regex" in settings else {**defaults[name], **settings}
        for name, settings in sinks.items()
    }
    file.write_text(
        yaml.safe_dump({**SHARED, **{k.replace("__", "."): v for k, v in shared.items()}, "sinks": settings_by_sink})
    )
    return load_configuration(file, {}, strict=False)


def changes_of(old: Configuration, new: Configuration) -> FleetChanges:
    """Compares them for a process that runs all sinks of `old` that it hosts."""
    return hosting.changes_of(old, new, {settings.name: settings for settings in old.hosted})


def test_while_a_sink_cannot_be_used_none_is_removed_and_new_ones_are_taken_up(tmp_path: Path) -> None:
    old = fleet(tmp_path, {"a": {}, "b": {}, "c": {}})
    changes = changes_of(old, fleet(tmp_path, {"a": {"flush.size": "many"}, "b": {}, "new": {}}))
    assert list(changes.added) == ["new"]
    assert changes.removed == ()
    assert "flush.size" in changes.refused["a"]
    assert "a part of the configuration cannot be used" in changes.refused["c"]
    assert sorted(settings.name for settings in changes.fleet.hosted) == ["a", "b", "c", "new"]
    assert {settings.name: settings for settings in changes.fleet.hosted}["a"] == old.hosted[0]


def test_a_sink_is_removed_and_taken_up_again_once_all_can_be_used(tmp_path: Path) -> None:
    old = fleet(tmp_path, {"a": {}, "b": {"flush.size": "many"}})
    changes = changes_of(old, fleet(tmp_path, {"b": {}}))
    assert (changes.added, changes.removed) == (("b",), ("a",))


def test_a_sink_that_the_worker_hosts_no_longer_is_let_go_though_another_cannot_be_used(tmp_path: Path) -> None:
    sinks: dict[str, dict[str, object]] = {"a": {}, "b": {}, "c": {"flush.size": "many"}}
    changes = changes_of(fleet(tmp_path, sinks), fleet(tmp_path, sinks, worker__sinks="b"))
    assert changes.removed == ("a",)


def test_new_sinks_are_added_and_missing_ones_removed(tmp_path: Path) -> None:
    changes = changes_of(fleet(tmp_path, {"a": {}, "b": {}}), fleet(tmp_path, {"b": {}, "c": {}}))
    assert list(changes.added) == ["c"]
    assert changes.removed == ("a",)
    assert not changes.refused
    assert not changes.process
    assert [settings.name for settings in changes.fleet.hosted] == ["b", "c"]


def test_a_changed_setting_of_a_running_sink_is_refused_by_name_and_the_old_value_stays(tmp_path: Path) -> None:
    old = fleet(tmp_path, {"a": {}, "b": {}})
    changes = changes_of(old, fleet(tmp_path, {"a": {"transaction.interval.ms": 100}, "b": {}}))
    assert "transaction.interval.ms may not change while the sink runs" in changes.refused["a"]
    assert list(changes.refused) == ["a"]
    assert changes.fleet.hosted == old.hosted


def test_a_setting_of_the_process_needs_a_restart_and_changes_no_sink(tmp_path: Path) -> None:
    changes = changes_of(fleet(tmp_path, {"a": {}}), fleet(tmp_path, {"a": {}}, metrics__port=9100))
    assert changes.process == ("metrics.port",)
    assert not changes.refused
    assert changes.fleet.process.metrics_port == 0


def test_which_sinks_the_worker_hosts_may_change(tmp_path: Path) -> None:
    sinks: dict[str, dict[str, object]] = {"a": {}, "b": {}}
    changes = changes_of(fleet(tmp_path, sinks, worker__sinks="a"), fleet(tmp_path, sinks, worker__sinks="b"))
    assert list(changes.added) == ["b"]
    assert changes.removed == ("a",)


def test_a_sink_in_a_store_whose_jars_the_process_has_not_is_refused(tmp_path: Path) -> None:
    new = fleet(tmp_path, {"a": {}, "b": {"target.base.path": "s3a://bucket/b"}})
    changes = changes_of(fleet(tmp_path, {"a": {}}), new)
    assert "without the jars of s3a://" in changes.refused["b"]
    assert not changes.added


EVERY = {"every": {"kafka.topic.regex": "eu-.*", "target.base.path": "/lake/{topic}"}}


@pytest.mark.parametrize(
    ("sinks", "shared"),
    [({"b": {}}, {}), ({}, {"metrics__port": 9100})],
    ids=["another sink above it", "a setting of the process"],
)
def test_a_pattern_that_stands_elsewhere_in_the_file_has_not_changed(
    tmp_path: Path, sinks: dict[str, dict[str, object]], shared: dict[str, object]
) -> None:
    old = fleet(tmp_path, {"a": {}, **EVERY})
    assert not changes_of(old, fleet(tmp_path, {"a": {}, **sinks, **EVERY}, **shared)).refused


def test_a_pattern_that_has_changed_is_refused_and_stays_as_it_was(tmp_path: Path) -> None:
    old = fleet(tmp_path, {"a": {}, **EVERY})
    changes = changes_of(old, fleet(tmp_path, {"a": {}, "every": {**EVERY["every"], "flush.size": 5}}))
    assert list(changes.refused) == ["patterns"]
    assert changes.fleet.patterns == old.patterns
