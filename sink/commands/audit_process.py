"""One audit of a table's contents, for the worker that starts it: `sink.runtime.sinks.audit_service`.

Gets the settings through standard input. Compares the commits since the last audit of contents that held, and records
the answer. Prints a JSON object whose `error` is why there is none.
"""

from __future__ import annotations

import json
import os
import pickle
import sys
from contextlib import suppress

import psutil

from coordination.errors import SinkError
from coordination.zookeeper.records import AuditRecord
from sink.audit.orphans import end_with_parent
from sink.clients.zookeeper.session import connected
from sink.commands.audit import after, audit_sink, record
from sink.config import Settings

LOWEST = 19


def main() -> None:
    os.nice(LOWEST)
    with suppress(AttributeError, OSError):
        psutil.Process().ionice(psutil.IOPRIO_CLASS_IDLE)
    end_with_parent()
    try:
        _audit(pickle.loads(sys.stdin.buffer.read()))
    except SinkError as error:
        print(json.dumps({"error": str(error)}))
    else:
        print(json.dumps({"error": ""}))


def _audit(settings: Settings) -> None:
    from sink.audit.coverage import Coverage
    from sink.audit.progress import silent

    with connected(settings.ensemble) as client:
        last = AuditRecord(client, settings.root_znode).last()
    coverage = Coverage(after(last.through) if last is not None and last.through else "")
    report = audit_sink(settings, log=True, content=True, coverage=coverage, progress=silent)
    record([(settings, report)], coverage)


if __name__ == "__main__":
    main()
