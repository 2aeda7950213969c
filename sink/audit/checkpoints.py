"""Checkpoints, as the audit reads them from the text that a commit has.

It reads the written format by itself, so that it does not share a mistake with the writer. Raises ValueError for a text
that it cannot read, and `OtherFormat` for a checkpoint of another release.
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
"""The version of the checkpoints that it reads: the protocol's."""
NO_TRANSACTION = 0
"""The base of the first checkpoint of a table."""
_MOST_INFLATED = 100 << 20


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
    """A written slice: its records in the table, its bad ones in the errors table, and the digest of all."""

    slice: AuditedSlice
    records: int
    digest: int
    errors: int = 0


@dataclass(frozen=True, slots=True)
class AuditedEnd:
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
    """The offsets in a commit: `ends` of all partitions, `results` of the slices that this very commit added, `gaps`
    since the first commit, `topics` with their ids, `schemas` the fingerprints by id. `rest` is only compared."""

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
    """Parses the JSON of a checkpoint, which `origin` names. Raises ValueError and `OtherFormat`."""
    try:
        if document_text.startswith("zlib:"):
            inflater = zlib.decompressobj()
            compressed = base64.b64decode(document_text.removeprefix("zlib:"), validate=True)
            document_text = inflater.decompress(compressed, _MOST_INFLATED).decode()
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
    """Raises TypeError for anything else."""
    if type(value) is not int:
        raise TypeError(f"{value!r} is not a whole number")
    return value
