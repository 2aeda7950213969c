"""The audit against a real log: what is missing, never was, was compacted or expired, and which is which."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
import tenacity
from confluent_kafka import Consumer, IsolationLevel, KafkaException, Producer, TopicCollection
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    OffsetSpec,
    ResourcePatternType,
    ResourceType,
    TopicDescription,
)

from coordination.errors import ConfigError, Unavailable
from sink.audit import TopicAccess, audit
from sink.audit.log import LogReader, as_kafka_prints
from sink.audit.report import FindingKind, Report
from sink.devtools.local.kafka import KafkaServer
from tests.handmade import Added, HandmadeTable, kinds, sentences
from tests.waiting import eventually

pytestmark = pytest.mark.integration


class Orders:
    """A topic, and a table that landed what a read_committed consumer sees of it."""

    def __init__(self, address: str, topic: str, path: Path) -> None:
        self.address = address
        self.topic = topic
        self.admin = AdminClient({"bootstrap.servers": address})
        described = self._described()
        self.table = HandmadeTable(path, topic=topic, topic_id=as_kafka_prints(described.topic_id))
        self.partitions = len(described.partitions)
        self.reached = [0] * self.partitions

    @tenacity.retry(retry=tenacity.retry_if_exception_type(KafkaException), stop=tenacity.stop_after_delay(30))
    def _described(self) -> TopicDescription:
        """A new topic is acknowledged before every request knows of it."""
        return self.admin.describe_topics(TopicCollection([self.topic]))[self.topic].result()

    def produce(self, values: Iterable[str], partition: int = 0, key: str | None = None) -> None:
        producer = Producer({"bootstrap.servers": self.address})
        for value in values:
            producer.produce(self.topic, value.encode(), key, partition)
        assert producer.flush(30) == 0

    def transaction(self, values: Iterable[str], commit: bool, key: str | None = None) -> None:
        producer = Producer({"bootstrap.servers": self.address, "transactional.id": "orders"})
        producer.init_transactions()
        producer.begin_transaction()
        for value in values:
            producer.produce(self.topic, value.encode(), key, partition=0)
        assert producer.flush(30) == 0
        (producer.commit_transaction if commit else producer.abort_transaction)()
        # The marker is written after the answer.
        eventually("the marker", lambda: self.end(0) == self.end(0, IsolationLevel.READ_UNCOMMITTED))

    def offsets(self, partition: int, start: int, end: int) -> list[int]:
        """Offsets that the log delivers now, one message at a time."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.address,
                "group.id": "test",
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        consumer.assign([KafkaPartition(self.topic, partition, start)])
        found: list[int] = []
        while True:
            message = consumer.poll(30)
            assert message is not None
            if message.error() or message.offset() >= end:
                consumer.close()
                return found
            found.append(message.offset())

    def end(self, partition: int, isolation: IsolationLevel = IsolationLevel.READ_COMMITTED) -> int:
        asked = {KafkaPartition(self.topic, partition): OffsetSpec.latest()}
        [answer] = self.admin.list_offsets(asked, isolation_level=isolation).values()
        return int(answer.result().offset)

    def land(self, without: Iterable[int] = ()) -> str:
        """One transaction with everything that is new, less the offsets `without`."""
        added = []
        for partition, start in enumerate(self.reached):
            end = self.end(partition)
            if end > start:
                offsets = [o for o in self.offsets(partition, start, end) if o not in set(without)]
                added.append(Added(partition, offsets, start, end))
                self.reached[partition] = end
        return self.table.commit(*added)

    def compact(self) -> None:
        """Waits until the broker has taken away some of the first 50 records."""

        def compacted() -> bool:
            # A segment is only rolled, and then cleaned, by a record that follows.
            self.produce(["more"], key="other")
            return len(self.offsets(0, 0, 50)) < 50

        eventually("the broker compacted", compacted, 90)

    def bare(self) -> None:
        """Goes on with a table without provenance columns."""
        table = self.table
        path = table.path.with_name("bare")
        self.table = HandmadeTable(path, provenance=False, topic=self.topic, topic_id=table.topic_id)

    def audit(self) -> Report:
        return audit(str(self.table.path), access=TopicAccess(self.address))


