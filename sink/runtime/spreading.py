"""Shares out the coordinators of many sinks over the workers: who leads too many hands some over. Pure.

Each worker decides for itself, by the records of all. Guarantee: a worker hands a sink over only while it leads at
least two more than a worker that could take it, so that no sink goes back and forth between two workers; one that is
about to end, or has not joined the sink, is given nothing. A sink that ails counts for nobody and is not handed over:
its coordinators take turns by themselves, and the others' would follow.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from coordination.zookeeper.worker_records import WorkerRecord


def to_hand_over(worker: str, records: Iterable[WorkerRecord], asked: Collection[str]) -> str | None:
    """The sink that `worker` should hand over next; None while its share is fair. `asked`: sinks that it hands over
    already.
    """
    records = tuple(records)
    ailing = {name for record in records for name, sink in record.sinks.items() if sink.ailing}
    shares = {record.worker: [name for name in record.leads if name not in ailing] for record in records}
    mine = next((record for record in records if record.worker == worker), None)
    if mine is None or mine.draining:
        return None
    share = shares[worker]
    load = len(share) - len(set(asked) & set(share))
    rest = [record for record in records if record.worker != worker and not record.draining]
    for sink in share:
        if sink in asked:
            continue
        takers = [len(shares[record.worker]) for record in rest if sink in record.joined]
        if takers and load - (min(takers) + len(asked)) >= 2:
            return sink
    return None
