"""Runs one table service and reports its outcome."""

from __future__ import annotations

import time
from collections.abc import Callable

from coordination.errors import Conflict
from coordination.zookeeper.table_service_lock import ServiceOutcome
from sink.clients.java.errors import message

_REASON = 300


class ServiceBlocked(Conflict):
    """Another writer keeps the service from its work, `since` a time in seconds since 1970."""

    def __init__(self, text: str, since: float) -> None:
        super().__init__(text)
        self.since = since


def run_service(name: str, service: Callable[[], str]) -> ServiceOutcome:
    """Runs the service, which returns the instant of its commit, if it made one. A failure becomes the reason, whatever
    it is: a defect, too, keeps the service from its work.
    """
    began = time.monotonic()
    instant, reason, since = "", "", 0.0
    try:
        instant = service()
    except Exception as error:  # noqa: BLE001
        reason = message(error, _REASON)
        since = error.since if isinstance(error, ServiceBlocked) else 0.0
    return ServiceOutcome(name, round(time.monotonic() - began, 3), instant, reason, since)
