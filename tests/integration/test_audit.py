"""The audit against a real log tells missing, aborted, compacted and expired records apart."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import replace
from io import StringIO
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
from rich.console import Console

from coordination.errors import ConfigError
from sink.audit.audit import audit
from sink.audit.checkpoints import LogPartition
from sink.audit.failures import TryAgain
from sink.audit.log import LogRange, LogReader, TopicAccess, as_kafka_prints
from sink.audit.report import DigestCount, FindingKind, Report
from sink.commands.auditor import sink_errors
from sink.devtools.local.kafka import KafkaServer
from tests.handmade import AddedFile, HandmadeTable, kinds, sentences
from tests.slice_digest import Record, slice_digest
from tests.waiting import eventually

pytestmark = pytest.mark.integration


class Orders:
    """A topic, and a table that landed the records that a read_committed consumer sees."""

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
        """Retries: the broker acknowledges a new topic before every request knows it."""
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
        return [offset for offset, *_ in self.records(partition, start, end)]

    def added(self, partition: int, offsets: Iterable[int], start: int, end: int) -> AddedFile:
        """Returns a file of these offsets, with the digest of those of them that the log delivers now."""
        landed = list(offsets)
        records = [record for record in self.records(partition, start, end) if record[0] in set(landed)]
        return AddedFile(partition, landed, start, end, digest=slice_digest(self.topic, partition, records))

    def records(self, partition: int, start: int, end: int) -> list[Record]:
        """Returns the records that the log delivers now, one message at a time."""
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
        records: list[Record] = []
        while True:
            message = consumer.poll(30)
            assert message is not None
            if message.error() or message.offset() >= end:
                consumer.close()
                return records
            records.append((message.offset(), message.key(), message.value()))

    def end(self, partition: int, isolation: IsolationLevel = IsolationLevel.READ_COMMITTED) -> int:
        request = {KafkaPartition(self.topic, partition): OffsetSpec.latest()}
        [answer] = self.admin.list_offsets(request, isolation_level=isolation).values()
        return int(answer.result().offset)

    def land(self, without: Iterable[int] = ()) -> str:
        """Commits one transaction of all new records, except the offsets `without`."""
        added = []
        for partition, start in enumerate(self.reached):
            end = self.end(partition)
            if end > start:
                offsets = [offset for offset in self.offsets(partition, start, end) if offset not in set(without)]
                added.append(self.added(partition, offsets, start, end))
                self.reached[partition] = end
        return self.table.commit(*added)

    def compact(self) -> None:
        """Waits until the broker has taken away some of the first 50 records."""

        def compacted() -> bool:
            # Only a record that follows rolls a segment, which is then cleaned.
            self.produce(["more"], key="other")
            return len(self.offsets(0, 0, 50)) < 50

        eventually("the broker compacted", compacted, 90)

    def delete_records(self, before: int) -> None:
        deletion = KafkaPartition(self.topic, 0, before)
        self.admin.delete_records([deletion])[deletion].result()

    def recreate(self) -> str:
        """Returns the new id of the topic."""
        self.admin.delete_topics([self.topic])[self.topic].result()
        eventually("the topic is gone", lambda: self.topic not in self.admin.list_topics(timeout=10).topics)
        self.admin.create_topics([NewTopic(self.topic, 1, 1)])[self.topic].result()
        return as_kafka_prints(self._described().topic_id)

    def bare(self) -> None:
        """Continues with a table without provenance columns."""
        table = self.table
        path = table.path.with_name("bare")
        self.table = HandmadeTable(path, provenance=False, topic=self.topic, topic_id=table.topic_id)

    def audit(self) -> Report:
        return audit(str(self.table.path), access=TopicAccess(self.address))


def rendered(report: Report) -> str:
    console = Console(width=200, file=StringIO(), record=True)
    report.render(console)
    return console.export_text()


OrdersFactory = Callable[..., Orders]


@pytest.fixture
def make_orders(kafka: object, topic: Callable[..., str], tmp_path: Path) -> OrdersFactory:
    def make(partitions: int = 1, **config: str) -> Orders:
        address = kafka.address  # type: ignore[attr-defined]
        names = {name.replace("_", "."): value for name, value in config.items()}
        return Orders(address, topic(partitions=partitions, config=names), tmp_path / "table")

    return make


def test_a_table_that_landed_the_whole_log_holds(make_orders: OrdersFactory) -> None:
    orders = make_orders(partitions=3)
    for partition in range(3):
        orders.produce(map(str, range(1000 + partition)), partition)
    orders.land()
    orders.produce(map(str, range(500)), 1)
    orders.land()
    report = orders.audit()
    assert report.held, report.failures
    assert report.log_checked
    assert [row.rows for row in report.partitions] == [1000, 1501, 1002]
    assert report.digests == DigestCount(same=4)


def test_a_record_that_was_never_landed_is_missing_though_the_checkpoint_does_not_count_it(
    make_orders: OrdersFactory,
) -> None:
    """Table and checkpoint agree with one another; only the log knows."""
    orders = make_orders()
    orders.produce(map(str, range(100)))
    orders.land(without=[41, 42, 77])
    report = orders.audit()
    assert kinds(report) == {FindingKind.MISSING, FindingKind.DIGEST}
    assert report.missing == 3
    assert f"{orders.topic}-0 offset 41 to 42 is in the log" in sentences(report, FindingKind.MISSING)


def test_a_slice_of_other_records_than_the_log_has_is_found_though_their_coordinates_are_the_same(
    make_orders: OrdersFactory,
) -> None:
    orders = make_orders(partitions=2)
    orders.produce(map(str, range(30)), key="k")
    orders.produce(map(str, range(5)), 1)
    same, other = orders.added(0, range(10), 0, 10), orders.added(0, range(10, 20), 10, 20)
    # The sink read another value at offset 14.
    records = [(o, k, b"other" if o == 14 else v) for o, k, v in orders.records(0, 10, 20)]
    other = replace(other, digest=slice_digest(orders.topic, 0, records))
    orders.table.commit(same, other, orders.added(0, range(20, 30), 20, 30), orders.added(1, range(5), 0, 5))
    report = orders.audit()
    assert kinds(report) == {FindingKind.DIGEST}
    assert f"{orders.topic}-0[10, 20)" in sentences(report, FindingKind.DIGEST)
    assert report.digests == DigestCount(same=3, different=1)
    assert "The digests of 4 slices were compared with the log." in rendered(report)


def test_markers_and_aborted_records_are_gaps_and_not_missing(make_orders: OrdersFactory) -> None:
    orders = make_orders()
    orders.transaction(map(str, range(10)), commit=True)
    orders.transaction(map(str, range(10)), commit=False)
    orders.transaction(map(str, range(10)), commit=True)
    orders.land()
    report = orders.audit()
    assert report.held, report.failures
    [row] = report.partitions
    assert (row.rows, row.end, row.gaps) == (20, 33, 13)


def test_a_row_of_an_aborted_record_is_found(make_orders: OrdersFactory) -> None:
    orders = make_orders()
    orders.transaction(map(str, range(5)), commit=False)
    orders.produce(["after"])
    orders.table.commit(AddedFile(0, [2, 6], 0, 7))
    report = orders.audit()
    assert kinds(report) == {FindingKind.NOT_IN_LOG}
    assert f"{orders.topic}-0 offset 2 is in the table, but the log does not deliver it" in sentences(
        report, FindingKind.NOT_IN_LOG
    )


def _compacted(make_orders: OrdersFactory) -> Orders:
    """Lands fifty records of one key, of which the broker then compacts away all but the last."""
    orders = make_orders(
        cleanup_policy="compact",
        min_cleanable_dirty_ratio="0.001",
        segment_ms="100",
        max_compaction_lag_ms="200",
    )
    orders.produce(map(str, range(50)), key="same")
    orders.land()
    orders.compact()
    return orders


def test_records_compacted_away_since_are_rightly_in_the_table(make_orders: OrdersFactory) -> None:
    orders = _compacted(make_orders)
    report = orders.audit()
    assert report.held, report.failures
    assert "compacted away" in sentences(report, FindingKind.COMPACTED)
    assert report.digests == DigestCount(not_compared={"compacted": 1})


def test_a_topic_that_was_compacted_before_it_became_one_of_deletion_is_no_failure(make_orders: OrdersFactory) -> None:
    orders = _compacted(make_orders)
    policy = ConfigEntry("cleanup.policy", "delete", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, orders.topic, incremental_configs=[policy])
    orders.admin.incremental_alter_configs([resource])[resource].result()
    eventually("the policy is told", lambda: "delete" in sentences(orders.audit(), FindingKind.HOLE))
    report = orders.audit()
    assert report.held, report.failures
    next(orders.table.path.glob("file-1-0*")).unlink()
    assert FindingKind.MISSING in kinds(orders.audit())


def test_a_row_of_an_aborted_record_is_found_in_a_compacted_topic_too(make_orders: OrdersFactory) -> None:
    orders = make_orders(cleanup_policy="compact")
    orders.transaction(map(str, range(5)), commit=False, key="one")
    orders.produce(["after"], key="other")
    orders.table.commit(AddedFile(0, [2, 6], 0, 7))
    report = orders.audit()
    assert kinds(report) == {FindingKind.NOT_IN_LOG}
    assert f"{orders.topic}-0 offset 2 is in the table" in sentences(report, FindingKind.NOT_IN_LOG)


def test_rows_of_aborted_records_are_counted_where_rows_do_not_tell_their_offsets(make_orders: OrdersFactory) -> None:
    orders = make_orders()
    orders.bare()
    orders.transaction(map(str, range(5)), commit=False)
    orders.produce(["after"])
    orders.table.commit(AddedFile(0, [2, 3, 6], 0, 7))
    report = orders.audit()
    assert kinds(report) == {FindingKind.NOT_IN_LOG}
    assert "only 1 offsets can have been compacted away" in sentences(report, FindingKind.NOT_IN_LOG)


def test_a_partition_that_no_checkpoint_names_is_noted_with_what_it_has(make_orders: OrdersFactory) -> None:
    orders = make_orders(partitions=3)
    orders.produce(map(str, range(10)))
    orders.land()
    orders.produce(map(str, range(7)), 1)
    report = orders.audit()
    assert report.held, report.failures
    assert sentences(report, FindingKind.UNREAD) == (
        f"{orders.topic}-1 is in no checkpoint: none of its 7 offsets [0, 7) has landed yet"
    )


def test_a_topic_is_asked_though_nothing_was_ever_committed(make_orders: OrdersFactory) -> None:
    orders = make_orders()
    orders.produce(map(str, range(7)))
    report = audit(str(orders.table.path), access=TopicAccess(orders.address, topics=(orders.topic,)))
    assert (report.held, report.empty) == (True, True)
    assert "none of its 7 offsets [0, 7) has landed" in sentences(report, FindingKind.UNREAD)


def test_a_topic_that_should_land_but_does_not_exist_is_noted(make_orders: OrdersFactory) -> None:
    orders = make_orders()
    orders.produce(["one"])
    orders.land()
    report = audit(str(orders.table.path), access=TopicAccess(orders.address, topics=(orders.topic, "no-such-topic")))
    assert report.held, report.failures
    assert "no-such-topic is not in Kafka" in sentences(report, FindingKind.UNPROVEN)


@pytest.mark.parametrize("idle", [False, True])
def test_records_from_before_the_first_range_are_noted(make_orders: OrdersFactory, idle: bool) -> None:
    """As with auto.offset.reset=latest: the log still has the earlier records."""
    orders = make_orders(partitions=2)
    orders.produce(map(str, range(100)))
    orders.produce(["one"], 1)
    if idle:
        orders.table.commit(orders.added(1, [0], 0, 1), ends={orders.topic: {"0": [40, 0], "1": [1, 0]}})
    else:
        orders.table.commit(orders.added(0, range(40, 100), 40, 100), orders.added(1, [0], 0, 1))
    report = orders.audit()
    assert report.held, report.failures
    assert f"{orders.topic}-0[0, 40) is in the log, but before" in sentences(report, FindingKind.BEFORE)
    assert len(report.notes) == 1


def test_a_partition_that_joined_its_topic_later_has_to_be_read_from_its_beginning(make_orders: OrdersFactory) -> None:
    orders = make_orders(partitions=2)
    orders.produce(map(str, range(10)))
    orders.land()
    orders.produce(map(str, range(30)), 1)
    orders.table.commit(orders.added(1, range(10, 30), 10, 30))
    report = orders.audit()
    assert kinds(report) == {FindingKind.SKIPPED}
    assert f"{orders.topic}-1[0, 10) is in the log, but before" in sentences(report, FindingKind.SKIPPED)


@pytest.mark.timeout(300)
def test_describe_and_read_are_all_the_rights_that_it_takes(tmp_path: Path) -> None:
    rules = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
    }
    with KafkaServer(tmp_path / "kafka", settings=rules) as server:
        admin = AdminClient({"bootstrap.servers": server.address})
        admin.create_topics([NewTopic("orders", 1, 1)])["orders"].result(timeout=30)
        orders = Orders(server.address, "orders", tmp_path / "table")
        orders.produce(map(str, range(100)))
        orders.land()
        bindings = [
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
        for answer in admin.create_acls(bindings).values():
            answer.result(timeout=30)
        eventually(
            "the rights are in force", lambda: "DESCRIBE_CONFIGS" in sentences(orders.audit(), FindingKind.UNPROVEN)
        )
        report = orders.audit()
        assert report.held, report.failures
        assert report.log_checked
        next(orders.table.path.glob("file-1-0*")).unlink()
        assert FindingKind.MISSING in kinds(orders.audit())


def test_expired_records_are_held_against_the_checkpoints_and_the_report_says_so(
    make_orders: OrdersFactory,
) -> None:
    orders = make_orders()
    orders.produce(map(str, range(100)))
    orders.land()
    orders.delete_records(60)
    report = orders.audit()
    assert report.held, report.failures
    assert f"{orders.topic}-0[0, 60) is no longer in the log" in sentences(report, FindingKind.EXPIRED)
    assert report.digests == DigestCount(not_compared={"expired": 1})
    next(orders.table.path.glob("file-1-0*")).unlink()
    assert orders.audit().missing == 100


def test_a_checkpoint_beyond_the_end_of_the_log_is_found(make_orders: OrdersFactory) -> None:
    orders = make_orders()
    orders.produce(map(str, range(10)))
    orders.table.commit(orders.added(0, range(10), 0, 25))
    report = orders.audit()
    assert kinds(report) == {FindingKind.NOT_IN_LOG}
    assert "the checkpoint ends at 25, the log at 10" in sentences(report, FindingKind.NOT_IN_LOG)


def test_offsets_that_the_log_has_no_more_when_they_are_asked_for_are_passed_over(make_orders: OrdersFactory) -> None:
    orders = make_orders()
    orders.produce(map(str, range(100)))
    source = LogPartition(orders.topic, 0)
    received: list[int] = []
    with closing(LogReader(TopicAccess(orders.address))) as reader:
        reader.topics([orders.topic])
        span = reader.span(source)
        orders.delete_records(60)
        assert reader.read({source: span}, lambda _, records: received.extend(records.offsets)) == {}
        assert received == [*range(60, 100)]
        assert reader.read({source: LogRange(0, 50)}, lambda *_: pytest.fail("records came")) == {}
        assert reader.read({source: LogRange(150, 200)}, lambda *_: pytest.fail("records came")) == {source: 100}


def test_a_topic_made_anew_cannot_vouch_for_the_table(make_orders: OrdersFactory) -> None:
    orders = make_orders()
    orders.produce(map(str, range(10)))
    orders.land()
    orders.recreate()
    report = orders.audit()
    assert kinds(report) == {FindingKind.TOPIC_ID}
    assert orders.table.topic_id in sentences(report, FindingKind.TOPIC_ID)
    assert report.digests == DigestCount(not_compared={"another topic id": 1})


def test_counts_of_a_topic_before_it_was_made_anew_are_not_held_against_its_log(make_orders: OrdersFactory) -> None:
    orders = make_orders()
    orders.bare()
    orders.produce(map(str, range(100)))
    orders.land()
    orders.produce(map(str, range(100)))
    orders.land()
    topic_id = orders.recreate()
    orders.produce(map(str, range(10)))
    orders.table.checkpoint["topics"] = {orders.topic: topic_id}
    orders.table.commit(replace(orders.added(0, range(10), 0, 10), generation=1))
    report = orders.audit()
    assert report.held, report.failures
    assert not sentences(report, FindingKind.HOLE)
    assert report.digests == DigestCount(1, not_compared={"another topic id": 2})


def test_without_provenance_the_log_still_counts(make_orders: OrdersFactory) -> None:
    orders = make_orders()
    orders.bare()
    orders.produce(map(str, range(100)))
    orders.land(without=[50])
    report = orders.audit()
    assert kinds(report) == {FindingKind.MISSING, FindingKind.DIGEST}
    assert "100 records in the log, 99 were committed" in sentences(report, FindingKind.MISSING)


def test_brokers_that_do_not_answer_are_named(make_orders: OrdersFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sink.audit.log.REQUEST_SECONDS", 2.0)
    orders = make_orders()
    orders.produce(["one"])
    orders.land()
    with pytest.raises(TryAgain, match=r"Kafka at 127\.0\.0\.1:1 cannot be read"):
        audit(str(orders.table.path), access=TopicAccess("127.0.0.1:1"))


def test_a_setting_that_no_client_takes_is_one_sentence() -> None:
    error_text = r'kafka\.\*: .*"FOO".*"security\.protocol".*\. Correct or remove the setting'
    with pytest.raises(ConfigError, match=error_text), sink_errors():
        LogReader(TopicAccess("127.0.0.1:1", {"security.protocol": "FOO"}))
