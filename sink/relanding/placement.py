"""Gives rows the columns that Hudi's writer would give them, and finds the file groups of their buckets.

Guarantee: record key and table partition are those that the table's key generator makes. A row's file group is the one
of its bucket, as Hudi's index computes it; a bucket without one gets one. Raises what py4j raises.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from functools import partial

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from sink.clients.spark.privacy import local_rows
from sink.hudi.existing_rows import bucket_of
from sink.hudi.file_groups import Group
from sink.hudi.java_objects import JavaPackage
from sink.hudi.specification import TableSpecification
from sink.relanding.table_rows import COMMIT, FILE, PATH
from sink.schema.table_schema import META_COLUMNS
from sink.write.engines.rewritten_files import GROUP
from sink.write.rows.record_columns import RowSpec

RECORD_KEY, SEQUENCE = "_hoodie_record_key", "_hoodie_commit_seqno"


def placed(rows: DataFrame, spec: RowSpec, instant: str) -> DataFrame:
    """Returns rows of the table's columns with Hudi's own before them; the name of the file is empty."""
    columns = T.StructType([T.StructField(RECORD_KEY, T.StringType()), T.StructField(PATH, T.StringType())])
    keyed = rows.mapInArrow(partial(_place, spec), T.StructType([*columns.fields, *rows.schema.fields]))
    sequence = F.concat(F.lit(f"{instant}_0_"), F.monotonically_increasing_id().cast("string"))
    added = {COMMIT: F.lit(instant), SEQUENCE: sequence, FILE: F.lit("")}
    return keyed.withColumns(added).select(*META_COLUMNS, *rows.columns)


def _place(spec: RowSpec, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        rows, groups = spec.place(batch)
        texts = [rows.column(name).cast(pa.string()) for name in ("_kafka_partition", "_kafka_offset")]
        keys = spec.keys.column(rows, "", *texts)
        paths = pa.array(groups.paths, pa.string()).take(pa.array(np.asarray(groups.codes)))
        arrays = [keys, paths, *(rows.column(name) for name in batch.schema.names)]
        yield pa.RecordBatch.from_arrays(arrays, names=[RECORD_KEY, PATH, *batch.schema.names])


def with_groups(
    spark: SparkSession, table: TableSpecification, rows: DataFrame, groups: Collection[Group], columns: Sequence[str]
) -> tuple[DataFrame, dict[Group, int]]:
    """Returns the rows in these columns, `GROUP` among them, and how many each file group gets."""
    jvm = spark.sparkContext._jvm
    identifier = JavaPackage(jvm._gateway_client).org.apache.hudi.index.bucket.BucketIdentifier  # type: ignore
    count = int(table.options["hoodie.bucket.index.num.buckets"])
    by_bucket = {(path, int(file_id[:8])): file_id for path, file_id in groups}
    places: list[tuple[str, str, str]] = []
    inserts: dict[Group, int] = {}
    for path, key in map(tuple, local_rows(rows.select(PATH, RECORD_KEY))):
        bucket = bucket_of(table, key, count, identifier)
        if (path, bucket) not in by_bucket:
            by_bucket[path, bucket] = f"{identifier.newBucketFileIdPrefix(bucket)}-0"
        group = path, by_bucket[path, bucket]
        inserts[group] = inserts.get(group, 0) + 1
        places.append((path, key, "/".join(group)))
    frame = spark.createDataFrame(places, f"{PATH} string, {RECORD_KEY} string, {GROUP} string")
    return rows.join(frame, [PATH, RECORD_KEY]).select(*columns), inserts
