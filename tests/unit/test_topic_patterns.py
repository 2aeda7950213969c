"""A pattern makes a sink, and so a table, of each topic that matches it."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path

import pytest

from coordination.errors import ConfigError
from sink.config import Configuration, Settings, TopicProblem, expand, load_configuration
from tests.one_sink import load

SHARED = """
zookeeper.connect: zk:2181
kafka.bootstrap.servers: broker:9092
schema.ddl: id BIGINT
"""
ALL = f"""{SHARED}
sinks:
  every:
    kafka.topic.regex: "orders-.*"
    target.base.path: /lake/{{topic}}
"""


def expanded_by(
    fleet: Configuration, topics: Collection[str], existing: Iterable[Settings]
) -> tuple[tuple[Settings, ...], tuple[TopicProblem, ...]]:
    return expand([(pattern, topics) for pattern in fleet.patterns], existing)


@pytest.fixture
def fleet_of(tmp_path: Path):
    def load_content(content: str) -> Configuration:
        path = tmp_path / "fleet.yaml"
        path.write_text(content)
        return load_configuration(path, {})

    return load_content


@pytest.fixture
def expanded(fleet_of):
    def names(content: str, *topics: str):
        fleet = fleet_of(content)
        new, problems = expanded_by(fleet, topics, fleet.sinks)
        return [settings.name for settings in new], [str(problem) for problem in problems]

    return names


OWN = f"""{SHARED}
sinks:
  special: {{kafka.topic.names: orders-eu, target.base.path: /lake/special, flush.size: many}}
  named: {{kafka.topic.names: x, sink.name: orders-us, target.base.path: /lake/named, flush.size: many}}
  placed: {{kafka.topic.names: y, target.base.path: /lake/orders-uk, flush.size: many}}
  every:
    kafka.topic.regex: "orders-.*"
    target.base.path: /lake/{{topic}}
"""


def test_a_topic_whose_own_settings_cannot_be_used_is_not_taken_by_a_pattern(tmp_path: Path) -> None:
    path = tmp_path / "fleet.yaml"
    path.write_text(OWN)
    fleet = load_configuration(path, {}, strict=False)
    topics = ["orders-eu", "orders-us", "orders-uk", "orders-at"]
    new, problems = expand([(fleet.patterns[0], topics)], (), fleet.misconfigured.values())
    assert [settings.name for settings in new] == ["orders-at"]
    sinks = {problem.topic: problem.sentence.partition("that of sink ")[2].split()[0] for problem in problems}
    assert sinks == {"orders-eu": "special", "orders-us": "orders-us", "orders-uk": "placed"}


def test_a_pattern_takes_no_topics_while_it_is_not_known_which_are_not_its_own(tmp_path: Path) -> None:
    path = tmp_path / "fleet.yaml"
    path.write_text(OWN.replace("kafka.topic.names: orders-eu", "kafka.topic.names: 'or ders'"))
    with pytest.raises(ConfigError, match="sink special"):
        load_configuration(path, {}, strict=False)


def test_each_topic_that_matches_becomes_a_sink(fleet_of):
    fleet = fleet_of(ALL)
    assert fleet.sinks == ()
    new, problems = expanded_by(fleet, ["orders-eu", "customers", "orders-us", "my-orders-1"], ())
    assert problems == ()
    assert [(s.name, s.table_name, s.topics, s.base_path) for s in new] == [
        ("orders-eu", "orders-eu", ("orders-eu",), "/lake/orders-eu"),
        ("orders-us", "orders-us", ("orders-us",), "/lake/orders-us"),
    ]


def test_a_topics_sink_is_the_one_that_would_be_written_by_hand(fleet_of, tmp_path):
    fleet = fleet_of(ALL)
    (new,), _ = expanded_by(fleet, ["orders-eu"], ())
    alone = tmp_path / "alone.yaml"
    alone.write_text(f"{SHARED}\ntopics: orders-eu\ntarget.base.path: /lake/orders-eu\ntarget.table.name: orders-eu\n")
    assert new == load(alone, {})
    assert new.config_digest == load(alone, {}).config_digest


def test_named_groups_stand_in_names_and_places(fleet_of):
    fleet = fleet_of(f"""{SHARED}
