"""What a Java exception says through py4j: its chain of causes, outermost first, without stack traces; and any
exception in one line.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException

JAVA_ERRORS = (Py4JError, PySparkException)
"""What a call of Java raises: some of Java's exceptions, like IllegalArgumentException, become PySpark's own."""
_CAUSES_MAX = 20
_OUT_OF_MEMORY = ("OutOfMemoryError", "MemoryError", "ArrowMemoryError")


def causes(error: Py4JJavaError) -> list[str]:
    """Class names from the outermost exception to the root."""
    return [str(cause.getClass().getName()) for cause in _chain(error)]


def message(error: BaseException) -> str:
    """What Java said, outermost and root, a line each at most; of another error, its class and first line."""
    if not isinstance(error, Py4JJavaError):
        return f"{type(error).__name__}: {_first_line(str(error).strip())}"
    said = [_first_line(str(cause.toString())) for cause in _chain(error)]
    return said[0] if len(said) == 1 else f"{said[0]} (cause: {said[-1]})"


def everything(error: BaseException) -> str:
    """All lines of all causes: Hudi wraps what a task said."""
    if not isinstance(error, Py4JJavaError):
        return str(error)
    return "\n".join(str(cause.toString()) for cause in _chain(error))


def is_out_of_memory(error: BaseException) -> bool:
    """Whether a JVM, Python or Arrow had not enough memory, here or in a task: told by the names of what they raise."""
    return isinstance(error, MemoryError) or any(name in everything(error) for name in _OUT_OF_MEMORY)


def said(error: BaseException) -> str:
    """An error in one line: its first lines without Java's stack trace, or what a Python traceback ends with."""
    text, _, _ = str(error).partition("\n\tat ")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    told = lines[-1:] if "Traceback (most recent call last):" in lines else lines[:3]
    return f"{type(error).__name__}: {' '.join(told)}"[:500]


def _chain(error: Py4JJavaError) -> Iterator[Any]:
    cause = error.java_exception
    for _ in range(_CAUSES_MAX):
        if cause is None:
            return
        yield cause
        cause = cause.getCause()


def _first_line(text: str) -> str:
    return text.partition("\n")[0]
