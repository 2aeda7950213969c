"""The commands against real ZooKeeper and Kafka, on trees as a fleet leaves them."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import tarfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from itertools import takewhile
from pathlib import Path

import pytest
import trustme
import yaml
from confluent_kafka import Producer
from kazoo.client import KazooClient

from coordination.machines import writes
from coordination.machines.transactions import written
from coordination.planning import write_tasks
from coordination.state import codec, tree
from coordination.state.failures import Halt, HaltKind
from coordination.state.model import (
    Header,
    Member,
    OpenRange,
    PartitionState,
    Phase,
    Plan,
    SliceResult,
    TopicPartition,
    WriteStatus,
)
from coordination.state.phases import enter
from coordination.state.tree import Create
from coordination.zookeeper.keeper import Keeper
from coordination.zookeeper.records import CatalogRecord, CatalogState
from coordination.zookeeper.table_service_lock import ServiceOutcome, TableServiceLock, TableServiceRun
from sink import cli
from sink.clients.kafka.log import Log
from sink.config import Settings
from sink.operations.reset_writer import recorded_paths
from sink.storage.table_files import UPGRADE
from tests.handmade import HandmadeTable, span
from tests.one_sink import load

pytestmark = pytest.mark.integration


class Fleet:
    """A sink's tree, written by the protocol's own code, without Spark."""

    def __init__(self, config: Path) -> None:
        self.config = config
        self.settings: Settings = load(config, {})
        self.client = KazooClient(hosts=self.settings.zookeeper, command_retry={"max_tries": 0})
        self.client.start()
        self.keeper = Keeper(self.client, self.settings.root_znode, lambda: None)
        self.keeper.bootstrap(self.settings.config_digest)
        log = Log(self.settings.kafka_native)
        self.log = log.view(self.settings.topics)
        log.close()

    def close(self) -> None:
        self.client.stop()
        self.client.close()

    def fresh(self) -> tree.KeeperView:
        return Keeper(self.client, self.settings.root_znode, lambda: None).read()

    def write(self, write_plan: writes.WritePlan) -> None:
        for multi in write_plan.multis:
            self.keeper_now().write(multi)

    def keeper_now(self) -> Keeper:
        return Keeper(self.client, self.settings.root_znode, lambda: None)

    def join(self, worker: str = "w1") -> Member:
        member = Member(f"{worker}:{uuid.uuid4()}", socket.gethostname(), os.getpid(), "test")
        self.keeper.join(member)
        return member

    def record(self, end: int, generation: int = 0) -> None:
        """Records every partition as committed up to `end`."""
        states = {
            source: PartitionState(partition_log.topic_id, 0, end, generation)
            for source, partition_log in self.log.partitions.items()
        }
        self.write(writes.record_partitions(self.fresh(), states))

    def open_transaction(self, end: int, incarnation: str = "w1:x", phase: Phase = Phase.STARTED, bad: int = 0) -> int:
        """Takes a transaction over `[state end, end)` of all partitions to `phase`; slices have `bad` bad records."""
        view = self.fresh()
        number = max(view.ledger.last, view.highest) + 1
        changed = {
            source: replace(state, open=(OpenRange(state.end, end, number, 1000, state.generation, 1000),))
            for source, state in view.states.items()
        }
        plan = Plan({incarnation: write_tasks.of_batch(changed, number)})
        now = time.time() - 10
        header = Header(
            number, number, 1, view.epoch, view.ledger.committed, Phase.PLANNED, 60.0, tree.plan_digest(plan),
            times={"PLANNED": now - 3},
        )  # fmt: skip
        self.write(writes.open_transaction(view, header, plan, changed))
        steps = {Phase.PLANNED: (), Phase.STARTED: (Phase.STARTED,)}.get(
            phase, (Phase.STARTED, Phase.PREPARED, Phase.COMMITTED)
        )
        for step in steps:
            if step is Phase.PREPARED:
                results = tuple(SliceResult(planned_slice, planned_slice.size - bad, 1, bad) for planned_slice in plan)
                for op in tree.status_ops(WriteStatus(number, incarnation, results)):
                    self.keeper_now().write((op,))
            view = self.fresh()
            transaction = view.transactions[-1]
            self.write(writes.enter(view, transaction, enter(transaction.header, step, now, "20260101000000000")))
            now += 1
            if step is phase:
                break
        return number

    def settle(self) -> None:
        view = self.fresh()
        ending = view.transactions[0]
        self.write(writes.end(view, ending, written(ending, None), time.time(), divide_after=3))

    def halt(self, reason: str = "undecodable record", offset: int | None = 17) -> None:
        source = next(iter(self.log.partitions))
        data = tree.halt_data(Halt(HaltKind.BAD_RECORD, reason, source.topic, source.partition, offset, time.time()))
        self.keeper_now().write((Create(tree.HALT, data),))


@pytest.fixture
def make_config(chroot: str, kafka, topic: Callable[..., str], tmp_path: Path) -> Callable[..., Path]:
    def make(name: str = "sink.yaml", records: int = 30, **changes: str) -> Path:
        topic_name = topic(partitions=2)
        producer = Producer({"bootstrap.servers": kafka.address})
        for number in range(records):
            producer.produce(topic_name, b'{"id": 1, "name": "a"}', partition=number % 2)
        producer.flush(30)
        settings = {
            "zookeeper.connect": chroot,
            "kafka.bootstrap.servers": kafka.address,
            "kafka.topic.names": topic_name,
            "target.base.path": str(tmp_path / "table"),
            "target.table.name": "orders",
            "schema.ddl": "id BIGINT, name STRING",
            "log.dir": str(tmp_path / "logs"),
        } | {key.replace("__", "."): value for key, value in changes.items()}
        path = tmp_path / name
        path.write_text("".join(f"{key}: '{value}'\n" for key, value in settings.items() if value))
        return path

    return make


@pytest.fixture
def fleet(make_config: Callable[..., Path]) -> Iterator[Fleet]:
    open_fleet = Fleet(make_config())
    yield open_fleet
    open_fleet.close()


@pytest.fixture
def sink(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str]]:
    """Runs a command in this process, and returns its exit status and its output."""

    def run(*arguments: str | Path) -> tuple[int, str]:
        capsys.readouterr()
        code = cli.main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        assert "Traceback" not in captured.out + captured.err
        return code, captured.out + captured.err

    return run


def test_status_shows_members_partitions_lag_and_transactions(fleet: Fleet, sink):
    member = fleet.join()
    fleet.record(end=5)
    fleet.open_transaction(10, member.incarnation, Phase.COMMITTED)
    fleet.settle()
    number = fleet.open_transaction(12, member.incarnation)
    code, out = sink("status", "--config", fleet.config, "--json")
    document = json.loads(out)
    assert code == 0
    assert document["format"] == 1
    assert [listed["worker"] for listed in document["members"]] == ["w1"]
    assert [
        (partition["status"], partition["start"], partition["end"], partition["committed"], partition["lag"])
        for partition in document["partitions"]
    ] == [("BEFORE", 10, 12, 10, 5)] * 2
    assert document["lag"] == 10
    (opened,) = document["transactions"]
    assert (opened["number"], opened["phase"], opened["offsets"], opened["reported"]) == (
        number,
        "STARTED",
        4,
        0,
    )
    assert opened["age_seconds"] >= 13
    (ended,) = document["history"]
    assert (ended["outcome"], ended["records"]) == ("COMMITTED", 10)
    assert set(ended["seconds"]) == {"begin", "write", "commit", "settle"}
    code, out = sink("status", "--config", fleet.config)
    assert code == 0
    assert "w1" in out
    assert "BEFORE" in out
    assert "COMMITTED" in out
    assert "STARTED" in out


def test_status_of_a_halted_sink_names_the_record_and_exits_1(fleet: Fleet, sink):
    fleet.halt("value is not JSON")
    code, out = sink("status", "--config", fleet.config)
    assert code == 1
    assert "value is not JSON" in out
    assert f"{fleet.settings.topics[0]}-0 offset 17" in out


def test_status_counts_the_bad_records_of_each_transaction_where_there_were_any(fleet: Fleet, sink):
    member = fleet.join()
    fleet.record(end=5)
    fleet.open_transaction(10, member.incarnation, Phase.COMMITTED)
    fleet.settle()
    _, out = sink("status", "--config", fleet.config)
    assert "bad" not in shown(out, "last transactions")[0]
    fleet.open_transaction(12, member.incarnation, Phase.COMMITTED, bad=1)
    fleet.settle()
    _, out = sink("status", "--config", fleet.config, "--json")
    assert [(ended["records"], ended["errors"]) for ended in json.loads(out)["history"]] == [(2, 2), (10, 0)]
    _, out = sink("status", "--config", fleet.config)
    head, *rows = shown(out, "last transactions")
    # The time of its end has three words, its heading one.
    assert [row[head.index("bad") + 2] for row in rows] == ["2", "0"]


def test_status_tells_what_the_last_run_of_table_services_did_and_why_one_failed(fleet: Fleet, sink):
    member = fleet.join()
    fleet.record(end=5)
    _, out = sink("status", "--config", fleet.config)
    assert "table services" not in out
    lock = TableServiceLock(fleet.client, fleet.settings.root_znode, member.incarnation)
    cleaned = ServiceOutcome("cleaning", 1.25, "20260101000000000")
    failed = ServiceOutcome("archiving", 0.5, reason="the disk is full")
    assert lock.campaign()
    lock.record(lambda _: TableServiceRun("w1", 1_767_225_600.0, 7, (cleaned, failed)))
    code, out = sink("status", "--config", fleet.config)
    # A service that fails stops no worker.
    assert code == 0
    assert "table services, 2026-01-01 00:00:00 UTC, by w1" in out
    assert [" ".join(row) for row in shown(out, "table services")[1:]] == [
        "cleaning 1.25 s 20260101000000000",
        "archiving 0.50 s the disk is full",
    ]
    _, out = sink("status", "--config", fleet.config, "--json")
    run = json.loads(out)["services"]
    assert (run["committed"], [service["reason"] for service in run["services"]]) == (7, ["", "the disk is full"])


def test_status_tells_how_far_the_catalogue_is_and_why_it_is_not_further(make_config, sink):
    config = make_config(catalog__metastore__uris="thrift://127.0.0.1:1")
    with closing(Fleet(config)) as fleet:
        fleet.join()
        fleet.record(end=5)
        _, out = sink("status", "--config", config)
        assert "catalogue default.orders in thrift://127.0.0.1:1: nothing registered yet" in out
        record = CatalogRecord(fleet.client, fleet.settings.root_znode)
        state = CatalogState(fleet.settings.catalog_name).after_success("w1", 1_767_225_600.0, 0, "20260101000000000")
        record.record(state)
        record.record(state.after_failure("w2", 1_767_225_660.0, "ConnectException: refused"))
    code, out = sink("status", "--config", config)
    assert code == 0
    assert "registered up to instant 20260101000000000 (transaction 0, 0 behind), 2026-01-01 00:00:00 UTC" in out
    assert "catalogue: failed once, 2026-01-01 00:01:00 UTC, on w2: ConnectException: refused" in out
    _, out = sink("status", "--config", config, "--json")
    catalog = json.loads(out)["catalog"]
    assert (catalog["instant"], catalog["failures"], catalog["behind"]) == ("20260101000000000", 1, 0)


def shown(out: str, title: str) -> list[list[str]]:
    """Returns the words of each line below a title, the line of headings first."""
    lines = (line.split() for line in out[out.index(title) :].splitlines()[1:])
    return list(takewhile(lambda words: words and words[0] != "table", lines))


def test_status_before_any_worker_ever_joined(make_config, sink):
    code, out = sink("status", "--config", make_config())
    assert (code, "no worker has ever joined" in out) == (0, True)


def test_status_without_kafka_still_tells_the_rest(make_config, sink):
    config = make_config()
    with closing(Fleet(config)) as fleet:
        fleet.join()
    text = config.read_text().replace(fleet.settings.bootstrap, "127.0.0.1:1")
    config.write_text(text)
    code, out = sink("status", "--config", config)
    assert code == 0
    assert "No lag" in out
    assert "127.0.0.1:1" in out


def test_watch_goes_on_until_ctrl_c_and_then_exits_130(fleet: Fleet):
    fleet.join()
    command = [sys.executable, "-m", "sink.cli", "status", "--config", str(fleet.config), "--watch", "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        first, second = (json.loads(process.stdout.readline()) for _ in range(2))
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=30)
    finally:
        process.kill()
        process.wait()
    assert first["sink"] == second["sink"] == "orders"
    assert (process.returncode, errors.strip()) == (130, "sink: interrupted")


@pytest.mark.parametrize("command", ["status", "reset"])
def test_an_unreachable_zookeeper_is_one_sentence_with_its_address(make_config, sink, command, monkeypatch):
    monkeypatch.setattr("sink.clients.zookeeper.session.connected.__wrapped__.__defaults__", (1.0,))
    config = make_config(zookeeper__connect="127.0.0.1:1")
    code, out = sink(command, "--config", config)
    assert code == 2
    assert out.startswith("sink: ZooKeeper at 127.0.0.1:1 did not answer within 1 s (socket connection error: ")
    assert len(out.splitlines()) == 1


def test_certificates_that_cannot_be_used_are_one_sentence(make_config, sink, tmp_path: Path):
    config = make_config(zookeeper__ssl__ca__location="sink.yaml")
    assert sink("status", "--config", config)[1].startswith("sink: zookeeper.ssl.ca.location: ")
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    files = {f"zookeeper__ssl__{name}__location": "ca.pem" for name in ("ca", "certificate", "key")}
    code, out = sink("status", "--config", make_config(**files))
    assert code == 2
    assert "are not a certificate and its key in PEM" in out
    assert len(out.splitlines()) == 1


def test_reset_shows_what_it_would_do_and_does_it_only_with_yes(fleet: Fleet, sink):
    fleet.halt()
    code, out = sink("reset", "--config", fleet.config)
    assert code == 0
    assert "Clears the halt: undecodable record" in out
    assert "Nothing was changed" in out
    assert fleet.fresh().halt is not None
    code, out = sink("reset", "--config", fleet.config, "--yes")
    assert (code, fleet.fresh().halt) == (0, None)
    assert "There is nothing to reset" in sink("reset", "--config", fleet.config)[1]


def test_reset_refuses_while_a_worker_is_alive(fleet: Fleet, sink):
    member = fleet.join()
    fleet.halt()
    for arguments in (("--yes",), ("--to", "earliest", "--yes"), ("--forget", "--yes")):
        code, out = sink("reset", "--config", fleet.config, *arguments)
        assert code == 2
        assert "workers are alive (w1)" in out
    assert fleet.fresh().halt is not None
    fleet.keeper.leave(member.incarnation)
    assert sink("reset", "--config", fleet.config, "--yes")[0] == 0


def test_reset_to_earliest_raises_the_generation_and_drops_open_ranges(fleet: Fleet, sink):
    fleet.record(end=5, generation=2)
    number = fleet.open_transaction(9)
    epoch = fleet.fresh().epoch
    code, out = sink("reset", "--config", fleet.config, "--to", "earliest", "--yes")
    assert code == 0
    assert "reads 5 offsets again" in out
    assert f"Aborts transaction {number}" in out
    view = fleet.fresh()
    assert {(s.start, s.end, s.generation, s.open) for s in view.states.values()} == {(0, 0, 3, ())}
    assert [t.header.phase for t in view.transactions] == [Phase.ABORTED]
    assert view.epoch == epoch + 1
    assert view.ledger.committed == 0
    assert view.contenders == ()


def test_reset_forward_records_the_gap_and_leaves_other_partitions_alone(fleet: Fleet, sink):
    fleet.record(end=5)
    topic = fleet.settings.topics[0]
    code, out = sink("reset", "--config", fleet.config, "--offset", f"{topic}:1=11", "--yes")
    assert code == 0
    assert "leaves out 6 offsets" in out
    view = fleet.fresh()
    moved, kept = view.states[TopicPartition(topic, 1)], view.states[TopicPartition(topic, 0)]
    assert (moved.end, moved.generation, kept.end, kept.generation) == (11, 1, 5, 0)
    assert codec.encode_gaps(view.ledger.gaps) == [[topic, 1, 5, 11]]


def test_reset_in_a_tree_from_a_backup_lets_what_is_not_moved_go_on_where_the_table_ends(fleet: Fleet, sink):
    (topic,) = fleet.settings.topics
    moved, other = TopicPartition(topic, 0), TopicPartition(topic, 1)
    table = HandmadeTable(Path(fleet.settings.base_path), topic=topic, topic_id=fleet.log.partitions[moved].topic_id)
    table.commit(span(0, 0, 12), span(1, 0, 13))
    fleet.record(end=9, generation=1)
    command = ("reset", "--config", fleet.config, "--offset", f"{topic}:0=5", "--yes")
    code, out = sink(*command)
    assert (code, "the table was filled from the Kafka cluster cluster" in out) == (2, True), out
    table.checkpoint["cluster"] = fleet.log.cluster
    table.commit()
    code, out = sink(*command)
    assert code == 0, out
    assert "Others go on where the table ends, which ZooKeeper is behind: 1." in out
    states = fleet.fresh().states
    assert [(states[source].end, states[source].generation) for source in (moved, other)] == [(5, 2), (13, 0)]


@pytest.mark.parametrize(
    ("arguments", "error_text"),
    [
        (("--offset", "nothing:0=1"), "is not a partition of the topics"),
        (("--offset", "TOPIC:0=999"), "offset 999 is outside the log, [0, 15]"),
        (("--offset", "TOPIC-0"), "is not TOPIC:PARTITION=OFFSET"),
        (("--to", "checkpoint"), "the table has no checkpoint of this sink"),
        (("--to", "latest", "--forget"), "exclude one another"),
        (("--to", "latest", "--topic", "other"), "nothing is known of other"),
        (("--to", "yesterday"), "'yesterday' is not a time"),
    ],
)
def test_a_reset_that_makes_no_sense_is_refused_in_one_sentence(fleet: Fleet, sink, arguments, error_text):
    arguments = [argument.replace("TOPIC", fleet.settings.topics[0]) for argument in arguments]
    before = fleet.fresh()
    code, out = sink("reset", "--config", fleet.config, *arguments, "--yes")
    assert code == 2
    assert error_text in out
    assert len(out.splitlines()) == 1
    assert fleet.fresh() == before


def test_reset_leaves_a_transaction_alone_that_is_in_the_table(fleet: Fleet, sink):
    fleet.record(end=5)
    fleet.open_transaction(9, phase=Phase.COMMITTED)
    before = fleet.fresh()
    code, out = sink("reset", "--config", fleet.config, "--to", "earliest", "--yes")
    assert code == 2
    assert "is in the table but not settled" in out
    assert fleet.fresh() == before


def test_forget_drops_all_that_zookeeper_records(fleet: Fleet, sink):
    fleet.record(end=5)
    fleet.open_transaction(9)
    fleet.halt()
    assert "Forgets 2 partition states, 1 open transactions" in sink("reset", "-c", fleet.config, "--forget")[1]
    assert sink("reset", "--config", fleet.config, "--forget", "--yes")[0] == 0
    assert recorded_paths(fleet.client, fleet.settings.root_znode) == []
    assert "nothing to forget" in sink("reset", "--config", fleet.config, "--forget")[1]


def test_older_content_that_was_put_back_is_named_and_can_be_forgotten(fleet: Fleet, sink):
    fleet.record(end=5)
    path = f"{fleet.settings.root_znode}/{tree.shard_path(next(iter(fleet.log.partitions)))}"
    older = fleet.client.get(path)[0]
    fleet.open_transaction(9)
    fleet.client.set(path, older)
    fleet.client.create(f"{fleet.settings.root_znode}/{tree.WORKERS}/stray")
    code, out = sink("status", "--config", fleet.config)
    assert code == 2
    assert "written as dataVersion 0, found as 2: no worker put it there" in " ".join(out.split())
    assert "sink reset --forget --yes" in " ".join(out.split())
    assert sink("reset", "--config", fleet.config, "--yes")[0] == 2
    assert "cannot be read" in sink("reset", "--config", fleet.config, "--forget")[1]
    assert sink("reset", "--config", fleet.config, "--forget", "--yes")[0] == 0
    assert recorded_paths(fleet.client, fleet.settings.root_znode) == []
    assert fleet.client.get_children(f"{fleet.settings.root_znode}/{tree.WORKERS}") == []


def test_validate_passes_a_configuration_that_fits(make_config, sink, tmp_path: Path):
    code, out = sink("validate", "--config", make_config())
    assert code == 0, out
    for expected in (
        "answers",
        "2 partitions, 30 offsets to read",
        "is empty: the table will be created",
        "Java 17",
        "30 records looked at, none is bad",
    ):
        assert expected in out
    assert not (tmp_path / "table").exists()


def test_validate_refuses_columns_that_no_record_fills_unless_told_not_to_look(make_config, sink):
    config = make_config(schema__ddl="order_id BIGINT, item STRING")
    code, out = sink("validate", "--config", config)
    assert (code, "30 records fill no column. Their fields: id, name." in out) == (1, True), out
    code, out = sink("validate", "--config", config, "--no-sample")
    assert (code, "looked at" in out) == (0, False), out


def test_validate_tells_whether_a_metastore_listens_and_passes_without(make_config, sink):
    with socket.create_server(("127.0.0.1", 0)) as server:
        uri = f"thrift://127.0.0.1:{server.getsockname()[1]}"
        code, out = sink("validate", "--config", make_config(catalog__metastore__uris=uri))
        assert (code, f"{uri} listens. The table will be default." in out) == (0, True)
    code, out = sink("validate", "--config", make_config(catalog__metastore__uris=uri))
    assert (code, f"{uri} cannot be reached" in out) == (0, True)


def test_validate_tells_where_bad_records_would_go(make_config, sink, tmp_path: Path):
    changes = {"errors__tolerance": "all", "errors__deadletter__topic": "nobody-has-made-it"}
    code, out = sink("validate", "--config", make_config(**changes))
    assert code == 1, out
    assert f"{tmp_path / 'table'}_errors is empty: the errors table is made with the first bad record" in out
    assert "errors.deadletter.topic: nobody-has-made-it is missing. Create it" in out
    (tmp_path / "table_errors").mkdir()
    (tmp_path / "table_errors" / "holiday.jpg").write_bytes(b"")
    code, out = sink("validate", "--config", make_config(errors__tolerance="all"))
    assert code == 1, out
    assert "table_errors holds something else (holiday.jpg). Name an empty place with errors.table.base.path" in out


def test_validate_says_all_that_is_wrong_at_once(make_config, sink, tmp_path: Path):
    (tmp_path / "table").mkdir()
    (tmp_path / "table" / "holiday.jpg").write_bytes(b"")
    (tmp_path / "logs").write_text("")
    config = make_config(kafka__topic__names="no-such-topic", partition__field__name="colour", zookeeper__root="/sink")
    with closing(Fleet(make_config("other.yaml"))) as other:
        other.join()
        code, out = sink("validate", "--config", config)
    assert code == 1
    for expected in (
        "no such topic",
        "holds something else than a Hudi table (holiday.jpg)",
        "partition.field.name: no column 'colour' in the schema. Use one of id, name",
        "run as sink 'orders' with another configuration",
        "log.dir:",
    ):
        assert expected in out, (expected, out)
    assert "5 of" in out


def test_validate_compares_with_the_table_that_is_there(make_config, sink, tmp_path: Path):
    properties = tmp_path / "table" / ".hoodie" / "hoodie.properties"
    properties.parent.mkdir(parents=True)
    schema = {"type": "record", "name": "r", "fields": [{"name": "id", "type": "string"}]}
    properties.write_text(
        "hoodie.table.name=invoices\nhoodie.table.type=MERGE_ON_READ\nhoodie.table.version=9\n"
        "hoodie.table.recordkey.fields=_kafka_topic,_kafka_partition,_kafka_offset\n"
        f"hoodie.table.partition.fields=name\nhoodie.table.create.schema={json.dumps(schema)}\n"
    )
    code, out = sink("validate", "--config", make_config(), "--json")
    wrong = [finding["sentence"] for finding in json.loads(out)["findings"] if finding["wrong"]]
    assert code == 1
    table_prefix = f"{tmp_path}/table: the table's"
    columns_prefix = f"{tmp_path}/table: the records' columns cannot become the table's"
    for expected in (
        f"{table_prefix} name: invoices. The settings ask for orders (target.table.name)",
        f"{table_prefix} type: MERGE_ON_READ. The settings ask for COPY_ON_WRITE",
        f"{table_prefix} partition columns: name. The settings ask for none (partition.field.name)",
        f"{columns_prefix} with schema.compatibility=BACKWARD: id is STRING in the table, BIGINT in the records",
    ):
        assert any(sentence.startswith(expected) for sentence in wrong), (expected, wrong)


def test_validate_refuses_a_table_of_another_version_and_encoding_as_a_worker_does(make_config, sink, tmp_path: Path):
    properties = tmp_path / "table" / ".hoodie" / "hoodie.properties"
    properties.parent.mkdir(parents=True)
    properties.write_text(
        "hoodie.table.name=orders\nhoodie.table.type=COPY_ON_WRITE\nhoodie.table.version=8\n"
        "hoodie.table.recordkey.fields=_kafka_topic,_kafka_partition,_kafka_offset\n"
        "hoodie.table.partition.fields=name\nhoodie.datasource.write.hive_style_partitioning=true\n"
        "hoodie.datasource.write.partitionpath.urlencode=true\n"
    )
    code, out = sink("validate", "--config", make_config(partition__field__name="name"), "--json")
    wrong = [finding["sentence"] for finding in json.loads(out)["findings"] if finding["wrong"]]
    assert code == 1
    assert [sentence.partition("the table's ")[2] for sentence in wrong] == [
        f"version: 8. The settings ask for 9 ({UPGRADE}).",
        "encoded partitions: true. The settings ask for false (hoodie.datasource.write.partitionpath.urlencode).",
    ]


@pytest.mark.parametrize(
    ("changes", "error_text"),
    [
        ({"partition__field__name": "tags"}, "partition.field.name: column 'tags' has type array<string>"),
        ({"record__key__fields": "a.b"}, "record.key.fields: 'a.b' is a field inside of column 'a'"),
        (
            {"provenance__columns": "false", "hoodie__populate__meta__fields": "no"},
            "leaves rows without a key: set record.key.fields",
        ),
        (
            {"provenance__columns": "false", "write__engine": "hudi"},
            "Hudi's own writer (write.engine=hudi, write.operation=insert and upsert) makes record keys from columns",
        ),
        ({"target__base__path": "oss://lake/t"}, "write.engine=arrow cannot reach 'oss://lake/t'"),
    ],
)
def test_validate_refuses_settings_that_a_worker_refuses(make_config, sink, changes, error_text):
    ddl = "id BIGINT, tags ARRAY<STRING>, a STRUCT<b: STRING>"
    code, out = sink("validate", "--config", make_config(**changes, schema__ddl=ddl), "--json")
    wrong = [finding["sentence"] for finding in json.loads(out)["findings"] if finding["wrong"]]
    assert code == 1
    assert len(wrong) == 1, wrong
    assert error_text in wrong[0]


def test_validate_leaves_a_place_that_spark_alone_reaches_to_the_worker(make_config, sink):
    changes = {"write__engine": "hudi", "target__base__path": "oss://lake/t"}
    code, out = sink("validate", "--config", make_config(**changes))
    assert code == 0, out
    assert "oss://lake/t is reached by Spark alone" in out


def test_a_sink_at_the_root_of_zookeepers_tree_is_read_as_anywhere_else(make_config, sink):
    fleet = Fleet(make_config(zookeeper__root="/"))
    try:
        assert fleet.settings.root_znode == "/orders"
        fleet.join()
        fleet.record(end=5)
        code, out = sink("status", "--config", fleet.config, "--json")
    finally:
        fleet.close()
    assert code == 0
    assert [member["worker"] for member in json.loads(out)["members"]] == ["w1"]
    assert len(json.loads(out)["partitions"]) == 2


def test_validate_with_dead_servers_names_both(make_config, sink, monkeypatch):
    monkeypatch.setattr("sink.clients.zookeeper.session.connected.__wrapped__.__defaults__", (1.0,))
    monkeypatch.setattr("sink.clients.kafka.log.Log.__init__.__defaults__", (2.0,))
    config = make_config(zookeeper__connect="127.0.0.1:1", kafka__bootstrap__servers="127.0.0.1:2")
    code, out = sink("validate", "--config", config)
    assert code == 1
    assert "ZooKeeper at 127.0.0.1:1 did not answer" in out
    assert "127.0.0.1:2" in out


def test_validate_refuses_settings_that_the_reader_of_records_refuses(make_config, sink):
    wrong = {"kafka__fetch__max__wait__ms": "soon"}
    code, out = sink("validate", "--config", make_config(**wrong))
    assert code == 1, out
    assert "fetch.wait.max.ms" in out


def test_validate_refuses_kerberos_where_librdkafka_has_none(make_config, sink):
    code, out = sink(
        "validate",
        "--config",
        make_config(kafka__security__protocol="SASL_PLAINTEXT", kafka__sasl__mechanism="GSSAPI"),
    )
    assert code == 1, out
    assert [line for line in out.splitlines() if "GSSAPI" in line and "Build its wheel" in line]


def test_of_several_sinks_status_shows_a_line_each_and_one_of_them_in_full(make_config, sink, tmp_path: Path):
    settings = yaml.safe_load(make_config().read_text())
    shared = {name: value for name, value in settings.items() if not name.startswith("target.")}
    tables = {
        name: {"target.table.name": name, "target.base.path": str(tmp_path / name)} for name in ("orders", "payments")
    }
    config = tmp_path / "fleet.yaml"
    config.write_text(yaml.safe_dump({**shared, "sinks": tables}))
    orders = tmp_path / "orders.yaml"
    orders.write_text(yaml.safe_dump({**shared, **tables["orders"]}))
    fleet = Fleet(orders)
    try:
        fleet.join()
        fleet.halt()
        code, out = sink("status", "--config", config)
        lines = [line.strip() for line in out.splitlines()]
        assert code == 1
        assert lines[0] == "What needs doing first"
        assert lines[1].startswith("orders: halted: ")
        assert [line.split()[:2] for line in lines if line.startswith(("orders ", "payments "))] == [
            ["orders", "HALTED"],
            ["payments", "unhealthy"],
        ]
        code, out = sink("status", "--config", config, "--sink", "payments")
        assert code == 0
        assert "no-tree: " in out
        _, out = sink("status", "--config", config, "--json")
        assert [(sink_status["sink"], sink_status["healthy"]) for sink_status in json.loads(out)["sinks"]] == [
            ("orders", False),
            ("payments", False),
        ]
        code, out = sink("status", "--config", config, "--sink", "imagined")
        assert (code, "There are orders, payments" in out) == (2, True)
    finally:
        fleet.close()


def test_doctor_has_checks_and_status_of_each_sink_and_no_secret(make_config, sink, tmp_path: Path):
    config = make_config(kafka__client__rack="a")
    fleet = Fleet(config)
    try:
        fleet.join()
        archive = tmp_path / "report.tar.gz"
        code, out = sink("doctor", "--config", config, "--output", archive)
        assert code == 0
        assert "Read it before you send it" in out
        with tarfile.open(archive) as report:
            names = report.getnames()
            status = report.extractfile("report/orders/status.json")
            checks = report.extractfile("report/orders/validate.txt")
            assert status is not None
            assert checks is not None
            assert json.loads(status.read())["sink"] == "orders"
            assert re.search(rb"^ok     Kafka ", checks.read(), re.MULTILINE)
        assert names[:2] == ["report/versions.txt", "report/settings.txt"]
    finally:
        fleet.close()
