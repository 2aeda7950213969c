"""A view tells the truth about a real broker, in every state a topic can be in."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from typing import Any
from uuid import uuid4

import confluent_kafka as ck
import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewPartitions,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from coordination.errors import ConfigError, Unavailable
from coordination.state.model import PartitionLog, TopicPartition
from sink.clients.kafka import groups as kafka_groups
from sink.clients.kafka import log as kafka_client
from sink.clients.kafka.log import AccessDenied, Log, UnknownTopic
from sink.clients.kafka.record_times import begin_times
from sink.devtools.local.kafka import KafkaServer
from tests.waiting import eventually

pytestmark = pytest.mark.integration


@pytest.fixture
def address(kafka: Any) -> str:
    return str(kafka.address)


@pytest.fixture
def admin(address: str) -> AdminClient:
    return AdminClient(client(address))


@pytest.fixture
def log(address: str) -> Iterator[Log]:
    log = Log({"bootstrap.servers": address})
    yield log
    log.close()


@pytest.fixture
def name() -> str:
    return f"orders-{uuid4().hex[:8]}"


def client(address: str) -> dict[str, Any]:
    """Settings of the test's own clients: no log lines, so that stderr has only those of the product."""
    return {"bootstrap.servers": address, "log_level": 0}


def create(admin: AdminClient, name: str, partitions: int = 1, **config: str) -> None:
    """Creates a topic, also after a deletion, which takes effect a little later than it is acknowledged."""

    def created() -> bool:
        try:
            admin.create_topics([NewTopic(name, partitions, 1, config=config)])[name].result()
        except ck.KafkaException as error:
            if error.args[0].code() != ck.KafkaError.TOPIC_ALREADY_EXISTS:
                raise
            return False
        return True

    eventually(f"{name} is created", created)


def produce(address: str, name: str, count: int, partition: int = 0, key: str | None = None) -> None:
    producer = ck.Producer(client(address))
    for number in range(count):
        producer.produce(name, b"%d" % number, key, partition)
    assert producer.flush(30) == 0


def transaction(address: str, name: str, count: int) -> ck.Producer:
    """Sends `count` records in a transaction, which stays open."""
    producer = ck.Producer({**client(address), "transactional.id": uuid4().hex})
    producer.init_transactions(30)
    producer.begin_transaction()
    for number in range(count):
        producer.produce(name, b"%d" % number, partition=0)
    assert producer.flush(30) == 0
    return producer


def partition_log(log: Log, name: str, partition: int = 0) -> PartitionLog:
    return log.view([name]).partitions[TopicPartition(name, partition)]


def span(log: Log, name: str) -> tuple[int, int]:
    log_range = partition_log(log, name)
    return log_range.start, log_range.end


def test_a_view_has_every_partition_with_its_id_start_and_end(
    address: str, admin: AdminClient, log: Log, name: str
) -> None:
    other = f"{name}-b"
    create(admin, name, 3)
    create(admin, other, 1)
    produce(address, name, 7, partition=2)
    view = log.view([name, other, name])
    first = view.partitions[TopicPartition(name, 0)].topic_id
    assert view.cluster == admin.list_topics(timeout=10).cluster_id
    assert {source: (log_range.start, log_range.end) for source, log_range in view.partitions.items()} == {
        TopicPartition(name, 0): (0, 0),
        TopicPartition(name, 1): (0, 0),
        TopicPartition(name, 2): (0, 7),
        TopicPartition(other, 0): (0, 0),
    }
    assert {log_range.topic_id for source, log_range in view.partitions.items() if source.topic == name} == {first}
    assert view.partitions[TopicPartition(other, 0)].topic_id != first


def test_a_view_has_the_topics_that_match_and_those_that_are_named(admin: AdminClient, log: Log, name: str) -> None:
    for topic in (f"{name}-a", f"my-{name}-a", f"{name}-b", f"{name}x"):
        create(admin, topic)
    view = log.view([f"{name}x"], f"{name}-.*")
    assert {source.topic for source in view.partitions} == {f"{name}-a", f"{name}-b", f"{name}x"}
    assert view.matching == (f"{name}-a", f"{name}-b")
    assert log.view([f"{name}x"]).matching is None


def test_a_view_of_no_topic_that_matches_is_empty(admin: AdminClient, log: Log, name: str) -> None:
    view = log.view([], f"{name}.*")
    assert (view.partitions, view.matching) == ({}, ())
    assert view.cluster == admin.list_topics(timeout=10).cluster_id


