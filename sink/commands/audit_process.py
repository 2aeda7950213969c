"""One audit of a table's contents, for the worker that starts it: `sink.runtime.sinks.audit_service`.

Gets the settings through standard input, and the most bytes of memory that it may have as its only argument: a record
that is made to hurt a reader ends the audit, and no worker beside it. Compares the commits since the last audit of
contents that held, and records the answer. Prints a JSON object whose `error` is why there is none.
"""

from __future__ import annotations

import json
import os
import pickle
import resource
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
OUT_OF_MEMORY = "the audit needs more memory than its process may have: run `sink audit --content`."


def main() -> None:
    os.nice(LOWEST)
    with suppress(AttributeError, OSError):
        psutil.Process().ionice(psutil.IOPRIO_CLASS_IDLE)
    end_with_parent()
    most = int(sys.argv[1])
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))
    try:
        _audit(pickle.loads(sys.stdin.buffer.read()))
    except SinkError as error:
        print(json.dumps({"error": str(error)}))
    except MemoryError:
        print(json.dumps({"error": OUT_OF_MEMORY}))
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
