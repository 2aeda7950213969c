"""The consumer that reads records: what the user may set, what has to hold, and what is refused in one sentence."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from coordination.errors import ConfigError
from sink.config import Settings, load
from sink.write import kafka_consumer
from sink.write.inputs import require_reader
from sink.write.kafka_consumer import ConsumerSettings, drop_consumer, kept_consumer

GIVEN = {
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
def loaded(tmp_path: Path) -> Load:
    def make(more: dict[str, str]) -> Settings:
        config = tmp_path / "sink.properties"
        config.write_text("".join(f"{name}={value}\n" for name, value in {**GIVEN, **more}.items()))
        return load(config, {})

    return make


@pytest.fixture(autouse=True)
def no_consumers() -> Iterator[None]:
    yield
    while kafka_consumer._kept:
        kafka_consumer._kept.popitem()[1].client.close()


def consumer_of(settings: Settings, queue_bytes: int = 1 << 20) -> dict[str, object]:
    return ConsumerSettings(settings.kafka_native_consumer, "sink-orders").for_reading(queue_bytes, 1)


def test_what_a_user_sets_goes_before_what_is_usual(loaded: Load) -> None:
    usual = consumer_of(loaded({}))
    given = consumer_of(loaded({"kafka.fetch.max.wait.ms": "77", "kafka.group.id": "g"}))
    assert (usual["fetch.wait.max.ms"], usual["group.id"]) == ("20", "sink-orders")
    assert (given["fetch.wait.max.ms"], given["group.id"]) == ("77", "g")


def test_the_queue_is_bounded_by_what_the_task_may_hold(loaded: Load) -> None:
    assert consumer_of(loaded({}), 8 << 20)["queued.max.messages.kbytes"] == "8192"
    assert consumer_of(loaded({}), 10)["queued.max.messages.kbytes"] == "1"


@pytest.mark.parametrize(
    ("records", "kib"), [(1, 64), (1_953, 64), (2_049, 128), (15_625, 512), (500_000, 1024), (10**9, 1024)]
)
def test_a_fetch_is_as_large_as_what_is_wanted_of_a_partition(loaded: Load, records: int, kib: int) -> None:
    consumer = ConsumerSettings(loaded({}).kafka_native_consumer, "g")
    assert consumer.for_reading(1 << 20, records)["fetch.message.max.bytes"] == str(kib << 10)


def test_fetches_stay_as_large_as_the_user_says(loaded: Load) -> None:
    given = consumer_of(loaded({"kafka.max.partition.fetch.bytes": "12345"}))
    assert given["fetch.message.max.bytes"] == "12345"


def test_nobody_can_set_what_the_guarantee_needs(loaded: Load) -> None:
    made = consumer_of(loaded({"kafka.enable.partition.eof": "false", "kafka.offset.store.method": "broker"}))
    assert made["enable.partition.eof"] is True
    assert made["isolation.level"] == "read_committed"
    assert made["auto.offset.reset"] == "error"
    assert (made["enable.auto.commit"], made["enable.auto.offset.store"]) == (False, False)


def test_settings_show_no_secret(loaded: Load) -> None:
    login = {"kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "PLAIN", "kafka.sasl.username": "u"}
    settings = loaded({**login, "kafka.sasl.password": "hunter2"})
    held = ConsumerSettings(settings.kafka_native_consumer, "g")
    assert held.for_reading(1, 1)["sasl.password"] == "hunter2"
    assert "hunter2" not in repr(held)


def test_kerberos_is_refused_by_librdkafka_in_one_sentence_and_left_to_spark(loaded: Load) -> None:
    with pytest.raises(ConfigError, match=r"kafka\.\*: .*GSSAPI.*Or set kafka\.reader=spark") as refusal:
        require_reader(loaded(KERBEROS))
    assert "\n" not in str(refusal.value)
    require_reader(loaded({**KERBEROS, "kafka.reader": "spark"}))


def test_a_value_that_librdkafka_refuses_is_named(loaded: Load) -> None:
    with pytest.raises(ConfigError, match=r"fetch\.wait\.max\.ms"):
        require_reader(loaded({"kafka.fetch.max.wait.ms": "soon"}))
    require_reader(loaded({}))


def test_a_consumer_is_kept_by_its_settings_until_it_is_dropped(loaded: Load) -> None:
    settings = consumer_of(loaded({}))
    first = kept_consumer(settings)
    assert kept_consumer(dict(settings)) is first
    assert kept_consumer(consumer_of(loaded({}), 2 << 20)) is not first
    drop_consumer(settings)
    assert kept_consumer(settings) is not first


def test_few_consumers_are_kept_and_the_oldest_is_closed_first(loaded: Load) -> None:
    kept = [kept_consumer(consumer_of(loaded({}), size << 20)) for size in range(1, 8)]
    assert len(kafka_consumer._kept) == kafka_consumer._KEPT
    assert kept_consumer(consumer_of(loaded({}), 7 << 20)) is kept[-1]
    assert kept_consumer(consumer_of(loaded({}), 1 << 20)) is not kept[0]
    with pytest.raises(RuntimeError, match="closed"):
        kept[0].client.assignment()
