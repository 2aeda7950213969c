"""Ctrl-C while a program still imports its modules: what it prints and its exit status are those of later, too.

Imports take a second or more, and an exception in the middle of one is a traceback of other people's modules.
"""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

EXIT_INTERRUPTED = 130


@contextmanager
def quiet_interrupt() -> Iterator[None]:
    """SIGINT ends the process at once, with one line. A SIGINT that was ignored stays ignored."""
    before = signal.getsignal(signal.SIGINT)
    if before is signal.SIG_IGN:
        yield
        return
    signal.signal(signal.SIGINT, _end)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _end(_signum: int, _frame: object) -> None:
    os.write(2, b"sink: interrupted\n")
    os._exit(EXIT_INTERRUPTED)
