"""A configuration has one meaning, or one sentence that says why it cannot be used."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from coordination.errors import ConfigError
from sink.config import Settings
from sink.config.model import aliases
from sink.config.rules import FOREIGN, RULES
from sink.devtools import settings_reference as config_reference
from tests.one_sink import load
from tests.unit.config_kit import MINIMAL

SECRET = "hunter2-Tr0ub4dor"


@pytest.fixture
def write(tmp_path: Path):
    def write_file(content: str, name: str = "sink.yaml") -> Path:
        path = tmp_path / name
        path.write_text(content)
        return path

    return write_file


@pytest.fixture
def settings_with(write):
    def load_settings(extra: str = "", environ: dict[str, str] | None = None, base: str = MINIMAL) -> Settings:
        return load(write(base + extra), environ or {})

    return load_settings


@pytest.fixture
def refusal(write):
    def error_text(extra: str = "", environ: dict[str, str] | None = None, base: str = MINIMAL) -> str:
        with pytest.raises(ConfigError) as caught:
            load(write(base + extra), environ or {})
        assert caught.value.__cause__ is None
        return str(caught.value)

    return error_text


def test_what_is_left_out_has_the_documented_default(settings_with):
    settings = settings_with()
    assert settings.name == "orders"
    assert settings.zookeeper_root == "/sink"
    assert settings.flush_size == 5_000_000
    assert settings.slice_records == 1_000_000
    assert settings.interval_ms == 60_000
    assert settings.writestatus_timeout_ms == 300_000
    assert settings.record_key_fields == ()
    assert settings.partition_fields == ()
    assert settings.hive_style
    assert settings.offset_reset == "earliest"
    assert settings.on_data_loss == "fail"
    assert settings.engine == "arrow"
    assert settings.provenance
    assert settings.file_max_bytes == 128 * 1024**2
    assert dict(settings.kafka) == {}
    assert dict(settings.spark) == {}
    assert dict(settings.hudi) == {}


def test_nested_and_dotted_keys_and_properties_mean_the_same(write):
    nested = """
zookeeper: {connect: "zk:2181"}
kafka: {bootstrap.servers: "broker:9092", topic: {names: [a, b]}, client.id: sink}
target: {base: {path: /lake/orders}, table.name: orders}
schema.ddl: id BIGINT
hoodie: {metadata: {enable: true}}
transaction: {interval.ms: 10s}
"""
    properties = r"""
# a comment
zookeeper.connect = zk:2181
kafka.bootstrap.servers : broker:9092
kafka.topic.names a,\
                  b
kafka.client.id=sink
target.base.path=/lake/orders
target.table.name=orders
schema.ddl=id BIGINT
hoodie.metadata.enable=true
transaction.interval.ms=10s
"""
    first = load(write(nested), {})
    second = load(write(properties, "sink.properties"), {})
    assert first == second
    assert first.topics == ("a", "b")
    assert first.interval_ms == 10_000
    assert dict(first.kafka) == {"client.id": "sink"}
    assert dict(first.hudi) == {"hoodie.metadata.enable": "true"}


def test_names_of_hudi_and_kafka_connect_users_are_understood(settings_with):
    settings = settings_with(
        base="""
