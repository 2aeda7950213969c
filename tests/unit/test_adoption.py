"""A sink may begin at offsets that other writers left in its table, under conditions."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordination.errors import ConfigError, Conflict, TableError
from coordination.state import tree
from coordination.state.failures import Halt, HaltKind
from coordination.state.model import (
    Checkpoint,
    Header,
    LogView,
    Member,
    OpenRange,
    PartitionLog,
    PartitionState,
    Phase,
    Plan,
    TopicPartition,
)
from coordination.state.tree import KeeperInfo, KeeperView, Ledger, Transaction
from sink.operations.adoption import (
    CONNECT,
    STREAMER_V1,
    STREAMER_V2,
    CommitOffsets,
    ForeignOffsets,
    Tool,
    adopt,
    choose,
    offsets_in_commit,
    offsets_of,
    read_foreign_offsets,
    require_not_begun,
    unadopted_offsets_warning,
)
from sink.operations.reset import TimelineSnapshot
from sink.operations.reset_checks import INTERRUPTED
from tests.handmade import HandmadeTable, span

P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
LOG = LogView("cluster", {P0: PartitionLog("id", 3, 100), P1: PartitionLog("id", 0, 80)})
TABLE = TimelineSnapshot(None, {}, frozenset({"20260101000000000"}), frozenset())
V1, V2 = STREAMER_V1[0], STREAMER_V2[0]
EMPTY_LEDGER = Ledger()


def streamer(text: str) -> CommitOffsets:
    return CommitOffsets(Tool.STREAMER, V2, "20260101000000000", text)


def connect(text: str) -> CommitOffsets:
    return CommitOffsets(Tool.CONNECT, CONNECT, "20260101000000000", text)


def view(
    states: Mapping[TopicPartition, PartitionState],
    transactions: tuple[Transaction, ...] = (),
    ledger: Ledger = EMPTY_LEDGER,
    members: tuple[Member, ...] = (),
    halt: Halt | None = None,
) -> KeeperView:
    shards = {tree.shard_path(source): 4 for source in states}
    info = KeeperInfo("uuid", "digest")
    return KeeperView(info, 0, members, (), 5, 5, states, shards, ledger, 7, transactions, (), 0, halt)


class OthersTable(HandmadeTable):
    """A table into which other writers have committed too."""

    def commit_extra(self, extra: Mapping[str, str], operation: str = "UPSERT") -> str:
        """Commits with this extra metadata, and returns the instant."""
        instant = self.tick()
        path = self.complete(instant, (), operation=operation)
        [document] = list(fastavro.reader(io.BytesIO(path.read_bytes())))
        with path.open("rb") as source:
            schema = fastavro.reader(source).writer_schema
        document["extraMetadata"] |= extra
        with path.open("wb") as target:
            fastavro.writer(target, schema, [document])
        return instant


@pytest.fixture
def table(tmp_path: Path) -> OthersTable:
    return OthersTable(tmp_path / "table")


def test_hudi_streamer_names_the_topic_and_the_next_offset_of_each_partition():
    assert offsets_of(streamer("orders,0:120,1:80"), ["orders"]) == {P0: 120, P1: 80}


def test_hudi_kafka_connect_names_partitions_only_and_the_only_configured_topic_is_meant():
    assert offsets_of(connect("0=120,1=80"), ["orders"]) == {P0: 120, P1: 80}


def test_with_several_topics_the_one_of_hudi_kafka_connect_has_to_be_named():
    with pytest.raises(ConfigError, match="does not say of which topic its offsets are"):
        offsets_of(connect("0=120"), ["orders", "payments"])
    assert offsets_of(connect("0=120"), ["orders", "payments"], "orders") == {P0: 120}
    with pytest.raises(ConfigError, match=r"--topic other is not one of kafka\.topic\.names"):
        offsets_of(connect("0=120"), ["orders", "payments"], "other")


def test_several_streamers_of_one_table_write_a_map_and_all_of_it_counts():
    commit_offsets = streamer('{"a": "orders,0:120", "b": "payments,0:7"}')
    payments = TopicPartition("payments", 0)
    assert offsets_of(commit_offsets, ["orders", "payments"]) == {P0: 120, payments: 7}
    with pytest.raises(ConfigError, match=r"offsets of orders, payments, but .* is orders. Add payments"):
        offsets_of(commit_offsets, ["orders"])


def test_two_streamers_that_have_read_one_partition_are_not_guessed_about():
    commit_offsets = streamer('{"a": "orders,0:120", "b": "orders,0:7"}')
    with pytest.raises(ConfigError, match="two writers have read orders-0, one up to 120, one up to 7"):
        offsets_of(commit_offsets, ["orders"])


def test_offsets_of_a_topic_that_is_not_configured_are_refused():
    with pytest.raises(ConfigError, match=r"offsets of payments, but kafka\.topic\.names is orders"):
        offsets_of(streamer("payments,0:1"), ["orders"])
    with pytest.raises(ConfigError, match=r"offsets of payments, not of orders\. Leave --topic out"):
        offsets_of(streamer("payments,0:1"), ["orders", "payments"], "orders")


@pytest.mark.parametrize(
    "commit_offsets",
    [
        streamer("20260101000000000"),
        streamer("1767225600000"),
        streamer("orders"),
        streamer("orders,"),
        streamer("orders,0:1,"),
        streamer("orders,0:-1"),
        streamer("orders,0:1,payments,0:2"),
        streamer("orders,0=1"),
        streamer("orders,0:1\n"),
        streamer("orders,0:\u0661"),
        streamer("{"),
        streamer("{}"),
        streamer('{"a": 5}'),
        streamer('{"a": "20260101000000000"}'),
        streamer("[" * 10),
        connect("orders,0:1"),
        connect("0=1,"),
        connect("0=-1"),
    ],
)
def test_what_is_not_of_kafka_is_refused_in_one_sentence_that_quotes_it(commit_offsets: CommitOffsets):
    with pytest.raises(ConfigError, match="nothing that was read from Kafka can be gone on with") as refused:
        offsets_of(commit_offsets, ["orders"])
    assert "\n" not in str(refused.value)


def test_a_partition_that_is_named_twice_is_refused():
    for commit_offsets in (streamer("orders,0:1,0:2"), connect("0=1,0=2")):
        with pytest.raises(ConfigError, match="names orders-0 twice"):
            offsets_of(commit_offsets, ["orders"])


@given(st.dictionaries(st.integers(0, 999), st.integers(0, 2**59), min_size=1))
def test_whatever_offsets_either_writes_are_read_back(offsets):
    expected = {TopicPartition("orders", partition): offset for partition, offset in offsets.items()}
    written = streamer("orders," + ",".join(f"{p}:{o}" for p, o in offsets.items()))
    assert offsets_of(written, ["orders"]) == expected
    assert offsets_of(connect(",".join(f"{p}={o}" for p, o in offsets.items())), ["orders"]) == expected


@given(st.text())
def test_any_other_text_is_read_or_refused_but_breaks_nothing(text):
    for commit_offsets in (streamer(text), connect(text)):
        try:
            offsets_of(commit_offsets, ["orders"])
        except ConfigError:
            continue


def test_version_2_counts_before_version_1_as_for_hudi():
    extra = {V1: "orders,0:1", V2: "orders,0:2"}
    assert [commit_offsets.text for commit_offsets in offsets_in_commit(extra, "i")] == ["orders,0:2"]
    assert [commit_offsets.text for commit_offsets in offsets_in_commit({V1: "orders,0:1", V2: ""}, "i")] == [
        "orders,0:1"
    ]
    assert list(offsets_in_commit({"schema": "{}", V1: "", CONNECT: ""}, "i")) == []


def test_a_streamer_that_was_set_to_somewhere_and_wrote_no_offsets_hides_older_ones(table: OthersTable):
    table.commit_extra({V2: "orders,0:7"})
    table.commit_extra({STREAMER_V2[1]: "orders,0:3"})
    commit_offsets = choose("table", read_foreign_offsets(str(table.path)))
    with pytest.raises(ConfigError, match="it was reset, and says no offsets"):
        offsets_of(commit_offsets, ["orders"])


def test_the_newest_commit_with_offsets_counts_and_later_ones_without_are_passed_over(table: OthersTable):
    table.commit_extra({V1: "orders,0:7"})
    instant = table.commit_extra({V2: "orders,0:9"})
    table.commit_extra({}, operation="CLUSTER")
    commit_offsets = choose("table", read_foreign_offsets(str(table.path)))
    assert (commit_offsets.tool, commit_offsets.instant, commit_offsets.text) == (Tool.STREAMER, instant, "orders,0:9")


def test_offsets_that_are_archived_count_too(table: OthersTable):
    older, newer = table.commit_extra({CONNECT: "0=7"}), table.commit_extra({CONNECT: "0=9"})
    table.commit_extra({})
    table.archive(newer)
    table.archive(older)
    commit_offsets = choose("table", read_foreign_offsets(str(table.path)))
    assert (commit_offsets.tool, commit_offsets.instant, commit_offsets.text) == (Tool.CONNECT, newer, "0=9")


def test_a_table_without_such_offsets_is_refused(table: OthersTable):
    table.commit_extra({})
    with pytest.raises(ConfigError, match="There is nothing to adopt"):
        choose("table", read_foreign_offsets(str(table.path)))


def test_offsets_of_both_writers_in_one_commit_are_not_guessed_about(table: OthersTable):
    table.commit_extra({V2: "orders,0:9", CONNECT: "0=7"})
    with pytest.raises(ConfigError, match=r"and kafka\.commit\.offsets of hudi-kafka-connect are in one commit"):
        choose("table", read_foreign_offsets(str(table.path)))


def test_a_timeline_that_cannot_be_read_whole_has_no_newest_offsets(table: OthersTable):
    table.commit_extra({V2: "orders,0:9"})
    newest = table.commit_extra({V2: "orders,0:12"})
    next(table.timeline.glob(f"{newest}_*.commit")).write_bytes(b"broken")
    with pytest.raises(TableError, match="cannot be read"):
        read_foreign_offsets(str(table.path))


def test_an_archive_that_cannot_be_read_is_not_taken_for_empty(table: OthersTable):
    instant = table.commit_extra({V2: "orders,0:9"})
    table.commit_extra({})
    table.archive(instant)
    next((table.timeline / "history").glob("*.parquet")).write_bytes(b"broken")
    with pytest.raises(TableError, match="cannot be read whole"):
        read_foreign_offsets(str(table.path))


def test_a_sink_that_has_committed_to_the_table_adopts_nothing():
    committed = Checkpoint("orders", "uuid", "cluster", 5, 3, 2, "digest", {"orders": "id"}, {})
    snapshot = TimelineSnapshot(committed, {}, frozenset(), frozenset())
    with pytest.raises(Conflict, match="has committed to this table already, up to transaction 3"):
        require_not_begun("orders", snapshot, ForeignOffsets((), {}), ["orders"])


def test_what_another_sink_has_read_into_the_table_is_not_read_again(table: OthersTable):
    table.commit_extra({V2: "orders,0:9"})
    table.commit(span(0, 9, 20))
    foreign_offsets = read_foreign_offsets(str(table.path))
    with pytest.raises(Conflict, match="sink orders has read orders into this table"):
        require_not_begun("renamed", TABLE, foreign_offsets, ["orders"])
    require_not_begun("renamed", TABLE, foreign_offsets, ["payments"])


def test_who_has_not_begun_in_a_table_with_offsets_of_others_is_told_of_them_and_nobody_else(table: OthersTable):
    table.commit_extra({V2: "orders,0:9"})
    foreign_offsets = read_foreign_offsets(str(table.path))
    warning = unadopted_offsets_warning(foreign_offsets, "payments", view({}))
    assert warning is not None
    assert f"{V2} of Hudi Streamer" in warning
    assert "sink payments has not begun" in warning
    assert (
        unadopted_offsets_warning(
            foreign_offsets, "payments", view(adopt(view({}), "payments", {P0: 40}, TABLE, LOG).changed)
        )
        is None
    )
    table.commit(span(0, 9, 20))
    with_own_commit = read_foreign_offsets(str(table.path))
    assert unadopted_offsets_warning(with_own_commit, "orders", view({})) is None
    assert unadopted_offsets_warning(with_own_commit, "payments", view({}))
    assert unadopted_offsets_warning(ForeignOffsets((), {}), "payments", view({})) is None


def test_a_sink_of_which_nothing_is_recorded_begins_exactly_there():
    reset = adopt(view({}), "orders", {P0: 40, P1: 80}, TABLE, LOG)
    assert reset.changed == {P0: PartitionState("id", 40, 40, 0), P1: PartitionState("id", 80, 80, 0)}
    assert reset.ledger == Ledger()
    assert reset.aborted == ()


def test_what_a_worker_recorded_before_it_read_anything_is_replaced():
    recorded = {
        P0: PartitionState("id", 3, 3, 0, (OpenRange(3, 9, 1, 100, 0, 100),)),
        P1: PartitionState("id", 0, 0, 0),
    }
    reset = adopt(view(recorded), "orders", {P0: 40}, TABLE, LOG)
    assert reset.changed == {P0: PartitionState("id", 40, 40, 1)}


def test_to_adopt_twice_before_the_first_commit_changes_no_offset():
    first = adopt(view({}), "orders", {P0: 40}, TABLE, LOG)
    second = adopt(view(first.changed), "orders", {P0: 40}, TABLE, LOG)
    assert [(move.after.start, move.after.end, move.after.generation) for move in second.moves] == [(40, 40, 1)]


@pytest.mark.parametrize("offset", [3, 100])
def test_both_ends_of_the_log_are_within_it(offset: int):
    assert adopt(view({}), "orders", {P0: offset}, TABLE, LOG).changed[P0].end == offset


@pytest.mark.parametrize("offset", [2, 101])
def test_an_offset_that_the_log_cannot_have_is_refused(offset: int):
    with pytest.raises(ConfigError, match=rf"orders-0: offset {offset} is outside the log, \[3, 100\]"):
        adopt(view({}), "orders", {P0: offset}, TABLE, LOG)


def test_a_partition_that_kafka_does_not_have_is_refused():
    with pytest.raises(ConfigError, match="orders-5: offset 9 was left in the table, but Kafka has no such partition"):
        adopt(view({}), "orders", {TopicPartition("orders", 5): 9}, TABLE, LOG)


def test_nothing_is_adopted_while_a_worker_lives():
    with pytest.raises(Conflict, match=r"workers are alive \(w1\)"):
        adopt(view({}, members=(Member("w1:x", "host", 1, "1"),)), "orders", {P0: 40}, TABLE, LOG)


HEADER = Header(4, 4, 1, 5, 3, Phase.PREPARED, 60.0, "digest", instant="20260101000000000", times={"PREPARED": 1.0})


@pytest.mark.parametrize(
    ("keeper_view", "reason"),
    [
        (view({P0: PartitionState("id", 3, 9, 0)}), "ZooKeeper records that sink orders has committed"),
        (view({}, ledger=Ledger(last=5, committed=5)), "ZooKeeper records that sink orders has committed"),
        (view({}, (Transaction(HEADER, 2, Plan({}), {}),)), "its transaction 4 is open"),
        (view({}, halt=Halt(HaltKind.BAD_RECORD, "bad record")), r"sink orders has halted: bad record\."),
    ],
)
def test_a_sink_that_has_begun_elsewhere_is_first_made_to_forget_it(keeper_view: KeeperView, reason: str):
    with pytest.raises(Conflict, match=reason):
        adopt(keeper_view, "orders", {P0: 40}, TABLE, LOG)


def test_an_adoption_that_was_interrupted_is_run_again():
    half = view({P0: PartitionState("id", 40, 40, 0)}, halt=Halt(HaltKind.RESET_INTERRUPTED, INTERRUPTED))
    assert adopt(half, "orders", {P0: 40}, TABLE, LOG).changed[P0].end == 40
