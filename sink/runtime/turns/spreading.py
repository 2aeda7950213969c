"""Shares out the coordinators of many sinks over the workers: a worker that carries too much hands some over. Pure.

Each worker decides for itself, by the summaries of all workers and the records of those with room. Guarantee: a worker
hands a sink over only while it carries more than a worker that could take it by at least twice the sink's
weight, so that no sink goes back and forth between two workers; a worker that is about to end, or has not joined the
sink, gets nothing. An impaired sink is not counted and never handed over: its coordinators take turns by
themselves, and those of other sinks would follow.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from coordination.zookeeper.worker_records import WorkerRecord
from coordination.zookeeper.worker_summaries import WorkerSummary

MOST_AN_HOUR = 3600
IMPAIRED_SECONDS = 180.0
"""A sink is impaired while a request of its coordinator takes longer than this, and this long after its last fault.
Coordinators of a sink whose store is away take turns in a shorter time."""


def weight(interval: float) -> int:
    """Returns the transactions an hour that an interval of so many seconds allows. It never changes: a weight that did
    would keep coordinators moving.
    """
    return max(1, round(min(MOST_AN_HOUR, 3600 / max(interval, 1e-3))))


def summary_of(
    record: WorkerRecord, others: Iterable[WorkerSummary] = (), revision: int = 0, joined: int = 0
) -> WorkerSummary:
    """Sums up a record. `others`: the summaries of other workers, which name further impaired sinks. `revision`,
    `joined`: how often the record, and what it has joined, have changed.
    """
    own_impaired = tuple(sorted(name for name, sink in record.sinks.items() if sink.impaired))
    load = sum(_weights(record, {*own_impaired, *impaired_sinks(others)}).values())
    return WorkerSummary(record.worker, record.draining, load, own_impaired, revision, joined)


def impaired_sinks(summaries: Iterable[WorkerSummary]) -> frozenset[str]:
    return frozenset(name for summary in summaries for name in summary.impaired)


def to_hand_over(
    own: WorkerRecord,
    summaries: Mapping[str, WorkerSummary],
    handed_over: Collection[str],
    joined: Callable[[str], Collection[str]],
) -> str | None:
    """Names the sink that the worker of `own` should hand over next, the heaviest that fits; None while its share is
    fair. `handed_over`: sinks that it hands over already. `joined` gives the sinks that a worker has joined, by its key
    in `summaries`: it is asked only about workers that carry so little that they could take a sink, the least first.
    """
    if own.draining:
        return None
    impaired = {*impaired_sinks(summaries.values()), *(name for name, sink in own.sinks.items() if sink.impaired)}
    share = _weights(own, impaired)
    leaving = sum(sink_weight for sink, sink_weight in share.items() if sink in handed_over)
    # What is being handed over will be carried by one of the others, perhaps.
    load = sum(share.values()) - 2 * leaving
    others = [key for key, other in summaries.items() if other.worker != own.worker and not other.draining]
    others.sort(key=lambda key: summaries[key].load)
    for sink, sink_weight in sorted(share.items(), key=lambda item: -item[1]):
        takers = (key for key in others if summaries[key].load <= load - 2 * sink_weight)
        if sink not in handed_over and any(sink in joined(key) for key in takers):
            return sink
    return None


def _weights(record: WorkerRecord, impaired: Collection[str]) -> Mapping[str, int]:
    """Returns the weights of the sinks that it leads, by name."""
    return {name: record.sinks[name].weight for name in record.leads if name not in impaired}
