"""Says whether the heap of one worker has room for all sinks of a configuration. Raises ConfigError."""

from __future__ import annotations

from sink.clients.java.heap import DEFAULT_HEAP, HEAP, require_room
from sink.clients.spark.specification import is_one_process
from sink.config import Configuration


def heap_room(fleet: Configuration, sinks: int = 0) -> str:
    """Returns a sentence on the heap of a worker of the configuration's sinks, or of so many if they are more; an empty
    text on a cluster, where the executors write. Raises ConfigError if it is too small."""
    all_settings = fleet.all_settings
    if not all_settings or not is_one_process(all_settings[0].spark_master):
        return ""
    return require_room(all_settings[0].spark.get(HEAP, DEFAULT_HEAP), max(sinks, len(fleet.sinks), 1))
