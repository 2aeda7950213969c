"""Bad records among good ones, from Kafka to the errors table: by both engines, on a real table, repeatedly."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from coordination.errors import BadRecord, ConfigError, NotLeader, TableError
from sink.audit.audit import audit
from sink.audit.log import TopicAccess
from sink.bad_records.replay import Replay
from sink.bad_records.selection import Selection
from sink.bad_records.table import ErrorsTable, QuarantineMissing
from sink.clients.zookeeper.session import connected
from sink.hudi.lock import TableLocks
from sink.hudi.table import Table, TableOutcome
from sink.operations.operator_commit import commanded_sink
from sink.write.engines.engine import engine_of
from sink.write.reading.record_headers import UNREADABLE
from sink.write.rows.row_spec import table_schema
from tests.header_kit import produce_with_headers
from tests.integration.errors_kit import DDL, HEADERS, Record, Sink, produce
from tests.integration.rewrites_kit import At
from tests.integration.sinktable import FIRST_TIMESTAMP, OpenInstant, make_settings, tasks_of
from tests.kafka_tools import recreate, topic_id_of
from tests.unit.test_sifting import AVRO, DESCRIPTORS, FORMATS

pytestmark = pytest.mark.integration

GOOD: list[Record] = [(b"%d" % at, b'{"id":%d,"name":"n%d"}' % (at, at % 3)) for at in range(300)]
BAD: dict[int, tuple[Record, str, str]] = {
    0: ((b"0", b'{"id":"x"}'), "value", "'id'"),
    7: ((b"7", None), "value", "tombstone"),
    8: ((b"\xff\xfe", b'{"id":8,"name":"a"}'), "key", "not UTF-8"),
    150: ((b"150", b'{"id":1,"name":"12:00"}'), "partition", "a colon"),
    151: ((None, b'{"id":null,"name":"a"}'), "record key", "'id' is null"),
    # Bad in every way: the error names the first stage that fails.
    299: ((b"\xff", b"{"), "value", ""),
}
RECORDS = [BAD[at][0] if at in BAD else record for at, record in enumerate(GOOD)]
EVERY_STAGE = {"key__format": "string", "partition__field__name": "name", "record__key__fields": "id"}


@pytest.mark.parametrize(
    ("engine", "metadata"), [("arrow", "true"), pytest.param("hudi", "false", marks=pytest.mark.thorough)]
)
def test_bad_records_are_set_aside_published_once_and_their_files_go_with_the_commit(
    make_sink, kafka, engine, metadata
) -> None:
    sink = make_sink(RECORDS, write__engine=engine, hoodie__metadata__enable=metadata, **EVERY_STAGE)
    first, rolled_back = sink.write((0, 0, 100), (0, 100, 300))
    assert sink.quarantine_files()
    sink.table.roll_back(first)
    assert not list(Path(sink.settings.base_path).glob("name=*/*.parquet"))
    sink.sweep()
    assert not sink.quarantine_files()
    with pytest.raises(QuarantineMissing):
        sink.publish(sink.operation(first, rolled_back))
    assert not sink.errors.exists()

    instant, written = sink.write((0, 0, 100), (0, 100, 300))
    assert [(result.records, result.errors) for result in written.results] == [(97, 3), (197, 3)]
    assert [result.digest for result in written.results] == [result.digest for result in rolled_back.results]
    sink.number = 1
    operation = sink.operation(instant, written)
    sink.sweep()
    sink.publish(operation)
    sink.publish(operation)
    assert sink.offsets() == []
    assert sink.complete(operation) is TableOutcome.COMPLETED
    sink.sweep()
    assert not sink.quarantine_files()
    good = [at for at in range(300) if at not in BAD]
    assert sink.offsets() == good
    assert sink.offsets(metadata=True) == good
    report = audit(sink.settings.base_path, access=TopicAccess(kafka.address), content=True)
    assert report.held, report.failures
    assert report.content is not None
    assert (report.content.compared, report.content.bad, report.complete) == (len(good), len(BAD), True)
    bad_rows = sink.bad_rows()
    assert set(bad_rows) == set(BAD)
    for offset, ((key, value), kind, reason) in BAD.items():
        row = bad_rows[offset]
        assert (row["_kafka_key"], row["value"], row["kind"]) == (key, value, kind)
        assert reason in row["reason"]
        assert [tuple(header) for header in row["_kafka_headers"]] == HEADERS
        assert row["_kafka_timestamp"].timestamp() * 1000 == pytest.approx(FIRST_TIMESTAMP + offset)
        assert (row["_kafka_topic"], row["_kafka_partition"], row["topic_id"]) == (
            sink.topic,
            0,
            topic_id_of(sink.topic),
        )
        assert (row["instant"], row["transaction"], row["replayed_at"]) == (instant, 1, None)


UNREADABLE_HEADERS = [(b'{"id":0}', [b"a"]), (b'{"id":1}', [b"k\xff"]), (b'{"id":"x"}', [b"k\xff"])]


@pytest.mark.parametrize(("column", "kinds"), [("true", {1: "headers", 2: "headers"}), ("false", {2: "value"})])
def test_a_record_whose_headers_cannot_be_read_is_set_aside_without_them_and_its_reason_says_so(
    make_sink, kafka, column, kinds
) -> None:
    sink = make_sink([], headers__column=column)
    produce_with_headers(kafka.address, sink.topic, UNREADABLE_HEADERS)
    sink.land((0, 0, 3))
    assert sink.offsets() == [at for at in range(3) if at not in kinds]
    rows = sink.bad_rows()
    assert {at: (row["kind"], row["_kafka_headers"]) for at, row in rows.items()} == {
        at: (kind, None) for at, kind in kinds.items()
    }
    assert all(row["reason"].startswith(UNREADABLE) for row in rows.values())
    assert column == "true" or "'id'" in rows[2]["reason"]
    report = audit(sink.settings.base_path, access=TopicAccess(kafka.address), content=True)
    assert report.held, report.failures
    assert report.content is not None
    assert (report.content.compared, report.content.bad, report.complete) == (3 - len(kinds), len(kinds), True)


def test_a_record_whose_headers_cannot_be_read_halts_with_its_coordinates_and_the_producers_fix(
    make_sink, kafka
) -> None:
    strict = make_sink([], headers__column="true", errors__tolerance="none")
    produce_with_headers(kafka.address, strict.topic, UNREADABLE_HEADERS[:2])
    with pytest.raises(BadRecord, match=f"{strict.topic}-0 offset 1: {UNREADABLE}"):
        strict.write((0, 0, 2))


def test_bad_values_of_every_plain_format_are_set_aside_as_they_came(spark, kafka, topic, tmp_path: Path) -> None:
    """Runs the engine alone, without a table. `test_sifting` has the formats of a registry."""
    (tmp_path / "avro").write_text(json.dumps(AVRO))
    (tmp_path / "protobuf").write_bytes(DESCRIPTORS)
    schemas = {name: {"value__schema__file": str(tmp_path / name)} for name in ("avro", "protobuf")}
    for name, more in {"avro": {}, "protobuf": {"value__message": "t.R"}, "string": {}}.items():
        _, make, bad_values = FORMATS[name]
        values = [make(at) if at % 3 else bad_values[at // 3 % len(bad_values)] for at in range(30)]
        format_settings = {"value__format": name, "errors__tolerance": "all", **schemas.get(name, {}), **more}
        ddl = "value string" if name == "string" else DDL
        source, directory = topic(), tmp_path / f"of-{name}"
        directory.mkdir()
        produce(kafka.address, source, [(None, value) for value in values])
        settings = make_settings(directory, kafka.address, source, ddl, **format_settings)
        engine = engine_of(spark, settings.table, settings.records, table_schema(settings.table, settings.records))
        written = engine.write(OpenInstant(directory / "table").name, tasks_of(source, (0, 0, 30)))
        assert (written.results[0].records, written.results[0].errors) == (20, 10), name
        (quarantined,) = written.errors
        rows = spark.read.parquet(f"{settings.base_path}/{quarantined.path}").collect()
        assert {row["_kafka_offset"]: row["value"] for row in rows} == {at: values[at] for at in range(0, 30, 3)}


@pytest.mark.parametrize("engine", ["arrow", "hudi"])
def test_a_task_with_more_bad_records_than_a_transaction_may_have_stops(make_sink, engine) -> None:
    sink = make_sink(RECORDS, write__engine=engine, errors__max__per__transaction="5", **EVERY_STAGE)
    with pytest.raises(BadRecord, match=r"offset 0: the first of more than errors.max.per.transaction=5 bad records: "):
        sink.write((0, 0, 300))
    _, written = sink.write((0, 0, 299))
    assert written.results[0].errors == 5
    # Each of two tasks is within the limit, both together are not.
    with pytest.raises(BadRecord, match="offset 0: the first of more than"):
        sink.write((0, 0, 150), (0, 150, 300))


def test_what_an_attempt_published_that_never_was_committed_is_withdrawn(make_sink) -> None:
    """Another writer rolled back its instant, and the next attempt had a schema that accepts more."""
    sink = make_sink(RECORDS)
    instant, written = sink.write((0, 0, 300))
    sink.publish(sink.operation(instant, written))
    assert set(sink.bad_rows()) == {0, 7, 299}
    sink.table.roll_back(instant)
    wider = sink_with(sink, "id string, name string")
    instant, written = wider.write((0, 0, 300))
    assert written.results[0].errors == 2
    wider.publish(wider.operation(instant, written, attempt=2))
    assert set(sink.bad_rows()) == {7, 299}
    assert {row["instant"] for row in sink.bad_rows().values()} == {instant}


def test_a_replay_adds_what_is_good_by_now_once_and_says_what_is_not(make_sink) -> None:
    sink = make_sink(RECORDS, write__engine="hudi", sink__name="replayed")
    instant = sink.land((0, 0, 8), (0, 8, 300))
    replay = Replay(sink.spark, commanded_sink(sink.settings), sink.client)
    repaired = """replace(value, '"x"', '-1')"""
    assert replay.preview(Selection(), None).good == ()
    assert [
        coordinates[3] for coordinates in replay.preview(Selection(first_offset=0, last_offset=0), repaired).good
    ] == [0]
    with pytest.raises(ConfigError, match="--sql"):
        replay.preview(Selection(), "replace(value")
    bad = [offset for offset in range(300) if offset in (0, 7, 299)]
    assert sink.offsets() == [offset for offset in range(300) if offset not in bad]
    tried = replay.run(Selection(), repaired)
    assert [coordinates[3] for coordinates in tried.good] == [0]
    assert sorted(coordinates[3] for coordinates in tried.bad) == [7, 299]
    assert replay.run(Selection(), repaired).good == ()
    assert sink.offsets() == [offset for offset in range(300) if offset not in bad[1:]]
    rows = sink.spark.read.format("hudi").load(sink.settings.base_path).where("_kafka_offset = 0")
    assert rows.select("id", "name", "_kafka_topic").collect() == [(-1, None, sink.topic)]
    marks = {offset: row["replayed_instant"] for offset, row in sink.bad_rows().items()}
    assert marks[7] is None
    assert marks[299] is None
    assert marks[0] > instant
    report = audit(sink.settings.base_path, sink.settings.name)
    assert report.held, report.to_json()
    assert (report.rows, report.errors, report.replayed) == (298, 2, 1)


def sink_with(sink: Sink, ddl: str) -> Sink:
    """Returns the same sink with other columns; the rows of its table do not matter."""
    copy = object.__new__(Sink)
    copy.__dict__.update(sink.__dict__)
    settings = sink.settings.model_copy(update={"schema_ddl": ddl})
    object.__setattr__(settings, "_schema_text", ddl)
    copy.engine = engine_of(
        sink.spark, settings.table, settings.records, table_schema(settings.table, settings.records)
    )
    return copy


def test_a_publication_that_is_interrupted_is_rolled_back_by_the_next_and_each_generation_has_rows_of_its_own(
    make_sink,
) -> None:
    sink = make_sink(RECORDS[:10])
    operations = []
    for generation in (0, 1):
        operations.append(sink.operation(*sink.write((0, 0, 10), generation=generation)))
    completed_counts = []

    def the_term_ends_meanwhile() -> None:
        completed_counts.append(len(completed(sink.settings.errors_base_path)))
        if len(completed_counts) == 2:
            raise NotLeader("epoch 2 has followed epoch 1")

    with pytest.raises(NotLeader):
        sink.errors.publish(operations[0], the_term_ends_meanwhile)
    assert completed_counts == [0, 0]
    assert not completed(sink.settings.errors_base_path)
    for operation in operations:
        sink.publish(operation)
    rows = sink.errors.rows().select("_kafka_offset", "generation").collect()
    assert sorted(map(tuple, rows)) == [(0, 0), (0, 1), (7, 0), (7, 1)]
    actions = [name.rpartition(".")[2] for name in completed(sink.settings.errors_base_path)]
    assert actions == ["rollback", "commit", "commit"]


@pytest.mark.parametrize("eighths", [0, pytest.param(7, marks=pytest.mark.thorough)])
@pytest.mark.parametrize("published", [0, pytest.param(1, marks=pytest.mark.thorough)])
def test_a_publication_that_a_full_disk_cut_short_is_made_again(
    make_sink, tmp_path: Path, published: int, eighths: int
) -> None:
    sink = make_sink(RECORDS, **EVERY_STAGE)
    if published:
        sink.land((0, 0, 100))
    instant, written = sink.write((0, 100, 300))
    operation = sink.operation(instant, written)
    own = Path(sink.settings.errors_base_path, ".hoodie")
    # Hudi deletes the markers once it has completed an instant, by which a rollback finds the files.
    keep = At("Errors.written", lambda: shutil.copytree(own / ".temp", tmp_path / "temp"))
    sink.errors._table._failpoints = keep
    sink.publish(operation)
    shutil.copytree(tmp_path / "temp", own / ".temp", dirs_exist_ok=True)
    rows = sink.bad_rows()
    timeline = own / "timeline"
    newest = max(timeline.glob("*_*.commit"), key=lambda file: file.name.partition("_")[2])
    newest.write_bytes(newest.read_bytes()[: newest.stat().st_size * eighths // 8])
    sink.errors = ErrorsTable(sink.spark, sink.settings.errors, sink.client)
    sink.publish(operation)
    assert sink.bad_rows().keys() == rows.keys()
    assert sink.complete(operation) is TableOutcome.COMPLETED


def test_a_sink_neither_overwrites_nor_deletes_rows_of_another_sink_or_of_a_topic_that_was_recreated(make_sink) -> None:
    """A second sink lands a topic of the same name from another cluster, into a table of its own."""
    ours = make_sink(RECORDS[:10])
    settings = ours.settings.model_copy(
        update={
            "name": f"{ours.settings.name}-2",
            "base_path": f"{ours.settings.base_path}-2",
            "errors_base_path": ours.settings.errors_base_path,
            "table_name": ours.settings.table_name,
        }
    )
    theirs = Sink(ours.spark, settings, ours.client, ours.topic)
    for sink in (ours, theirs):
        sink.publish(sink.operation(*sink.write((0, 0, 10))))
    recreate(ours.settings.bootstrap, ours.topic)
    produce(ours.settings.bootstrap, ours.topic, RECORDS[:10])
    recreated = tasks_of(ours.topic, (0, 0, 10))
    for sink in (ours, theirs):
        instant = sink.table.begin(2, 1)
        sink.publish(sink.operation(instant, sink.engine.write(instant, recreated), attempt=2))
        # The first attempt's rows stay: they are of the topic before.
        rows = sink.errors.rows().select("sink", "topic_id", "_kafka_offset").collect()
        ids = {row["topic_id"] for row in rows}
        assert {row["sink"] for row in rows} == {sink.settings.name}
        assert sorted(map(tuple, rows)) == sorted((sink.settings.name, id_, at) for id_ in ids for at in (0, 7))
        assert len(ids) == 2
    assert ours.errors.rows().count() == 4
    theirs.table.stop_heartbeats()


def test_an_errors_table_of_a_fleet_on_another_ensemble_is_refused_and_an_emptied_ensemble_goes_on(
    make_sink, zookeeper
) -> None:
    """A chroot is what another ensemble is: no lock is shared. A commit of neither is the newest."""
    ours = make_sink(RECORDS[:10])
    operation = ours.operation(*ours.write((0, 0, 10)))
    ours.publish(operation)
    edit(ours)
    before = completed(ours.settings.errors_base_path)
    with connected(replace(ours.settings.ensemble, address=f"{zookeeper.address}/{ours.topic}")) as elsewhere:
        elsewhere.ensure_path("/")
        theirs = ErrorsTable(ours.spark, ours.settings.model_copy(update={"name": "theirs"}).errors, elsewhere)
        for action in (theirs.verify, lambda: theirs.publish(operation, lambda: None)):
            with pytest.raises(TableError, match=r"belongs to a fleet with the table lock .* this ZooKeeper has none"):
                action()
        # The znode of ours is gone with the ensemble's data, and the errors table knows the sink.
        emptied = ErrorsTable(ours.spark, ours.settings.errors, elsewhere)
        emptied.publish(operation, lambda: None)
        theirs.publish(operation, lambda: None)
    assert len(completed(ours.settings.errors_base_path)) == len(before) + 2


@pytest.mark.thorough
def test_readers_by_a_metadata_table_that_others_made_of_the_errors_table_see_all_of_it(make_sink) -> None:
    sink = make_sink(RECORDS[:10])
    errors_path = sink.settings.errors_base_path
    sink.land((0, 0, 5))
    edit(sink)
    assert Path(errors_path, ".hoodie", "metadata").is_dir()
    sink.land((0, 5, 10))
    frame = sink.spark.read.format("hudi").option("hoodie.metadata.enable", "true").load(errors_path)
    assert sorted(row[0] for row in frame.select("_kafka_offset").collect()) == [0, 7]
    assert sorted(sink.bad_rows()) == [0, 7]


def test_another_table_at_the_place_of_the_errors_table_is_refused_and_left_alone(make_sink, tmp_path: Path) -> None:
    sink = make_sink(RECORDS[:10], errors__table__base__path=str(tmp_path / "else"))
    sink.errors.verify()
    instant, written = sink.write((0, 0, 10))
    other_settings = sink.settings.model_copy(update={"base_path": str(tmp_path / "else"), "table_name": "others"})
    Table(
        sink.spark,
        other_settings.table,
        table_schema(other_settings.table, other_settings.records),
        TableLocks(sink.client, other_settings.table.lock),
    ).ensure()
    for action in (sink.errors.verify, lambda: sink.publish(sink.operation(instant, written))):
        with pytest.raises(TableError, match=r"has the Hudi table others .* to an empty directory"):
            action()
    assert not completed(sink.settings.errors_base_path)


def edit(sink: Sink) -> None:
    """Changes a row of the errors table as a person does, in a commit that names no owner."""
    sink.spark.sql(f"CREATE TABLE quarantine USING hudi LOCATION '{sink.settings.errors_base_path}'")
    sink.spark.sql("UPDATE quarantine SET reason = 'seen' WHERE _kafka_offset = 0")
    sink.spark.sql("DROP TABLE quarantine")


def completed(base_path: str) -> list[str]:
    """Completed instants of a timeline, in the order of their completion."""
    names = [path.name for path in Path(base_path, ".hoodie", "timeline").glob("[0-9]*_*")]
    return sorted(names, key=lambda name: name.partition("_")[2])


def test_a_copy_of_each_bad_record_goes_to_the_dead_letter_topic_with_connects_headers(make_sink, topic, kafka) -> None:
    dead_letters = topic()
    sink = make_sink(RECORDS, errors__deadletter__topic=dead_letters, **EVERY_STAGE)
    instant, written = sink.write((0, 0, 300))
    sink.publish(sink.operation(instant, written))
    messages = consumed(kafka.address, dead_letters, len(BAD))
    messages_by_offset = {
        json.loads(dict(message.headers())["__connect.errors.offset"]): message for message in messages
    }
    assert set(messages_by_offset) == set(BAD)
    for offset, (record, kind, reason) in BAD.items():
        headers = dict(messages_by_offset[offset].headers())
        assert (messages_by_offset[offset].key(), messages_by_offset[offset].value()) == record
        assert messages_by_offset[offset].headers()[: len(HEADERS)] == HEADERS
        assert headers["__connect.errors.topic"].decode() == sink.topic
        assert headers["__connect.errors.partition"] == b"0"
        assert headers["__connect.errors.connector.name"].decode() == sink.settings.name
        assert headers["__connect.errors.topic.id"].decode() == topic_id_of(sink.topic)
        assert headers["__connect.errors.task.id"] == b"0"
        stage = {"value": b"VALUE_CONVERTER", "key": b"KEY_CONVERTER"}.get(kind, b"TASK_PUT")
        assert headers["__connect.errors.stage"] == stage
        assert headers["__connect.errors.exception.class.name"].startswith(b"org.apache.kafka.connect.errors.")
        assert reason in headers["__connect.errors.exception.message"].decode()
        assert headers["__connect.errors.class.name"]


def consumed(kafka: str, topic: str, count: int) -> list[Any]:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": kafka, "group.id": "reader", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    messages = consumer.consume(count, timeout=60)
    consumer.close()
    assert len(messages) == count
    return list(messages)
