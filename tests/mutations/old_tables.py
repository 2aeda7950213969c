"""The tables that defects broke, in `tests/data/broken-tables`, with commits as they would be today.

Their commits are of older checkpoints, without a specification. What a checkpoint lacks is filled in, and it says how
its records were decoded: all are JSON. Nothing else changes.
"""

from __future__ import annotations

import json
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.mutations.edit import Edited, Metadata, metadata_of, rows_of
from tests.mutations.kept import KeptLog, log_of

BROKEN = Path(__file__).parents[1] / "data" / "broken-tables"
_RECREATED = "recreated-in-mid-read"


def unpack_broken(name: str, directory: Path) -> Edited:
    """Unpacks a table, with commits of today."""
    with tarfile.open(BROKEN / f"{name}.tar.xz") as archive:
        has_folder = any(member.name == "table/.hoodie" for member in archive.getmembers())
        archive.extractall(directory if has_folder else directory / "table", filter="data")
    edited = Edited(directory)
    for commit in edited.own_commits():
        edited.change_commit(commit, _renew)
    return edited


def _renew(document: Metadata) -> None:
    [key] = [key for key in document["extraMetadata"] if key.startswith("sink.checkpoint.")]
    checkpoint = json.loads(document["extraMetadata"][key])
    checkpoint = {"anchors": {}, "schemas": [], **checkpoint}
    for topic, ends in checkpoint["ends"].items():
        if not checkpoint["results"]:
            # Landed by a test of the table, which read no log. Its rows begin at 10.
            for partition, (end, _) in ends.items():
                checkpoint["results"].append([topic, int(partition), end, end + 10, 0, 10, "0"])
                ends[partition][0] = end + 10
    checkpoint["results"] = [[*result, 0][:8] for result in checkpoint["results"]]
    document["extraMetadata"][key] = json.dumps(checkpoint)
    document["extraMetadata"][key.replace("checkpoint", "specification")] = json.dumps({"value.format": "json"})


def has_log(name: str) -> bool:
    return name == _RECREATED or (BROKEN / f"{name}.log.jsonl").exists()


def broken_log(name: str, edited: Edited) -> KeptLog:
    """The log that a table should hold, by the name of its topic."""
    newest = metadata_of(edited.own_commits()[-1])["extraMetadata"]
    [checkpoint] = [json.loads(text) for key, text in newest.items() if key.startswith("sink.checkpoint.")]
    [(topic, topic_id)] = checkpoint["topics"].items()
    return log_of(topic, topic_id, _records(name, _moments(edited)))


def _moments(edited: Edited) -> Mapping[tuple[int, int], int]:
    """The timestamps of the rows, in milliseconds: those of the records were not kept."""
    columns = ("_kafka_partition", "_kafka_offset", "_kafka_timestamp")
    found = {}
    for path in edited.files():
        rows = rows_of(path)
        if set(columns) <= set(rows.column_names):
            moments = rows.column(columns[2]).cast(pa.int64()).to_pylist()
            places = zip(*(rows.column(name).to_pylist() for name in columns[:2]), strict=True)
            found.update(zip(places, (moment // 1000 for moment in moments), strict=True))
    return found


def _records(name: str, moments: Mapping[tuple[int, int], int]) -> Iterator[Mapping[str, Any]]:
    def record(partition: int, offset: int, key: str, value: Any) -> Mapping[str, Any]:
        content = None if value is None else json.dumps(value).encode()
        moment = moments.get((partition, offset), 0)
        return {"partition": partition, "offset": offset, "timestamp": moment, "key": key.encode(), "value": content}

    if name == _RECREATED:
        for number in range(60_000):
            yield record(number % 3, number // 3, str(number), {"id": number, "kind": "old", "amount": number / 4})
        return
    for line in (BROKEN / f"{name}.log.jsonl").read_text().splitlines():
        kept = json.loads(line)
        yield record(kept["partition"], kept["offset"], kept["key"], kept["value"])
