"""The HTTP server's view of the process that it runs in."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from kazoo.client import KazooClient

from sink.clients.kafka.shared_log import SharedLog
from sink.http.table_process import TableQuestion
from sink.operations.observed_sink import ObservedSink

Verb = Callable[[ObservedSink, KazooClient, str], Any]
"""Performs a verb on one sink. The text is the worker of `?worker=`, or empty. Returns a value for JSON, raises
SinkError."""


@dataclass(frozen=True, slots=True)
class HostedSink:
    """One sink that the process hosts: its clients, and its state at the moment of the question.

    `table` gives the place of its table, with the keys of the moment. `leads`: this worker coordinates it. `retention`
    is Kafka's, in seconds, by topic, as far as this worker knows it. `troubles` are the failures of servers (store,
    registry) and of table services that keep this worker from its work on the sink.
    """

    observed: ObservedSink
    client: KazooClient
    log: SharedLog
    table: Callable[[], TableQuestion]
    leads: bool = False
    retention: Mapping[str, float] = field(default_factory=dict)
    troubles: tuple[str, ...] = ()


class WorkerFacts(Protocol):
    """Every method returns at once, asks no server and raises nothing; any thread may call it."""

    @property
    def worker(self) -> str:
        """The worker's id."""

    @property
    def sinks(self) -> Sequence[HostedSink]:
        """The sinks of this process, once it has a session of ZooKeeper."""

    @property
    def misconfigured(self) -> Mapping[str, str]:
        """The reasons why configured sinks of this process cannot be used, by name."""

    @property
    def verbs(self) -> Mapping[str, Verb]:
        """Requests that a client with the token may make, by name."""

    def metrics(self) -> bytes:
        """Returns the answer to `/metrics`, in Prometheus' text format."""

    def liveness(self) -> Sequence[str]:
        """Returns the reasons to restart this process: only faults that a restart fixes."""

    def readiness(self) -> Sequence[str]:
        """Returns the reasons why this worker is not a member of the fleet: not yet, or not any more."""
