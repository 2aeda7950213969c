"""The types in which a table holds what is declared: Hudi keeps schemas as Avro, which has no small integers."""

from __future__ import annotations

from pyspark.sql import types as T


def held(kind: T.DataType) -> T.DataType:
    if isinstance(kind, (T.ByteType, T.ShortType)):
        return T.IntegerType()
    if isinstance(kind, T.ArrayType):
        return T.ArrayType(held(kind.elementType), kind.containsNull)
    if isinstance(kind, T.MapType):
        return T.MapType(kind.keyType, held(kind.valueType), kind.valueContainsNull)
    if isinstance(kind, T.StructType):
        return held_struct(kind)
    return kind


def held_struct(struct: T.StructType) -> T.StructType:
    return T.StructType([T.StructField(f.name, held(f.dataType), f.nullable) for f in struct.fields])