OrdersFactory = Callable[..., Orders]


@pytest.fixture
def orders(kafka: object, topic: Callable[..., str], tmp_path: Path) -> OrdersFactory:
    def make(partitions: int = 1, **config: str) -> Orders:
        address = kafka.address  # type: ignore[attr-defined]
        names = {name.replace("_", "."): value for name, value in config.items()}
        return Orders(address, topic(partitions=partitions, config=names), tmp_path / "table")

    return make


def test_a_table_that_landed_the_whole_log_holds(orders: OrdersFactory) -> None:
    o = orders(partitions=3)
    for partition in range(3):
        o.produce(map(str, range(1000 + partition)), partition)
    o.land()
    o.produce(map(str, range(500)), 1)
    o.land()
    report = o.audit()
    assert report.held, report.failures
    assert report.log_checked
    assert [row.rows for row in report.partitions] == [1000, 1501, 1002]


def test_a_record_that_was_never_landed_is_missing_though_the_checkpoint_does_not_count_it(
    orders: OrdersFactory,
) -> None:
    """Table and checkpoint agree with one another; only the log knows."""
    o = orders()
    o.produce(map(str, range(100)))
    o.land(without=[41, 42, 77])
    report = o.audit()
    assert kinds(report) == {FindingKind.MISSING}
    assert report.missing == 3
    assert f"{o.topic}-0 offset 41 to 42 is in the log" in sentences(report, FindingKind.MISSING)


def test_markers_and_aborted_records_are_gaps_and_not_missing(orders: OrdersFactory) -> None:
    o = orders()
    o.transaction(map(str, range(10)), commit=True)
    o.transaction(map(str, range(10)), commit=False)
    o.transaction(map(str, range(10)), commit=True)
    o.land()
    report = o.audit()
    assert report.held, report.failures
    [row] = report.partitions
    assert (row.rows, row.end, row.gaps) == (20, 33, 13)


def test_a_row_of_an_aborted_record_is_found(orders: OrdersFactory) -> None:
    o = orders()
    o.transaction(map(str, range(5)), commit=False)
    o.produce(["after"])
    o.table.commit(Added(0, [2, 6], 0, 7))
    report = o.audit()
    assert kinds(report) == {FindingKind.NOT_IN_LOG}
    assert f"{o.topic}-0 offset 2 is in the table, but the log does not deliver it" in sentences(
        report, FindingKind.NOT_IN_LOG
    )


def _compacted(orders: OrdersFactory) -> Orders:
    """Fifty records of one key were landed, and all but the last then compacted away."""
    o = orders(
        cleanup_policy="compact",
        min_cleanable_dirty_ratio="0.001",
        segment_ms="100",
        max_compaction_lag_ms="200",
    )
    o.produce(map(str, range(50)), key="same")
    o.land()
    o.compact()
    return o


def test_records_compacted_away_since_are_rightly_in_the_table(orders: OrdersFactory) -> None:
    o = _compacted(orders)
    report = o.audit()
    assert report.held, report.failures
    assert "compacted away" in sentences(report, FindingKind.COMPACTED)


def test_a_topic_that_was_compacted_before_it_became_one_of_deletion_is_no_failure(orders: OrdersFactory) -> None:
    o = _compacted(orders)
    policy = ConfigEntry("cleanup.policy", "delete", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, o.topic, incremental_configs=[policy])
    o.admin.incremental_alter_configs([resource])[resource].result()
    eventually("the policy is told", lambda: "delete" in sentences(o.audit(), FindingKind.HOLE))
    report = o.audit()
    assert report.held, report.failures
    next(o.table.path.glob("file-1-0*")).unlink()
    assert FindingKind.MISSING in kinds(o.audit())


