"""The answers of the addresses, as JSON: health, status, history, and the overview that the page refreshes.

Each document has a `format` number. Within one format, fields are added, never renamed or removed. Pure, except for the
clock; raises nothing.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, replace
from typing import Any

from sink.http.fleet import FleetReading, SinkNow
from sink.operations.health import Judgement
from sink.operations.remedies import finding
from sink.operations.status import FORMAT, HISTORY_LENGTH, EndedStatus, PartitionStatus, ended_status
from sink.telemetry.backlog import PartitionTrend, Trend, last_commit
from sink.telemetry.version import sink_version

STALE_SECONDS = 15.0
"""An older reading means that ZooKeeper does not answer, or that this worker has no time to look."""
POINTS = 60
"""Points of a chart."""
SHOWN_NOTES = 20


def to_bytes(document: Any) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode()


def health(fleet: FleetReading, names: Iterable[str]) -> tuple[bool, bytes]:
    """Returns whether all these sinks are healthy, and the document. A worker without sinks is not healthy."""
    age = time.monotonic() - fleet.complete_at
    sinks: dict[str, Any] = {}
    reasons: list[dict[str, str]] = []
    for name in names:
        judgement = fleet.judgement(name)
        if age > STALE_SECONDS:
            stale = finding("zookeeper", f"the last reading is {age:.0f} s old: ZooKeeper or this worker is slow")
            judgement = replace(judgement, reasons=(*judgement.reasons, stale))
        sinks[name] = _health(judgement)
        reasons += [{"sink": name, **reason} for reason in sinks[name]["reasons"]]
    if not fleet.sinks:
        reasons.append(finding("not-read", "this worker has no session of ZooKeeper yet, or hosts no sink").to_json())
    document = {"format": 1, "worker": fleet.worker, "at": fleet.at, "healthy": not reasons}
    return not reasons, to_bytes({**document, "reasons": reasons, "sinks": sinks})


def status(fleet: FleetReading, names: Iterable[str]) -> bytes:
    """Returns `sink status --json` of each sink, with the trends of repeated looks."""
    head = to_bytes({"format": FORMAT, "worker": fleet.worker, "version": sink_version(), "at": fleet.at})
    return head[:-1] + b',"sinks":[' + b",".join(to_bytes(_status(fleet, name)) for name in names) + b"]}"


def history(fleet: FleetReading, names: Iterable[str]) -> bytes:
    """Returns the last transactions of each sink, newest first."""
    sinks = {name: [asdict(ended) for ended in _ended(fleet.sinks.get(name))] for name in names}
    return to_bytes({"format": 1, "at": fleet.at, "sinks": sinks})


def overview(fleet: FleetReading, names: Iterable[str]) -> bytes:
    """Returns a line for each sink, with its charts."""
    document = {"format": 1, "worker": fleet.worker, "version": sink_version(), "at": fleet.at}
    age = round(time.monotonic() - fleet.complete_at, 1)
    sinks = [_line(fleet, name) for name in names]
    return to_bytes({**document, "age": age, "sinks": sinks})


def _ended(sink: SinkNow | None) -> Iterator[EndedStatus]:
    view = None if sink is None else sink.evidence.view
    return (ended_status(summary) for summary in reversed(() if view is None else view.ledger.history))


def _status(fleet: FleetReading, name: str) -> dict[str, Any]:
    health_document = _health(fleet.judgement(name))
    sink = fleet.sinks.get(name)
    evidence = None if sink is None else sink.evidence
    if sink is None or evidence is None or evidence.status is None or evidence.view is None:
        return {"sink": name, "health": health_document}
    # Build partitions by hand: there may be thousands, and asdict takes ten times as long.
    document = replace(evidence.status, partitions=()).to_json()
    for entry, transaction in zip(document["transactions"], evidence.view.transactions, strict=True):
        entry["entered"] = dict(transaction.header.times)
    newest = evidence.view.ledger.history[-HISTORY_LENGTH:]
    for entry, summary in zip(document["history"], reversed(newest), strict=True):
        entry["entered"] = dict(summary.times)
    trends = {
        (topic_partition.topic, topic_partition.partition): trend
        for topic_partition, trend in sink.trend.partitions.items()
    }
    recent_errors = sum(ended.errors for ended in evidence.status.history)
    return {
        **document,
        "health": health_document,
        "bad_records": {"tolerance": evidence.sink.tolerance, "recent": recent_errors},
        "waiting_seconds": round(sink.trend.age.known, 1),
        "catch_up_seconds": _rounded(sink.trend.catch_up),
        "last_commit": last_commit(evidence.view),
        "partitions": [
            _partition(partition, trends.get((partition.topic, partition.partition)))
            for partition in evidence.status.partitions
        ],
    }


def _partition(partition: PartitionStatus, trend: PartitionTrend | None) -> dict[str, Any]:
    document: dict[str, Any] = {name: getattr(partition, name) for name in PartitionStatus.__slots__}
    if trend is not None:
        document |= {
            "waiting_seconds": round(trend.age.known, 1),
            "landed_per_second": _rounded(trend.landed_per_second),
            "arrived_per_second": _rounded(trend.arrived_per_second),
            "catch_up_seconds": _rounded(trend.catch_up),
            "grows": trend.grows,
        }
    return document


def _health(judgement: Judgement) -> dict[str, Any]:
    return {
        "healthy": not judgement.reasons,
        "reasons": [reason.to_json() for reason in judgement.reasons],
        "notes": [note.to_json() for note in judgement.notes[:SHOWN_NOTES]],
    }


def _line(fleet: FleetReading, name: str) -> dict[str, Any]:
    sink = fleet.sinks.get(name)
    evidence, trend = (None, Trend(0.0)) if sink is None else (sink.evidence, sink.trend)
    commit = None if evidence is None or evidence.view is None else last_commit(evidence.view)
    samples = list(trend.samples)[-POINTS:]
    line: dict[str, Any] = {
        "sink": name,
        **_health(fleet.judgement(name)),
        "state": _state(fleet.judgement(name), evidence is not None and bool(evidence.paused)),
        "waiting_seconds": round(trend.age.known, 1),
        "catch_up_seconds": None if sink is None else _rounded(trend.catch_up),
        "commit_age": None if commit is None else round(max(0.0, fleet.at - commit), 1),
        "chart": {
            "at": [round(sample.at) for sample in samples],
            "lag": [sample.lag for sample in samples],
            "waiting": [_rounded(sample.waiting) for sample in samples],
        },
    }
    if evidence is not None and (status := evidence.status) is not None:
        line |= {
            "coordinator": status.coordinator,
            "workers": [_member(member) for member in status.members],
            "lag": status.lag,
            "partitions": len(status.partitions),
            "committed": status.committed,
            "open": [transaction.phase for transaction in status.transactions],
            "table": evidence.sink.base_path,
        }
    return line


def _member(member: Any) -> Mapping[str, Any]:
    return {name: getattr(member, name) for name in ("worker", "host", "pid", "version", "state", "role")}


def _state(judgement: Judgement, is_paused: bool) -> str:
    """Returns the most urgent state, in one word."""
    kinds = [reason.kind for reason in judgement.reasons]
    if kinds:
        return "halted" if "halted" in kinds else kinds[0]
    if is_paused:
        return "paused"
    return "behind" if any(note.kind == "falls-behind" for note in judgement.notes) else "ok"


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 1)
