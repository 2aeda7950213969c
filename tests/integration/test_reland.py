"""`sink reland`: damaged rows are repaired by one commit, whoever dies, in each kind of table; the audit of contents
holds after it, and so does what is landed later."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from coordination.errors import TableError
from coordination.planning.relanding import OffsetRange
from coordination.state.model import Checkpoint
from sink.audit.audit import audit
from sink.audit.log import TopicAccess
from sink.audit.report import Report
from sink.clients.kafka.log import Log
from sink.commands.reland import parse_ranges
from sink.operations.timeline_snapshot import read_timeline_snapshot
from sink.relanding.reland import Reland
from sink.relanding.repair import Preview
from sink.telemetry.failpoints import DIRECTORY, VARIABLE
from tests.integration.conftest import MakeSink
from tests.integration.errors_kit import Record, Sink
from tests.integration.test_errors_replay import ELSEWHERE
from tests.integration.upsert_kit import BUCKETS, ON_READ, ORDERED, RECORD_INDEX

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1200)]

DDL = "id bigint, at bigint, kind string not null, side bigint, tags array<string>"
UPSERT = {"write__operation": "upsert", "record__key__fields": "id"}
SIDES = {"partition__field__name": "side"}
WITH_METADATA = {"hoodie__metadata__enable": "true"}
KILLS = ("Reland.begun", "Reland.written", "Reland.committed")
Rows = list[dict[str, Any]]


def row(key: int, at: int, kind: str = "landed", deleted: bool = False) -> Record:
    value = {"id": key, "at": at, "kind": kind, "side": key % 2, "tags": [kind, None], "_hoodie_is_deleted": deleted}
    return b"%d" % key, json.dumps(value).encode()


def append_damage(rows: Rows) -> Rows:
    """Loses, doubles and alters rows, and puts one record's row in another's place."""
    damaged = []
    for found in rows:
        match found["_kafka_partition"], found["_kafka_offset"]:
            case 0, 3:
                continue
            case 0, 5:
                damaged += [found, found]
            case 0, 6:
                damaged.append({**found, "kind": "altered"})
            case 0, 8:
                damaged.append({**found, "id": 100, "kind": "of another record"})
            case _:
                damaged.append(found)
    return damaged


def keyed_damage(rows: Rows) -> Rows:
    """Loses, doubles and alters rows, and sets one back to an earlier change of its key."""
    damaged = []
    first = min((found["_hoodie_commit_time"] for found in rows), default="")
    for found in rows:
        match found["id"]:
            case 3:
                continue
            case 5:
                damaged += [found, {**found, "kind": "doubled"}]
            case 6:
                damaged.append({**found, "kind": "altered", "at": 1_000})
            case 8:
                earlier = {"_hoodie_commit_time": first, "_kafka_offset": 8, "at": 10, "kind": "landed"}
                damaged.append({**found, **earlier, "tags": ["landed", None]})
            case _:
                damaged.append(found)
    return damaged


ODD = [
    *(row(key, 10) for key in range(12)),
    *(row(key, 20, "second") for key in range(4, 9)),
    row(1, 30, deleted=True),
    row(2, 5, "an older one"),
    row(4, 20, "as old"),
]
EVEN = [row(key, 10) for key in range(20, 26)]
LATER = [row(3, 40, "later"), row(1, 50, "back"), row(5, 40, deleted=True), row(8, 60, "later")]


def plain(records: Sequence[Record], changed: bool, ordered: bool) -> dict[Any, str]:
    """Returns the kind of each row: by key if rows are changed, else by place."""
    rows: dict[Any, dict[str, Any]] = {}
    for place, (_, value) in enumerate(records):
        found = json.loads(value or b"")
        if not changed:
            rows[place] = found
        elif not ordered or found["at"] >= rows.get(found["id"], found)["at"]:
            rows.pop(found["id"], None)
            if not found["_hoodie_is_deleted"]:
                rows[found["id"]] = found
    return {key: found["kind"] for key, found in rows.items()}


@pytest.mark.parametrize(
    ("more", "kills"),
    [
        ({**SIDES, **WITH_METADATA}, ("Reland.written",)),
        pytest.param({**UPSERT, **ORDERED, **SIDES}, (), marks=pytest.mark.thorough),
        ({**UPSERT, **ORDERED, **ON_READ, **RECORD_INDEX, **WITH_METADATA, **SIDES}, ()),
        pytest.param({**UPSERT, **ORDERED, **ON_READ, **BUCKETS}, KILLS, marks=pytest.mark.thorough),
        pytest.param({**UPSERT, **BUCKETS, **SIDES}, (), marks=pytest.mark.thorough),
        pytest.param({"write__engine": "hudi", **SIDES}, (), marks=pytest.mark.thorough),
    ],
    ids=["appended", "bloom", "record index, merged on read", "buckets, merged on read", "buckets", "hudi's writer"],
)
def test_a_damaged_table_is_as_the_log_says_after_one_commit(
    make_sink: MakeSink, more: Mapping[str, str], kills: tuple[str, ...]
) -> None:
    changed, ordered = "write__operation" in more, "ordering__field__name" in more
    sink = make_sink([*ODD, *LATER], EVEN, ddl=DDL, **ELSEWHERE, **more)
    with closing(Log(sink.settings.kafka_native)) as log:
        sink.cluster = log.view([sink.topic]).cluster
    sink.land((0, 0, 12), (1, 0, 6))
    sink.land((0, 12, len(ODD)))
    expected = plain(ODD, changed, ordered)
    assert of_first(sink, changed) == expected
    require_held(sink)
    damage(sink, keyed_damage if changed else append_damage)
    assert of_first(sink, changed) != expected
    found = look(sink)
    assert not found.held
    assert found.repair, found.to_json()
    wanted = parse_ranges(found.repair)
    preview = Reland(sink.spark, sink.settings, sink.client, wanted).preview()
    assert not preview.refusals, preview
    for point in kills:
        assert killed_at(sink, point, wanted).returncode == -9
        if point != "Reland.committed":
            assert of_first(sink, changed) != expected
    run(sink, wanted)
    assert of_first(sink, changed) == expected
    require_held(sink)
    assert not read_timeline_snapshot(sink.settings.base_path, sink.settings.name).pending
    checkpoint = checkpoint_of(sink)
    sink.number, sink.epoch = checkpoint.number, checkpoint.epoch
    sink.land((0, len(ODD), len(ODD) + len(LATER)))
    assert of_first(sink, changed) == plain([*ODD, *LATER], changed, ordered)
    require_held(sink)


@pytest.mark.parametrize(
    "more",
    [
        {**SIDES, **WITH_METADATA},
        pytest.param({**UPSERT, **ORDERED, **SIDES}, marks=pytest.mark.thorough),
        pytest.param({**UPSERT, **ORDERED, **ON_READ, **RECORD_INDEX, **WITH_METADATA}, marks=pytest.mark.thorough),
        pytest.param({"write__operation": "insert", **SIDES}, marks=pytest.mark.thorough),
    ],
    ids=["appended", "bloom", "record index, merged on read", "inserted"],
)
def test_the_rows_of_a_base_file_that_nobody_can_read_land_again_once_it_is_moved_away(
    make_sink: MakeSink, more: Mapping[str, str]
) -> None:
    changed = more.get("write__operation") == "upsert"
    sink = make_sink(ODD, EVEN, ddl=DDL, **ELSEWHERE, **more)
    with closing(Log(sink.settings.kafka_native)) as log:
        sink.cluster = log.view([sink.topic]).cluster
    sink.land((0, 0, 12), (1, 0, 6))
    sink.land((0, 12, len(ODD)))
    expected = plain(ODD, changed, "ordering__field__name" in more)
    assert of_first(sink, changed) == expected
    files = [path for path in Path(sink.settings.base_path).rglob("*.parquet") if ".hoodie" not in path.parts]
    broken = max(files, key=lambda path: path.name.rpartition("_")[2])
    broken.write_bytes(b"\0" * (1000 if changed else broken.stat().st_size))
    broken.with_name(f".{broken.name}.crc").unlink(missing_ok=True)
    assert not look(sink).held
    with pytest.raises(TableError, match=rf"not Parquet files any more: .*{broken.name}. Move them out"):
        Reland(sink.spark, sink.settings, sink.client, parse_ranges([f"{sink.topic}:0=0"])).preview()
    broken.unlink()
    found = look(sink)
    assert found.repair, found.to_json()
    run(sink, parse_ranges(found.repair))
    assert of_first(sink, changed) == expected
    require_held(sink)


def run(sink: Sink, wanted: Sequence[OffsetRange]) -> Preview:
    return Reland(sink.spark, sink.settings, sink.client, wanted).run()


def checkpoint_of(sink: Sink) -> Checkpoint:
    checkpoint = read_timeline_snapshot(sink.settings.base_path, sink.settings.name).checkpoint
    assert checkpoint is not None
    return checkpoint


def of_first(sink: Sink, changed: bool) -> dict[Any, str]:
    """Returns the kinds of the rows of the first partition, by both of Hudi's ways to list files."""
    found = []
    for metadata in ("true", "false") if "hoodie.metadata.enable" not in sink.settings.hudi else ("false",):
        frame = sink.spark.read.format("hudi").option("hoodie.metadata.enable", metadata).load(sink.settings.base_path)
        rows = frame.where("_kafka_partition = 0").select("id" if changed else "_kafka_offset", "kind").collect()
        found.append(sorted(map(tuple, rows)))
    assert all(rows == found[0] for rows in found)
    return dict(found[0]) if len(dict(found[0])) == len(found[0]) else {"rows": str(found[0])}


