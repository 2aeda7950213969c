"""Processes that ask Kafka, shared by the sinks of a worker. Raises nothing."""

from __future__ import annotations

from collections.abc import Mapping

from sink.clients.kafka_groups import GroupCommitter
from sink.clients.kafka_process import LogProcess
from sink.clients.shared_log import SharedLog
from sink.config import Settings


class KafkaProcesses:
    """Gives two processes for each Kafka cluster and way to reach it, whatever the number of sinks: one for the
    coordinators, and one for metrics and tools.
    """

    def __init__(self) -> None:
        self._by_settings: dict[tuple[tuple[str, str], ...], SharedLog] = {}
        self._groups: dict[tuple[tuple[str, str], ...], GroupCommitter] = {}

    def log_of(self, settings: Settings) -> SharedLog:
        native: Mapping[str, str] = settings.kafka_native
        return self._by_settings.setdefault(tuple(sorted(native.items())), SharedLog(LogProcess(native)))

    def groups(self, settings: Settings) -> GroupCommitter:
        native: Mapping[str, str] = settings.kafka_native
        return self._groups.setdefault(tuple(sorted(native.items())), GroupCommitter(native))

    def close(self) -> None:
        for committer in self._groups.values():
            committer.close()
        for log in self._by_settings.values():
            log.close()
