"""Column statistics of log files, from the worker that wrote them to the worker that commits.

Guarantee: the metadata table gets the statistics that the writer has counted. Hudi keeps them in the writer's memory
alone; without this module a commit by another process, or by another client, reads each log file again. They travel as
Avro, in the JSON text of a write stat. Raises `JAVA_ERRORS`.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sink.hudi.java_objects import HudiObjects

MOST = 2_000
"""Most ranges, one for each column of each file, that a transaction's write stats carry. Beyond it, carrying them costs
more than reading such small files.
"""
_KEY = "columnStats"


def is_log(stat: str) -> bool:
    return '"logVersion"' in stat


def with_column_stats(hudi: HudiObjects, stats: Sequence[Any], stats_json: Sequence[str]) -> list[str]:
    """Returns the stats as JSON, those of log files with their column statistics."""
    counted = {}
    for number, (stat, stat_json) in enumerate(zip(stats, stats_json, strict=True)):
        if is_log(stat_json) and (column_stats := stat.getColumnStats()).isPresent():
            counted[number] = column_stats.get().values()
    if sum(len(ranges) for ranges in counted.values()) > MOST:
        return list(stats_json)
    return [
        stat_json if number not in counted else _with(stat_json, _encoded(hudi, counted[number]))
        for number, stat_json in enumerate(stats_json)
    ]


def log_stats(hudi: HudiObjects, stats_json: Sequence[str]) -> Any:
    """Returns Java's write stats of log files in a list, with the statistics that they carry."""
    parsed = [json.loads(stat_json) for stat_json in stats_json]
    carried = [stat.pop(_KEY, ()) for stat in parsed]
    stats = java_stats(hudi, [json.dumps(stat) for stat in parsed], "HoodieDeltaWriteStat")
    for stat, columns in zip(stats, carried, strict=True):
        if columns:
            stat.putRecordsStats(_decoded(hudi, columns))
    return stats


def java_stats(hudi: HudiObjects, stats_json: Sequence[str], name: str) -> Any:
    """Returns Java objects of that class in a list, in one call."""
    kind = hudi.java_class(f"org.apache.hudi.common.model.{name}")
    kinds = hudi.mapper.getTypeFactory().constructCollectionType(hudi.java_class("java.util.ArrayList"), kind)
    return hudi.mapper.readValue(f"[{','.join(stats_json)}]", kinds)


def _with(stat_json: str, columns: list[str]) -> str:
    return json.dumps({**json.loads(stat_json), _KEY: columns})


def _encoded(hudi: HudiObjects, ranges: Any) -> list[str]:
    records = hudi.java.metadata.HoodieMetadataPayload.createColumnStatsRecords("", ranges, False).toArray()
    columns = (record.getData().getColumnStatMetadata().get() for record in records)
    return [base64.b64encode(column.toByteBuffer().array()).decode() for column in columns]


def _decoded(hudi: HudiObjects, columns: Sequence[str]) -> Any:
    """Decodes column ranges into a Java map by column name."""
    ranges, stats = hudi.jvm.java.util.HashMap(), hudi.java.avro.model.HoodieMetadataColumnStats
    for column in columns:
        column_stats = stats.fromByteBuffer(hudi.jvm.java.nio.ByteBuffer.wrap(base64.b64decode(column)))
        ranges.put(
            column_stats.getColumnName(), hudi.java.stats.HoodieColumnRangeMetadata.fromColumnStats(column_stats)
        )
    return ranges