def test_a_topic_that_comes_to_match_is_seen_when_the_list_is_asked_for_again(
    admin: AdminClient, log: Log, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(admin, f"{name}-a")
    assert log.view([], f"{name}.*").matching == (f"{name}-a",)
    create(admin, f"{name}-b")
    assert log.view([], f"{name}.*").matching == (f"{name}-a",), "not at every look"
    monkeypatch.setattr(kafka_client, "LIST_SECONDS", 0.0)
    eventually("it is seen", lambda: log.view([], f"{name}.*").matching == (f"{name}-a", f"{name}-b"))


def test_a_topic_that_matched_and_is_gone_fails_no_view(admin: AdminClient, log: Log, name: str) -> None:
    create(admin, f"{name}-a")
    create(admin, f"{name}-b")
    assert len(log.view([], f"{name}.*").partitions) == 2
    admin.delete_topics([f"{name}-a"])[f"{name}-a"].result()
    eventually("it is gone", lambda: log.view([], f"{name}.*").matching == (f"{name}-b",))
    with pytest.raises(UnknownTopic):
        log.view([f"{name}-a"], f"{name}.*")


def test_an_optional_topic_that_is_gone_is_deleted_and_fails_no_view(admin: AdminClient, log: Log, name: str) -> None:
    create(admin, f"{name}-a")
    create(admin, f"{name}-b")
    assert len(log.view([f"{name}-a"], optional=[f"{name}-b"]).partitions) == 2
    admin.delete_topics([f"{name}-b"])[f"{name}-b"].result()
    eventually("it is gone", lambda: log.view([f"{name}-a"], optional=[f"{name}-b"]).deleted == (f"{name}-b",))
    assert log.view([], f"{name}.*", [f"{name}-b"]).matching == (f"{name}-a",)
    assert log.view([], optional=[f"{name}-b"]).partitions == {}
    with pytest.raises(UnknownTopic):
        log.view([f"{name}-b"], optional=[f"{name}-b"])


def test_a_topic_that_was_deleted_keeps_no_others_offsets_and_retention_back(
    address: str, admin: AdminClient, log: Log, name: str
) -> None:
    create(admin, name, **{"retention.ms": "600000"})
    produce(address, name, 3)
    [found] = log.view([name]).partitions.values()
    ask, group, gone = kafka_groups.GroupsAdmin({"bootstrap.servers": address}), f"sink-{name}", f"{name}-gone"

    def committed() -> bool:
        with suppress(Unavailable):  # a new broker looks for the group's coordinator
            ask((group, ((gone, 0, 5, "an id of before"), (name, 0, 2, found.topic_id))))
            return True
        return False

    eventually("the group is committed", committed)
    [asked] = admin.list_consumer_group_offsets([ck.ConsumerGroupTopicPartitions(group)]).values()
    assert [(offset.topic, offset.offset) for offset in asked.result().topic_partitions] == [(name, 2)]
    assert ask((gone, name)) == {name: 600.0}
    with pytest.raises(Unavailable, match=gone):
        ask((group, ((gone, 0, 5, "an id of before"),)))


def test_a_topic_is_seen_as_soon_as_it_is_made(admin: AdminClient, log: Log, name: str) -> None:
    for number in range(5):
        create(admin, f"{name}-{number}", 8)
        assert len(log.view([f"{name}-{number}"]).partitions) == 8


def test_topic_ids_are_written_as_kafkas_own_tools_write_them(admin: AdminClient, log: Log, name: str) -> None:
    topics = [f"{name}-{number}" for number in range(12)]
    for topic in topics:
        create(admin, topic)
    ids = {log_range.topic_id for log_range in log.view(topics).partitions.values()}
    assert len(ids) == len(topics)
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{22}", topic_id) for topic_id in ids)


def test_an_open_transaction_holds_the_end_back_until_it_is_committed(
    address: str, admin: AdminClient, log: Log, name: str
) -> None:
    create(admin, name)
    produce(address, name, 5)
    before = time.time()
    producer = transaction(address, name, 3)
    produce(address, name, 2)
    seen = partition_log(log, name)
    assert (seen.start, seen.end, seen.high_watermark, seen.held_back) == (0, 5, 10, 5)
    [began] = begin_times({"bootstrap.servers": address}, log.view([name])).values()
    assert before - 1 < began < time.time()
    producer.commit_transaction(30)
    eventually("what was committed can be read", lambda: span(log, name) == (0, 11))
    assert partition_log(log, name).held_back == 0
    assert begin_times({"bootstrap.servers": address}, log.view([name])) == {}


def test_an_aborted_transaction_lets_the_end_go_on_past_its_marker(
    address: str, admin: AdminClient, log: Log, name: str
) -> None:
    create(admin, name)
    producer = transaction(address, name, 3)
    assert span(log, name) == (0, 0)
    producer.abort_transaction(30)
    eventually("what was aborted is passed", lambda: span(log, name) == (0, 4))


def test_a_deleted_prefix_moves_the_start(address: str, admin: AdminClient, log: Log, name: str) -> None:
    create(admin, name)
    produce(address, name, 9)
    for future in admin.delete_records([ck.TopicPartition(name, 0, 6)]).values():
        future.result()
    assert span(log, name) == (6, 9)


def test_a_recreated_topic_has_another_id(address: str, admin: AdminClient, log: Log, name: str) -> None:
    create(admin, name)
    produce(address, name, 4)
    before = partition_log(log, name)
    admin.delete_topics([name])[name].result()
    create(admin, name)
    eventually("the new topic is seen", lambda: partition_log(log, name).topic_id != before.topic_id)
    assert (before.end, partition_log(log, name).end) == (4, 0)


def test_a_topic_recreated_during_a_view_never_lends_its_offsets_to_the_old_id(
    address: str, admin: AdminClient, name: str
) -> None:
    class Meddled(Log):
        looks = 0

        def _offsets(self, *args: Any) -> Any:
            self.looks += 1
            if self.looks == 1:
                admin.delete_topics([name])[name].result()
                create(admin, name)
                produce(address, name, 40)
            return super()._offsets(*args)

    create(admin, name)
    settings = {"bootstrap.servers": address}
    with closing(Log(settings, timeout=30)) as plain, closing(Meddled(settings, timeout=30)) as meddled:
        old = partition_log(plain, name)
        seen = partition_log(meddled, name)
        assert meddled.looks > 1
        assert seen.topic_id != old.topic_id
        assert seen == partition_log(plain, name) == PartitionLog(seen.topic_id, 0, 40, 40)


def test_brokers_that_give_topics_no_ids_are_refused(address: str, admin: AdminClient, name: str) -> None:
    class Old(Log):
        def _describe(self, *args: Any) -> Any:
            described, missing = super()._describe(*args)
            return {topic: (str(ck.Uuid(0, 0)), partitions) for topic, (_, partitions) in described.items()}, missing

    create(admin, name)
    with (
        closing(Old({"bootstrap.servers": address})) as log,
        pytest.raises(ConfigError, match=f"gives {name} no topic"),
    ):
        log.view([name])


def test_added_partitions_are_in_the_next_view(admin: AdminClient, log: Log, name: str) -> None:
    create(admin, name, 2)
    assert len(log.view([name]).partitions) == 2
    admin.create_partitions([NewPartitions(name, 5)])[name].result()
    eventually("the new partitions are seen", lambda: len(log.view([name]).partitions) == 5)


@pytest.mark.timeout(180)
def test_compaction_removes_records_and_leaves_start_and_end(
    address: str, admin: AdminClient, log: Log, name: str
) -> None:
    eager = {
        "cleanup.policy": "compact",
        "segment.ms": "100",
        "min.cleanable.dirty.ratio": "0.001",
        "max.compaction.lag.ms": "100",
    }
    create(admin, name, 1, **eager)
    sent_count = 0

    def compacted() -> bool:
        """Sends more records: only the next record closes a segment."""
        nonlocal sent_count
        produce(address, name, 20, key="k")
        sent_count += 20
        return len(offsets(address, name, sent_count)) < sent_count

    eventually("the broker compacted", compacted, 120)
    assert span(log, name) == (0, sent_count)


def offsets(address: str, name: str, end: int) -> list[int]:
    """Returns the offsets of partition 0 that can still be read before `end`."""
    consumer = ck.Consumer({**client(address), "group.id": "none", "enable.partition.eof": True})
    consumer.assign([ck.TopicPartition(name, 0, 0)])
    readable_offsets: list[int] = []
    while (message := consumer.poll(30)) is not None and message.error() is None:
        readable_offsets.append(message.offset() or 0)
    consumer.close()
    return [offset for offset in readable_offsets if offset < end]


def test_a_topic_that_does_not_exist_is_named_with_its_near_names(
    address: str, admin: AdminClient, log: Log, name: str
) -> None:
    create(admin, name)
    with pytest.raises(UnknownTopic, match=re.escape(f"{address}: {name}x, nowhere (near it: {name}")) as caught:
        log.view([name, f"{name}x", "nowhere"])
    assert caught.value.topics == (f"{name}x", "nowhere")
    assert name in caught.value.similar_names


def test_a_name_that_no_topic_can_have_is_an_unknown_topic(log: Log) -> None:
    with pytest.raises(UnknownTopic, match="no blanks!"):
        log.view(["no blanks!"])


def test_credentials_that_the_broker_refuses_are_named_and_the_password_is_not(address: str) -> None:
    settings = {
        "bootstrap.servers": address,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanisms": "PLAIN",
        "sasl.username": "someone",
        "sasl.password": "s3cret-word",
    }
    with closing(Log(settings, timeout=5)) as log, pytest.raises(AccessDenied, match=r"kafka\.sasl") as caught:
        log.view(["orders"])
    assert address in str(caught.value)
    assert "s3cret-word" not in str(caught.value)


def test_the_constructor_neither_connects_nor_blocks() -> None:
    # A connection would be tried for this minute.
    began = time.monotonic()
    Log({"bootstrap.servers": "no.such.host.invalid:9092"}, timeout=60).close()
    assert time.monotonic() - began < 30


def test_a_setting_that_librdkafka_refuses_is_a_config_error() -> None:
    with pytest.raises(ConfigError, match=r"no\.such\.setting"):
        Log({"bootstrap.servers": "127.0.0.1:1", "no.such.setting": "1"}).view(["orders"])


@pytest.mark.parametrize("address", ["127.0.0.1:1", "no.such.host.invalid:9092"])
def test_brokers_that_cannot_be_reached_are_named_within_the_time_given(
    address: str, capfd: pytest.CaptureFixture[str]
) -> None:
    log = Log({"bootstrap.servers": address}, timeout=1)
    began = time.monotonic()
    with pytest.raises(Unavailable, match=re.escape(f"Kafka at {address} cannot be reached")):
        log.view(["orders"])
    assert time.monotonic() - began < 30
    log.close()
    assert capfd.readouterr().err == ""


@pytest.fixture(scope="module")
def own_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServer]:
    """A broker that may be stopped, and that knows access rules."""
    rules = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
    }
    server = KafkaServer(tmp_path_factory.mktemp("kafka-own"), settings=rules)
    server.start()
    yield server
    server.stop()


