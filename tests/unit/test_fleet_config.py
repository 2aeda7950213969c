"""Several sinks in one configuration: each is complete, and one error names all mistakes."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from coordination.errors import ConfigError
from sink.config import Settings, expand, load_configuration
from tests.one_sink import load
from tests.unit.config_kit import MINIMAL

SHARED = """
zookeeper.connect: zk:2181
kafka.bootstrap.servers: broker:9092
schema.ddl: id BIGINT
"""
TWO = f"""{SHARED}
flush.size: 7
sinks:
  orders:
    kafka.topic.names: orders
    target.base.path: /lake/orders
  eu.customers:
    kafka: {{topic.names: [a, b]}}
    target.base.path: /lake/customers
    target.table.name: customers
    flush.size: 9
"""


@pytest.fixture
def write(tmp_path: Path):
    def write_file(content: str, name: str = "fleet.yaml") -> Path:
        path = tmp_path / name
        path.write_text(content)
        return path

    return write_file


@pytest.fixture
def refusal(write):
    def error_text(content: str, name: str = "fleet.yaml", environ: dict[str, str] | None = None) -> str:
        with pytest.raises(ConfigError) as caught:
            load_configuration(write(content, name), environ or {})
        return str(caught.value)

    return error_text


def test_a_sink_has_what_all_share_and_what_it_sets_itself(write):
    orders, customers = load_configuration(write(TWO), {}).sinks
    assert (orders.name, orders.table_name, orders.topics, orders.flush_size) == ("orders", "orders", ("orders",), 7)
    assert (customers.name, customers.table_name, customers.topics) == ("eu.customers", "customers", ("a", "b"))
    assert customers.flush_size == 9
    assert orders.bootstrap == customers.bootstrap == "broker:9092"


def test_a_properties_file_means_the_same(write):
    properties = """
zookeeper.connect=zk:2181
kafka.bootstrap.servers=broker:9092
schema.ddl=id BIGINT
flush.size=7
sinks.orders.kafka.topic.names=orders
sinks.orders.target.base.path=/lake/orders
sinks.customers.sink.name=eu.customers
sinks.customers.kafka.topic.names=a,b
sinks.customers.target.base.path=/lake/customers
sinks.customers.target.table.name=customers
sinks.customers.flush.size=9
"""
    assert (
        load_configuration(write(properties, "fleet.properties"), {}).sinks == load_configuration(write(TWO), {}).sinks
    )


def test_a_directory_means_the_same(write, tmp_path):
    write(f"{SHARED}\nflush.size: 7\n")
    write("kafka.topic.names: orders\ntarget.base.path: /lake/orders\n", "orders.yaml")
    write("sink.name: eu.customers\ntarget.table.name: customers\ntopics: a,b\n", "second.properties")
    with pytest.raises(ConfigError, match=r"second\.properties \(sink eu\.customers\): target\.base\.path is missing"):
        load_configuration(tmp_path, {})
    write("sink.name=eu.customers\ntarget.table.name=customers\ntopics=a,b\ntarget.base.path=/lake/customers\n"
          "flush.size=9", "second.properties")  # fmt: skip
    write("nobody reads it", "notes.txt")
    sinks = load_configuration(tmp_path, {}).sinks
    (tmp_path / "second.properties").unlink()
    (tmp_path / "orders.yaml").unlink()
    assert sinks == load_configuration(write(TWO), {}).sinks


def test_a_file_of_one_sink_is_what_it_was(write):
    path = write(MINIMAL, "sink.yaml")
    assert load_configuration(path, {}).sinks == (load(path, {}),)
    assert load_configuration(path, {"SINK_FLUSH_SIZE": "3"}).sinks[0].flush_size == 3


def test_the_digest_is_that_of_the_sink_written_by_itself(write):
    single = f"{SHARED}\nflush.size: 7\ntopics: orders\ntarget.base.path: /lake/orders\ntarget.table.name: orders\n"
    shared_spark = f"spark.master: local[3]\nworker.id: w9\nmetrics.port: 9100\nworker.sinks: orders\n{TWO}"
    digest = load(write(single, "orders.yaml"), {}).config_digest
    assert load_configuration(write(TWO), {}).sinks[0].config_digest == digest
    assert load_configuration(write(shared_spark), {}).sinks[0].config_digest == digest


@pytest.mark.parametrize(
    "setting",
    ["worker.id: w", "zookeeper.connect: other:2181", "spark.driver.memory: 2g", "spark.master: local[1]",
     "log.level: debug", "metrics.port: 1", "storage.s3.region: eu-west-1", "worker.sinks: a"],
)  # fmt: skip
def test_a_sink_that_sets_what_the_process_has_once_is_refused(refusal, setting):
    message = refusal(f"{TWO}    {setting}\n")
    key = setting.partition(":")[0]
    assert "\n" not in message
    assert (
        f"line 16 (sink eu.customers): {key} belongs to the whole process. Move it to what all sinks share" in message
    )


def test_the_process_has_its_settings_and_no_sinks(write):
    process = load_configuration(write(f"{TWO}\nworker.id: w1\nspark.driver.memory: 2g\n"), {}).process
    assert process.worker_id == "w1"
    assert dict(process.spark) == {"spark.driver.memory": "2g"}
    assert process.zookeeper == "zk:2181"
    assert not hasattr(process, "base_path")


def test_all_that_is_wrong_is_told_at_once_with_file_and_sink(refusal):
    message = refusal(
        f"""{SHARED}
