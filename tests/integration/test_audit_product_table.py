"""The audit on what the product itself landed from a real topic: sound first, then broken by hand."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable, Container, Mapping
from dataclasses import replace
from datetime import datetime, timezone
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from confluent_kafka import IsolationLevel, TopicCollection
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from coordination.state.model import Checkpoint, PartitionCheckpoint, Slice, TopicPartition
from sink.audit.audit import audit
from sink.audit.checkpoints import LogPartition as AuditedPartition
from sink.audit.coverage import WHOLE, Coverage
from sink.audit.log import TopicAccess, as_kafka_prints
from sink.audit.report import DigestCount, FindingKind, Report
from sink.cli import main
from sink.config import Settings
from sink.hudi.lock import TableLocks
from sink.hudi.table import Table
from sink.write.engines.engine import ArrowEngine
from sink.write.rows.row_spec import table_schema
from tests.handmade import kinds, sentences
from tests.integration.sinktable import produce, tasks_for
from tests.integration.table_kit import SINK, allow, connected, table_settings
from tests.mutations.edit import Edited

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
        self.schema = table_schema(sink_settings.table, sink_settings.records)
        self.engine = ArrowEngine(spark, sink_settings.table, sink_settings.records, self.schema)
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
        self.table.complete(instant, written.stats, after, allow, self.schema.columns_json)
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
            spark,
            sink_settings.table,
            table_schema(sink_settings.table, sink_settings.records),
            TableLocks(client, sink_settings.table.lock, wait=20),
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


def report_of(
    landed: tuple[Path, str], path: Path | None = None, content: bool = False, coverage: Coverage = WHOLE
) -> Report:
    return audit(str(path or landed[0]), access=TopicAccess(landed[1]), content=content, coverage=coverage)


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


def test_contents_that_cannot_all_be_compared_end_with_status_2(landed: tuple[Path, str], tmp_path: Path) -> None:
    edited = Edited(tmp_path)
    shutil.copytree(landed[0], edited.table)
    config = tmp_path / "orders.properties"
    config.write_text(landed[0].with_suffix(".properties").read_text().replace(str(landed[0]), str(edited.table)))
    command = ["audit", "--content", "--config", str(config)]
    assert main(command) == 0

    def forget_how_records_were_decoded(commit: dict[str, Any]) -> None:
        del commit["extraMetadata"][f"sink.specification.{SINK}"]

    edited.change_commit(edited.commits()[0], forget_how_records_were_decoded)
    assert main(command) == 2


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


def test_each_cell_is_what_the_log_says(landed: tuple[Path, str]) -> None:
    report = report_of(landed, content=True)
    assert report.held, report.failures
    assert report.content is not None
    assert (report.content.rows, report.content.compared, report.content.complete) == (1800, 1800, True)
    assert "with its values" in report.verdict()


def altered(column: str, value: object) -> Callable[[pa.Table], pa.Table]:
    """Returns what puts a value into the first row of a file."""

    def alter(rows: pa.Table) -> pa.Table:
        values = [value, *rows.column(column).to_pylist()[1:]]
        field = rows.schema.field(column)
        return rows.set_column(rows.schema.get_field_index(column), field, pa.array(values, field.type))

    return alter


def without_the_first(rows: pa.Table) -> pa.Table:
    return rows.slice(1)


@pytest.mark.parametrize(
    ("alter", "expected", "named"),
    [
        (altered("id", 7_000), FindingKind.CELL, "column id: the table has '7000', the log "),
        (altered("id", None), FindingKind.CELL, "column id: the table has null, the log "),
        (altered("_kafka_timestamp", datetime(2020, 1, 1, tzinfo=timezone.utc)), FindingKind.CELL, "2020-01-01"),
        (altered("_hoodie_record_key", "k"), FindingKind.CELL, "column _hoodie_record_key: the table has 'k'"),
        (
            altered("_hoodie_partition_path", "p"),
            FindingKind.CELL,
            "column _hoodie_partition_path: the table has 'p in",
        ),
        (without_the_first, FindingKind.ABSENT, "its record is a row, and the table does not have it"),
    ],
)
def test_a_cell_that_is_not_what_the_log_says_is_named(
    landed: tuple[Path, str],
    tmp_path: Path,
    alter: Callable[[pa.Table], pa.Table],
    expected: FindingKind,
    named: str,
) -> None:
    path = Path(shutil.copytree(landed[0], tmp_path / "orders"))
    file = min(file for file in path.rglob("*.parquet") if ".hoodie" not in file.parts)
    rows = pq.ParquetFile(file).read()
    offset, partition = (rows.column(name)[0].as_py() for name in ("_kafka_offset", "_kafka_partition"))
    pq.write_table(alter(rows), file)
    report = report_of(landed, path, content=True)
    assert expected in kinds(report)
    [sentence] = [finding.sentence for finding in report.failures if finding.kind is expected]
    assert named in sentence
    assert f"-{partition} offset {offset}" in sentence


def instants(path: Path) -> list[str]:
    return sorted(file.name[:17] for file in (path / ".hoodie" / "timeline").glob("*.commit"))


def a_partition(path: Path) -> Coverage:
    [topic] = {name for file in path.rglob("*.parquet") if ".hoodie" not in file.parts for name in topics_in(file)}
    return Coverage(partitions=frozenset({AuditedPartition(topic, 1)}))


def topics_in(file: Path) -> set[str]:
    return set(pq.ParquetFile(file).read(["_kafka_topic"]).column(0).to_pylist())


@pytest.mark.parametrize(
    ("coverage", "compared"),
    [
        (lambda path: Coverage(since=instants(path)[-1]), [PARTITIONS * BATCH]),
        (lambda _: Coverage(since="20990101000000000"), [0]),
        (a_partition, [BATCHES * BATCH]),
        (lambda _: Coverage(sample=0.5), range(1, PARTITIONS * BATCHES * BATCH)),
    ],
)
def test_what_the_coverage_leaves_out_is_counted_and_the_rest_compared(
    landed: tuple[Path, str], coverage: Callable[[Path], Coverage], compared: Container[int]
) -> None:
    chosen = coverage(landed[0])
    report = report_of(landed, content=True, coverage=chosen)
    assert report.held, report.failures
    assert report.content is not None
    assert report.content.compared in compared
    left_out = report.rows - report.content.compared
    # The files that no commit since then has touched are not even read.
    assert chosen.since or report.content.not_compared == {"left out": left_out}
    assert report.digests is not None
    assert (report.digests.not_compared == {}) is (chosen.sample < 1.0)
    assert str(chosen) in report.verdict()


def test_only_what_is_covered_is_compared_with_the_log(landed: tuple[Path, str], tmp_path: Path) -> None:
    path = Path(shutil.copytree(landed[0], tmp_path / "orders"))
    first, *_, last = instants(path)
    [newest, *_] = (file for file in path.rglob(f"*_{last}.parquet") if ".hoodie" not in file.parts)
    [oldest, *_] = (file for file in path.rglob(f"*_{first}.parquet") if ".hoodie" not in file.parts)
    pq.write_table(altered("id", 7_000)(pq.ParquetFile(oldest).read()), oldest)
    assert FindingKind.CELL not in kinds(report_of(landed, path, True, Coverage(since=last)))
    assert FindingKind.CELL in kinds(report_of(landed, path, True, Coverage(since=first)))
    pq.write_table(altered("id", 7_000)(pq.ParquetFile(newest).read()), newest)
    assert FindingKind.CELL in kinds(report_of(landed, path, True, Coverage(since=last)))


def test_a_row_of_another_commit_is_not_compared_in_silence(landed: tuple[Path, str], tmp_path: Path) -> None:
    path = Path(shutil.copytree(landed[0], tmp_path / "orders"))
    file = min(file for file in path.rglob("*.parquet") if ".hoodie" not in file.parts)
    pq.write_table(altered("_hoodie_commit_time", "20200101000000000")(pq.ParquetFile(file).read()), file)
    report = report_of(landed, path, content=True)
    assert FindingKind.ABSENT in kinds(report)
