"""The consumer that reads records: settings of the user, settings that the guarantee fixes, and refused ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from coordination.errors import ConfigError
from sink import librdkafka
from sink.audit.log import LogReader, TopicAccess
from sink.clients.kafka.log import Log
from sink.commands.auditor import sink_errors
from sink.config import Settings
from sink.write.engines.task_input import require_valid_consumer
from sink.write.reading import kafka_consumer
from sink.write.reading.kafka_consumer import ConsumerSettings, KeptConsumer, drop_consumer, kept_consumer
from tests.one_sink import load
from tests.storage.kerberos_wheel import installed_has_kerberos

MINIMAL = {
    "zookeeper.connect": "zk:2181",
    "kafka.bootstrap.servers": "127.0.0.1:1",
    "kafka.topic.names": "orders",
    "target.base.path": "/lake/orders",
    "target.table.name": "orders",
    "schema.ddl": "id long",
}
KERBEROS = {"kafka.security.protocol": "SASL_PLAINTEXT", "kafka.sasl.mechanism": "GSSAPI"}
Load = Callable[..., Settings]


@pytest.fixture
def load_settings(tmp_path: Path) -> Load:
    def load_with(changes: dict[str, str]) -> Settings:
        config = tmp_path / "sink.properties"
        config.write_text("".join(f"{name}={value}\n" for name, value in {**MINIMAL, **changes}.items()))
        return load(config, {})

    return load_with


@pytest.fixture(autouse=True)
def no_consumers() -> Iterator[None]:
    yield
    while kafka_consumer._kept:
        kafka_consumer._kept.popitem()[1].client.close()


def consumer_of(settings: Settings, queue_bytes: int = 1 << 20) -> dict[str, object]:
    return ConsumerSettings(settings.kafka_native_consumer, "sink-orders").for_reading(queue_bytes, 1)


def test_what_a_user_sets_goes_before_what_is_usual(load_settings: Load) -> None:
    defaults = consumer_of(load_settings({}))
    chosen = consumer_of(load_settings({"kafka.fetch.max.wait.ms": "77", "kafka.group.id": "g"}))
    assert (defaults["fetch.wait.max.ms"], defaults["group.id"]) == ("20", "sink-orders")
    assert (chosen["fetch.wait.max.ms"], chosen["group.id"]) == ("77", "g")


def test_the_queue_is_bounded_by_what_the_task_may_hold(load_settings: Load) -> None:
    assert consumer_of(load_settings({}), 8 << 20)["queued.max.messages.kbytes"] == "8192"
    assert consumer_of(load_settings({}), 10)["queued.max.messages.kbytes"] == "1"


@pytest.mark.parametrize(
    ("records", "kib"), [(1, 64), (1_953, 64), (2_049, 128), (15_625, 512), (500_000, 1024), (10**9, 1024)]
)
def test_a_fetch_is_as_large_as_what_is_wanted_of_a_partition(load_settings: Load, records: int, kib: int) -> None:
    consumer = ConsumerSettings(load_settings({}).kafka_native_consumer, "g")
    assert consumer.for_reading(1 << 20, records)["fetch.message.max.bytes"] == str(kib << 10)


def test_fetches_stay_as_large_as_the_user_says(load_settings: Load) -> None:
    chosen = consumer_of(load_settings({"kafka.max.partition.fetch.bytes": "12345"}))
    assert chosen["fetch.message.max.bytes"] == "12345"


def test_nobody_can_set_what_the_guarantee_needs(load_settings: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = load_settings({"kafka.enable.partition.eof": "false", "kafka.offset.store.method": "broker"})
    chosen: dict[str, object] = {}
    monkeypatch.setattr(librdkafka, "Consumer", lambda given, **_: chosen.update(given))
    KeptConsumer(consumer_of(settings))
    assert chosen["enable.partition.eof"] is True
    assert chosen["isolation.level"] == "read_committed"
    assert chosen["auto.offset.reset"] == "error"
    assert chosen["check.crcs"] is True
    assert (chosen["enable.auto.commit"], chosen["enable.auto.offset.store"]) == (False, False)


def test_settings_show_no_secret(load_settings: Load) -> None:
    login = {"kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "PLAIN", "kafka.sasl.username": "u"}
    settings = load_settings({**login, "kafka.sasl.password": "hunter2"})
    consumer_settings = ConsumerSettings(settings.kafka_native_consumer, "g")
    assert consumer_settings.for_reading(1, 1)["sasl.password"] == "hunter2"
    assert "hunter2" not in repr(consumer_settings)


@pytest.mark.skipif(installed_has_kerberos(), reason="this librdkafka has Kerberos")
def test_where_librdkafka_has_no_kerberos_every_client_says_which_script_builds_it(load_settings: Load) -> None:
    settings = load_settings(KERBEROS)
    for make_client in (
        lambda: require_valid_consumer(settings.records.consumer),
        lambda: Log(settings.kafka_native).topics(),
        lambda: LogReader(TopicAccess(settings.bootstrap, settings.kafka_native)),
    ):
        expected = r"^kafka\.sasl\.mechanism: GSSAPI .* packaging/kafka-kerberos"
        with pytest.raises(ConfigError, match=expected) as refusal, sink_errors():
            make_client()
        assert "\n" not in str(refusal.value)
    assert (Path(__file__).parents[2] / "packaging" / "kafka-kerberos").is_file()


def test_a_value_that_librdkafka_refuses_is_named(load_settings: Load) -> None:
    with pytest.raises(ConfigError, match=r"fetch\.wait\.max\.ms"):
        require_valid_consumer(load_settings({"kafka.fetch.max.wait.ms": "soon"}).records.consumer)
    require_valid_consumer(load_settings({}).records.consumer)


def test_a_consumer_is_kept_by_its_settings_until_it_is_dropped(load_settings: Load) -> None:
    settings = consumer_of(load_settings({}))
    first = kept_consumer(settings, "", {})
    assert kept_consumer(dict(settings), "", {}) is first
    assert kept_consumer(consumer_of(load_settings({}), 2 << 20), "", {}) is not first
    drop_consumer(settings)
    assert kept_consumer(settings, "", {}) is not first


def test_few_consumers_are_kept_and_the_oldest_is_closed_first(load_settings: Load) -> None:
    consumers = [kept_consumer(consumer_of(load_settings({}), size << 20), "", {}) for size in range(1, 8)]
    assert len(kafka_consumer._kept) == kafka_consumer._MAX_KEPT
    assert kept_consumer(consumer_of(load_settings({}), 7 << 20), "", {}) is consumers[-1]
    assert kept_consumer(consumer_of(load_settings({}), 1 << 20), "", {}) is not consumers[0]
    with pytest.raises(RuntimeError, match="closed"):
        consumers[0].client.consume(1, 0)
