"""A record of another protocol version is named with both versions and the way out, whatever kind of record it is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from coordination.errors import Corrupt, OtherVersion
from coordination.state import codec, tree
from coordination.state.model import Checkpoint, PartitionCheckpoint, SliceResult, TopicPartition, WriteStatus
from coordination.state.reading import ParticipantViewReader, SnapshotReader, TreeReader
from coordination.state.tree import Create, Node
from coordination.state.versions import PROTOCOL, require_own
from coordination.zookeeper import records
from coordination.zookeeper.worker_records import WorkerRecord, _build, _document
from sink.audit.timeline import active_names, read_timeline
from sink.commands.auditor import sink_errors
from sink.storage.table_files import open_table
from tests.handmade import HandmadeTable, span
from tests.unit.test_codec import A_SLICE, SOUND, tree_with

OTHERS = [(PROTOCOL + 1, "newer"), (PROTOCOL - 1, "older")]
CHECKPOINT = Checkpoint(
    "s", "k", "c", 1, 1, 0, "d", {"t": "id"}, {TopicPartition("t", 0): PartitionCheckpoint(5, 0)},
    (SliceResult(A_SLICE, 5, 1),),
)  # fmt: skip
for_each_other_version = pytest.mark.parametrize(("version", "age"), OTHERS)


def of_version(data: bytes, version: int) -> bytes:
    return json.dumps({**json.loads(data), "format": version}).encode()


def sentence(place: str, version: int, age: str) -> str:
    return (
        rf"^{place}: protocol version {version}\. This release reads version {PROTOCOL}\. Use the {age} release, whose"
        rf" `sink version` names protocol {version}\. .* `sink reset --forget --yes`: a tree is rebuilt from the table"
    )


@for_each_other_version
@pytest.mark.parametrize("path", SOUND)
def test_a_znode_of_any_kind_is_refused_by_its_version_before_it_is_understood(
    path: str, version: int, age: str
) -> None:
    for data in (of_version(SOUND[path], version), json.dumps({"format": version, "all": "else"}).encode()):
        with pytest.raises(OtherVersion, match=sentence(path, version, age)):
            TreeReader().read(tree_with(path, data))


@for_each_other_version
@pytest.mark.parametrize(
    "path", [p for p in SOUND if p.startswith(f"{tree.TRANSACTIONS}/") and "status" not in p] + [tree.CONTROL]
)
def test_so_it_is_in_a_participants_share(path: str, version: int, age: str) -> None:
    with pytest.raises(OtherVersion, match=sentence(path, version, age)):
        ParticipantViewReader("w:1").read(tree_with(path, of_version(SOUND[path], version)))


@for_each_other_version
def test_a_tree_of_another_version_is_named_by_its_keeper_record_whatever_else_is_in_it(version: int, age: str) -> None:
    snapshot = tree_with(tree.KEEPER, of_version(SOUND[tree.KEEPER], version))
    snapshot |= {f"{tree.TRANSACTIONS}/batch-7": Node(b"", 0), tree.member_path("w:2"): Node(b"\xff", 0)}
    with pytest.raises(OtherVersion, match=sentence(tree.KEEPER, version, age)):
        TreeReader().read(snapshot)


@for_each_other_version
def test_a_status_in_pieces_is_refused_by_the_version_of_its_content(
    version: int, age: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    document = json.loads(codec.encode_status(WriteStatus(2, "w:1")))
    encoded = json.dumps({**document, "format": version, "stats": ["x" * tree.PIECE_BYTES]}).encode()
    with monkeypatch.context() as patch:
        patch.setattr(codec, "encode_status", lambda _: encoded)
        ops = tuple(tree.status_ops(WriteStatus(2, "w:1")))
    snapshot = tree_with(tree.KEEPER, SOUND[tree.KEEPER])
    snapshot |= {op.path: Node(op.data, 0) for op in ops if isinstance(op, Create)}
    with pytest.raises(OtherVersion, match=sentence(tree.status_path(2, "w:1"), version, age)):
        TreeReader().read(snapshot)


@for_each_other_version
def test_a_checkpoint_is_refused_by_the_sink_and_by_the_audit(version: int, age: str, tmp_path: Path) -> None:
    text = of_version(codec.encode_checkpoint(CHECKPOINT).encode(), version).decode()
    with pytest.raises(OtherVersion, match=sentence("commit 7", version, age)):
        codec.decode_checkpoint(text, "commit 7")
    table = HandmadeTable(tmp_path)
    instant = table.commit(span(0, 0, 10))
    table.rewrite_commit(instant, lambda checkpoint: checkpoint.update(format=version))
    files = open_table(str(tmp_path))
    place = f".*: checkpoint of sink orders in commit {instant}"
    with pytest.raises(OtherVersion, match=sentence(place, version, age)), sink_errors():
        read_timeline(files, active_names(files))


@for_each_other_version
def test_a_record_beside_the_protocol_is_refused_and_one_of_another_process_is_left_out(version: int, age: str) -> None:
    data = codec.to_bytes(_document(WorkerRecord("w", "host", 1, "1", False, {})))
    assert records.decode(data, "record", _build) is not None
    with pytest.raises(OtherVersion, match=sentence("record", version, age)):
        records.decode(of_version(data, version), "record", _build)


@pytest.mark.parametrize("version", [None, "1", True, 1.0, [1]])
def test_what_is_no_version_is_no_record(version: object) -> None:
    with pytest.raises(Corrupt, match="place: not a document of the sink"):
        require_own(version, "place")


@pytest.mark.parametrize("reader", [TreeReader(), ParticipantViewReader("w:1")])
def test_records_of_this_version_are_read(reader: SnapshotReader[object]) -> None:
    require_own(PROTOCOL, "place")
    reader.read(tree_with(tree.KEEPER, SOUND[tree.KEEPER]))


@pytest.mark.parametrize("field", sorted(json.loads(codec.encode_checkpoint(CHECKPOINT))))
def test_every_field_of_a_checkpoint_is_required(field: str) -> None:
    document = json.loads(codec.encode_checkpoint(CHECKPOINT))
    del document[field]
    with pytest.raises(Corrupt):
        codec.decode_checkpoint(json.dumps(document))
