"""The HTTP server's view of the process that it runs in."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from kazoo.client import KazooClient

from coordination.state.model import LogView
from sink.config import Settings

Verb = Callable[[Settings, KazooClient, str], Any]
"""Performs a verb on one sink; the text is the worker that `?worker=` names, or empty. Returns a value for JSON, raises
SinkError."""


class RecentLog(Protocol):
    """Kafka's offsets for readers that decide nothing, from any thread."""

    def recent(self, topics: Sequence[str], age: float, optional: Sequence[str] = (), /) -> LogView:
        """As `sink.clients.kafka.Log.view`, but what is younger than `age` seconds may be answered from memory."""


@dataclass(frozen=True, slots=True)
class HostedSink:
    """One sink that the process hosts, and how it is reached."""

    settings: Settings
    client: KazooClient
    log: RecentLog


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
        """Why sinks of this process's configuration cannot be made of it, by their names."""

    @property
    def verbs(self) -> Mapping[str, Verb]:
        """Requests that a client with the token may make, by name."""

    def metrics(self) -> bytes:
        """The answer to `/metrics`, in Prometheus' text format."""

    def liveness(self) -> Sequence[str]:
        """Why this process should be started again. Nothing that a restart does not mend."""

    def readiness(self) -> Sequence[str]:
        """Why this worker takes no part in the fleet (yet, or any more)."""

    def leads(self, sink: str) -> bool:
        """Whether this worker coordinates the sink."""

    def retention(self, sink: str, /) -> Mapping[str, float]:
        """How long Kafka keeps a record, in seconds, by topic, where this worker knows it."""

    def troubles(self, sink: str, /) -> Sequence[str]:
        """Servers that keep this worker from its work on the sink: a store or a registry that does not answer."""
