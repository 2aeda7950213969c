"""The types in which a table stores declared types: Hudi keeps schemas as Avro, which has no small integers."""

from __future__ import annotations

from pyspark.sql import types as T


def storage_type(kind: T.DataType) -> T.DataType:
    if isinstance(kind, (T.ByteType, T.ShortType)):
        return T.IntegerType()
    if isinstance(kind, T.ArrayType):
        return T.ArrayType(storage_type(kind.elementType), kind.containsNull)
    if isinstance(kind, T.MapType):
        return T.MapType(kind.keyType, storage_type(kind.valueType), kind.valueContainsNull)
    if isinstance(kind, T.StructType):
        return storage_struct(kind)
    return kind


def storage_struct(struct: T.StructType) -> T.StructType:
    return T.StructType([T.StructField(f.name, storage_type(f.dataType), f.nullable) for f in struct.fields])
