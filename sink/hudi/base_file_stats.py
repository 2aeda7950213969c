"""Write stats of base files as Java objects, with the column statistics that their writer has counted.

Guarantee: the metadata table gets the statistics of `sink.layout.column_ranges`, for which Hudi would have read the
file's footer three times, with a dozen requests each on an object store. Where there are none, Hudi reads it. A stat
with statistics is a `HoodieDeltaWriteStat`: from no other kind does Hudi 1.2 take them for the statistics of
partitions. No JVM code of our own: each function that Java gets is a public method of a class that is there already.
Those of log files Hudi keeps in the writer's memory alone: they travel as Avro, in the JSON text of a write stat, from
the worker that wrote to the worker that commits, which would read each log file again. Raises `JAVA_ERRORS`.
"""

from __future__ import annotations

import base64
import io
import json
import math
import struct
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import fastavro

from sink.layout.column_ranges import KEY, ColumnRange, decode_ranges

if TYPE_CHECKING:
    from sink.hudi.java_objects import HudiObjects

_MODEL = "org.apache.hudi.avro.model"
_STAT = "org.apache.hudi.common.model.HoodieWriteStat"
_COLUMN_STATS = "column_stats"
_BLOOM_FILTERS = "bloom_filters"
_VERSION = "V2"
"""Version of the index of column statistics: an older one wraps values in another way."""
MOST_RANGES = 2_000
"""Most ranges, one for each column of each file, that a transaction's write stats carry. Beyond it, carrying them costs
more than reading such small files.
"""
_KEY = "columnStats"
_AVRO_HEADER = 10
"""Bytes before a single object of Avro: a mark, and the fingerprint of its schema."""
_NAN = struct.pack("<d", math.nan), struct.pack("<f", math.nan)


class JavaFunctions:
    def __init__(self, hudi: HudiObjects) -> None:
        self.kind = hudi.java_class
        self._array = hudi.java_array
        jvm: Any = hudi.context._jvm
        self._class, self._int = jvm.java.lang.Class, jvm.int
        self._invoke = hudi.jvm.java.lang.invoke
        self._lookup = self._invoke.MethodHandles.publicLookup()

    def method(self, owner: Any, name: str, *parameters: Any) -> Any:
        """Returns a handle of a public method; if the method is not static, the object is the first parameter."""
        kinds = self._array(self._class, *parameters)
        return self.handle(owner.getMethod(name, kinds))

    def handle(self, method: Any) -> Any:
        """Returns a handle of a method that is public, or was made accessible."""
        return self._lookup.unreflect(method)

    def chain(self, first: Any, *more: Any) -> Any:
        """Composes handles: each takes the result of the one before."""
        for handle in more:
            result_type = first.type().returnType()
            adapted_type = handle.type().changeParameterType(0, result_type)
            first = self._invoke.MethodHandles.filterReturnValue(first, handle.asType(adapted_type))
        return first

    def with_derived(self, action: Any, derive: Any) -> Any:
        """Returns a handle of one parameter: `action(it, derive(it))`."""
        kind, derived_type = action.type(), derive.type().returnType()
        swapped = kind.changeParameterType(0, derived_type).changeParameterType(1, kind.parameterType(0))
        order = self._array(self._int, 1, 0)
        typed = action.asType(kind.changeParameterType(1, derived_type))
        reordered = self._invoke.MethodHandles.permuteArguments(typed, swapped, order)
        return self._invoke.MethodHandles.foldArguments(reordered, derive)

    def function(self, handle: Any) -> Any:
        return self._as_interface("java.util.function.Function", handle)

    def consumer(self, handle: Any) -> Any:
        return self._as_interface("java.util.function.Consumer", handle)

    def function2(self, handle: Any) -> Any:
        """Hudi's own function of two parameters."""
        return self._as_interface("org.apache.hudi.common.util.Functions$Function2", handle)

    def _as_interface(self, interface: str, handle: Any) -> Any:
        return self._invoke.MethodHandleProxies.asInterfaceInstance(self.kind(interface), handle)


