"""`python -m tests.bench.record_path`: processor time of each step from JSON values to a closed Parquet file.

The benchmark's order events as the Arrow engine writes them, one process, one thread, no Kafka, no Spark. Steps take
turns, and the fastest of their rounds counts, because a shared machine only adds time. Other decoders decode the same
batches, for comparison.
"""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from coordination.state.model import Slice, WriteTask
from sink.decode.formats import ValueFormat
from sink.decode.json.columns import FastParser
from sink.layout.joined_texts import joined
from sink.layout.partition_paths import PartitionPaths
from sink.layout.record_keys import RecordKeys
from sink.schema.table_schema import TableSchema, parse_ddl
from sink.storage.files import open_storage
from sink.write.files.base_file import Attempt
from sink.write.files.slice_files import FileLimits, SliceFiles
from sink.write.rows.record_columns import RowDecoder, RowSpec, separate_bad
from tests.bench.orders import DDL, order
from tests.columns_kit import columns

BATCHES, ROWS = 16, 16_384
ROUNDS = 20
INSTANT = "20260101000000000"
_DUCKDB = (
    '{"id":"BIGINT","user":"BIGINT","event":"VARCHAR","amount":"DOUBLE","ts":"BIGINT","url":"VARCHAR"}'  # as `DDL`
)


class Steps:
    def __init__(self) -> None:
        pa.set_cpu_count(1)
        pa.set_io_thread_count(1)
        self.schema: TableSchema = parse_ddl(DDL)
        self.spec = RowSpec(self.schema, ValueFormat("json"), RecordKeys((), False), PartitionPaths((), False, False))
        self.batches = _batches()
        self.fastest: dict[str, float] = {}
        self.file_bytes = 0
        self._duckdb = duckdb.connect()
        self._duckdb.execute("SET threads = 1")

    def run(self) -> None:
        decoder, row_decoder = self.spec.format.decoder(self.schema.value_struct), RowDecoder(self.spec)
        fast_parser = FastParser(columns(self.schema))
        values = [batch.column("value") for batch in self.batches]
        self._clock("decode: json", lambda: [decoder.decode(column) for column in values])
        self._clock("decode: pyarrow.json alone", lambda: [fast_parser.parse(column) for column in values])
        self._clock("decode: DuckDB json_transform", lambda: [self._transform(column) for column in values])
        separated = self._clock(
            "decode, with Kafka's columns",
            lambda: [separate_bad(batch, "orders", row_decoder.decode)[1] for batch in self.batches],
        )
        keyed = self._clock(
            "record keys and sequence numbers",
            lambda: [self._keyed(rows, batch) for (rows, _), batch in zip(separated, self.batches, strict=True)],
        )
        with tempfile.TemporaryDirectory() as directory:
            groups = [groups for _, groups in separated]
            self._clock("files: units, meta columns, Parquet", lambda: self._files(Path(directory), keyed, groups))

    def _clock(self, name: str, call: Callable[[], Any]) -> Any:
        began = time.process_time()
        result = call()
        self.fastest[name] = min(self.fastest.get(name, began), time.process_time() - began)
        return result

    def _transform(self, values: pa.BinaryArray) -> Any:
        texts = pa.table({"value": values.cast(pa.string())})  # noqa: F841 - DuckDB finds it by its name
        query = self._duckdb.sql(f"SELECT r.* FROM (SELECT json_transform(value, '{_DUCKDB}') AS r FROM texts)")
        return query.to_arrow_table()

    def _keyed(self, rows: pa.RecordBatch, batch: pa.RecordBatch) -> pa.RecordBatch:
        partition, offsets = pa.scalar("0"), pc.cast(batch.column("offset"), pa.string())
        key = self.spec.keys.column(rows, "orders", partition, offsets)
        number = joined(pa.scalar(f"{INSTANT}_"), partition, pa.scalar("_"), offsets)
        names = ["_hoodie_commit_seqno", "_hoodie_record_key", *rows.schema.names]
        return pa.RecordBatch.from_arrays([number, key, *rows.columns], names=names)

    def _files(self, directory: Path, keyed: list[pa.RecordBatch], groups: list[Any]) -> None:
        timeline = directory / ".hoodie" / "timeline"
        timeline.mkdir(parents=True, exist_ok=True)
        (timeline / f"{INSTANT}.inflight").touch()
        task = WriteTask((Slice("orders", 0, 0, BATCHES * ROWS, "id", 0),))
        attempt = Attempt("sink", "table", INSTANT, "0-0-0", task)
        files = SliceFiles(
            open_storage(str(directory)), attempt, FileLimits(128 << 20, 64, 64 << 20), "zstd", meta_fields=True
        )
        for rows, group in zip(keyed, groups, strict=True):
            files.add(rows, group)
        files.close()
        self.file_bytes = sum(file.stat().st_size for file in directory.glob("*.parquet"))


def _batches() -> list[pa.RecordBatch]:
    rng = random.Random(1)
    batches = []
    for first in range(0, BATCHES * ROWS, ROWS):
        offsets = np.arange(first, first + ROWS)
        columns = {
            "value": pa.array([order(4 * number, rng)[1] for number in offsets.tolist()], pa.binary()),
            "partition": pa.array(np.zeros(ROWS, np.int32)),
            "offset": pa.array(offsets),
            "timestamp": pa.array(1_700_000_000_000 + offsets // 20, pa.timestamp("ms", "UTC")),
        }
        batches.append(pa.RecordBatch.from_pydict(columns))
    return batches


def main() -> None:
    steps = Steps()
    for _ in range(ROUNDS):
        steps.run()
    records = BATCHES * ROWS
    print("| step | µs a record |\n|---|---|")
    for name, seconds in steps.fastest.items():
        print(f"| {name} | {seconds / records * 1e6:.3f} |")
    print(f"\n{steps.file_bytes / records:.2f} bytes a record in the file")


if __name__ == "__main__":
    main()