def look(sink: Sink) -> Report:
    access = TopicAccess(sink.settings.bootstrap)
    is_global = sink.settings.key_is_global
    return audit(sink.settings.base_path, sink.settings.name, access, global_keys=is_global, content=True)


def require_held(sink: Sink) -> None:
    report = look(sink)
    assert report.held, report.to_json()
    assert report.content is not None
    assert not report.content.not_compared


def damage(sink: Sink, change: Callable[[Rows], Rows]) -> None:
    """Writes base files again in place, as no writer of the table does."""
    for path in Path(sink.settings.base_path).rglob("*.parquet"):
        if ".hoodie" in path.parts:
            continue
        file = pq.ParquetFile(path)
        rows = file.read().to_pylist()
        damaged = change(list(rows))
        if damaged != rows:
            table = pa.Table.from_pylist(damaged, file.schema_arrow)
            pq.write_table(table.replace_schema_metadata(file.metadata.metadata), path, store_schema=False)
            path.with_name(f".{path.name}.crc").unlink(missing_ok=True)


def killed_at(sink: Sink, point: str, wanted: Sequence[OffsetRange]) -> subprocess.CompletedProcess[str]:
    """Runs the command in a process of its own, which is killed at the failpoint."""
    config = Path(sink.settings.base_path).with_name("sink.properties")
    command = [sys.executable, "-m", "sink.cli", "reland", "--yes", "--config", str(config), *map(str, wanted)]
    environment = {**os.environ, VARIABLE: f"{point}=kill", DIRECTORY: str(config.parent)}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=400, check=False)
