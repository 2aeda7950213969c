"""Reads a checkpoint from the text that a commit has, for the audit. Raises `Corrupt` and `OtherVersion`."""

from __future__ import annotations

import base64
import json
import zlib
from typing import Any

from coordination.errors import Corrupt
from coordination.state.model import Checkpoint, Gap, PartitionCheckpoint, Slice, SliceResult, TopicPartition
from coordination.state.versions import require_own

_MOST_INFLATED = 100 << 20


def checkpoint_of(document_text: str, origin: str) -> Checkpoint:
    """Parses the JSON of a checkpoint. Raises `Corrupt` and `OtherVersion`."""
    try:
        if document_text.startswith("zlib:"):
            inflater = zlib.decompressobj()
            compressed = base64.b64decode(document_text.removeprefix("zlib:"), validate=True)
            document_text = inflater.decompress(compressed, _MOST_INFLATED).decode()
            if not inflater.eof:
                raise ValueError("compressed content is truncated or too large")
        document = json.loads(document_text)
        require_own(document["format"], origin)
        topics: dict[str, str] = document["topics"]
        ends = {
            TopicPartition(topic, int(partition)): PartitionCheckpoint(require_int(end), require_int(generation))
            for topic, partitions in document["ends"].items()
            for partition, (end, generation) in partitions.items()
        }
        results = tuple(
            SliceResult(
                Slice(
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
            Gap(topic, require_int(partition), require_int(start), require_int(end))
            for topic, partition, start, end in document["gaps"]
        )
        return Checkpoint(
            sink=document["sink"],
            keeper=document["keeper"],
            cluster=document["cluster"],
            epoch=require_int(document["epoch"]),
            number=require_int(document["number"]),
            base=require_int(document["base"]),
            config=document["config"],
            topics=topics,
            ends=ends,
            results=results,
            gaps=gaps,
            schemas={str(name): str(fingerprint) for name, fingerprint in document["schemas"]},
        )
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError, zlib.error) as error:
        raise Corrupt(f"checkpoint cannot be read ({type(error).__name__}: {str(error)[:200]})") from error


def require_int(value: Any) -> int:
    """Raises TypeError for anything else."""
    if type(value) is not int:
        raise TypeError(f"{value!r} is not a whole number")
    return value