@pytest.mark.timeout(180)
def test_a_topic_that_may_not_be_described_is_named_with_the_right_that_is_missing(
    own_server: KafkaServer, name: str
) -> None:
    admin = AdminClient(client(own_server.address))
    create(admin, name)
    with closing(Log({"bootstrap.servers": own_server.address})) as log:
        assert span(log, name) == (0, 0)
        rule = AclBinding(
            ResourceType.TOPIC,
            name,
            ResourcePatternType.LITERAL,
            "User:ANONYMOUS",
            "*",
            AclOperation.DESCRIBE,
            AclPermissionType.DENY,
        )
        admin.create_acls([rule])[rule].result()

        def denied() -> bool:
            try:
                log.view([name])
            except AccessDenied as error:
                return all(word in str(error) for word in (f"topic {name}", own_server.address, "DESCRIBE"))
            return False

        eventually("access is denied", denied)


@pytest.mark.timeout(180)
def test_a_broker_that_was_down_is_found_again_by_the_same_log(
    own_server: KafkaServer, name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    admin = AdminClient(client(own_server.address))
    create(admin, name)
    produce(own_server.address, name, 3)
    log = Log({"bootstrap.servers": own_server.address}, timeout=6)
    before = partition_log(log, name)
    capfd.readouterr()
    own_server.stop()
    with pytest.raises(Unavailable, match=re.escape(own_server.address)):
        log.view([name])
    own_server.start()
    eventually("Kafka answers again", lambda: answers(log, name))
    assert partition_log(log, name) == before
    assert "rdkafka" not in capfd.readouterr().err
    log.close()


@pytest.mark.timeout(180)
def test_a_broker_that_does_not_answer_is_not_blamed_for_an_earlier_failure(own_server: KafkaServer, name: str) -> None:
    create(AdminClient(client(own_server.address)), name)
    log = Log({"bootstrap.servers": own_server.address}, timeout=6)
    own_server.kill()
    with pytest.raises(Unavailable, match="cannot be reached"):
        log.view([name])
    own_server.start()
    eventually("Kafka answers again", lambda: answers(log, name))
    own_server.pause()
    try:
        with pytest.raises(Unavailable, match=re.escape(f"Kafka at {own_server.address} gave no answer")):
            log.view([name])
    finally:
        own_server.resume()
    eventually("Kafka answers again", lambda: answers(log, name))
    log.close()


def answers(log: Log, name: str) -> bool:
    try:
        log.view([name])
    except Unavailable:
        return False
    return True
