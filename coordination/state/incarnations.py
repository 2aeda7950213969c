"""Names of a worker's starts. Raises nothing."""

from __future__ import annotations


def worker_of(incarnation: str) -> str:
    """Returns the worker's id of `<worker id>:<uuid of this start>`."""
    return incarnation.rpartition(":")[0]
