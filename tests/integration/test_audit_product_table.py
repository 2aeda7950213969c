"""The audit on what the product itself landed from a real topic: sound first, then broken by hand."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import IsolationLevel, TopicCollection
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from coordination.state.model import Checkpoint, PartitionCheckpoint, Slice, TopicPartition
from sink.audit import TopicAccess, audit
from sink.audit.log import as_kafka_prints
from sink.audit.report import DigestCount, FindingKind, Report
from sink.config import Settings
from sink.hudi import Table
from sink.hudi.lock import TableLocks
from sink.schema import parse_ddl
from sink.write.engine import ArrowEngine
from tests.handmade import kinds, sentences
from tests.integration.sinktable import produce, tasks_for
from tests.integration.table_kit import allow, connected, table_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

PARTITIONS = 2
BATCHES = 3
BATCH = 300
STEP = 200
DDL = "id BIGINT, kind STRING"


class Landing:
    """Lands everything in the topic, one transaction at a time, in slices cut at multiples of `STEP`."""

    def __init__(self, spark: SparkSession, sink_settings: Settings, table: Table, ids: Mapping[str, str]) -> None:
        self.engine = ArrowEngine(spark, sink_settings, parse_ddl(DDL, sink_settings.provenance))
        self.table = table
        self.admin = AdminClient({"bootstrap.servers": sink_settings.bootstrap})
        ends = {TopicPartition(t, p): PartitionCheckpoint(0, 0) for t in ids for p in range(PARTITIONS)}
        self.checkpoint = Checkpoint(sink_settings.name, "keeper", "cluster", 1, 0, 0, "config", ids, ends)

    def end(self, source: TopicPartition) -> int:
        request = {KafkaPartition(source.topic, source.partition): OffsetSpec.latest()}
        [answer] = self.admin.list_offsets(request, isolation_level=IsolationLevel.READ_COMMITTED).values()
        return int(answer.result().offset)

    def land(self) -> None:
        before = self.checkpoint
        slices, ends = [], {}
        for source, reached in before.ends.items():
            end = self.end(source)
            cuts = [reached.end, *range((reached.end // STEP + 1) * STEP, end, STEP), end]
            for start, stop in pairwise(cuts):
                slices.append(Slice(*_pair(source), start, stop, before.topics[source.topic], 0))
            ends[source] = PartitionCheckpoint(end, 0)
        number = before.number + 1
        instant = self.table.begin(number, 1)
        written = self.engine.write(instant, tasks_for(slices))
        after = replace(before, number=number, base=before.number, ends=ends, results=written.results)
        self.table.complete(instant, written.stats, after, allow)
        self.checkpoint = after


def topic_id(admin: AdminClient, topic: str) -> str:
    return as_kafka_prints(admin.describe_topics(TopicCollection([topic]))[topic].result(timeout=30).topic_id)


def _pair(source: TopicPartition) -> tuple[str, int]:
    return source.topic, source.partition


@pytest.fixture(scope="module", params=["", "kind"], ids=["unpartitioned", "partitioned"])
def landed(
    request: pytest.FixtureRequest,
    spark: SparkSession,
    zookeeper: Any,
    kafka: Any,
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[Path, str]:
    """The table's path and the broker's address."""
    topic = f"orders-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": kafka.address})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(timeout=30)
    base = tmp_path_factory.mktemp("product") / "orders"
    more = {"partition__field__name": request.param} if request.param else {}
    sink_settings = table_settings(
        base,
        f"{zookeeper.address}/audit-{uuid.uuid4().hex[:8]}",
        kafka__bootstrap__servers=kafka.address,
        kafka__topic__names=topic,
        schema__ddl=DDL,
        **more,
    )
    with connected(zookeeper.address) as client:
        client.ensure_path(sink_settings.zookeeper.partition("/")[2])
    with connected(sink_settings.zookeeper) as client:
        table = Table(
            spark, sink_settings, parse_ddl(DDL, sink_settings.provenance), TableLocks(client, sink_settings, wait=20)
        )
        table.ensure()
        for batch in range(BATCHES):
            for partition in range(PARTITIONS):
                numbers = range(batch * BATCH, (batch + 1) * BATCH)
                values = [b'{"id": %d, "kind": "k%d"}' % (number, number % 3) for number in numbers]
                produce(kafka.address, topic, values, partition)
            if not batch:
                landing = Landing(spark, sink_settings, table, {topic: topic_id(admin, topic)})
            landing.land()
    return base, kafka.address


def report_of(landed: tuple[Path, str], path: Path | None = None) -> Report:
    return audit(str(path or landed[0]), access=TopicAccess(landed[1]))


def test_what_the_product_landed_holds_against_the_log(landed: tuple[Path, str]) -> None:
    report = report_of(landed)
    assert report.held, report.failures
    assert report.log_checked
    assert not report.notes, report.notes
    assert (report.rows, report.commits) == (PARTITIONS * BATCHES * BATCH, BATCHES)
    slices = sum(len(range(start, start + BATCH, STEP)) for start in range(0, BATCHES * BATCH, BATCH))
    assert report.digests == DigestCount(same=PARTITIONS * slices)
    assert [(partition.first, partition.last, partition.gaps) for partition in report.partitions] == [
        (0, 899, 0)
    ] * PARTITIONS


def drop(file: Path) -> str:
    file.unlink()
    return file.name


def copy_under_another_id(file: Path) -> str:
    copy = file.with_name(f"copied-0_{file.name.partition('_')[2]}")
    shutil.copy(file, copy)
    return copy.name


@pytest.mark.parametrize(
    ("damage", "expected"),
    [
        (drop, {FindingKind.FILE_MISSING, FindingKind.MISSING}),
        (copy_under_another_id, {FindingKind.FILE_UNNAMED, FindingKind.DUPLICATE}),
    ],
)
def test_damage_is_found_and_named(
    landed: tuple[Path, str], tmp_path: Path, damage: Callable[[Path], str], expected: set[FindingKind]
) -> None:
    path = Path(shutil.copytree(landed[0], tmp_path / "orders"))
    data_files = [file for file in path.rglob("*.parquet") if ".hoodie" not in file.parts]
    name = damage(min(data_files))
    report = report_of(landed, path)
    assert kinds(report) >= expected
    assert any(name in sentences(report, kind) for kind in expected)
