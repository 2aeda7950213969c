"""Runs one table service and tells its outcome."""

from __future__ import annotations

import time
from collections.abc import Callable

from coordination.errors import SinkError
from coordination.zookeeper.table_service_lock import Service
from sink.clients.java_errors import JAVA_ERRORS, message

_REASON = 300


def run_service(name: str, service: Callable[[], str]) -> Service:
    """Runs the service, which returns the instant of its commit, if it made one. A failure becomes the reason."""
    began = time.monotonic()
    instant, reason = "", ""
    try:
        instant = service()
    except (SinkError, *JAVA_ERRORS, OSError) as error:
        reason = message(error, _REASON)
    return Service(name, round(time.monotonic() - began, 3), instant, reason)
