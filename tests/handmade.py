"""A Hudi table made by hand, without Hudi, Spark or the product: files, commits and checkpoints, for tests to break."""

from __future__ import annotations

import copy
import io
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq

from sink.audit.audit import audit
from sink.audit.report import FindingKind, Report

TOPIC = "orders"
SINK = "orders"

_LONGS = ("numWrites", "numDeletes", "numUpdateWrites", "numInserts", "totalWriteBytes", "fileSizeInBytes")
_STAT: dict[str, Any] = {
    "type": "record",
    "name": "HoodieWriteStat",
    "fields": [
        *({"name": name, "type": ["null", "string"], "default": None} for name in ("fileId", "path", "prevCommit")),
        *({"name": name, "type": ["null", "long"], "default": None} for name in _LONGS),
    ],
}
_METADATA = fastavro.parse_schema(
    {
        "type": "record",
        "name": "HoodieReplaceCommitMetadata",
        "fields": [
            {
                "name": "partitionToWriteStats",
                "type": ["null", {"type": "map", "values": {"type": "array", "items": _STAT}}],
            },
            {"name": "extraMetadata", "type": ["null", {"type": "map", "values": "string"}]},
            {"name": "operationType", "type": ["null", "string"]},
            {
                "name": "partitionToReplaceFileIds",
                "type": ["null", {"type": "map", "values": {"type": "array", "items": "string"}}],
                "default": None,
            },
        ],
    }
)
_PROPERTIES = {
    "hoodie.table.name": "orders",
    "hoodie.table.type": "COPY_ON_WRITE",
    "hoodie.table.version": "9",
    "hoodie.timeline.layout.version": "2",
    "hoodie.timeline.path": "timeline",
    "hoodie.timeline.history.path": "history",
    "hoodie.table.base.file.format": "PARQUET",
    "hoodie.table.timeline.timezone": "UTC",
    "hoodie.populate.meta.fields": "false",
    "hoodie.table.metadata.partitions": "",
}


@dataclass(frozen=True)
class AddedFile:
    """A file of `offsets`. The checkpoint has `[start, end)`, `digest`, and `records` or the number of offsets."""

    partition: int
    offsets: Sequence[int]
    start: int
    end: int
    generation: int = 0
    records: int | None = None
    digest: int = 0


def span(partition: int, start: int, end: int, generation: int = 0) -> AddedFile:
    return AddedFile(partition, range(start, end), start, end, generation)