sinks:
  regional:
    kafka.topic.regex: "(?<region>[a-z]+)[.](?P<what>.+)"
    target.base.path: s3a://lake/{{region}}/{{what}}
    target.table.name: "{{what}}"
    sink.name: "{{region}}_{{what}}"
    catalog.metastore.uris: thrift://hms:9083
    catalog.table: "{{topic}}"
""")  # fmt: skip
    (new,), problems = expanded_by(fleet, ["eu.orders-2"], ())
    assert problems == ()
    assert (new.name, new.table_name, new.base_path) == ("eu_orders-2", "orders-2", "s3a://lake/eu/orders-2")
    assert new.catalog_table == "eu_orders_2"


def test_an_expression_without_names_in_the_settings_is_one_sink(fleet_of):
    fleet = fleet_of(f"{SHARED}\nsinks: {{one: {{topics.regex: 'orders-.*', target.base.path: /lake/orders}}}}")
    assert fleet.patterns == ()
    assert fleet.sinks[0].topic_regex == "orders-.*"
    assert fleet.sinks[0].topics == ()


def test_the_digest_covers_the_expression(fleet_of):
    def digest(regex: str) -> str:
        content = f"{SHARED}\nsinks: {{one: {{topics.regex: '{regex}', target.base.path: /lake/orders}}}}"
        return fleet_of(content).sinks[0].config_digest

    assert digest("a.*") == digest("a.*")
    assert digest("a.*") != digest("b.*")


def test_a_pattern_may_be_the_whole_file(fleet_of):
    fleet = fleet_of(f"{SHARED}\nkafka.topic.regex: .*\ntarget.base.path: /lake/{{topic}}\n")
    assert [pattern.name for pattern in fleet.patterns] == ["fleet"]


def test_what_exists_already_is_not_made_again(fleet_of):
    fleet = fleet_of(ALL)
    first, _ = expanded_by(fleet, ["orders-eu"], ())
    second, problems = expanded_by(fleet, ["orders-eu", "orders-us"], first)
    assert [settings.name for settings in second] == ["orders-us"]
    assert problems == ()


def test_a_sink_of_the_configuration_stands_for_its_topic(expanded):
    special = "  orders-eu: {topics: orders-eu, target.base.path: /lake/orders-eu, flush.size: 9}\n"
    assert expanded(ALL + special, "orders-eu", "orders-us") == (["orders-us"], [])


def test_of_two_patterns_the_first_decides(fleet_of):
    second = "  rest: {kafka.topic.regex: '.*', target.base.path: '/other/{topic}'}\n"
    fleet = fleet_of(ALL + second)
    new, problems = expanded_by(fleet, ["orders-eu", "customers"], ())
    assert [settings.base_path for settings in new] == ["/lake/orders-eu", "/other/customers"]
    assert problems == ()


def test_patterns_of_two_clusters_do_not_stand_for_one_another(fleet_of):
    second = "  rest: {kafka.bootstrap.servers: 'b2:9', kafka.topic.regex: '.*', target.base.path: '/other/{topic}'}\n"
    fleet = fleet_of(ALL + second)
    first_pattern, second_pattern = fleet.patterns
    new, problems = expand([(first_pattern, ["orders-eu"]), (second_pattern, ["orders-eu", "customers"])], ())
    assert [(settings.bootstrap, settings.topics) for settings in new] == [("b2:9", ("customers",))]
    assert len(problems) == 2
    assert all("sink.name: another sink is called orders-eu" in str(problem) for problem in problems)


def test_a_topic_whose_name_or_place_is_taken_stops_nothing_else_and_is_named(expanded):
    other_sinks = (
        "  mine: {topics: x, target.base.path: /lake/orders-eu}\n  orders-us: {topics: y, target.base.path: /l/y}\n"
    )
    names, problems = expanded(ALL + other_sinks, "orders-eu", "orders-us", "orders-de")
    assert names == ["orders-de"]
    assert len(problems) == 2
    assert "(sink every), topic orders-eu: target.base.path: /lake/orders-eu is a place of sink mine too" in problems[0]
    assert "(sink every), topic orders-us: sink.name: another sink is called orders-us" in problems[1]


@pytest.mark.parametrize("order", [("eu-orders", "us-orders"), ("us-orders", "eu-orders")])
def test_of_topics_that_would_share_a_table_none_becomes_one_whatever_their_order(expanded, order):
    content = f"""{SHARED}
