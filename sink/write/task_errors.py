"""Carries BadRecord and DataLoss of a Spark task to the driver.

Spark gives the driver the task's exception as text, within messages of Java and Python. Guarantee: `task_error` finds
the error that `failed_task` wrote, whatever surrounds it. Raises nothing on purpose.
"""

from __future__ import annotations

import json

from coordination.errors import BadRecord, DataLoss
from sink.clients.java_errors import error_text

_MARK = "sink-task-error:"
_KINDS: dict[str, type[BadRecord] | type[DataLoss]] = {kind.__name__: kind for kind in (BadRecord, DataLoss)}


class TaskFailed(Exception):
    """Fails a task. Its text contains the error."""


def failed_task(error: BadRecord | DataLoss) -> TaskFailed:
    """Makes the exception of a task. Raise it `from None`: Python prints a cause first, and a cause may quote a record
    that contains the mark."""
    fields = [type(error).__name__, error.topic, error.partition, error.offset, error.reason]
    return TaskFailed(_MARK + json.dumps(fields))


def task_error(error: BaseException) -> BadRecord | DataLoss | None:
    """Returns the error that `failed_task` wrote; None if the job failed for another reason."""
    _, mark, encoded = error_text(error).partition(_MARK)
    if not mark:
        return None
    kind, topic, partition, offset, reason = json.JSONDecoder().raw_decode(encoded)[0]
    return _KINDS[kind](topic, partition, offset, reason)
