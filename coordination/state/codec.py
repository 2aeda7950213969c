"""Values to bytes and back: every znode and every checkpoint is versioned JSON, compressed when it is large.

The decoder returns a well-formed value or raises `Corrupt` with its origin, or `OtherVersion` for one that another
release wrote. It ignores unknown fields. A znode's content names its own `dataVersion`, so that the decoder refuses
content that no worker put there, older content too.
"""

from __future__ import annotations

import base64
import binascii
import json
import zlib
from collections.abc import Callable, Iterable, Mapping
from itertools import groupby
from typing import Any, TypeVar

from coordination.errors import Corrupt
from coordination.state.failures import Failure, FailureKind
from coordination.state.log_records import decode_anchor, decode_reads, encode_anchor, encode_reads
from coordination.state.model import (
    Checkpoint,
    Gap,
    Header,
    Member,
    OpenRange,
    PartitionCheckpoint,
    PartitionState,
    Phase,
    QuarantinedRecords,
    Slice,
    SliceResult,
    TopicPartition,
    WorkerState,
    WriteStatus,
    WriteTask,
)
from coordination.state.require import require_digest, require_int, require_seconds, require_str, require_times
from coordination.state.versions import PROTOCOL, require_own

COMPRESS_ABOVE = 64 * 1024
_ZLIB_BYTES = b"zlib:"
_MAX_DECODED = 256 * 1024 * 1024
_MALFORMED = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError, zlib.error)

T = TypeVar("T")


def to_bytes(document: Mapping[str, Any], version: int = 0, compress_above: int = COMPRESS_ABOVE) -> bytes:
    """Encodes a value. `version` is the one that ZooKeeper gives the znode with this content: 0 when it is created."""
    data_version = {"dataVersion": version} if version else {}
    raw = json.dumps({"format": PROTOCOL, **data_version, **document}, separators=(",", ":")).encode()
    return _ZLIB_BYTES + zlib.compress(raw, 6) if len(raw) > compress_above else raw


def from_bytes(data: bytes, origin: str, build: Callable[[Any], T], version: int | None = None) -> T:
    """Decodes `data` and lets `build` make a value of it. Raises `Corrupt` at `origin` for any fault of the content.
    `version` is ZooKeeper's, None for content that is in no znode.
    """
    try:
        document = json.loads(_inflate(data) if data.startswith(_ZLIB_BYTES) else data)
        require_own(document.get("format") if isinstance(document, dict) else None, origin)
        if version is not None and (written_as := document.get("dataVersion", 0)) != version:
            raise Corrupt(f"{origin}: written as dataVersion {written_as}, found as {version}: no worker put it there")
        return build(document)
    except _MALFORMED as error:
        raise Corrupt(f"{origin}: unreadable content ({error!r})") from error


def _inflate(data: bytes) -> bytes:
    inflater = zlib.decompressobj()
    raw = inflater.decompress(data[len(_ZLIB_BYTES) :], _MAX_DECODED)
    if not inflater.eof or inflater.unused_data:
        raise ValueError("compressed content is truncated, too large, or followed by other bytes")
    return raw


def _decode_slices(value: Any) -> tuple[Slice, ...]:
    return tuple(
        Slice(
            require_str(topic),
            require_int(partition),
            require_int(start),
            require_int(end),
            require_str(topic_id),
            require_int(generation),
            require_int(anchor),
        )
        for topic, topic_id, rows in value
        for partition, start, end, generation, anchor in rows
    )


def encode_tasks(tasks: Iterable[WriteTask]) -> list[Any]:
    """`[[[topic, topic id, [[partition, start, end, generation, anchor], ...]], ...], ...]`: a task's slices stay in
    their order, which its file ids are made of."""
    return [_encode_slices(task.slices) for task in tasks]


def _encode_slices(slices: Iterable[Slice]) -> list[Any]:
    return [
        [topic, topic_id, [[s.partition, s.start, s.end, s.generation, s.anchor] for s in run]]
        for (topic, topic_id), run in groupby(slices, lambda s: (s.topic, s.topic_id))
    ]


def decode_tasks(value: Any) -> tuple[WriteTask, ...]:
    return tuple(WriteTask(_decode_slices(slices)) for slices in value)


def encode_states(states: Mapping[int, PartitionState], version: int = 0) -> bytes:
    return to_bytes(
        {
            "states": {
                str(p): [
                    s.topic_id,
                    s.start,
                    s.end,
                    s.generation,
                    [_range(r) for r in s.open],
                    encode_anchor(s.anchor),
                ]
                for p, s in sorted(states.items())
            }
        },
        version,
    )


