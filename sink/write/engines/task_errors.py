"""Carries BadRecord, DataLoss, DamagedLog, WrongLog and RegistryUnavailable of a Spark task to the driver.

Spark gives the driver the task's exception as text, within messages of Java and Python. Guarantee: `task_error` finds
the error that `failed_task` wrote, whatever surrounds it. Raises nothing on purpose.
"""

from __future__ import annotations

import json

from coordination.errors import BadRecord, DamagedLog, DataLoss, WrongLog
from sink.clients.java.errors import error_text
from sink.decode.registry.answers import RegistryUnavailable

_MARK = "sink-task-error:"
TaskError = BadRecord | DataLoss | DamagedLog | WrongLog | RegistryUnavailable
_KINDS: dict[str, type[TaskError]] = {
    kind.__name__: kind for kind in (BadRecord, DataLoss, DamagedLog, WrongLog, RegistryUnavailable)
}


class TaskFailed(Exception):
    """Fails a task. Its text contains the error."""


def failed_task(error: TaskError) -> TaskFailed:
    """Makes the exception of a task. Raise it `from None`: Python prints a cause first, and a cause may quote a record
    that contains the mark."""
    return TaskFailed(_MARK + json.dumps([type(error).__name__, *error.__reduce__()[1]]))


def task_error(error: BaseException) -> TaskError | None:
    """Returns the error that `failed_task` wrote; None if the job failed for another reason."""
    _, mark, encoded = error_text(error).partition(_MARK)
    if not mark:
        return None
    kind, *arguments = json.JSONDecoder().raw_decode(encoded)[0]
    return _KINDS[kind](*arguments)