sinks:
  every:
    kafka.topic.regex: "..-(?P<what>.*)"
    target.base.path: /lake/{{what}}
    sink.name: "{{topic}}"
"""
    names, problems = expanded(content, *order, "eu-customers")
    assert names == ["eu-customers"]
    assert len(problems) == 2
    assert all("/lake/orders is a place of sink" in problem for problem in problems)


def test_the_errors_table_of_one_is_not_the_table_of_another(expanded):
    content = ALL.replace("sinks:", "errors.tolerance: all\nsinks:")
    names, problems = expanded(content, "orders-a", "orders-a_errors", "orders-b")
    assert names == ["orders-b"]
    assert len(problems) == 2


def test_names_that_a_catalogue_cannot_tell_apart_are_no_tables(expanded):
    content = ALL.replace("sinks:", "catalog.metastore.uris: thrift://h:9083\ncatalog.table: '{topic}'\nsinks:")
    names, problems = expanded(content, "orders-a.b", "orders-a_b", "orders-c")
    assert names == ["orders-c"]
    assert all("catalog.table: sink" in problem for problem in problems)


def test_a_topic_without_its_schema_file_is_named_and_stops_nothing_else(expanded, tmp_path):
    (tmp_path / "orders-a.ddl").write_text("id BIGINT, name STRING")
    content = ALL.replace("schema.ddl: id BIGINT", "schema.file: '{topic}.ddl'")
    names, (problem,) = expanded(content, "orders-a", "orders-b")
    assert names == ["orders-a"]
    assert "topic orders-b: schema.file" in problem
    assert "cannot be read" in problem


def test_an_empty_group_is_no_name(expanded):
    content = f"""{SHARED}
sinks: {{e: {{topics.regex: "orders(-(?P<region>.*))?", target.base.path: "/lake/{{region}}", sink.name: "{{topic}}"}}}}
"""
    names, problems = expanded(content, "orders", "orders-", "orders-eu")
    assert names == ["orders-eu"]
    assert [problem.partition("topic ")[2].partition(":")[0] for problem in problems] == ["orders", "orders-"]
    assert all("the group region of kafka.topic.regex is empty" in problem for problem in problems)


def test_a_topic_whose_name_is_too_long_for_a_sink_is_named(expanded):
    names, (problem,) = expanded(ALL, "orders-" + "x" * 240, "orders-eu")
    assert names == ["orders-eu"]
    assert "at most 200" in problem


def test_topics_of_kafkas_own_and_of_bad_records_are_no_tables(expanded):
    content = ALL.replace("sinks:", "errors.tolerance: all\nerrors.deadletter.topic: bad\nsinks:").replace(
        "orders-.*", ".*"
    )
    assert expanded(content, "__consumer_offsets", "bad", "orders")[0] == ["orders"]


def refusal(fleet_of, content: str) -> str:
    with pytest.raises(ConfigError) as caught:
        fleet_of(content)
    return str(caught.value)


def test_a_pattern_whose_tables_would_be_in_one_place_is_refused(fleet_of):
    message = refusal(fleet_of, ALL.replace("/lake/{topic}", "/lake/all") + "    sink.name: '{topic}'\n")
    assert (
        "line 9 (sink every): target.base.path would be the same for every topic of every. Put {topic} into" in message
    )


def test_a_pattern_whose_sinks_would_have_one_name_is_refused(fleet_of):
    message = refusal(fleet_of, ALL + "    target.table.name: events\n")
    assert "target.table.name would be the same for every topic" in message


def test_what_is_wrong_with_a_pattern_whatever_the_topic_is_told_before_there_is_one(fleet_of):
    message = refusal(fleet_of, ALL.replace("/lake/", "lake/") + "    flush.size: x\n    spark.ui.port: 1\n")
    assert "(sink every): target.base.path ('lake/topic') is relative" in message
    assert "(sink every): flush.size ('x') is not a whole number" in message
    assert "(sink every): spark.ui.port belongs to the whole process" in message


def test_braces_that_name_nothing_stay_as_they_are(fleet_of):
    fleet = fleet_of(ALL.replace("orders-.*", "o{1}rders-[a-z]{2}") + "    kafka.client.id: '{topic}'\n")
    (new,), _ = expanded_by(fleet, ["orders-eu", "orders-xyz"], ())
    assert new.kafka["client.id"] == "{topic}"