def base_file_stats(hudi: HudiObjects, stats_json: Sequence[str], avro: str) -> Any:
    """Returns Java's write stats in a list, for a commit with that schema. A few calls, however many files."""
    parsed = [json.loads(stat_json) for stat_json in stats_json]
    carried = [stat.pop(KEY, None) for stat in parsed]
    columns = _indexed_columns(hudi, avro) if any(carried) else ()
    plain, counted, ranges = [], [], {}
    for stat, document in zip(parsed, carried, strict=True):
        indexed = None if document is None else _indexed_ranges(document, columns)
        if indexed:
            counted.append(json.dumps(stat))
            ranges[stat["path"].rpartition("/")[2]] = indexed
        else:
            plain.append(json.dumps(stat))
    stats = java_stats(hudi, plain, "HoodieWriteStat")
    if counted:
        with_ranges = java_stats(hudi, counted, "HoodieDeltaWriteStat")
        _set_ranges(hudi, with_ranges, ranges)
        stats.addAll(with_ranges)
    return stats


def _indexed_columns(hudi: HudiObjects, avro: str) -> Collection[str]:
    """Returns the columns whose statistics Hudi wants; none if it wants none, or other statistics than are carried."""
    meta = hudi.meta_client()
    indexes = set(meta.getTableConfig().getMetadataPartitions())
    # Hudi looks for no bloom filter of a `HoodieDeltaWriteStat`.
    if not hudi.has_metadata_table or _COLUMN_STATS not in indexes or _BLOOM_FILTERS in indexes:
        return ()
    util = hudi.java.metadata.HoodieTableMetadataUtil
    if str(util.existingIndexVersionOrDefault(_COLUMN_STATS, meta)) != _VERSION:
        return ()
    metadata = hudi.commit_metadata({"schema": avro})
    config = hudi.config.getMetadataConfig()
    return frozenset(hudi.json(util.getColumnsToIndex(metadata, meta, config, hudi.option()).keySet()))


def _indexed_ranges(document: Mapping[str, Any], columns: Collection[str]) -> list[ColumnRange]:
    """Returns the ranges of these columns; none where one of the columns may be among those that were cut off."""
    file = decode_ranges(document)
    if file.cut and not set(columns) <= {column_range.column for column_range in file.ranges}:
        return []
    # Hudi finds elements of arrays under either name, and calls them by the first.
    names = {*columns, *(column.replace(".list.element", ".array") for column in columns)}
    return [column_range for column_range in file.ranges if column_range.column in names]


def _set_ranges(hudi: HudiObjects, stats: Any, ranges: Mapping[str, Sequence[ColumnRange]]) -> None:
    """Gives each stat the ranges of its file."""
    functions = JavaFunctions(hudi)
    string, table = functions.kind("java.lang.String"), functions.kind("java.util.Map")
    stat = functions.kind(_STAT)
    by_file = _by_file(hudi, functions, ranges)
    path = functions.method(stat, "getPath")
    name = functions.method(functions.kind("org.apache.hudi.common.fs.FSUtils"), "getFileNameFromPath", string)
    look_up = functions.method(table, "get", functions.kind("java.lang.Object")).bindTo(by_file)
    set_ranges = functions.method(stat, "setRecordsStats", table)
    file_ranges = functions.chain(path, name, look_up)
    stats.forEach(functions.consumer(functions.with_derived(set_ranges, file_ranges)))


def _by_file(hudi: HudiObjects, functions: JavaFunctions, ranges: Mapping[str, Sequence[ColumnRange]]) -> Any:
    """Returns Hudi's range objects in a map by file name and column."""
    stats = functions.kind(f"{_MODEL}.HoodieMetadataColumnStats")
    range_kind = functions.kind("org.apache.hudi.stats.HoodieColumnRangeMetadata")
    from_stats = functions.function(functions.method(range_kind, "fromColumnStats", stats))
    file = functions.function(functions.method(range_kind, "getFilePath"))
    column = functions.function(functions.method(range_kind, "getColumnName"))
    collectors = hudi.jvm.java.util.stream.Collectors
    by_column = collectors.toMap(column, hudi.jvm.java.util.function.Function.identity())
    return _column_stats(hudi, stats, ranges).stream().map(from_stats).collect(collectors.groupingBy(file, by_column))