def _range(r: OpenRange) -> list[int]:
    return [r.start, r.end, r.batch, r.step, r.generation, r.task_records]


def decode_states(data: bytes, origin: str, version: int | None = None) -> dict[int, PartitionState]:
    def build(document: Any) -> dict[int, PartitionState]:
        return {
            int(p): PartitionState(
                require_str(topic_id),
                require_int(start),
                require_int(end),
                require_int(generation),
                tuple(OpenRange(*map(require_int, row)) for row in rows),
                decode_anchor(anchor),
            )
            for p, (topic_id, start, end, generation, rows, anchor) in document["states"].items()
        }

    return from_bytes(data, origin, build, version)


def encode_header(h: Header, version: int = 0) -> bytes:
    return to_bytes(
        {
            "number": h.number,
            "batch": h.batch,
            "attempt": h.attempt,
            "epoch": h.epoch,
            "base": h.base,
            "phase": h.phase.value,
            "timeout": h.timeout,
            "plan": h.plan_digest,
            "cluster": h.cluster,
            "instant": h.instant,
            "reason": h.reason,
            "columns": h.columns,
            "times": dict(h.times),
        },
        version,
    )


def decode_header(data: bytes, origin: str, version: int | None = None) -> Header:
    return from_bytes(
        data,
        origin,
        lambda d: Header(
            number=require_int(d["number"]),
            batch=require_int(d["batch"]),
            attempt=require_int(d["attempt"]),
            epoch=require_int(d["epoch"]),
            base=require_int(d["base"]),
            phase=Phase(d["phase"]),
            timeout=require_seconds(d["timeout"]),
            plan_digest=require_str(d["plan"]),
            cluster=require_str(d["cluster"]),
            instant=None if d["instant"] is None else require_str(d["instant"]),
            reason=require_str(d["reason"]),
            columns=require_str(d["columns"]),
            times=require_times(d["times"]),
        ),
        version,
    )


def encode_status(s: WriteStatus) -> bytes:
    failure = s.failure
    return to_bytes(
        {
            "number": s.number,
            "incarnation": s.incarnation,
            "results": _results(s.results),
            "topics": sorted({(r.slice.topic, r.slice.topic_id) for r in s.results}),
            "stats": list(s.stats),
            "seconds": s.seconds,
            "size": s.size,
            "errors": [[e.path, e.records, e.topic, e.partition, e.offset, e.reason] for e in s.errors],
            "reads": encode_reads(s.reads),
            "schemas": [list(pair) for pair in s.schemas],
            "failure": None
            if failure is None
            else [failure.kind.value, failure.reason, failure.topic, failure.partition, failure.offset],
        },
        compress_above=4096,
    )


def decode_status(data: bytes, origin: str, version: int | None = None) -> WriteStatus:
    def build(d: Any) -> WriteStatus:
        return WriteStatus(
            number=require_int(d["number"]),
            incarnation=require_str(d["incarnation"]),
            results=_decode_results(
                d["results"], {require_str(name): require_str(topic_id) for name, topic_id in d["topics"]}
            ),
            stats=tuple(require_str(stat) for stat in d["stats"]),
            failure=None if d["failure"] is None else _decode_failure(*d["failure"]),
            seconds=require_seconds(d["seconds"]),
            size=require_int(d["size"]),
            errors=tuple(
                QuarantinedRecords(
                    require_str(path),
                    require_int(records),
                    require_str(topic),
                    require_int(partition),
                    require_int(offset),
                    require_str(reason),
                )
                for path, records, topic, partition, offset, reason in d["errors"]
            ),
            reads=decode_reads(d["reads"]),
            schemas=_decode_schemas(d["schemas"]),
        )

    return from_bytes(data, origin, build, version)


def _decode_failure(kind: Any, reason: Any, topic: Any, partition: Any, offset: Any) -> Failure:
    return Failure(
        FailureKind(kind),
        require_str(reason),
        None if topic is None else require_str(topic),
        None if partition is None else require_int(partition),
        None if offset is None else require_int(offset),
    )


def _decode_schemas(value: Any) -> tuple[tuple[str, str], ...]:
    return tuple((require_str(schema_id), require_str(fingerprint)) for schema_id, fingerprint in value)