name: landing
zookeeper.connect: zk
bootstrap.servers: broker:9092
topics: a, b
hoodie.base.path: s3a://lake/orders/
hoodie.table.name: orders
hoodie.datasource.write.recordkey.field: id
hoodie.datasource.write.partitionpath.field: day,region
hoodie.datasource.write.hive_style_partitioning: false
schema.ddl: id BIGINT
"""
    )
    assert settings.name == "landing"
    assert settings.topics == ("a", "b")
    assert settings.base_path == "s3a://lake/orders"
    assert settings.table_name == "orders"
    assert settings.record_key_fields == ("id",)
    assert settings.partition_fields == ("day", "region")
    assert not settings.hive_style
    assert dict(settings.hudi) == {}


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("250", 250),
        ("250ms", 250),
        ("10s", 10_000),
        ("1.5s", 1500),
        ("5m", 300_000),
        ("2 min", 120_000),
        ("1h", 3_600_000),
    ],
)
def test_durations_take_plain_milliseconds_or_a_unit(settings_with, text, milliseconds):
    assert settings_with(f"transaction.interval.ms: {text}").interval_ms == milliseconds


@pytest.mark.parametrize(
    "master",
    ["local", "local[2]", "local[*]", "local-cluster[2,1,1024]", "spark://host:7077", "yarn", "k8s://https://h"],
)
def test_every_form_of_sparks_master_is_taken(settings_with, master):
    assert settings_with(f"spark.master: {master}").spark_master == master


@pytest.mark.parametrize(
    ("text", "size"),
    [("1048576", 2**20), ("128MiB", 2**27), ("128m", 2**27), ("1GB", 10**9), ("0.5 GiB", 2**29)],
)
def test_sizes_take_plain_bytes_or_a_unit(settings_with, text, size):
    assert settings_with(f"file.max.bytes: {text}").file_max_bytes == size


def test_a_yaml_value_means_what_is_written_not_what_yaml_makes_of_it(settings_with):
    settings = settings_with("kafka.client.id: 0x10\nhoodie.some.flag: no\nspark.some.time: 10:30\nsink.name: 1e3\n")
    assert settings.kafka["client.id"] == "0x10"
    assert settings.hudi["hoodie.some.flag"] == "no"
    assert settings.spark["spark.some.time"] == "10:30"
    assert settings.name == "1e3"


def test_the_environment_overrides_the_file(settings_with):
    environ = {
        "SINK_FLUSH_SIZE": "7",
        "SINK_TOPICS": "x,y",
        "SINK_KAFKA_SASL_PASSWORD": SECRET,
        "SINK_SPARK_DRIVER_MEMORY": "2g",
        "SINK_SPARK_executor_memoryOverhead": "1g",
        "SINK_HOODIE_TIME_GENERATOR_MAX__EXPECTED__CLOCK__SKEW__MS": "5",
        "SINK_LOG_LEVEL": "",
        "SINK_SERVICE_HOST": "10.0.0.1",
        "HOME": "/",
    }
    settings = settings_with("flush.size: 9\nlog.level: debug\n", environ)
    assert settings.flush_size == 7
    assert settings.topics == ("x", "y")
    assert settings.log_level == "debug"
    assert settings.kafka["sasl.password"] == SECRET
    assert dict(settings.spark) == {"spark.driver.memory": "2g", "spark.executor.memoryOverhead": "1g"}
    assert dict(settings.hudi) == {"hoodie.time.generator.max_expected_clock_skew_ms": "5"}


def test_an_environment_variable_finds_the_key_of_the_file_whatever_its_case(settings_with):
    settings = settings_with("spark.executor.memoryOverhead: 1g\n", {"SINK_SPARK_EXECUTOR_MEMORYOVERHEAD": "3g"})
    assert dict(settings.spark) == {"spark.executor.memoryOverhead": "3g"}


def test_secrets_come_from_the_environment_or_a_file(settings_with, tmp_path):
    (tmp_path / "password").write_text(f"{SECRET}\n")
    (tmp_path / "secrets.properties").write_text(f"a.b={SECRET}2\n")
    settings = settings_with(
        "kafka.sasl.password: ${file:password}\n"
        f"kafka.ssl.key.password: ${{file:{tmp_path}/secrets.properties:a.b}}\n"
        "spark.innocent: x-${env:HIDDEN_ONE}-y\n",
        {"HIDDEN_ONE": f"{SECRET}3"},
    )
    assert settings.kafka["sasl.password"] == SECRET
    assert settings.kafka["ssl.key.password"] == f"{SECRET}2"
    assert settings.spark["spark.innocent"] == f"x-{SECRET}3-y"
    assert SECRET not in repr(settings) + str(settings) + settings.model_dump_json() + repr(settings.spark)
    assert set(settings.secrets) == {SECRET, f"{SECRET}2", f"x-{SECRET}3-y"}


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            "kafka.sasl.password: ${env:NO_SUCH_ONE}",
            "${env:NO_SUCH_ONE}, but that environment variable is not set",
        ),
        (
            "kafka.sasl.password: ${file:/no/such/file}",
            "but that file cannot be read (No such file or directory)",
        ),
        ("kafka.sasl.password: ${file:sink.yaml:nothing}", "has no value for 'nothing'"),
    ],
)
def test_a_secret_that_cannot_be_found_is_named_with_its_place(refusal, line, expected):
    message = refusal(line)
    assert expected in message
    assert "sink.yaml, line 8" in message
    assert "kafka.sasl.password" in message


def test_everything_that_is_wrong_is_said_at_once(refusal):
    message = refusal(
        "flush.sise: 1\n",
        {"SINK_LOG_LEVEL": "loud"},
        base="""