def test_a_row_of_an_aborted_record_is_found_in_a_compacted_topic_too(orders: OrdersFactory) -> None:
    o = orders(cleanup_policy="compact")
    o.transaction(map(str, range(5)), commit=False, key="one")
    o.produce(["after"], key="other")
    o.table.commit(Added(0, [2, 6], 0, 7))
    report = o.audit()
    assert kinds(report) == {FindingKind.NOT_IN_LOG}
    assert f"{o.topic}-0 offset 2 is in the table" in sentences(report, FindingKind.NOT_IN_LOG)


def test_rows_of_aborted_records_are_counted_where_rows_do_not_tell_their_offsets(orders: OrdersFactory) -> None:
    o = orders()
    o.bare()
    o.transaction(map(str, range(5)), commit=False)
    o.produce(["after"])
    o.table.commit(Added(0, [2, 3, 6], 0, 7))
    report = o.audit()
    assert kinds(report) == {FindingKind.NOT_IN_LOG}
    assert "only 1 offsets can have been compacted away" in sentences(report, FindingKind.NOT_IN_LOG)


def test_a_partition_that_no_checkpoint_names_is_noted_with_what_it_has(orders: OrdersFactory) -> None:
    o = orders(partitions=3)
    o.produce(map(str, range(10)))
    o.land()
    o.produce(map(str, range(7)), 1)
    report = o.audit()
    assert report.held, report.failures
    assert sentences(report, FindingKind.UNREAD) == (
        f"{o.topic}-1 is in no checkpoint: none of its 7 offsets [0, 7) has landed yet"
    )


def test_a_topic_is_asked_though_nothing_was_ever_committed(orders: OrdersFactory) -> None:
    o = orders()
    o.produce(map(str, range(7)))
    report = audit(str(o.table.path), access=TopicAccess(o.address, topics=(o.topic,)))
    assert (report.held, report.empty) == (True, True)
    assert "none of its 7 offsets [0, 7) has landed" in sentences(report, FindingKind.UNREAD)


def test_a_topic_that_should_land_but_does_not_exist_is_noted(orders: OrdersFactory) -> None:
    o = orders()
    o.produce(["one"])
    o.land()
    report = audit(str(o.table.path), access=TopicAccess(o.address, topics=(o.topic, "no-such-topic")))
    assert report.held, report.failures
    assert "no-such-topic is not in Kafka" in sentences(report, FindingKind.UNPROVEN)


@pytest.mark.parametrize("idle", [False, True])
def test_records_from_before_the_first_range_are_noted(orders: OrdersFactory, idle: bool) -> None:
    """As with auto.offset.reset=latest: the log still has what was there already."""
    o = orders(partitions=2)
    o.produce(map(str, range(100)))
    o.produce(["one"], 1)
    if idle:
        o.table.commit(Added(1, [0], 0, 1), ends={o.topic: {"0": [40, 0], "1": [1, 0]}})
    else:
        o.table.commit(Added(0, range(40, 100), 40, 100), Added(1, [0], 0, 1))
    report = o.audit()
    assert report.held, report.failures
    assert f"{o.topic}-0[0, 40) is in the log, but before" in sentences(report, FindingKind.BEFORE)
    assert len(report.notes) == 1


def test_a_partition_that_joined_its_topic_later_has_to_be_read_from_its_beginning(orders: OrdersFactory) -> None:
    o = orders(partitions=2)
    o.produce(map(str, range(10)))
    o.land()
    o.produce(map(str, range(30)), 1)
    o.table.commit(Added(1, range(10, 30), 10, 30))
    report = o.audit()
    assert kinds(report) == {FindingKind.SKIPPED}
    assert f"{o.topic}-1[0, 10) is in the log, but before" in sentences(report, FindingKind.SKIPPED)