def encode_member(m: Member) -> bytes:
    return to_bytes(
        {
            "incarnation": m.incarnation,
            "host": m.host,
            "pid": m.pid,
            "version": m.version,
            "state": m.state.value,
            "config": m.config,
            "cores": m.cores,
        }
    )


def decode_member(data: bytes, origin: str) -> Member:
    return from_bytes(
        data,
        origin,
        lambda d: Member(
            require_str(d["incarnation"]),
            require_str(d["host"]),
            require_int(d["pid"]),
            require_str(d["version"]),
            WorkerState(d["state"]),
            require_str(d["config"]),
            require_int(d["cores"]),
        ),
    )


def encode_gaps(gaps: Iterable[Gap]) -> list[Any]:
    return [[g.topic, g.partition, g.start, g.end] for g in gaps]


def decode_gaps(value: Any) -> tuple[Gap, ...]:
    return tuple(
        Gap(require_str(t), require_int(p), require_int(start), require_int(end)) for t, p, start, end in value
    )


def encode_checkpoint(c: Checkpoint) -> str:
    """Returns the text that a Hudi commit carries under `sink.checkpoint.<sink>`."""
    ends: dict[str, dict[str, list[int]]] = {}
    anchors: dict[str, dict[str, list[Any]]] = {}
    for source, partition_checkpoint in sorted(c.ends.items()):
        number, anchor = str(source.partition), encode_anchor(partition_checkpoint.anchor)
        ends.setdefault(source.topic, {})[number] = [partition_checkpoint.end, partition_checkpoint.generation]
        if anchor is not None:
            anchors.setdefault(source.topic, {})[number] = anchor
    raw = to_bytes(
        {
            "sink": c.sink,
            "keeper": c.keeper,
            "cluster": c.cluster,
            "epoch": c.epoch,
            "number": c.number,
            "base": c.base,
            "config": c.config,
            "topics": dict(sorted(c.topics.items())),
            "ends": ends,
            "anchors": anchors,
            "results": _results(c.results),
            "gaps": encode_gaps(c.gaps),
            "schemas": [list(pair) for pair in c.schemas.items()],
        }
    )
    if not raw.startswith(_ZLIB_BYTES):
        return raw.decode()
    return _ZLIB_BYTES.decode() + base64.b64encode(raw[len(_ZLIB_BYTES) :]).decode()


def decode_checkpoint(encoded: str, origin: str = "checkpoint") -> Checkpoint:
    def build(d: Any) -> Checkpoint:
        topics = {require_str(t): require_str(i) for t, i in d["topics"].items()}
        anchors = d["anchors"]
        return Checkpoint(
            sink=require_str(d["sink"]),
            keeper=require_str(d["keeper"]),
            cluster=require_str(d["cluster"]),
            epoch=require_int(d["epoch"]),
            number=require_int(d["number"]),
            base=require_int(d["base"]),
            config=require_str(d["config"]),
            topics=topics,
            ends={
                TopicPartition(t, int(p)): PartitionCheckpoint(
                    require_int(end), require_int(generation), decode_anchor(anchors.get(t, {}).get(p))
                )
                for t, rows in d["ends"].items()
                for p, (end, generation) in rows.items()
            },
            results=_decode_results(d["results"], topics),
            gaps=decode_gaps(d["gaps"]),
            schemas=dict(_decode_schemas(d["schemas"])),
        )

    try:
        data = encoded.encode()
        if data.startswith(_ZLIB_BYTES):
            data = _ZLIB_BYTES + base64.b64decode(data[len(_ZLIB_BYTES) :], validate=True)
    except (UnicodeEncodeError, binascii.Error) as error:
        raise Corrupt(f"{origin}: unreadable checkpoint ({error})") from error
    return from_bytes(data, origin, build)


def _results(results: Iterable[SliceResult]) -> list[Any]:
    return [
        [
            r.slice.topic,
            r.slice.partition,
            r.slice.start,
            r.slice.end,
            r.slice.generation,
            r.records,
            f"{r.digest:016x}",
            r.errors,
        ]
        for r in results
    ]


def _decode_results(rows: Any, topics: Mapping[str, str]) -> tuple[SliceResult, ...]:
    return tuple(
        SliceResult(
            Slice(
                require_str(t), require_int(p), require_int(start), require_int(end), topics[t], require_int(generation)
            ),
            require_int(records),
            require_digest(digest),
            require_int(errors),
        )
        for t, p, start, end, generation, records, digest, errors in rows
    )