def _column_stats(hudi: HudiObjects, kind: Any, ranges: Mapping[str, Sequence[ColumnRange]]) -> Any:
    """Encodes all in one Avro document, which Hudi's own classes read."""
    avro = hudi.jvm.org.apache.avro
    schema = avro.Schema.createArray(hudi.java.avro.model.HoodieMetadataColumnStats.getClassSchema())
    value_types = {column_range.value_type for columns in ranges.values() for column_range in columns}
    ordinals = {name: int(hudi.java.stats.ValueType.valueOf(name).ordinal()) for name in value_types}
    stream = io.BytesIO()
    records = [record for file, columns in ranges.items() for record in _records(file, columns, ordinals)]
    fastavro.schemaless_writer(stream, fastavro.parse_schema(json.loads(schema.toString())), records)
    data = avro.specific.SpecificData(kind.getClassLoader())
    decoder = avro.io.DecoderFactory.get().binaryDecoder(stream.getvalue(), None)
    return avro.specific.SpecificDatumReader(schema, schema, data).read(None, decoder)


def _records(file: str, columns: Sequence[ColumnRange], ordinals: Mapping[str, int]) -> Iterator[dict[str, Any]]:
    for column_range in columns:
        yield {
            "fileName": file,
            "columnName": column_range.column.replace(".array", ".list.element"),
            "minValue": _wrapped(column_range.value_type, column_range.least),
            "maxValue": _wrapped(column_range.value_type, column_range.greatest),
            "valueCount": column_range.values,
            "nullCount": column_range.nulls,
            "totalSize": column_range.size,
            "totalUncompressedSize": column_range.uncompressed,
            "isDeleted": False,
            "isTightBound": False,
            "valueType": {
                "typeOrdinal": ordinals[column_range.value_type],
                "additionalInfo": column_range.precision_and_scale,
            },
        }


_WRAPPERS = {
    "BOOLEAN": "Boolean",
    "INT": "Int",
    "DATE": "Int",
    "FLOAT": "Float",
    "DOUBLE": "Double",
    "STRING": "String",
    "BYTES": "Bytes",
    "DECIMAL": "Bytes",
}
"""Times of every kind are numbers of 64 bits."""


def _wrapped(kind: str, value: Any) -> Any:
    if value is None:
        return None
    if kind == "DECIMAL":
        # As Java's BigInteger writes itself: the fewest bytes that hold the number and its sign.
        value = value.to_bytes((value if value >= 0 else ~value).bit_length() // 8 + 1, "big", signed=True)
    return f"{_MODEL}.{_WRAPPERS.get(kind, 'Long')}Wrapper", {"value": value}


def is_log(stat: str) -> bool:
    return '"logVersion"' in stat


def with_column_stats(hudi: HudiObjects, stats: Sequence[Any], stats_json: Sequence[str]) -> list[str]:
    """Returns the stats as JSON, those of log files with their column statistics."""
    counted = {}
    for number, (stat, stat_json) in enumerate(zip(stats, stats_json, strict=True)):
        if is_log(stat_json) and (column_stats := stat.getColumnStats()).isPresent():
            counted[number] = column_stats.get().values()
    if sum(len(ranges) for ranges in counted.values()) > MOST_RANGES:
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
    return [
        base64.b64encode(_without_nan(bytes(column.toByteBuffer().array()), column.getSchema())).decode()
        for column in columns
    ]


def _without_nan(encoded: bytes, schema: Any) -> bytes:
    """Returns the statistics of a column with infinity in the place of NaN, as `nan_columns` says why."""
    if not any(nan in encoded for nan in _NAN):
        return encoded
    parsed = fastavro.parse_schema(json.loads(str(schema.toString())))
    body = io.BytesIO(encoded[_AVRO_HEADER:])
    record: Any = fastavro.schemaless_reader(body, parsed, None, return_record_name=True)
    for end in ("minValue", "maxValue"):
        if record[end] is not None and _is_nan(record[end][1]["value"]):
            record[end] = record[end][0], {"value": math.inf}
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, parsed, record)
    return encoded[:_AVRO_HEADER] + stream.getvalue()


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


def _decoded(hudi: HudiObjects, columns: Sequence[str]) -> Any:
    """Decodes column ranges into a Java map by column name."""
    ranges, stats = hudi.jvm.java.util.HashMap(), hudi.java.avro.model.HoodieMetadataColumnStats
    for column in columns:
        column_stats = stats.fromByteBuffer(hudi.jvm.java.nio.ByteBuffer.wrap(base64.b64decode(column)))
        ranges.put(
            column_stats.getColumnName(), hudi.java.stats.HoodieColumnRangeMetadata.fromColumnStats(column_stats)
        )
    return ranges
