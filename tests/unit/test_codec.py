"""Written values can be read back; unreadable ones are Corrupt, with their origin; never absent, never wrong."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coordination.errors import Corrupt, OtherVersion
from coordination.state import codec, control, tree
from coordination.state.control import Control, Flush, RequestAuthor, Switchover
from coordination.state.failures import Failure, FailureKind, Halt, HaltKind
from coordination.state.model import (
    Checkpoint,
    Gap,
    Header,
    Member,
    OpenRange,
    PartitionCheckpoint,
    PartitionState,
    Phase,
    Plan,
    QuarantinedRecords,
    Slice,
    SliceResult,
    TopicPartition,
    WorkerState,
    WriteStatus,
    WriteTask,
)
from coordination.state.reading import ParticipantViewReader, SnapshotReader, TreeReader
from coordination.state.tree import Create, KeeperInfo, Node

offsets = st.integers(0, 2**62)
names = st.text(st.characters(codec="utf-8", exclude_characters="/\x00"), min_size=1, max_size=8)
counts = st.integers(1, 2**31)


@st.composite
def states(draw: st.DrawFn) -> PartitionState:
    start, *bounds = sorted(draw(st.sets(offsets, min_size=2, max_size=5)))
    end = bounds.pop(0)
    open_ = []
    reached = end
    for bound in bounds:
        open_.append(OpenRange(reached, bound, draw(counts), draw(counts), draw(counts), draw(counts)))
        reached = bound
    return PartitionState(draw(names), start, end, draw(counts), tuple(open_))


@st.composite
def slices(draw: st.DrawFn, topic_id: str = "id") -> Slice:
    start, end = sorted(draw(st.sets(offsets, min_size=2, max_size=2)))
    return Slice(draw(names), draw(counts), start, end, topic_id, draw(counts))


results = st.lists(st.builds(SliceResult, slices(), offsets, st.integers(0, 2**64 - 1)), max_size=4).map(tuple)
failures = st.none() | st.builds(
    Failure, st.sampled_from(FailureKind), names, st.none() | names, st.none() | counts, st.none() | offsets
)
headers = st.builds(
    Header,
    number=counts,
    batch=counts,
    attempt=counts,
    epoch=counts,
    base=offsets,
    phase=st.sampled_from(Phase),
    timeout=st.floats(0, 1e6),
    plan_digest=names,
    cluster=names,
    instant=st.none() | names,
    reason=names,
    times=st.dictionaries(names, st.floats(0, 1e12), max_size=3),
)
statuses = st.builds(
    WriteStatus, counts, names, results, st.lists(names, max_size=3).map(tuple), failures, st.floats(0, 1e6), counts
)


@st.composite
def checkpoints(draw: st.DrawFn) -> Checkpoint:
    written = draw(results)
    ends = draw(
        st.dictionaries(
            st.builds(TopicPartition, names, counts), st.builds(PartitionCheckpoint, offsets, counts), max_size=4
        )
    )
    topics = {source.topic: "id" for source in ends} | {r.slice.topic: "id" for r in written}
    gaps = draw(st.lists(st.builds(Gap, names, counts, offsets, offsets), max_size=2).map(tuple))
    sink, keeper, cluster, config = (draw(names) for _ in range(4))
    epoch, number, base = draw(counts), draw(counts), draw(offsets)
    return Checkpoint(sink, keeper, cluster, epoch, number, base, config, topics, ends, written, gaps)


@given(st.dictionaries(counts, states(), max_size=4))
def test_partition_states_come_back_as_they_were(shard: dict[int, PartitionState]) -> None:
    assert codec.decode_states(codec.encode_states(shard), "place") == shard


@given(headers)
def test_a_header_comes_back_as_it_was(header: Header) -> None:
    assert codec.decode_header(codec.encode_header(header), "place") == header


@given(statuses)
def test_a_write_status_comes_back_as_it_was(status: WriteStatus) -> None:
    assert codec.decode_status(codec.encode_status(status), "place") == status


@given(checkpoints())
def test_a_checkpoint_comes_back_as_it_was(checkpoint: Checkpoint) -> None:
    assert codec.decode_checkpoint(codec.encode_checkpoint(checkpoint)) == checkpoint


requests = st.builds(RequestAuthor, names, st.floats(0, 1e12), st.text(max_size=9))
flushes = st.tuples(offsets, offsets, requests).map(lambda f: Flush(max(f[:2]), min(f[:2]), f[2]))
controls = st.builds(
    Control,
    st.none() | requests,
    flushes,
    st.none() | st.builds(Switchover, names, names, requests),
    st.dictionaries(names, requests, max_size=3),
)


@given(controls)
def test_what_operators_ask_for_comes_back_as_it_was(written: Control) -> None:
    assert control.decode(control.encode(written, 3), "control", 3) == written


@pytest.mark.parametrize("damage", [("done", 2), ("asked", "1"), ("last", ["me"])])
def test_a_request_that_no_command_writes_is_corrupt(damage: tuple[str, Any]) -> None:
    document = json.loads(control.encode(Control().ask_flush(RequestAuthor("me", 1.0))))
    document["flush"][damage[0]] = damage[1]
    with pytest.raises(Corrupt, match="control: unreadable content"):
        control.decode(json.dumps(document).encode(), "control")


def _status_with(**damage: Any) -> bytes:
    result = SliceResult(A_SLICE, 5, 1, 0)
    failure = Failure(FailureKind.RETRYABLE, "a reason", "t", 0, 3)
    document = json.loads(codec.encode_status(WriteStatus(1, "w:1", (result,), failure=failure)))
    return json.dumps({**document, **damage}).encode()


@pytest.mark.parametrize(
    "damage",
    [
        {"failure": ["RETRYABLE", 5, "t", 0, 3]},
        {"failure": ["RETRYABLE", "a reason", "t", "0", 3]},
        {"failure": ["RETRYABLE", "a reason", "t", 0]},
        {"topics": [["t", 7]]},
        {"results": [["t", 0, 0, 5, 0, 5, "-5", 0]]},
        {"results": [["t", 0, 0, 5, 0, 5, "0x5", 0]]},
    ],
    ids=json.dumps,
)
def test_a_status_that_no_worker_writes_is_corrupt(damage: dict[str, Any]) -> None:
    codec.decode_status(_status_with(), "status")
    with pytest.raises(Corrupt, match="status: unreadable content"):
        codec.decode_status(_status_with(**damage), "status")


def test_bytes_after_compressed_content_are_corrupt() -> None:
    compressed = codec.to_bytes({"text": "a" * 100}, compress_above=10)
    with pytest.raises(Corrupt, match="followed by other bytes"):
        codec.from_bytes(compressed + b"more", "place", dict)


def test_a_checkpoint_that_is_no_text_is_corrupt() -> None:
    with pytest.raises(Corrupt, match="unreadable checkpoint"):
        codec.decode_checkpoint("\ud800", "place")


@given(st.builds(Member, names, names, counts, names, st.sampled_from(WorkerState), names, counts))
def test_a_member_comes_back_as_it_was(member: Member) -> None:
    assert codec.decode_member(codec.encode_member(member), "place") == member


def test_a_large_checkpoint_is_compressed_and_comes_back() -> None:
    ends = {TopicPartition("t", p): PartitionCheckpoint(p, 0) for p in range(20_000)}
    checkpoint = Checkpoint("s", "k", "c", 1, 1, 0, "d", {"t": "id"}, ends)
    text = codec.encode_checkpoint(checkpoint)
    assert text.startswith("zlib:")
    assert codec.decode_checkpoint(text) == checkpoint


def the_checkpoint(data: bytes, origin: str) -> Checkpoint:
    return codec.decode_checkpoint(data.decode(errors="replace"), origin)


DECODERS = [codec.decode_states, codec.decode_header, codec.decode_status, codec.decode_member, the_checkpoint]
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=12,
)


@pytest.mark.parametrize("decode", DECODERS)
@given(data=st.binary(max_size=200) | json_values.map(lambda v: json.dumps(v).encode()))
def test_bytes_of_any_kind_are_corrupt_and_nothing_else(decode, data: bytes) -> None:
    with pytest.raises(Corrupt, match="place"):
        decode(data, "place")


A_SLICE = Slice("t", 0, 0, 5, "id", 0)
A_TASK = WriteTask((A_SLICE,))
SOUND: dict[str, bytes] = {
    tree.KEEPER: tree.info_data(KeeperInfo("uuid", "config")),
    tree.EPOCH: tree.epoch_data(3, "w:1"),
    tree.CONTROL: control.encode(
        Control(
            RequestAuthor("me", 1.0),
            Flush(2, 1, RequestAuthor("me")),
            Switchover("election/x", "w:1"),
            {"w:1": RequestAuthor("me")},
        )
    ),
    tree.HALT: tree.halt_data(Halt(HaltKind.OTHER, "why", "t", 0, 7, 1.5)),
    tree.TRANSACTIONS: codec.to_bytes(
        {
            "last": 2,
            "committed": 1,
            "attempts": {"2": 1},
            "gaps": [["t", 0, 1, 2]],
            "history": [
                [1, 1, "COMMITTED", "i", 5, "", {"PLANNED": 1.0}, 0, 1],
                [2, 2, "COMMITTED", "i", 5, "", {"PLANNED": 1.0}, 3, 2],
            ],
        }
    ),
    tree.member_path("w:1"): codec.encode_member(Member("w:1", "host", 1, "1")),
    tree.shard_path(TopicPartition("t", 0)): codec.encode_states(
        {0: PartitionState("id", 0, 5, 0, (OpenRange(5, 9, 2, 5, 0, 4),))}
    ),
    tree.header_path(2): codec.encode_header(Header(2, 2, 1, 3, 1, Phase.STARTED, 5.0, "d", "c", "i", "", {"A": 1.0})),
    f"{tree.plan_path(2, 'w:1')}/0000": codec.to_bytes({"tasks": codec.encode_tasks((A_TASK,))}),
    tree.status_path(2, "w:1"): codec.encode_status(
        WriteStatus(
            2,
            "w:1",
            (SliceResult(A_SLICE, 5, 1, 2),),
            ("x",),
            Failure(FailureKind.RETRYABLE, "r", "t", 0, 1),
            errors=(QuarantinedRecords("p", 2, "t", 0, 1, "r"),),
        )
    ),
}
NUMBERS = (True, -1, 0, 1.5, float("inf"), float("nan"), 10**400)
ODD = (None, *NUMBERS, "", "x", "9" * 5000, "\ud800", [], {}, [[]], {"a": 1})


def key_paths(value: Any, keys: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield keys
    for key in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield from key_paths(value[key], (*keys, key))


def replaced(value: Any, keys: tuple[Any, ...], new: object) -> Any:
    if not keys:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[keys[0]] = replaced(value[keys[0]], keys[1:], new)
    return copy


def tree_with(path: str, data: bytes) -> dict[str, Node]:
    contents = {tree.plan_path(2, "w:1"): b"d", **SOUND, path: data}
    snapshot = {node_path: Node(content, 0) for node_path, content in contents.items()}
    for ancestor in tuple(snapshot):
        while ancestor := ancestor.rpartition("/")[0]:
            snapshot.setdefault(ancestor, Node(b"", 0))
    return snapshot


@pytest.mark.parametrize("path", SOUND)
def test_a_tree_with_any_value_at_any_depth_replaced_is_read_or_corrupt(path: str) -> None:
    document = json.loads(SOUND[path])
    assert TreeReader().read(tree_with(path, SOUND[path])).epoch == 3
    assert ParticipantViewReader("w:1").read(tree_with(path, SOUND[path])).assignments[0].tasks == (A_TASK,)
    corrupt = 0
    for keys in key_paths(document):
        for new in ODD:
            data = json.dumps(replaced(document, keys, new)).encode()
            for reader in (TreeReader(), ParticipantViewReader("w:1")):
                try:
                    reader.read(tree_with(path, data))
                except (Corrupt, OtherVersion) as error:
                    corrupt += path in str(error)
    assert corrupt > len(ODD)


def test_a_checkpoint_with_any_value_at_any_depth_replaced_is_read_or_corrupt() -> None:
    ends = {TopicPartition("t", 0): PartitionCheckpoint(5, 0)}
    checkpoint = Checkpoint(
        "s", "k", "c", 1, 1, 0, "d", {"t": "id"}, ends, (SliceResult(A_SLICE, 5, 1, 2),), (Gap("t", 0, 1, 2),)
    )
    document = json.loads(codec.encode_checkpoint(checkpoint))
    corrupt = 0
    for keys in key_paths(document):
        for new in ODD:
            try:
                codec.decode_checkpoint(json.dumps(replaced(document, keys, new)))
            except (Corrupt, OtherVersion):
                corrupt += 1
    assert corrupt > len(ODD)


@pytest.mark.parametrize("path", SOUND)
def test_every_field_that_a_writer_writes_is_required(path: str) -> None:
    document = json.loads(SOUND[path])
    for_people = {"incarnation"} if path == tree.EPOCH else set()
    for name in document.keys() - for_people:
        left_out = json.dumps({key: value for key, value in document.items() if key != name}).encode()
        with pytest.raises(Corrupt, match=path):
            TreeReader().read(tree_with(path, left_out))


ELEMENTS = (
    *tree.SKELETON,
    tree.KEEPER,
    tree.EPOCH,
    tree.TRANSACTIONS,
    tree.HALT,
    tree.CONTROL,
    "plan",
    "pieces",
    "status",
    "header",
)
elements = st.sampled_from((*ELEMENTS, "0000000001", "000000", "w1:1", "w1:1.0", "t", "stray"))
paths = st.lists(elements, min_size=1, max_size=5).map("/".join)
contents = st.just(b"") | st.binary(max_size=20) | json_values.map(lambda v: json.dumps(v).encode())


@pytest.mark.parametrize(
    "reader", [TreeReader(), ParticipantViewReader("w1:1")], ids=lambda reader: type(reader).__name__
)
@given(nodes=st.dictionaries(paths, contents, max_size=8))
def test_a_tree_with_anything_in_it_is_read_or_corrupt(reader: SnapshotReader[object], nodes: dict[str, bytes]) -> None:
    snapshot = {path: Node(data, 0) for path, data in nodes.items()}
    for path in nodes:
        while path := path.rpartition("/")[0]:
            snapshot.setdefault(path, Node(b"", 0))
    try:
        reader.read(snapshot)
    except (Corrupt, OtherVersion) as error:
        named_paths = [path for path in snapshot if path in str(error)]
    else:
        return
    assert named_paths


def nodes_of(ops: list[tree.Op]) -> dict[str, Node]:
    return {op.path: Node(op.data, 0) for op in ops if isinstance(op, Create)}


def test_a_status_too_large_for_a_znode_comes_back_from_its_pieces() -> None:
    import random

    noise = random.Random(1)
    stats = tuple(f"{noise.getrandbits(8000):x}" for _ in range(1000))
    status = WriteStatus(7, "w:1", stats=stats)
    plan = Plan({"w:1": (A_TASK,)})
    header = Header(7, 7, 1, 1, 0, Phase.STARTED, 1.0, tree.plan_digest(plan), instant="i")
    ops = [
        *tree.plan_ops(7, plan),
        Create(tree.header_path(7), codec.encode_header(header)),
        *tree.status_ops(status),
    ]
    assert all(len(op.data) <= tree.PIECE_BYTES for op in ops if isinstance(op, Create))
    view = TreeReader().read(nodes_of(ops))
    assert view.transactions[0].statuses["w:1"] == status
    without_last_piece = {k: v for k, v in nodes_of(ops).items() if not k.endswith("/pieces/w:1.1/0001")}
    with pytest.raises(Corrupt, match="pieces"):
        TreeReader().read(without_last_piece)


@settings(max_examples=settings.default.max_examples // 4)
@given(st.dictionaries(st.sampled_from(["w:1", "w:2", "w:3"]), st.integers(1, 9000), min_size=1))
def test_a_participants_share_is_what_the_whole_tree_says_of_it(counts: dict[str, int]) -> None:
    """A plan may take several znodes."""
    plan = Plan(
        {name: tuple(WriteTask((Slice("t", 0, n, n + 1, "id", n),)) for n in range(counts[name])) for name in counts}
    )
    header = Header(7, 7, 1, 1, 0, Phase.STARTED, 1.0, tree.plan_digest(plan), instant="i")
    snapshot = nodes_of([*tree.plan_ops(7, plan), Create(tree.header_path(7), codec.encode_header(header))])
    transactions = TreeReader().read(snapshot).transactions
    assert [transaction.plan for transaction in transactions] == [plan]
    for name in ("w:1", "w:2", "w:3"):
        (assigned,) = ParticipantViewReader(name).read(snapshot).assignments
        assert (assigned.header, assigned.tasks) == (header, plan.tasks.get(name, ()))


@given(st.lists(st.integers(0, 200_000), max_size=30))
def test_no_multi_comes_near_the_limit_and_the_last_one_decides(sizes: list[int]) -> None:
    ops: list[tree.Op] = [Create(f"p{i}", b"x" * size) for i, size in enumerate(sizes)]
    last: list[tree.Op] = [Create("header", b"h")]
    groups = tree.batched(ops, last)
    assert [op for group in groups for op in group] == [*ops, *last]
    assert groups[-1][-1:] == (last[0],)
    for group in groups:
        assert len(group) <= tree.MULTI_OPS + len(last)
        assert sum(len(op.data) for op in group if isinstance(op, Create)) <= 2 * tree.MULTI_BYTES - 200_000
