"""The error of a Spark task, on its way through Spark to the driver.

A task's exception reaches the driver as text, in a chain of Java's and Python's own. Guarantee: `task_error` finds what
`failed_task` made, whatever stands around it. Raises nothing on purpose.
"""

from __future__ import annotations

import json

from coordination.errors import BadRecord, DataLoss
from sink.clients.java_errors import error_text

_MARK = "sink-task-error:"
_KINDS: dict[str, type[BadRecord] | type[DataLoss]] = {kind.__name__: kind for kind in (BadRecord, DataLoss)}


class TaskFailed(Exception):
    """Ends a task; its text carries the error."""


def failed_task(error: BadRecord | DataLoss) -> TaskFailed:
    """To be raised `from None`: the text of a cause would come first, and may quote a record that holds the mark."""
    carried = [type(error).__name__, error.topic, error.partition, error.offset, error.reason]
    return TaskFailed(_MARK + json.dumps(carried))


def task_error(error: BaseException) -> BadRecord | DataLoss | None:
    """The error that a task of this job ended with; None where it ended with another one."""
    _, mark, rest = error_text(error).partition(_MARK)
    if not mark:
        return None
    kind, topic, partition, offset, reason = json.JSONDecoder().raw_decode(rest)[0]
    return _KINDS[kind](topic, partition, offset, reason)
