"""A write whose tasks have too little memory fails. The next attempt buffers less, and lands."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from structlog.testing import capture_logs

from sink.clients.java.heap import MOST_SHARE, heap_bytes
from sink.hudi.client import HudiClient
from sink.hudi.options import service_options
from sink.write.engines.engine import ArrowEngine
from sink.write.rows.row_spec import table_schema
from tests.conftest import SPARK_HEAP
from tests.integration.reader_kit import MIB, SentRecord, send
from tests.integration.sinktable import OpenInstant, make_settings, tasks_of
from tests.processes import python_workers

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

MEMORY_PROPERTY = "resource.pyspark.memory"
"""The property for the MiB of address space of a task's Python, as `spark.executor.pyspark.memory` sets it."""
ROOM_MIB = 100
"""MiB beyond those of a Python that has done nothing: a quarter of what a first attempt takes."""
STEP_MIB = 100
"""MiB more for each attempt after the second: allocators reserve address space in steps, not always the same."""
ATTEMPTS = 12
COUNT = 300
VALUE = 400_000


@pytest.fixture
def limit_python(spark: SparkSession) -> Iterator[Callable[[int], None]]:
    """Limits each Python of later jobs to so many MiB."""
    yield lambda mebibytes: spark.sparkContext.setLocalProperty(MEMORY_PROPERTY, str(mebibytes))
    spark.sparkContext.setLocalProperty(MEMORY_PROPERTY, None)  # type: ignore[arg-type]


def address_space(pid: int) -> int:
    """Returns the most MiB of address space that the process ever had."""
    return int(Path(f"/proc/{pid}/status").read_text().partition("VmPeak:")[2].split()[0]) >> 10


def test_a_write_that_failed_for_memory_lands_with_less_and_one_line_says_so_each_time(
    spark: SparkSession, kafka: Any, topic: Any, tmp_path: Path, limit_python: Callable[[int], None]
) -> None:
    name = topic(2)
    for partition in (0, 1):
        send(kafka.address, name, [SentRecord(b"%6d" % number + b"x" * VALUE) for number in range(COUNT)], partition)
    settings = make_settings(tmp_path, kafka.address, name, "", value__format="bytes")
    instant = OpenInstant(tmp_path / "table")
    engine = ArrowEngine(spark, settings.table, settings.records, table_schema(settings.table, settings.records))
    tasks = tasks_of(name, (0, 0, COUNT), (1, 0, COUNT))
    engine.write(instant.name, tasks_of(name, (0, 0, 1)))

    least_mib = min(map(address_space, python_workers())) + ROOM_MIB
    memory, limits = engine._inputs.memory, []
    for attempt in range(1, ATTEMPTS + 1):
        limit_python(least_mib + STEP_MIB * max(0, attempt - 2))
        limits.append((memory.task_bytes(attempt), memory.tasks))
        with capture_logs() as lines:
            try:
                written = engine.write(instant.name, tasks, attempt=attempt)
            except (Py4JJavaError, PySparkException):
                # Only a failure for memory logs this event: any other failure leaves the limits as they are.
                assert [line["event"] for line in lines] == ["write.less_memory"]
            else:
                assert lines == []
                break
    assert [result.records for result in written.results] == [COUNT, COUNT]
    assert len(limits) > 1
    assert limits[:2] == [(32 * MIB, 2), (4 * MIB, 1)]
    assert memory.task_bytes() > limits[-1][0]
    assert {str(path.relative_to(instant.base)) for path in instant.data_files} <= instant.marked


def test_hudi_takes_small_buffers_and_a_share_of_the_heap_unless_the_user_says_otherwise(
    spark: SparkSession, tmp_path: Path
) -> None:
    settings = make_settings(
        tmp_path, "127.0.0.1:9", "none", "id BIGINT", hoodie__metadata__max__reader__memory=2 * MIB
    )
    hudi = HudiClient(spark, settings.table.store, "{}", service_options(settings.table))
    tasks = int(spark.sparkContext.master.removeprefix("local[").rstrip("]"))
    share = min(MOST_SHARE, heap_bytes(SPARK_HEAP) * 2 // 5 // tasks)  # type: ignore[operator]
    config = hudi.config
    assert config.getMaxDFSStreamBufferSize() == config.getMetadataConfig().getMaxReaderBufferSize() == MIB
    for name in ("hoodie.memory.merge.max.size", "hoodie.memory.compaction.max.size"):
        assert config.getProps().getProperty(name) == str(share)
    assert config.getProps().getProperty("hoodie.metadata.max.reader.memory") == str(2 * MIB)
    local = spark._jsc.hadoopConfiguration().get("fs.local.block.size")  # type: ignore[union-attr]
    assert local == str(MIB)
