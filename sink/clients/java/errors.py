"""Summaries of exceptions, for logs and errors. Java exceptions come through py4j: the summary has the chain of causes,
outermost first, without stack traces.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException

JAVA_ERRORS = (Py4JError, PySparkException)
"""The errors that a call of Java raises. PySpark converts some of Java's exceptions, like IllegalArgumentException."""
_CAUSES_MAX = 20
_LENGTH = 600
_SHORTEST = 60
"""The characters that each wrapper keeps at least: the name of its class."""
_BETWEEN = "; caused by "


def causes(error: Py4JJavaError) -> list[str]:
    """Returns the class names from the outermost exception to the root."""
    return [str(cause.getClass().getName()) for cause in _chain(error)]


def message(error: BaseException, length: int = _LENGTH) -> str:
    """Returns the chain of causes in one line, outermost first, without repetitions; for an error that is not Java's,
    its class and first line. If it is too long, the wrappers are cut first, and the root last."""
    chain = list(_chain(error))
    if not chain:
        return f"{type(error).__name__}: {_first_line(str(error).strip())}"
    lines: list[str] = []
    for cause in chain:
        line = _in_one_line(str(cause.toString()))
        # Java's wrappers repeat what they wrap.
        if not any(line in earlier for earlier in lines):
            lines.append(line)
    if len(_BETWEEN.join(lines)) > length:
        *wrappers, root = lines
        root = _cut(root, max(length // 2, length - sum(map(len, wrappers))))
        room = (length - len(root)) // max(len(wrappers), 1) - len(_BETWEEN)
        lines = [*(_cut(wrapper, max(room, _SHORTEST)) for wrapper in wrappers), root]
    return _BETWEEN.join(lines)


def _cut(line: str, length: int) -> str:
    return line if len(line) <= length else f"{line[: length - 3]}..."


def error_text(error: BaseException) -> str:
    """Returns all lines of all causes, because Hudi wraps the errors of tasks."""
    return "\n".join(str(cause.toString()) for cause in _chain(error)) or str(error)


def error_summary(error: BaseException) -> str:
    """Returns an error in one line: a Java error with its causes, a Python traceback by its last line."""
    if any(True for _ in _chain(error)):
        return message(error)
    return f"{type(error).__name__}: {_in_one_line(str(error))}"[:_LENGTH]


def _chain(error: BaseException) -> Iterator[Any]:
    """Yields Java's exceptions, outermost first; none if the error is not Java's."""
    cause = error.java_exception if isinstance(error, Py4JJavaError) else getattr(error, "_origin", None)
    for _ in range(_CAUSES_MAX):
        if cause is None:
            return
        yield cause
        cause = cause.getCause()


def _in_one_line(description: str) -> str:
    description, _, _ = description.partition("\n\tat ")
    lines = [line.strip() for line in description.splitlines() if line.strip()]
    return " ".join(lines[-1:] if "Traceback (most recent call last):" in description else lines[:3])


def _first_line(description: str) -> str:
    return description.partition("\n")[0]
