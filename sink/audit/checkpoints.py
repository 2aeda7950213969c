"""Decodes the checkpoint in a commit's metadata, for the audit.

Shares no code with the writer, so that both cannot make the same mistake. Raises ValueError for a checkpoint that it
cannot decode, and OtherFormat for one of another protocol version.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sink.audit.failures import OtherFormat

FORMAT = 1
"""The protocol version of the checkpoints that this module reads."""
NO_TRANSACTION = 0
"""The base of the first checkpoint of a table."""
_MAX_INFLATED_BYTES = 256 << 20
"""The largest decompressed checkpoint that is read; the writer's limit is the same."""


@dataclass(frozen=True, order=True, slots=True)
class LogPartition:
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True)
class AuditedSlice:
    """Offsets `[start, end)` of one partition."""

    topic: str
    partition: int
    start: int
    end: int
    topic_id: str
    generation: int

    def __post_init__(self) -> None:
        if not 0 <= self.start < self.end:
            raise ValueError(f"{self} is not a slice")

    @property
    def source(self) -> LogPartition:
        return LogPartition(self.topic, self.partition)

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}[{self.start}, {self.end})"


@dataclass(frozen=True, slots=True)
class AuditedResult:
    """A written slice. `records` of it are in the table, `errors` in the errors table; `digest` covers both."""

    slice: AuditedSlice
    records: int
    digest: int
    errors: int = 0


@dataclass(frozen=True, slots=True)
class AuditedEnd:
    """`end` is the offset after the last committed one. `generation` rises with every reset, skipped gap and replay."""

    end: int
    generation: int


@dataclass(frozen=True, slots=True)
class AuditedGap:
    """Offsets `[start, end)` that the log lost before they were read."""

    topic: str
    partition: int
    start: int
    end: int

    def covers(self, other: AuditedGap) -> bool:
        is_same_partition = (other.topic, other.partition) == (self.topic, self.partition)
        return is_same_partition and self.start <= other.start and other.end <= self.end


@dataclass(frozen=True, slots=True)
class AuditedCheckpoint:
    """The offsets in a commit. `number` is that of its transaction, `base` that of the checkpoint before it. `topics`
    are topic ids by name. `ends` has all partitions, `results` only the slices that this commit added, `gaps` all gaps
    since the first commit. `schemas` are the fingerprints of registered schemas by id. `rest` is the UUID of the sink's
    tree and the configuration's digest: the audit only compares it with that of other checkpoints.
    """

    sink: str
    cluster: str
    epoch: int
    number: int
    base: int
    topics: Mapping[str, str]
    ends: Mapping[LogPartition, AuditedEnd]
    results: tuple[AuditedResult, ...] = ()
    gaps: tuple[AuditedGap, ...] = ()
    schemas: Mapping[str, str] = field(default_factory=dict)
    rest: tuple[Any, ...] = ()


def checkpoint_of(document_text: str, origin: str) -> AuditedCheckpoint:
    """Parses the text of a checkpoint: JSON, or `zlib:` and base64. `origin` is its place, for OtherFormat. Raises
    ValueError and OtherFormat."""
    try:
        if document_text.startswith("zlib:"):
            inflater = zlib.decompressobj()
            compressed = base64.b64decode(document_text.removeprefix("zlib:"), validate=True)
            document_text = inflater.decompress(compressed, _MAX_INFLATED_BYTES).decode()
            if not inflater.eof:
                raise ValueError("compressed content is truncated or too large")
        document = json.loads(document_text)
        if require_int(document["format"]) != FORMAT:
            raise OtherFormat(origin, document["format"])
        topics: dict[str, str] = document["topics"]
        ends = {
            LogPartition(topic, int(partition)): AuditedEnd(require_int(end), require_int(generation))
            for topic, partitions in document["ends"].items()
            for partition, (end, generation) in partitions.items()
        }
        results = tuple(
            AuditedResult(
                AuditedSlice(
                    topic,
                    require_int(partition),
                    require_int(start),
                    require_int(end),
                    topics[topic],
                    require_int(generation),
                ),
                require_int(records),
                int(digest, 16),
                require_int(errors),
            )
            for topic, partition, start, end, generation, records, digest, errors in document["results"]
        )
        gaps = tuple(
            AuditedGap(topic, require_int(partition), require_int(start), require_int(end))
            for topic, partition, start, end in document["gaps"]
        )
        return AuditedCheckpoint(
            sink=document["sink"],
            cluster=document["cluster"],
            epoch=require_int(document["epoch"]),
            number=require_int(document["number"]),
            base=require_int(document["base"]),
            topics=topics,
            ends=ends,
            results=results,
            gaps=gaps,
            schemas={str(name): str(fingerprint) for name, fingerprint in document["schemas"]},
            rest=(document["keeper"], document["config"]),
        )
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError, zlib.error) as error:
        raise ValueError(f"checkpoint cannot be read ({type(error).__name__}: {str(error)[:200]})") from error


def require_int(value: Any) -> int:
    """Returns `value`. Raises TypeError if it is not a whole number."""
    if type(value) is not int:
        raise TypeError(f"{value!r} is not a whole number")
    return value
