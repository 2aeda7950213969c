"""The heap of a worker's JVM: its size, what a configuration needs, and how the JVM ends when it is too small.

The figures were measured: docs/decisions/0083-a-worker-knows-its-heap.md. They are for a local master, whose one JVM
plans, commits and runs the tasks. Raises ConfigError.
"""

from __future__ import annotations

import re

from pyspark import SparkContext

from coordination.errors import ConfigError

HEAP = "spark.driver.memory"
DEFAULT_HEAP = "1g"
EXIT_ON_OUT_OF_MEMORY = "-XX:+ExitOnOutOfMemoryError"
"""Without it the thread that asked last fails, the others go on with what they have, and nobody knows which."""
OUT_OF_MEMORY_STATUSES = frozenset({3, 52})
"""Exit statuses of a JVM that ran out of memory: of HotSpot with the option above, and of Spark's handler in a task."""
_MEGABYTE = 1 << 20
MOST_SLOTS = 7
"""Write tasks wait for Kafka and their store most of the time. With one slot for each core, the sinks of a process
would wait for one another while the cores idle."""
BUFFER = 1 << 20
"""Hudi opens each log file with two buffers of 10 or 16 MiB by default, however small the file is."""
_BUFFERS = ("hoodie.memory.dfs.buffer.max.size", "hoodie.metadata.max.reader.buffer.size")
_SPILLED = (
    "hoodie.memory.merge.max.size",
    "hoodie.memory.compaction.max.size",
    "hoodie.metadata.max.reader.memory",
)
"""Limits of maps that go on on disk. Hudi's defaults are 245 MB for each task, and 1 GB for the metadata table."""
LEAST_SHARE, MOST_SHARE = 16 * _MEGABYTE, 245 * _MEGABYTE
_BASE = 320 * _MEGABYTE
"""Spark, Hudi and one commit. Spark does not start with less than 450 MiB."""
_SINK = 4 * _MEGABYTE
_TASK = 128 * _MEGABYTE
"""A write task of Hudi's holds the rows of a row group, up to `hoodie.parquet.block.size`: 120 MiB."""
_UNITS = {"k": 1 << 10, "m": _MEGABYTE, "g": 1 << 30, "t": 1 << 40}
_LOCAL = re.compile(r"local(?:\[(\d+|\*)(?:,\d+)?\])?")
_SIZE = re.compile(r"(\d+)([kmgt]?)b?")


def heap_bytes(size: str) -> int | None:
    """Returns the bytes of a size as Spark reads it, MiB without a unit; None if Spark would refuse it."""
    match = _SIZE.fullmatch(size.strip().lower())
    return int(match[1]) * _UNITS[match[2] or "m"] if match else None


def local_tasks(master: str, processors: int) -> int:
    """Returns how many tasks a local master runs side by side on so many processors; 0 for another master."""
    match = _LOCAL.fullmatch(master)
    return 0 if match is None else processors if match[1] == "*" else int(match[1] or 1)


def slots(heap: int, sinks: int, cores: int) -> int:
    """Returns how many write tasks of several sinks may run beside one for each core, in a heap of so many bytes."""
    tasks = (heap - _BASE - sinks * _SINK) // _TASK
    return max(1, min(MOST_SLOTS, tasks - cores))


def least_heap(sinks: int) -> int:
    """Returns the bytes that a process of so many sinks needs."""
    return _BASE + sinks * _SINK + _TASK


def require_room(size: str, sinks: int) -> str:
    """Returns a sentence on the heap of a process of so many sinks. Raises ConfigError if it is too small. A size that
    Spark refuses is left to Java."""
    heap, needed = heap_bytes(size), least_heap(sinks)
    needs = f"{sinks} {'sink needs' if sinks == 1 else 'sinks need'} {-(-needed // _MEGABYTE)}m"
    if heap is not None and heap < needed:
        raise ConfigError(
            f"{HEAP}: {size} is too little: {needs} in one process. Set that or more, or run them in several fleets."
        )
    return f"{HEAP} is {size}: {needs}"


def memory_options(context: SparkContext) -> dict[str, str]:
    """Returns Hudi's settings for the heap of a session's JVM, and of the executors of a cluster."""
    buffers = dict.fromkeys(_BUFFERS, str(BUFFER))
    tasks = local_tasks(str(context.master), context.defaultParallelism)
    heap = heap_bytes(context.getConf().get(HEAP, DEFAULT_HEAP))
    if not tasks or heap is None:
        return buffers
    share = max(LEAST_SHARE, min(MOST_SHARE, heap * 2 // 5 // tasks))
    return {**buffers, **dict.fromkeys(_SPILLED, str(share))}
