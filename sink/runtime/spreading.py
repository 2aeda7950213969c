"""Shares out the coordinators of many sinks over the workers: a worker that carries too much hands some over. Pure.

Each worker decides for itself, by the records of all. Guarantee: a worker hands a sink over only while it carries more
than a worker that could take it by at least twice the sink's weight, so that no sink goes back and forth between two
workers; a worker that is about to end, or has not joined the sink, gets nothing. A sink that ails counts for no worker
and is not handed over: its coordinators take turns by themselves, and those of other sinks would follow.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from coordination.zookeeper.worker_records import WorkerRecord

MOST_AN_HOUR = 3600


def weight(interval: float) -> int:
    """Returns the transactions an hour that an interval of so many seconds allows. It never changes: a weight that did
    would keep coordinators moving.
    """
    return max(1, round(min(MOST_AN_HOUR, 3600 / max(interval, 1e-3))))


def to_hand_over(worker: str, records: Iterable[WorkerRecord], handed_over: Collection[str]) -> str | None:
    """Names the sink that `worker` should hand over next, the heaviest that fits; None while its share is fair.
    `handed_over`: sinks that it hands over already.
    """
    records = tuple(records)
    ailing = {name for record in records for name, sink in record.sinks.items() if sink.ailing}
    shares = {record.worker: _weights(record, ailing) for record in records}
    own_record = next((record for record in records if record.worker == worker), None)
    if own_record is None or own_record.draining:
        return None
    share = shares[worker]
    leaving = sum(sink_weight for sink, sink_weight in share.items() if sink in handed_over)
    load = sum(share.values()) - leaving
    other_records = [record for record in records if record.worker != worker and not record.draining]
    for sink, sink_weight in sorted(share.items(), key=lambda item: -item[1]):
        takers = [sum(shares[record.worker].values()) for record in other_records if sink in record.joined]
        if sink not in handed_over and takers and load - (min(takers) + leaving) >= 2 * sink_weight:
            return sink
    return None


def _weights(record: WorkerRecord, ailing: Collection[str]) -> Mapping[str, int]:
    """Returns the weights of the sinks that it leads, by name."""
    return {name: record.sinks[name].weight for name in record.leads if name not in ailing}