flush.size: many
sinks:
  a: {{topics: a, target.base.path: lake/a}}
  b: {{topics: b, target.base.path: /lake/b, flsh.size: 3}}
  c: {{topics: c}}
  d:
"""
    )
    lines = message.splitlines()[1:]
    assert any("line 6: flush.size ('many')" in line for line in lines)
    assert any("line 8 (sink a): target.base.path ('lake/a') is relative" in line for line in lines)
    assert any("line 9 (sink b): 'flsh.size' is not a setting. Did you mean flush.size?" in line for line in lines)
    assert any("fleet.yaml (sink c): target.base.path is missing. Set it" in line for line in lines)
    assert any("line 11: sinks: d holds no settings" in line for line in lines)
    assert len(lines) == 5


def test_what_is_wrong_with_something_shared_is_told_once(refusal):
    sinks = "\n".join(f"  s{number}: {{topics: t, target.base.path: /lake/{number}}}" for number in range(9))
    message = refusal(f"kafka.bootstrap.servers: broker\nschema.ddl: id BIGINT\nsinks:\n{sinks}\n")
    assert message.count("zookeeper.connect is missing") == 1
    assert message.count("kafka.bootstrap.servers ('broker') is not a list of host:port") == 1
    assert "(sink" not in message


@pytest.mark.parametrize(
    ("own_settings", "sentence"),
    [
        ("sink.name: orders, target.base.path: /lake/b", "sink.name: another sink is called orders"),
        ("target.base.path: /lake/orders", "target.base.path: /lake/orders is a place of sink orders too"),
        ("target.base.path: file:///lake//orders", "target.base.path: /lake/orders is a place of sink orders too"),
        ("target.base.path: /lake/orders/b", "is inside the other"),
        ("target.base.path: /lake", "is inside the other"),
        ("target.base.path: /lake/orders_errors", "/lake/orders_errors is a place of sink orders too"),
    ],
)
def test_two_sinks_share_neither_name_nor_place(refusal, own_settings, sentence):
    first = "orders: {topics: a, target.base.path: /lake/orders, errors.tolerance: all}"
    message = refusal(f"{SHARED}\nsinks:\n  {first}\n  b: {{topics: b, {own_settings}}}\n")
    assert "fleet.yaml" in message
    assert sentence in message


def test_tables_beside_one_another_are_no_conflict(write):
    assert len(load_configuration(write(f"""{SHARED}
