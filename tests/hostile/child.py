"""`python -m tests.hostile.child`: parses the inputs that standard input names, one a line, in this process.

Before and after each it writes a line of JSON: seconds of processor time, the growth of the process's largest memory,
the size of the input, and what the parser raised if that is not a refusal. The parent ends a process that is silent.
"""

from __future__ import annotations

import json
import re
import resource
import sys
import time
import warnings
from pathlib import Path

import structlog

from tests.hostile import corpus
from tests.hostile.parsers import PARSERS, REFUSALS

MOST_MEMORY = 6 << 30
"""Address space: a bomb ends this process and not the machine."""


def peak_bytes() -> int:
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return int(found[1]) * 1024 if found else 0


def parse(parser: str, data: bytes) -> str:
    """Returns what is wrong with the parser, or nothing."""
    try:
        PARSERS[parser](data)
    except REFUSALS:
        return ""
    except (Exception, RecursionError) as error:  # noqa: BLE001 - whatever it is, it is reported
        return f"{type(error).__name__}: {str(error)[:300]}"
    return ""


def fault_of(parser: str, data: bytes, most_seconds: float, most_mb: int) -> str:
    """Returns what is wrong with the parser, be it how long it took or how far the process's peak rose."""
    before, start = peak_bytes(), time.process_time()
    fault = parse(parser, data)
    seconds, grown = time.process_time() - start, (peak_bytes() - before) >> 20
    return fault or (f"{seconds:.1f} s, {grown} MB" if seconds > most_seconds or grown > most_mb else "")


def main() -> None:
    warnings.simplefilter("ignore")
    # Standard output is the parent's.
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
    for parser in PARSERS:
        # Imports and caches are not input's.
        parse(parser, b"{}")
    for line in sys.stdin:
        parser, name = line.split()
        data = corpus.content(parser, name)
        print(json.dumps({"begun": f"{parser} {name}"}), flush=True)
        Path("/proc/self/clear_refs").write_text("5")
        before, start = peak_bytes(), time.process_time()
        fault = parse(parser, data)
        seconds, grown = time.process_time() - start, peak_bytes() - before
        print(json.dumps({"seconds": seconds, "bytes": grown, "size": len(data), "fault": fault}), flush=True)


if __name__ == "__main__":
    main()
