"""Gathers the facts for a report of a defect: versions, settings, checks of servers, states of sinks, ends of logs.

Guarantee: a part that cannot be gathered holds the reason, and the other parts are complete. Every text passes the
redactor: no secret of the settings, no password in a URL. Changes nothing. Raises nothing.
"""

from __future__ import annotations

import json
import os
import platform
import sys
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import partial
from itertools import chain
from pathlib import Path

from coordination.errors import SinkError
from coordination.state.versions import PROTOCOL
from sink.clients.host.regular_files import open_regular
from sink.clients.java.installation import BROKER_VERSIONS, SPARK_VERSIONS, find_java
from sink.clients.spark.storage_probe import Jvm, SharedJvms
from sink.clients.zookeeper.session import connected
from sink.config import Configuration, Settings, load_configuration
from sink.operations.chosen import SIDE_BY_SIDE, known_sinks
from sink.operations.many_statuses import ManyStatuses
from sink.operations.observed_sink import observed_sink
from sink.operations.validation import validate
from sink.telemetry.redaction import Redactor
from sink.telemetry.version import dependency_versions, sink_version

LOG_LINES = 200
LOG_FILES = 10
TAIL_BYTES = 1 << 20
LOGS_LEFT_OUT = "left out: while settings cannot be used, no secret of theirs is known. Fix them, and gather again.\n"


@dataclass(frozen=True, slots=True)
class ReportPart:
    """One file of the report."""

    name: str
    text: str


def diagnose(config: Path, logs: Sequence[Path] = ()) -> list[ReportPart]:
    """Gathers the report. `logs`: log files in addition to those in `log.dir`."""
    redactor = Redactor()
    gathered = [_gather_part("versions.txt", _versions)]
    try:
        fleet = load_configuration(config, strict=False)
    except (SinkError, OSError) as error:
        gathered.append(ReportPart("settings.txt", f"cannot be used:\n{error}\n"))
        gathered.append(ReportPart("logs.txt", LOGS_LEFT_OUT))
    else:
        redactor = Redactor(fleet.secrets)
        gathered.append(_gather_part("settings.txt", partial(_settings, fleet)))
        sinks = fleet.sinks
        try:
            sinks = known_sinks(fleet).sinks
        except SinkError as error:
            gathered.append(ReportPart("patterns.txt", f"could not be gathered: {error}\n"))
        with SharedJvms() as jvms, ThreadPoolExecutor(SIDE_BY_SIDE, "sinks") as pool:
            gathered += chain.from_iterable(pool.map(partial(_parts_of_sink, jvms.running), sinks))
        directories = {process.log_dir for process in (fleet.process, *sinks)}
        gathered += _logs(sorted(directories), logs)
    return [ReportPart(part.name, redactor.text(part.text)) for part in gathered]


def _gather_part(name: str, gather: Callable[[], str]) -> ReportPart:
    try:
        return ReportPart(name, gather())
    except Exception as error:  # noqa: BLE001 (a report is needed most if nothing works)
        return ReportPart(name, f"could not be gathered: {type(error).__name__}: {error}\n")


def _versions() -> str:
    memory = Path("/proc/meminfo").read_text().splitlines()
    lines = [
        f"at {datetime.now(timezone.utc).isoformat(timespec='seconds')}",
        f"sink {sink_version()}",
        f"protocol {PROTOCOL}",
        f"python {platform.python_version()} at {sys.executable}",
        *(f"{name} {version}" for name, version in dependency_versions().items()),
        *(_java(use, versions) for use, versions in (("Spark", SPARK_VERSIONS), ("a broker", BROKER_VERSIONS))),
        f"{platform.platform()}, {os.cpu_count()} cores",
        *(line for line in memory if line.startswith(("MemTotal", "MemAvailable", "SwapTotal", "SwapFree"))),
        *(f"{name} is set" for name in sorted(os.environ) if name.startswith(("SINK_", "SPARK_", "HADOOP_", "JAVA_"))),
    ]
    return "".join(f"{line}\n" for line in lines)


def _java(use: str, versions: tuple[int, ...]) -> str:
    try:
        java = find_java(versions)
    except SinkError as error:
        return f"java for {use}: {error}"
    return f"java for {use}: {java.version} at {java.binary}"


def _settings(fleet: Configuration) -> str:
    """Returns the effective settings, including defaults."""
    documents: dict[str, object] = {name: sink.reason for name, sink in fleet.misconfigured.items()}
    for settings in fleet.all_settings:
        document = settings.model_dump(mode="json", by_alias=True)
        document |= {"config digest": settings.config_digest}
        documents[settings.name] = document
    return json.dumps(documents, indent=2, default=str) + "\n"


def _parts_of_sink(jvm: Jvm, settings: Settings) -> list[ReportPart]:
    return [
        _gather_part(f"{settings.name}/validate.txt", partial(_checks, settings, jvm)),
        _gather_part(f"{settings.name}/status.json", partial(_status, settings)),
    ]


def _checks(settings: Settings, jvm: Jvm) -> str:
    results = validate(settings, jvm=jvm)
    marks = ("wrong" if check.wrong else "note" if check.note else "ok" for check in results)
    lines = (f"{mark:<6} {check.part:<10} {check.sentence}\n" for mark, check in zip(marks, results, strict=True))
    return "".join(lines)


def _status(settings: Settings) -> str:
    with connected(settings.ensemble) as client:
        (look,) = ManyStatuses(client, [observed_sink(settings)], lag=True).read()
    if look.reading is None:
        return f"{look.error}\n"
    return json.dumps(look.reading.status.to_json(), indent=2) + "\n"


def _logs(directories: Sequence[Path], extra_files: Sequence[Path]) -> Iterator[ReportPart]:
    """Yields the last lines of `extra_files` and of the newest log files."""
    written_at: dict[Path, float] = {}
    for file in (file for directory in directories for file in directory.glob("*.log")):
        # A file may be rotated away meanwhile.
        with suppress(FileNotFoundError):
            written_at[file] = file.lstat().st_mtime
    newest = sorted(written_at, key=lambda file: written_at[file], reverse=True)[:LOG_FILES]
    names: Counter[str] = Counter()
    for file in (*extra_files, *newest):
        names[file.name] += 1
        number = names[file.name]
        yield _gather_part(f"logs/{file.name if number == 1 else f'{number}-{file.name}'}", partial(_tail, file))


def _tail(file: Path) -> str:
    """Returns the last lines, or why there are none. The user of the worker must not choose what root reads."""
    try:
        with open(open_regular(file, os.O_RDONLY), "rb") as log:
            log.seek(max(0, os.fstat(log.fileno()).st_size - TAIL_BYTES))
            lines = deque(log.read(TAIL_BYTES).decode(errors="replace").splitlines(), maxlen=LOG_LINES)
    except OSError as error:
        return f"left out: {file} cannot be read ({error.strerror})\n"
    return "".join(f"{line}\n" for line in lines)
