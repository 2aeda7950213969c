"""The files of a slice are the same, with the same rows, however the rows arrive in batches."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from coordination.state.model import Slice, WriteTask
from sink.layout.partition_paths import PartitionPaths
from sink.storage.files import open_storage
from sink.write.files.base_file import Attempt
from sink.write.files.slice_files import FileLimits, SliceFiles

INSTANT = "20240101000000000"
ROWS = 40_000
BATCHES = (16_384, 4_096, 1_024, 1_000, ROWS)
Files = Mapping[str, tuple[str, list[int]]]


def rows_of_a_slice(partitions: int) -> pa.RecordBatch:
    """Returns rows whose sizes and table partitions change along the slice; the last partitions by name come first."""
    rng = random.Random(3)
    texts = [rng.randbytes(20 + 80 * (at > ROWS // 2)).hex() for at in range(ROWS)]
    partition_values = [f"p{(rng.randrange(3) - at // 900) % partitions}" for at in range(ROWS)]
    return pa.RecordBatch.from_pydict({"at": range(ROWS), "text": texts, "p": partition_values})


def write(base: Path, rows: pa.RecordBatch, batch: int, limits: FileLimits, fields: tuple[str, ...]) -> Files:
    """Writes the rows and returns, by file id, each file's path and its rows."""
    timeline = base / ".hoodie" / "timeline"
    timeline.mkdir(parents=True)
    (timeline / f"{INSTANT}.inflight").touch()
    attempt = Attempt("sink", "table", INSTANT, "0-0-0", WriteTask((Slice("t", 0, 0, ROWS, "id", 0),)))
    files = SliceFiles(open_storage(str(base)), attempt, limits, "zstd", meta_fields=False)
    paths = PartitionPaths(fields, False, False)
    for start in range(0, ROWS, batch):
        part = rows.slice(start, batch)
        files.add(part, paths.group(part))
    stats = [json.loads(stat) for stat in files.close()]
    tables = {stat["fileId"]: pq.ParquetFile(base / stat["path"]).read() for stat in stats}
    return {stat["fileId"]: (stat["path"], tables[stat["fileId"]].column("at").to_pylist()) for stat in stats}


@pytest.mark.parametrize(
    ("fields", "limits"),
    [
        ((), FileLimits(file_max_bytes=400_000, open_files_max=8, buffer_bytes=1 << 20)),
        ((), FileLimits(file_max_bytes=1 << 20, open_files_max=8, buffer_bytes=64 << 20)),
        (("p",), FileLimits(file_max_bytes=300_000, open_files_max=8, buffer_bytes=1 << 20)),
        (("p",), FileLimits(file_max_bytes=1 << 30, open_files_max=3, buffer_bytes=1 << 19)),
    ],
    ids=["rolling", "one flush", "rolling in table partitions", "closing to make room"],
)
def test_files_hold_the_same_rows_whatever_the_batches(
    tmp_path: Path, fields: tuple[str, ...], limits: FileLimits
) -> None:
    rows = rows_of_a_slice(partitions=10)
    written = [write(tmp_path / str(batch), rows, batch, limits, fields) for batch in BATCHES]
    assert sorted(number for _, row_numbers in written[0].values() for number in row_numbers) == list(range(ROWS))
    for other in written[1:]:
        assert other == written[0]


def test_the_case_rolls_and_closes_files_to_make_room(tmp_path: Path) -> None:
    rows = rows_of_a_slice(partitions=10)
    rolled = write(tmp_path / "one", rows, 4_096, FileLimits(400_000, 8, 1 << 20), ())
    closed = write(tmp_path / "two", rows, 4_096, FileLimits(1 << 30, 3, 1 << 19), ("p",))
    assert len(rolled) > 2
    assert len(closed) > 20