@pytest.mark.timeout(300)
def test_describe_and_read_are_all_the_rights_that_it_takes(tmp_path: Path) -> None:
    rules = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
    }
    with KafkaServer(tmp_path / "kafka", settings=rules) as server:
        admin = AdminClient({"bootstrap.servers": server.address})
        admin.create_topics([NewTopic("orders", 1, 1)])["orders"].result(timeout=30)
        o = Orders(server.address, "orders", tmp_path / "table")
        o.produce(map(str, range(100)))
        o.land()
        given = [
            AclBinding(
                ResourceType.TOPIC,
                "orders",
                ResourcePatternType.LITERAL,
                "User:ANONYMOUS",
                "*",
                right,
                AclPermissionType.ALLOW,
            )
            for right in (AclOperation.READ, AclOperation.DESCRIBE)
        ]
        for answer in admin.create_acls(given).values():
            answer.result(timeout=30)
        eventually("the rights are in force", lambda: "DESCRIBE_CONFIGS" in sentences(o.audit(), FindingKind.UNPROVEN))
        report = o.audit()
        assert report.held, report.failures
        assert report.log_checked
        next(o.table.path.glob("file-1-0*")).unlink()
        assert FindingKind.MISSING in kinds(o.audit())


def test_expired_records_are_held_against_the_checkpoints_and_the_report_says_so(
    orders: OrdersFactory,
) -> None:
    o = orders()
    o.produce(map(str, range(100)))
    o.land()
    o.admin.delete_records([KafkaPartition(o.topic, 0, 60)])[KafkaPartition(o.topic, 0, 60)].result()
    report = o.audit()
    assert report.held, report.failures
    assert f"{o.topic}-0[0, 60) is no longer in the log" in sentences(report, FindingKind.EXPIRED)
    next(o.table.path.glob("file-1-0*")).unlink()
    assert o.audit().missing == 100


def test_a_checkpoint_beyond_the_end_of_the_log_is_found(orders: OrdersFactory) -> None:
    o = orders()
    o.produce(map(str, range(10)))
    o.table.commit(Added(0, range(10), 0, 25))
    report = o.audit()
    assert kinds(report) == {FindingKind.NOT_IN_LOG}
    assert "the checkpoint ends at 25, the log at 10" in sentences(report, FindingKind.NOT_IN_LOG)


def test_a_topic_made_anew_cannot_vouch_for_the_table(orders: OrdersFactory) -> None:
    o = orders()
    o.produce(map(str, range(10)))
    o.land()
    o.admin.delete_topics([o.topic])[o.topic].result()
    eventually("the topic is gone", lambda: o.topic not in o.admin.list_topics(timeout=10).topics)
    o.admin.create_topics([NewTopic(o.topic, 1, 1)])[o.topic].result()
    report = o.audit()
    assert kinds(report) == {FindingKind.TOPIC_ID}
    assert o.table.topic_id in sentences(report, FindingKind.TOPIC_ID)


def test_without_provenance_the_log_still_counts(orders: OrdersFactory) -> None:
    o = orders()
    o.bare()
    o.produce(map(str, range(100)))
    o.land(without=[50])
    report = o.audit()
    assert kinds(report) == {FindingKind.MISSING}
    assert "100 records in the log, 99 were committed" in sentences(report, FindingKind.MISSING)


def test_brokers_that_do_not_answer_are_named(orders: OrdersFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sink.audit.log.REQUEST_SECONDS", 2.0)
    o = orders()
    o.produce(["one"])
    o.land()
    with pytest.raises(Unavailable, match=r"Kafka at 127\.0\.0\.1:1 cannot be read"):
        audit(str(o.table.path), access=TopicAccess("127.0.0.1:1"))


def test_a_setting_that_no_client_takes_is_one_sentence() -> None:
    refused = r'kafka\.\*: .*"FOO".*"security\.protocol".*\. Correct or remove the setting'
    with pytest.raises(ConfigError, match=refused):
        LogReader(TopicAccess("127.0.0.1:1", {"security.protocol": "FOO"}))
