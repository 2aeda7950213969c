"""Reads the statuses of many sinks at once: their trees together, their logs with one question for each cluster.

A repeated reading is cheaper: watches keep the trees, the records beside them and those of worker processes, so that
only what has changed is read again. Errors: Unavailable when ZooKeeper does not answer; Corrupt and OtherVersion are a
sink's own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

from kazoo.client import KazooClient

from coordination.errors import Corrupt, OtherVersion
from coordination.state.model import LogView, TopicPartition
from coordination.zookeeper.full_tree import FullTree
from coordination.zookeeper.keeper import Keeper, read_together
from coordination.zookeeper.worker_summaries import WorkerSummaries
from sink.clients.kafka.log import Log
from sink.clients.kafka.record_times import begin_times
from sink.operations.log_ends import LogAnswer, LogQuestion, ask_fresh, log_question
from sink.operations.observed_sink import ObservedSink
from sink.operations.status import Reading, reading_of

CLUSTERS_AT_ONCE = 16
"""Kafka clusters that are asked at once. One that is away does not answer for a while."""

Cluster = tuple[tuple[str, str], ...]
"""The settings of a Kafka client, by which sinks share one."""
_T = TypeVar("_T")
_R = TypeVar("_R")


@dataclass(frozen=True, slots=True)
class SinkLook:
    """One sink's reading, or the error in its place. `begun`: since when open Kafka transactions hold partitions of the
    cluster back.
    """

    sink: ObservedSink
    reading: Reading | None = None
    error: Corrupt | OtherVersion | None = None
    begun: Mapping[TopicPartition, float] | None = None


class ManyStatuses:
    """Reads sinks repeatedly. Keeps a cache of each tree and one client for each Kafka cluster."""

    def __init__(self, client: KazooClient, sinks: Sequence[ObservedSink], lag: bool) -> None:
        self._sinks = sinks
        self._lag = lag
        self._logs: dict[Cluster, Log] = {}
        self._keepers = {sink.name: Keeper(client, sink.root_znode, lambda: None) for sink in sinks}
        roots = sorted({sink.fleet_znode for sink in sinks})
        self._summaries = {root: WorkerSummaries(client, root) for root in roots}
        for keeper in self._keepers.values():
            client.add_listener(keeper.session_changed)

    def read(self) -> list[SinkLook]:
        """Looks at all sinks, in their order."""
        trees = dict(zip(self._keepers, read_together([*self._keepers.values()]), strict=True))
        readable = {name: tree for name, tree in trees.items() if isinstance(tree, FullTree)}
        answers, begun = self._logs_of(readable) if self._lag else ({}, {})
        hosts = {root: summaries.hosts() for root, summaries in self._summaries.items()}
        looks = []
        for sink in self._sinks:
            tree, name = trees[sink.name], sink.name
            if not isinstance(tree, FullTree):
                looks.append(SinkLook(sink, error=tree))
                continue
            hosting = hosts[sink.fleet_znode].get(name, {})
            reading = reading_of(sink, tree, answers.get(name), hosting)
            looks.append(SinkLook(sink, reading, begun=begun.get(_cluster(sink), {})))
        return looks

    def _logs_of(
        self, trees: Mapping[str, FullTree]
    ) -> tuple[dict[str, LogAnswer], dict[Cluster, dict[TopicPartition, float]]]:
        """Returns the ends of each sink's log, and when open Kafka transactions of each cluster began."""
        questions: dict[Cluster, dict[str, LogQuestion]] = {}
        for sink in self._sinks:
            if (tree := trees.get(sink.name)) is not None:
                cluster = _cluster(sink)
                self._logs.setdefault(cluster, Log(sink.kafka))
                questions.setdefault(cluster, {})[sink.name] = log_question(sink, tree.topics)

        def ask(cluster: Cluster) -> tuple[dict[str, LogAnswer], dict[TopicPartition, float]]:
            answers = ask_fresh(self._logs[cluster], questions[cluster])
            views = [view for view in answers.values() if isinstance(view, LogView)]
            ranges = {partition: ends for view in views for partition, ends in view.partitions.items()}
            return answers, begin_times(dict(cluster), LogView(views[0].cluster, ranges)) if views else {}

        asked = dict(zip(questions, _side_by_side(ask, questions), strict=True))
        return (
            {name: answer for answers, _ in asked.values() for name, answer in answers.items()},
            {cluster: begun for cluster, (_, begun) in asked.items()},
        )


def _side_by_side(act: Callable[[_T], _R], items: Iterable[_T]) -> list[_R]:
    items = list(items)
    if len(items) == 1:
        return [act(items[0])]
    with ThreadPoolExecutor(CLUSTERS_AT_ONCE, "statuses") as pool:
        return list(pool.map(act, items))


def _cluster(sink: ObservedSink) -> Cluster:
    return tuple(sorted(sink.kafka.items()))