sinks:
  a: {{topics: t, target.base.path: s3a://lake/a}}
  ab: {{topics: t, target.base.path: s3a://lake/ab}}
  other: {{topics: t, target.base.path: /lake/a}}
"""), {}).sinks) == 3  # fmt: skip


def test_the_topic_stands_in_shared_settings(write):
    content = f"{SHARED}\ntarget.base.path: /lake/{{topic}}\nsinks: {{a: {{topics: orders}}, b: {{topics: x-y}}}}"
    assert [settings.base_path for settings in load_configuration(write(content), {}).sinks] == [
        "/lake/orders",
        "/lake/x-y",
    ]


def test_the_topic_cannot_stand_for_several(write, refusal):
    content = f"{SHARED}\ntarget.base.path: /lake/{{topic}}\nsinks: {{a: {{topics: 'orders, people'}}}}"
    assert "target.base.path has {topic}, and the sink reads several. Name one, or write kafka.topic.regex" in refusal(
        content
    )
    alone = f"{MINIMAL}\nsink.name: of-{{topic}}\n"
    assert load_configuration(write(alone, "sink.yaml"), {}).sinks[0].name == "of-orders"


def test_what_a_sink_sets_of_alternatives_replaces_the_shared_one(write):
    content = f"{TWO}    schema.file: own.ddl\n"
    write("name STRING", "own.ddl")
    orders, customers = load_configuration(write(content), {}).sinks
    assert (orders.schema_text, customers.schema_text) == ("id BIGINT", "name STRING")


def test_a_variable_stands_for_all_sinks_that_do_not_set_the_same(write):
    orders, customers = load_configuration(write(TWO), {"SINK_FLUSH_SIZE": "3", "SINK_WORKER_ID": "w2"}).sinks
    assert (orders.flush_size, customers.flush_size) == (3, 9)
    assert orders.worker_id == customers.worker_id == "w2"


def test_a_worker_hosts_the_sinks_that_it_names(write, refusal):
    fleet = load_configuration(write(TWO), {"SINK_WORKER_SINKS": "eu.*"})
    assert [settings.name for settings in fleet.hosted] == ["eu.customers"]
    assert len(load_configuration(write(TWO), {}).hosted) == 2
    for named in ("order", "nobody?"):
        message = refusal(TWO, environ={"SINK_WORKER_SINKS": f"eu.*,{named}"})
        assert f"worker.sinks: no sink is called {named}. There are orders, eu.customers" in message


def test_a_directory_without_what_is_shared_is_refused(write, tmp_path):
    write(MINIMAL, "orders.yaml")
    with pytest.raises(ConfigError, match=r"has no fleet\.yaml. Put what all sinks share into one such file"):
        load_configuration(tmp_path, {})


def test_sinks_stand_in_the_shared_file_of_a_directory_only(write, tmp_path):
    write(TWO)
    write("topics: x\ntarget.base.path: /lake/x\nsinks: {y: {topics: y}}\n", "x.yaml")
    with pytest.raises(ConfigError, match=r"x\.yaml, line 3 \(sink y\): sinks stands in fleet\.yaml only. Move it"):
        load_configuration(tmp_path, {})
    write("topics: x\ntarget.base.path: /lake/x\n", "x.yaml")
    assert [settings.name for settings in load_configuration(tmp_path, {}).sinks] == ["orders", "eu.customers", "x"]


def test_two_files_of_one_sink_are_refused(write, tmp_path):
    write(SHARED)
    write("topics: x\ntarget.base.path: /lake/x\n", "x.yaml")
    write("topics=y\ntarget.base.path=/lake/y\n", "x.properties")
    with pytest.raises(ConfigError, match=r"sink\.name: another sink is called x"):
        load_configuration(tmp_path, {})


def test_the_settings_of_the_process_tell_defaults_from_what_was_written(write):
    process = load_configuration(write(f"{TWO}\nlog.level: debug\n"), {"SINK_WORKER_ID": "w1"}).process
    assert {"log_level", "worker_id", "zookeeper"} <= process.model_fields_set
    # If another worker of the host has the address, a worker may leave out only a default one.
    assert "http_listen" not in process.model_fields_set
    assert "http_listen" in load_configuration(write(f"{TWO}\nhttp.listen: 8490\n"), {}).process.model_fields_set


def test_a_fleet_shows_no_secret(write):
    fleet = load_configuration(write(f"{TWO}\nkafka.sasl.password: hunter2-Tr0ub4dor\n"), {})
    assert "hunter2" not in repr(fleet)
    assert "hunter2-Tr0ub4dor" in fleet.secrets


def test_a_topic_is_named_or_matched_but_not_both(refusal):
    message = refusal(f"{MINIMAL}\nkafka.topic.regex: ord.*\n", "sink.yaml")
    assert "kafka.topic.names and kafka.topic.regex both say which topics land. Keep one" in message


def test_flags_before_an_expression_are_for_all_of_it(write):
    content = MINIMAL.replace("kafka.topic.names: orders", "kafka.topic.regex: (?i)orders-.*")
    pattern = load_configuration(write(content, "sink.yaml"), {}).sinks[0].topic_pattern
    assert pattern is not None
    assert re.fullmatch(pattern, "ORDERS-1")
    assert not re.fullmatch(pattern, "people")


@pytest.mark.parametrize("expression", ["'('", "'a|(?i)b'", "'[a'", "'(?P<n>a)(?P<n>b)'", f"'{'a' * 1001}'"])
def test_an_expression_that_cannot_be_used_is_refused(refusal, expression):
    message = refusal(MINIMAL.replace("kafka.topic.names: orders", f"kafka.topic.regex: {expression}"), "sink.yaml")
    assert "sink.yaml, line 4: kafka.topic.regex" in message
    assert "\n" not in message


ONE_WRONG = f"""{SHARED}
sinks:
  orders: {{topics: orders, target.base.path: /lake/orders}}
  people: {{topics: people, target.base.path: /lake/people, schema.ddl: id BIGNIT}}
"""


def test_a_sink_that_cannot_be_used_leaves_the_others_unless_all_are_to_be_right(write, refusal):
    fleet = load_configuration(write(ONE_WRONG), {}, strict=False)
    assert [settings.name for settings in fleet.sinks] == ["orders"]
    assert "line 8 (sink people): schema.ddl" in fleet.misconfigured_here["people"]
    assert "BIGNIT" in fleet.misconfigured_here["people"]
    assert not fleet.is_one_sink
    assert "BIGNIT" in refusal(ONE_WRONG)


def test_a_worker_that_does_not_host_it_says_nothing_of_a_sink_that_cannot_be_used(write):
    fleet = load_configuration(write(ONE_WRONG), {"SINK_WORKER_SINKS": "orders"}, strict=False)
    assert (list(fleet.misconfigured), fleet.misconfigured_here) == (["people"], {})


@pytest.mark.parametrize(
    "content",
    [
        ONE_WRONG.replace("zk:2181", "'zk:'"),
        ONE_WRONG.replace("topics: orders", "topics: 'or ders'"),
        f"{MINIMAL}\nflush.size: many\n",
    ],
    ids=["what all share", "every sink", "the only sink"],
)
def test_what_leaves_no_sink_is_refused(write, content):
    with pytest.raises(ConfigError):
        load_configuration(write(content), {}, strict=False)


def test_a_file_of_a_directory_that_cannot_be_read_is_one_sink_that_cannot_be_used(write, tmp_path):
    write(SHARED)
    write("topics: orders\ntarget.base.path: /lake/orders\n", "orders.yaml")
    write("topics: [people\n", "people.yaml")
    fleet = load_configuration(tmp_path, {}, strict=False)
    assert [settings.name for settings in fleet.sinks] == ["orders"]
    assert "people.yaml" in fleet.misconfigured["people"].reason


def test_of_sinks_that_claim_one_place_none_is_the_right_one(write):
    content = f"""{SHARED}
sinks:
  a: {{topics: a, target.base.path: /lake/x}}
  b: {{topics: b, target.base.path: /lake/x}}
  c: {{topics: c, target.base.path: /lake/c}}
"""
    fleet = load_configuration(write(content), {}, strict=False)
    assert [settings.name for settings in fleet.sinks] == ["c"]
    assert "/lake/x is a place of sink b too" in fleet.misconfigured["a"].reason
    assert "/lake/x is a place of sink a too" in fleet.misconfigured["b"].reason


@pytest.mark.parametrize("mistake", ["", "flush.size: many\n"], ids=["name only", "name and another setting"])
def test_of_two_sinks_of_one_name_none_runs_and_no_pattern_takes_a_topic_of_either(write, tmp_path, mistake):
    write(SHARED)
    write("kafka.topic.regex: '.*'\ntarget.base.path: /lake/{topic}\n", "every.yaml")
    write("topics: orders\ntarget.base.path: /own/orders\n", "orders.yaml")
    write(f"sink.name: orders\ntopics: customers\ntarget.base.path: /own/customers\n{mistake}", "customers.yaml")
    fleet = load_configuration(tmp_path, {}, strict=False)
    assert fleet.sinks == ()
    reason = fleet.misconfigured_here["orders"]
    assert "orders.yaml (sink orders): sink.name: another sink is called orders" in reason
    assert "customers.yaml" in reason
    assert ("flush.size" in reason) == bool(mistake)
    topics = ["orders", "customers", "other"]
    new, _ = expand([(fleet.patterns[0], topics)], fleet.sinks, fleet.misconfigured.values())
    assert [settings.name for settings in new] == ["other"]


SEVERAL_FORMATS = """
zookeeper.connect: zk:2181
kafka.bootstrap.servers: broker:9092
schema.registry.url: http://registry:8081
schema.registry.ssl.ca.location: ca.pem
errors.tolerance: all
errors.max.per.transaction: 100
index.type: bucket
write.operation: upsert
record.key.fields: id
target.base.path: /lake/{topic}
sinks:
  plain: {topics: plain, schema.ddl: id BIGINT, errors.tolerance: none, write.operation: append}
  avro: {topics: avro, value.format: avro-confluent, schema.ddl: id BIGINT}
"""


def test_a_shared_setting_that_one_sink_has_no_use_for_is_for_the_others(write, tmp_path):
    (tmp_path / "ca.pem").write_text("x")
    plain, avro = load_configuration(write(SEVERAL_FORMATS), {}).sinks
    assert (plain.registry_urls, plain.errors_tolerance, plain.index_type) == (
        (),
        "none",
        Settings.model_fields["index_type"].default,
    )
    assert avro.registry_urls == ("http://registry:8081",)
    assert avro.index_type == "bucket"


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (SEVERAL_FORMATS.replace("avro-confluent", "json"), "has no use for schema.registry.url"),
        (
            SEVERAL_FORMATS.replace("topics: plain,", "topics: plain, schema.registry.url: 'http://r:1',"),
            "has no use for schema.registry.url",
        ),
    ],
    ids=["no sink has a use for it", "the sink sets it itself"],
)
def test_a_setting_that_nothing_has_a_use_for_is_still_refused(refusal, tmp_path, content, sentence):
    (tmp_path / "ca.pem").write_text("x")
    assert sentence in refusal(content)


def test_a_thousand_sinks_are_parsed_within_three_seconds(write):
    shared = f"{SHARED}kafka.client.rack: a\nhoodie.metadata.enable: false\nspark.sql.shuffle.partitions: 8\n"
    sinks = "".join(
        f"  orders-{n}:\n    kafka.topic.names: orders-{n}\n    target.base.path: /lake/orders-{n}\n"
        for n in range(1000)
    )
    before = time.process_time()
    fleet = load_configuration(write(f"{shared}sinks:\n{sinks}"), {})
    seconds = time.process_time() - before
    assert len(fleet.sinks) == 1000
    assert seconds < 3, f"{seconds:.1f} s of CPU"
    print(f"1,000 sinks parsed in {seconds:.2f} s of CPU")
