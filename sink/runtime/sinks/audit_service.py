"""Audits the table's contents every `services.audit.interval`, on the worker that runs the table services.

Guarantee: a failed audit fails no commit and no table service. Each audit is a process of its own with the lowest CPU
and disk priority, which ends with the worker. It compares the commits since the last audit that held, and records its
result in ZooKeeper. If an audit gives no result, the next one starts after `RETRY_SECONDS`, or after the interval if
that is shorter.
"""

from __future__ import annotations

import json
import math
import pickle
import subprocess
import sys
import time
from typing import Any

import structlog

from coordination.zookeeper.records import AuditAnswer, AuditRecord
from sink.clients.host.child_environment import child_environment
from sink.clients.java.heap import DEFAULT_HEAP, HEAP, heap_bytes
from sink.config import Settings
from sink.runtime.turns.pools import ServiceThread

LOG = structlog.get_logger("sink.worker")
MODULE = "sink.commands.audit_process"
RETRY_SECONDS = 900.0
MAX_AUDIT_SECONDS = 86_400.0
"""An audit that takes longer is killed."""
_MEMORY = 4 << 30
"""Bytes that an audit's process may have, without the heap of a JVM. Its databases take 1.3 GB at most, and what grows
with the table is on disk."""


def audit_threads(settings: Settings, record: AuditRecord) -> list[ServiceThread]:
    """Returns the audit thread of a sink, in a list; an empty list if `services.audit.interval` is 0."""
    return [AuditService(settings, record)] if settings.services_audit_ms else []


class AuditService(ServiceThread):
    """Audits the table while this worker holds the lock of the table services. After that, an audit under way goes
    on."""

    def __init__(self, settings: Settings, record: AuditRecord, memory: int = _MEMORY) -> None:
        super().__init__("audit", self._read_record, self._audit_if_due)
        self._settings = settings
        self._record = record
        # A JVM that the audit starts has the same bound.
        self._most_bytes = memory + (heap_bytes(settings.spark.get(HEAP, DEFAULT_HEAP)) or 0)
        self._interval = settings.services_audit_ms / 1000
        self._last: AuditAnswer | None = None
        self._next_attempt = -math.inf
        self._process: subprocess.Popen[bytes] | None = None

    def stop(self) -> None:
        super().stop()
        if (process := self._process) is not None:
            process.kill()

    def _read_record(self) -> None:
        self._last = self._record.last()

    def _audit_if_due(self) -> None:
        # Wall-clock time, which another worker may have recorded: a time in the future does not postpone the audit.
        compared_at = self._last.contents if self._last else 0.0
        if time.monotonic() < self._next_attempt or 0 <= time.time() - compared_at < self._interval:
            return
        self._next_attempt = time.monotonic() + min(RETRY_SECONDS, self._interval)
        began = time.monotonic()
        reason, previous = self._audit(), self._last
        self._read_record()
        if not reason and self._last == previous:
            reason = "its result is not in ZooKeeper"
        if self.ended.is_set():
            return
        seconds = round(time.monotonic() - began, 1)
        if reason:
            LOG.warning("audit.failed", seconds=seconds, reason=reason)
        elif self._last is not None and not self._last.held:
            LOG.error("audit.not_held", seconds=seconds, reason=self._last.summary)
        elif self._last is not None:
            LOG.info("audit.held", seconds=seconds, rows=self._last.rows, compared=self._last.compared)

    def _audit(self) -> str:
        """Runs one audit. Returns why it gave no result; empty if it ended. The settings go through a pipe, because
        others on the host can read a command line and an environment, and the settings contain secrets."""
        pipe = subprocess.PIPE
        command = [sys.executable, "-m", MODULE, str(self._most_bytes)]
        try:
            with subprocess.Popen(
                command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, env=child_environment({})
            ) as process:
                self._process = process
                if self.ended.is_set():
                    process.kill()
                try:
                    output, _ = process.communicate(pickle.dumps(self._settings), MAX_AUDIT_SECONDS)
                except subprocess.TimeoutExpired:
                    process.kill()
                    return f"the audit took longer than {MAX_AUDIT_SECONDS / 3600:.0f} hours"
        except OSError as error:
            return f"the audit's process cannot be started ({error})"
        finally:
            self._process = None
        if process.returncode != 0:
            return (
                f"the audit's process ended with status {process.returncode}. It may have"
                f" {self._most_bytes >> 20:,} MiB of memory: run `sink audit --content` to see whether it needs more."
            )
        answer: dict[str, Any] = json.loads(output)
        return str(answer["error"])
