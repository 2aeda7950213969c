"""Reads a table on storage for the page (files, instants, bad records by reason) in a process of its own.

A hanging store blocks that process only, its memory ends with it, and it runs at low priority. Guarantee: one reading
at a time, at most one a minute and sink; further clients get the last one. Raises Unavailable if no answer comes in
time, or another reading is under way.
"""

from __future__ import annotations

import json
import os
import pickle
import shlex
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from coordination.errors import SinkError, Unavailable
from sink.clients.host.child_environment import child_environment
from sink.storage.access import Access

AGE_SECONDS = 60.0
LONGEST_SECONDS = 60.0
GROUPS = 20
NICE = 15


@dataclass(frozen=True, slots=True)
class TableQuestion:
    sink: str
    base_path: str
    errors_base_path: str
    access: Access


class TableSummaryProcess:
    """Any thread may call it."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._ended = False
        self._reading = threading.Lock()
        self._cache: dict[str, tuple[float, Mapping[str, Any]]] = {}

    def close(self) -> None:
        """Ends a reading that is under way."""
        self._ended = True
        if (process := self._process) is not None:
            process.kill()

    def report_of(self, question: TableQuestion) -> Mapping[str, Any]:
        """Returns a document for JSON, at most a minute old; `age` is its age in seconds."""
        cached = self._cache.get(question.sink)
        if cached is None or time.monotonic() - cached[0] > AGE_SECONDS:
            if not self._reading.acquire(blocking=False):
                raise Unavailable("another table is being read. Ask again in some seconds.")
            try:
                cached = self._cache[question.sink] = time.monotonic(), self._ask(question)
            finally:
                self._reading.release()
        return {"sink": question.sink, "age": round(time.monotonic() - cached[0], 1), **cached[1]}

    def _ask(self, question: TableQuestion) -> Mapping[str, Any]:
        """Runs the process. Sends keys through a pipe: neither the command line nor the environment shows them."""
        command = [sys.executable, "-m", "sink.http.table_process"]
        pipe = subprocess.PIPE
        try:
            process = subprocess.Popen(
                command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, env=child_environment({})
            )
        except OSError as error:
            raise Unavailable(f"the process that reads the table cannot be started: {error}") from error
        self._process = process
        with process:
            try:
                if self._ended:
                    process.kill()
                answer, _ = process.communicate(pickle.dumps(question), LONGEST_SECONDS)
            except subprocess.TimeoutExpired as error:
                process.kill()
                raise Unavailable(f"the store gave no answer within {LONGEST_SECONDS:.0f} s") from error
            finally:
                self._process = None
        if process.returncode != 0:
            raise Unavailable(f"the process that reads the table ended with status {process.returncode}. Ask again.")
        document: Mapping[str, Any] = json.loads(answer)
        return document


def replay_command(group: Mapping[str, Any]) -> str:
    """Returns a shell command. A reason quotes records: one that a shell or terminal could act upon is left out."""
    command, reason, first = "sink errors replay --config FILE", group["reason"], group["first"]
    if reason.isascii() and reason.isprintable():
        return f"{command} --reason={shlex.quote(reason)}"
    topic, partition, offset = shlex.quote(first["topic"]), int(first["partition"]), int(first["offset"])
    return f"{command} --topic={topic} --partition={partition} --offset={offset}"


def _table(question: TableQuestion) -> Mapping[str, Any]:
    from hudi import HudiReadOptions

    from sink.hudi.commits import active_names, any_commit
    from sink.storage.hudi_rs import rust_table
    from sink.storage.table_files import open_table

    table_files = open_table(question.base_path, question.access)
    names = active_names(table_files)
    if not any_commit(names):
        return {"files": 0, "bytes": 0, "instants": 0}
    file_slices = rust_table(table_files).get_file_slices(HudiReadOptions())
    instants = {name.partition("_")[0] for name in names if "_" in name}
    return {
        "files": len(file_slices),
        "bytes": sum(file_slice.total_size_bytes() for file_slice in file_slices),
        "instants": len(instants),
    }


def _bad_records(question: TableQuestion) -> Mapping[str, Any]:
    from sink.bad_records.listing import group_errors
    from sink.bad_records.selection import Selection
    from sink.hudi.files import Content, inspect_base_path

    if inspect_base_path(question.errors_base_path, question.access).content is Content.NOTHING:
        return {"groups": []}
    groups = group_errors(question.errors_base_path, question.access, Selection(question.sink), "reason", GROUPS)
    return {"groups": [{**group, "replay": replay_command(group)} for group in groups]}


def _read_part(read: Callable[[TableQuestion], Mapping[str, Any]], question: TableQuestion) -> Mapping[str, Any]:
    try:
        return read(question)
    except SinkError as error:
        return {"error": str(error)}
    except Exception as error:  # noqa: BLE001 (hudi-rs raises any exception, and one part must not hide the other)
        return {"error": repr(error)[:300]}


def main() -> None:
    os.nice(NICE)
    question = pickle.loads(sys.stdin.buffer.read())
    document = {"table": _read_part(_table, question), "bad_records": _read_part(_bad_records, question)}
    sys.stdout.write(json.dumps(document, default=str))


if __name__ == "__main__":
    main()
