"""Has the table's contents audited while it lives, on the worker that runs the table services.

Guarantee: it neither fails nor delays a commit or a service. The audit is a process of its own at the lowest priority
of processor and disk, which ends with this worker; it compares the commits since the last one that held, and records
its answer in ZooKeeper. One that fails is tried again after `RETRY_SECONDS`, or the interval if that is shorter.
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
from sink.config import Settings
from sink.runtime.turns.pools import ServiceThread

LOG = structlog.get_logger("sink.worker")
MODULE = "sink.commands.audit_process"
RETRY_SECONDS = 900.0
LONGEST_SECONDS = 86_400.0


def audit_service(settings: Settings, record: AuditRecord) -> list[ServiceThread]:
    """Returns the audits of a membership; none where the settings want none."""
    return [AuditService(settings, record)] if settings.services_audit_ms else []


class AuditService(ServiceThread):
    """Audits for one incarnation."""

    def __init__(self, settings: Settings, record: AuditRecord) -> None:
        super().__init__("audit", self._read_record, self._audit_if_due)
        self._settings = settings
        self._record = record
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
        compared = self._last.contents if self._last else 0.0
        if time.monotonic() < self._next_attempt or 0 <= time.time() - compared < self._interval:
            return
        self._next_attempt = time.monotonic() + min(RETRY_SECONDS, self._interval)
        began = time.monotonic()
        reason = self._audit()
        self._read_record()
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
        """Returns why there is no answer; empty if one is recorded. Sends the settings through a pipe: neither the
        command line nor the environment shows keys."""
        pipe = subprocess.PIPE
        command = [sys.executable, "-m", MODULE]
        try:
            with subprocess.Popen(
                command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, env=child_environment({})
            ) as process:
                self._process = process
                if self.ended.is_set():
                    process.kill()
                try:
                    output, _ = process.communicate(pickle.dumps(self._settings), LONGEST_SECONDS)
                except subprocess.TimeoutExpired:
                    process.kill()
                    return f"it took longer than {LONGEST_SECONDS / 3600:.0f} hours"
        except OSError as error:
            return f"its process cannot be started: {error}"
        finally:
            self._process = None
        if process.returncode != 0:
            return f"its process ended with status {process.returncode}"
        answer: dict[str, Any] = json.loads(output)
        return str(answer["error"])
