"""A command chooses sinks of a configuration by name, and lists them if it finds none."""

from __future__ import annotations

import threading
from contextlib import nullcontext
from pathlib import Path

import pytest

from coordination.errors import ConfigError, TableError, Unavailable
from sink.config import Configuration, Settings, load_configuration
from sink.operations import chosen
from sink.operations.chosen import KnownSinks, _with_recorded_topics, choose, choose_one, side_by_side
from sink.operations.fleet_validation import _locks


@pytest.fixture
def fleet(tmp_path: Path) -> Configuration:
    path = tmp_path / "fleet.yaml"
    path.write_text("""
zookeeper.connect: zk:2181
kafka.bootstrap.servers: broker:9092
schema.ddl: id BIGINT
target.base.path: /lake/{topic}
sinks:
  eu-orders: {topics: eu-orders}
  eu-people: {topics: eu-people, target.table.name: people}
  us-people: {topics: us-people, target.table.name: people}
""")
    return load_configuration(path, {})


def names(fleet: Configuration, *patterns: str) -> list[str]:
    return [settings.name for settings in choose(fleet, patterns).sinks]


def test_without_a_name_all_are_chosen(fleet: Configuration) -> None:
    assert names(fleet) == ["eu-orders", "eu-people", "us-people"]


def test_names_and_patterns_choose(fleet: Configuration) -> None:
    assert names(fleet, "us-people") == ["us-people"]
    assert names(fleet, "eu-*", "us-people") == ["eu-orders", "eu-people", "us-people"]
    assert names(fleet, "*-people") == ["eu-people", "us-people"]


def test_a_name_that_no_sink_has_is_refused_with_those_there_are(fleet: Configuration) -> None:
    with pytest.raises(ConfigError, match=r"--sink orders: no such sink in .*fleet\.yaml. There are eu-orders,"):
        choose(fleet, ["us-people", "orders"])


def test_a_command_for_one_sink_says_that_there_are_several(fleet: Configuration) -> None:
    assert choose_one(fleet, ["us-*"]).name == "us-people"
    with pytest.raises(
        ConfigError, match=r"has 3 sinks \(eu-orders, eu-people, us-people\), and this command takes one"
    ):
        choose_one(fleet, ())
    with pytest.raises(ConfigError, match=r"--sink names 2 sinks \(eu-orders, eu-people\)"):
        choose_one(fleet, ["eu-*"])


def test_sinks_are_looked_after_side_by_side_and_one_that_fails_fails_alone(fleet: Configuration) -> None:
    together = threading.Barrier(3)

    def act(settings: Settings) -> str:
        together.wait(20)
        if settings.name == "eu-people":
            raise TableError("gone")
        return settings.name

    answers = side_by_side(KnownSinks(fleet.sinks), act, at_once=3)
    assert [answer.result for answer in answers] == ["eu-orders", None, "us-people"]
    assert [str(answer.error) for answer in answers if answer.error] == ["gone"]


def test_a_sink_that_cannot_be_used_is_an_answer_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "fleet.yaml"
    path.write_text("""
zookeeper.connect: zk:2181
kafka.bootstrap.servers: broker:9092
target.base.path: /lake/{topic}
sinks:
  orders: {topics: orders, schema.ddl: id BIGINT}
  people: {topics: people, schema.ddl: id BIGNIT}
""")
    fleet = load_configuration(path, {}, strict=False)
    chosen = choose(fleet, ())
    answers = side_by_side(chosen, lambda settings: settings.name)
    assert [(answer.name, answer.result) for answer in answers] == [("orders", "orders"), ("people", None)]
    assert "BIGNIT" in str(answers[1].error)
    assert not choose(fleet, ["orders"]).misconfigured
    assert choose_one(fleet, ["orders"]).name == "orders"
    with pytest.raises(ConfigError, match=r"sink people cannot be used: .*BIGNIT"):
        choose_one(fleet, ["people"])
    with pytest.raises(ConfigError, match=r"has 2 sinks \(orders, people\), and this command takes one"):
        choose_one(fleet, ())


def test_tables_that_share_a_lock_are_named(fleet: Configuration) -> None:
    (note,) = _locks(fleet.sinks)
    assert note.note
    assert note.sentence.startswith("eu-people, us-people share the table lock /hudi/people")


def test_a_topic_that_is_gone_is_known_by_its_own_sinks_record_only(tmp_path: Path) -> None:
    path = tmp_path / "fleet.yaml"
    path.write_text("""
zookeeper.connect: zk:2181
kafka.bootstrap.servers: broker:9092
schema.ddl: id BIGINT
sinks:
  lake: {kafka.topic.regex: "o.*", sink.name: "lake-{topic}", target.base.path: "/lake/{topic}"}
""")
    fleet = load_configuration(path, {})
    recorded = {"lake-old": ["old"], "of-another-fleet": ["orders-of-others"], "lake-odd": ["else"]}
    [(_, topics)] = _with_recorded_topics(fleet, [(fleet.patterns[0], {"orders"})], recorded)
    assert topics == {"orders", "old"}


def test_a_sink_of_a_pattern_whose_topic_is_gone_is_told_of_where_its_cluster_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "fleet.yaml"
    path.write_text("""
zookeeper.connect: zk:2181
schema.ddl: id BIGINT
target.base.path: /lake/{topic}
sinks:
  here: {kafka.topic.regex: "here-.*", kafka.bootstrap.servers: "here:9092"}
  away: {kafka.topic.regex: "away-.*", kafka.bootstrap.servers: "away:9092"}
""")
    fleet = load_configuration(path, {})
    answers = ({"here:9092": frozenset({"here-a"})}, [Unavailable("Kafka is away")])
    monkeypatch.setattr(chosen, "_topics_of_kafka", lambda _: answers)
    recorded = {name: (name,) for name in ("here-a", "here-b", "away-a")}
    monkeypatch.setattr(chosen, "connected", lambda _: nullcontext())
    monkeypatch.setattr(chosen, "_recorded_topics", lambda *_: recorded)
    all_sinks = choose(fleet, ())
    assert sorted(settings.name for settings in all_sinks.sinks) == ["away-a", "here-a", "here-b"]
    assert all_sinks.gone == {"here-b"}
    assert choose(fleet, ["here-b"]).gone == frozenset()