zookeeper.conect: zk:2181
kafka.bootstrap.servers: broker
kafka.isolation.level: read_uncommitted
target.base.path: lake/orders
target.table.name: a/b
transaction.interval.ms: 0
errors.tolerance: some
file.max.bytes: big
hdfs.url: hdfs://namenode
""",
    )
    for sentence in (
        "line 2: 'zookeeper.conect' is not a setting. Did you mean zookeeper.connect?",
        "line 3: kafka.bootstrap.servers ('broker') is not a list of host:port",
        "line 4: kafka.isolation.level is refused: records of aborted transactions would reach the table",
        "line 5: target.base.path ('lake/orders') is relative",
        "line 6: target.table.name ('a/b') may only contain",
        "line 7: transaction.interval.ms ('0') is too small. The least is 10",
        "line 8: errors.tolerance ('some') is not one of its values. Use none or all",
        "line 9: file.max.bytes ('big') is not a size",
        "line 10: hdfs.url belongs to the Confluent HDFS sink. Use target.base.path",
        "line 11: 'flush.sise' is not a setting. Did you mean flush.size?",
        "environment variable SINK_LOG_LEVEL: log.level ('loud') is not one of its values. Use debug, info",
        "kafka.topic.names is missing. Set it",
        "one of schema.ddl, schema.file and schema.subject gives the columns, but none is set",
        "for 13 reasons",
    ):
        assert sentence in message, sentence
    assert "zookeeper.connect is missing" not in message
    assert len(message.splitlines()) == 14


@pytest.mark.parametrize(
    ("extra", "expected"),
    [
        ("flush.size: 1\nflush.size: 2\n", "line 9: flush.size was already set at"),
        ("topics: x\n", "line 8: topics is the same setting as kafka.topic.names"),
        ("flush:\n  size: {a: 1}\n", "'flush.size.a' is not a setting. Did you mean flush.size?"),
        ("flush.size: [1, 2]\n", "flush.size ('1,2') is a list, but one value is expected"),
        ("flush.size:\n", "flush.size ('') has no value. Give it one or remove it"),
        ("flush.size: 1e6\n", "is not a whole number"),
        ("flush.size: -1\n", "is too small. The least is 1"),
        ("flush.size: !!binary aGk=\n", "has the tag"),
        ("kafka.topic.name: x\n", "'kafka.topic.name' is not a setting. Did you mean kafka.topic.names?"),
        ("kafka.securty.protocol: SSL\n", "Did you mean kafka.security.protocol?"),
        ("partition.field.name: day, day\n", "names day more than once"),
        ("partition.field.name: day-x\n", "names 'day-x', which cannot be a field"),
        ("metrics.port: 70000\n", "is too large. The most is 65535"),
        ("zookeeper.digest.username: sink\n", "zookeeper.digest.password go together. Set both"),
        ("zookeeper.acl: creator\n", "zookeeper.acl=creator needs a creator"),
        ("zookeeper.ssl.ca.location: no.pem\n", "no.pem, which cannot be read"),
        ("zookeeper.ssl.key.location: sink.yaml\n", "zookeeper.ssl.key.location go together. Set both"),
        ("zookeeper.root: sink\n", "is not a znode path"),
        ("schema.file: no.ddl\n", "which cannot be read"),
        ("write.engine: java\n", "Use arrow or hudi"),
        ("- a\n", "is not valid YAML"),
        ("a: 'b\n", "is not valid YAML"),
        ("a: [b\n", "is not valid YAML (expected ',' or ']', but got '<stream end>')"),
        ("a:\n\tb: c\n", r"is not valid YAML (found character '\t' that cannot start any token)"),
        ("a: *secret\n", "is not valid YAML (found undefined alias ...)"),
        ("spark.master: locl[2]\n", "spark.master ('locl[2]') is not a master of Spark. Write it like local[2]"),
        ("a: &x [*x]\n", "is a list of something else"),
        ("a: &x {b: *x}\n", "is nested too deeply"),
        ("sink.name: ../orders\n", "may only contain"),
        ("kafka.security.protocol: SASL_SSL\n", "kafka.sasl.mechanism is missing"),
        ("kafka.ssl.truststore.location: /a.jks\n", "kafka.ssl.ca.location (PEM)"),
        (
            "kafka.ssl.truststore.type: PEM\nkafka.ssl.truststore.location: /no/such.pem\n",
            "line 9: kafka.ssl.truststore.location names a file that does not exist. Check the path",
        ),
        ("hoodie.populate.meta.fields: maybe\n", "hoodie.populate.meta.fields is neither true nor false"),
        (
            "hoodie.parquet.compression.codec: zstdd\n",
            "hoodie.parquet.compression.codec is not one of its values. Use zstd, snappy, gzip, lz4, uncompressed",
        ),
        ("kafka.enable.auto.commit: true\n", "kafka.enable.auto.commit is refused"),
        ("zookeeper.root: /a//b\n", "zookeeper.root ('/a//b') is not a znode path. Write it like /sink"),
        (
            "kafka.ssl.ca.location: /no/such.pem\n",
            "line 8: kafka.ssl.ca.location names a file that does not exist",
        ),
    ],
)
def test_a_mistake_is_named_with_its_remedy(refusal, extra, expected):
    message = refusal(extra)
    assert expected in message
    assert "Traceback" not in message
    assert "pydantic" not in message


def test_both_kinds_of_schema_at_once_are_refused(write, refusal):
    write("id BIGINT", "a.ddl")
    assert "schema.ddl and schema.file are set. Set one" in refusal("schema.file: a.ddl\n")


def test_a_schema_file_is_utf_8_whatever_the_locale_is(write):
    write("id BIGINT COMMENT 'größe'", "a.ddl")
    config = write(MINIMAL.replace("schema.ddl: id BIGINT", "schema.file: a.ddl"))
    code = (
        "import sys; from pathlib import Path; from tests.one_sink import load;"
        " print(ascii(load(Path(sys.argv[1]), {}).schema_text))"
    )
    locale = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    shown = subprocess.run(
        [sys.executable, "-c", code, str(config)],
        cwd=Path(__file__).parents[2],
        env={**os.environ, **locale},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    assert shown.stdout.strip() == ascii("id BIGINT COMMENT 'größe'")


def test_a_schema_file_lies_beside_the_configuration(write, settings_with, tmp_path):
    write("id BIGINT,\n  amount DOUBLE\n", "a.ddl")
    base = MINIMAL.replace("schema.ddl: id BIGINT", "schema.file: a.ddl")
    settings = settings_with(base=base)
    assert settings.schema_file == tmp_path / "a.ddl"
    assert settings.schema_text == "id BIGINT,\n  amount DOUBLE"
    inline = settings_with(base=MINIMAL.replace("id BIGINT", "id BIGINT, amount DOUBLE"))
    assert inline.config_digest == settings.config_digest


@pytest.mark.parametrize(
    ("setting", "origin_pattern"), [("schema.ddl: id BIGNT", "schema.ddl"), ("schema.file: a.ddl", "schema.file ({})")]
)
def test_columns_that_cannot_be_read_are_found_on_loading_and_blamed_on_their_origin(
    write, refusal, setting, origin_pattern
):
    origin = origin_pattern.format(write("id BIGNT", "a.ddl"))
    message = refusal(base=MINIMAL.replace("schema.ddl: id BIGINT", setting))
    assert f"sink.yaml, line 7: {origin}: expected a type at position 3, found 'BIGNT'" in message
    assert len(message.splitlines()) == 1


def test_what_a_reference_stands_for_is_not_shown_when_it_is_no_schema(refusal):
    setting = "schema.ddl: ${env:COLUMNS}"
    message = refusal(base=MINIMAL.replace("schema.ddl: id BIGINT", setting), environ={"COLUMNS": f"id {SECRET}"})
    assert "schema.ddl: what the reference in it stands for is not a schema" in message
    assert SECRET not in message


@pytest.mark.parametrize(
    ("written", "meant"),
    [("/", ""), ("//", ""), ("/sink", "/sink"), ("/sink/", "/sink"), ("//fleets/sink", "/fleets/sink")],
)
def test_the_root_in_zookeeper_is_such_that_a_path_can_be_appended(settings_with, written, meant):
    settings = settings_with(f"zookeeper.root: {written}\n")
    assert settings.zookeeper_root == meant
    assert settings.root_znode == f"{meant}/orders"


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("zk", "zk:2181"),
        ("a,b:2182,c", "a:2181,b:2182,c:2181"),
        ("a,b/chroot/", "a:2181,b:2181/chroot"),
        ('"[::1]"', "[::1]:2181"),
        ("zk:2181/", "zk:2181"),
    ],
)
def test_zookeepers_port_is_written_out(settings_with, written, meant):
    base = MINIMAL.replace("zookeeper.connect: zk:2181", f"zookeeper.connect: {written}")
    assert settings_with(base=base).zookeeper == meant


@pytest.mark.parametrize("written", ["yes", "TRUE", "on", "1"])
def test_a_flag_that_is_passed_through_reaches_every_reader_as_true_or_false(settings_with, written):
    settings = settings_with(f"hoodie.populate.meta.fields: {written}\nhoodie.metadata.enable: off\n")
    assert dict(settings.hudi) == {"hoodie.populate.meta.fields": "true", "hoodie.metadata.enable": "false"}


def test_what_the_consumer_has_to_have_may_be_written(settings_with):
    settings = settings_with(
        "kafka.enable.auto.commit: false\nkafka.enable.auto.offset.store: false\nkafka.check.crcs: true\n"
    )
    assert dict(settings.kafka_native_consumer) == {"bootstrap.servers": settings.bootstrap}


@pytest.mark.parametrize("name", ["absent.yaml", "sink.conf", "folder.yaml"])
def test_a_file_that_cannot_be_read_is_one_sentence(tmp_path, name):
    (tmp_path / "folder.yaml").mkdir()
    with pytest.raises(ConfigError) as caught:
        load(tmp_path / name, {})
    assert str(tmp_path / name) in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize("key", sorted(RULES))
def test_a_passed_through_setting_that_breaks_the_guarantee_is_refused(refusal, settings_with, key):
    assert f"{key} is refused: {RULES[key].why}" in refusal(f"{key}: quite-wrong\n")
    for allowed in RULES[key].allowed:
        settings_with(f"{key}: {allowed.upper()}\n")


@pytest.mark.parametrize("key", sorted(FOREIGN))
def test_a_name_of_another_tool_is_refused_with_a_pointer(refusal, key):
    assert f"{key} {FOREIGN[key]}" in refusal(f"{key}: x\n")


@pytest.mark.parametrize(
    "change",
    [
        "kafka.topic.names: other", "target.base.path: /elsewhere", "target.table.name: b", "flush.size: 1",
        "slice.records: 10", "schema.ddl: id INT", "record.key.fields: id", "partition.field.name: id",
        "provenance.columns: false", "hoodie.parquet.compression.codec: gzip", "auto.offset.reset: latest",
    ],
)  # fmt: skip
def test_the_digest_changes_with_what_the_fleet_must_agree_on(settings_with, change):
    key = change.split(":")[0]
    base = "\n".join(line for line in MINIMAL.splitlines() if not line.startswith(key))
    before = settings_with("sink.name: orders").config_digest
    assert settings_with(f"\nsink.name: orders\n{change}", base=base).config_digest != before


@pytest.mark.parametrize(
    "change",
    [
        "worker.id: other", "log.level: debug", "log.dir: /var/log", "spark.driver.memory: 4g",
        "spark.master: local[1]", "metrics.port: 9", "kafka.sasl.password: x", "hoodie.some.password: x",
        "kafka.fetch.max.bytes: 1", "zookeeper.session.timeout.ms: 20s",
    ],
)  # fmt: skip
def test_the_digest_ignores_what_may_differ_by_host(settings_with, change):
    assert settings_with(change).config_digest == settings_with().config_digest


@pytest.mark.parametrize(
    ("more", "digest"),
    [
        ("", "562e44d3575dbad36940b39f998acab76b6e5401d78e96ea10923913fb94d489"),
        (
            "record.key.fields: id\nwrite.operation: upsert\nflush.size: 7\nerrors.tolerance: ALL\n",
            "d3b32bc2d01bc54c90a4ee212176e9c099407c594c2cddc06ee752830d2009e0",
        ),
        (
            "hoodie.parquet.compression.codec: gzip\nprovenance.columns: false\nauto.offset.reset: latest\n",
            "4cbc143cddbba0ee8730fe1e46262b7fb4a226980a606ea9157c1d9eaf26366a",
        ),
    ],
)
def test_the_digest_stays_what_it_is_because_workers_of_two_releases_run_beside_each_other(settings_with, more, digest):
    assert settings_with(more).config_digest == digest


def test_the_digest_ignores_the_order_of_topics(settings_with):
    base = MINIMAL.replace("names: orders", "names: [a, b]")
    assert settings_with(base=base).config_digest == settings_with(base=base.replace("[a, b]", "[b, a]")).config_digest


def test_settings_cannot_be_changed_and_can_be_sent_to_another_process(settings_with):
    settings = settings_with(f"kafka.sasl.password: {SECRET}\n")
    with pytest.raises(Exception, match="frozen"):
        settings.flush_size = 1
    with pytest.raises(TypeError):
        settings.kafka["a"] = "b"  # type: ignore[index]
    copy = pickle.loads(pickle.dumps(settings))
    assert copy == settings
    assert copy.schema_text == "id BIGINT"
    assert SECRET not in repr(copy)


def test_the_reference_in_the_docs_is_up_to_date():
    page = Path(__file__).parents[2] / "docs" / "configuration.md"
    assert page.read_text() == config_reference.reference(), (
        "run `python -m sink.devtools.settings_reference > docs/configuration.md`"
    )


def test_the_reference_names_every_setting_and_the_example_in_it_loads(write, tmp_path):
    page = config_reference.reference()
    assert [name for name in aliases() if f"`{name}`" not in page] == []
    write("kafka.password=x", "secrets.properties")
    write("", "ca.pem")
    example = page.split("```yaml\n")[1].split("```")[0].replace("/etc/sink/", f"{tmp_path}/")
    assert load(write(example), {}).partition_fields == ("customer",)