@dataclass
class HandmadeTable:
    path: Path
    provenance: bool = True
    topic: str = TOPIC
    topic_id: str = "id"
    number: int = 0
    clock: datetime = datetime(2026, 1, 1)
    checkpoint: dict[str, Any] = field(
        default_factory=lambda: {
            "format": 1,
            "sink": SINK,
            "keeper": "keeper",
            "cluster": "cluster",
            "epoch": 1,
            "number": 0,
            "base": 0,
            "config": "digest",
            "topics": {},
            "ends": {},
            "anchors": {},
            "schemas": [],
            "results": [],
            "gaps": [],
        }
    )

    def __post_init__(self) -> None:
        self.checkpoint |= {"topics": {self.topic: self.topic_id}, "ends": {self.topic: {}}}
        (self.timeline / "history").mkdir(parents=True)
        lines = [f"{name}={value}" for name, value in _PROPERTIES.items()]
        (self.path / ".hoodie" / "hoodie.properties").write_text("\n".join(lines) + "\n")
        (self.path / ".hoodie_partition_metadata").write_text("commitTime=0\npartitionDepth=0\n")

    @property
    def timeline(self) -> Path:
        return self.path / ".hoodie" / "timeline"

    def tick(self) -> str:
        self.clock += timedelta(seconds=1)
        return f"{self.clock:%Y%m%d%H%M%S}000"

    def write_file(self, name: str, rows: Iterable[tuple[int, int]]) -> Path:
        """Writes a base file of (partition, offset) rows."""
        pairs = list(rows)
        columns: dict[str, pa.Array] = {"id": pa.array([offset for _, offset in pairs], pa.int64())}
        if self.provenance:
            columns |= {
                "_kafka_topic": pa.array([self.topic] * len(pairs), pa.string()),
                "_kafka_partition": pa.array([partition for partition, _ in pairs], pa.int32()),
                "_kafka_offset": pa.array([offset for _, offset in pairs], pa.int64()),
            }
        path = self.path / name
        pq.write_table(pa.table(columns), path)
        return path

    def commit(self, *added: AddedFile, **changes: Any) -> str:
        """Commits the next transaction. `changes` override fields of the checkpoint, also with false values."""
        instant = self.tick()
        number = self.number + 1
        stats = []
        for position, file in enumerate(added):
            file_id = f"file-{number}-{position}-0"
            path = self.write_file(f"{file_id}_0-0-0_{instant}.parquet", ((file.partition, o) for o in file.offsets))
            stats.append(self.stat(file_id, path, len(file.offsets)))
        before, checkpoint = self.number, copy.deepcopy(self.checkpoint)
        for file in added:
            checkpoint["ends"][self.topic][str(file.partition)] = [file.end, file.generation]
        checkpoint["number"], checkpoint["base"] = number, before
        checkpoint["results"] = [
            [
                self.topic,
                file.partition,
                file.start,
                file.end,
                file.generation,
                len(file.offsets) if file.records is None else file.records,
                f"{file.digest:x}",
                0,
            ]
            for file in added
        ]
        self.number, self.checkpoint = number, checkpoint
        self.complete(instant, stats, json.dumps({**checkpoint, **changes}))
        return instant

    def complete(
        self,
        instant: str,
        stats: Sequence[dict[str, Any]],
        checkpoint: str | None = None,
        operation: str = "BULK_INSERT",
        replaced: Sequence[str] = (),
    ) -> Path:
        fields = [{"name": name, "type": ["null", kind]} for name, kind in (("id", "long"), *self._provenance_types())]
        extra = {"schema": json.dumps({"type": "record", "name": "orders", "fields": fields})}
        if checkpoint is not None:
            extra[f"sink.checkpoint.{self.checkpoint['sink']}"] = checkpoint
        document = {
            "partitionToWriteStats": {"": list(stats)},
            "extraMetadata": extra,
            "operationType": operation,
            "partitionToReplaceFileIds": {"": list(replaced)} if replaced else None,
        }
        buffer = io.BytesIO()
        fastavro.writer(buffer, _METADATA, [document])
        action = "replacecommit" if replaced else "commit"
        path = self.timeline / f"{instant}_{self.tick()}.{action}"
        path.write_bytes(buffer.getvalue())
        for state in (f"{action}.requested", "inflight" if action == "commit" else f"{action}.inflight"):
            (self.timeline / f"{instant}.{state}").write_bytes(b"")
        return path

    def stat(
        self, file_id: str, path: Path, inserts: int, writes: int | None = None, deletes: int = 0
    ) -> dict[str, Any]:
        size = path.stat().st_size
        return {
            "fileId": file_id,
            "path": path.name,
            "prevCommit": "null",
            "numWrites": inserts if writes is None else writes,
            "numDeletes": deletes,
            "numUpdateWrites": 0,
            "numInserts": inserts,
            "totalWriteBytes": size,
            "fileSizeInBytes": size,
        }

    def archive(self, instant: str) -> None:
        """Moves a completed instant from the active to the archived timeline, as Hudi does."""
        [commit] = self.timeline.glob(f"{instant}_*")
        completed = commit.stem.partition("_")[2]
        history = self.timeline / "history"
        name = f"{instant}_{instant}_0.parquet"
        pq.write_table(
            pa.table(
                {
                    "instantTime": [instant],
                    "completionTime": [completed],
                    "action": ["commit"],
                    "metadata": pa.array([commit.read_bytes()], pa.binary()),
                    "plan": pa.array([None], pa.binary()),
                    "version": pa.array([1], pa.int32()),
                }
            ),
            history / name,
        )
        names = sorted(path.name for path in history.glob("*.parquet"))
        version = len(names)
        (history / f"manifest_{version}").write_text(json.dumps({"files": [{"fileName": n} for n in names]}))
        (history / "_version_").write_text(str(version))
        for path in self.timeline.glob(f"{instant}*"):
            path.unlink()

    def rewrite_commit(self, instant: str, change: Any) -> None:
        """Edits the checkpoint inside a completed commit: `change` gets the checkpoint and alters it."""
        [path] = self.timeline.glob(f"{instant}_*commit")
        [document] = list(fastavro.reader(io.BytesIO(path.read_bytes())))
        checkpoint = json.loads(document["extraMetadata"][f"sink.checkpoint.{self.checkpoint['sink']}"])
        change(checkpoint)
        document["extraMetadata"][f"sink.checkpoint.{self.checkpoint['sink']}"] = json.dumps(checkpoint)
        buffer = io.BytesIO()
        fastavro.writer(buffer, _METADATA, [document])
        path.write_bytes(buffer.getvalue())

    def files_of(self, instant: str) -> list[Path]:
        return sorted(self.path.glob(f"*_{instant}.parquet"))

    def audit(self) -> Report:
        return audit(str(self.path), self.checkpoint["sink"])

    def _provenance_types(self) -> tuple[tuple[str, str], ...]:
        if not self.provenance:
            return ()
        return ("_kafka_topic", "string"), ("_kafka_partition", "int"), ("_kafka_offset", "long")


def kinds(report: Report) -> set[FindingKind]:
    return {finding.kind for finding in report.failures}


def sentences(report: Report, kind: FindingKind) -> str:
    return "\n".join(finding.sentence for finding in report.findings if finding.kind is kind)
