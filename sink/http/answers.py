"""Makes the answers: looks at the process and the fleet, and performs verbs for clients with the token.

What takes long runs in threads of its own pool; a document of one reading is made once, however many ask for it.
"""

from __future__ import annotations

import asyncio
import gzip
import hmac
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeVar

from coordination.errors import ConfigError, SinkError, Unavailable
from sink.config import ProcessSettings, Settings
from sink.http import documents
from sink.http.facts import HostedSink, WorkerFacts
from sink.http.fleet import Fleet, FleetWatch
from sink.http.metrics import CONTENT_TYPE, MetricsText
from sink.http.table_process import TableReports
from sink.telemetry.logs import in_context

_T = TypeVar("_T")
JSON = "application/json"
ZIPPED_FROM = 4096
MOST_TABLES = 2
"""Readings of tables that wait or are under way: the rest of the pool is for what is answered at once."""
MOST_VERBS = 8
"""Verbs that wait or are performed."""


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    body: bytes
    content_type: str = JSON
    zipped: bytes | None = None


def refusal(status: int, error: str) -> Answer:
    return Answer(status, documents.to_bytes({"error": error}))


class UnknownSink(Exception):
    """This worker does not host a sink of that name."""

    def __init__(self, name: str, known: Sequence[str]) -> None:
        hosted = ", ".join(known[:20]) or "none"
        super().__init__(f"this worker hosts no sink {name[:100]!r}; it hosts: {hosted}")


@dataclass(slots=True)
class _Made:
    """Documents of one reading, by what they are."""

    fleet: Fleet
    documents: dict[tuple[str, str], Answer] = field(default_factory=dict)


class Answers:
    def __init__(self, settings: ProcessSettings, facts: WorkerFacts) -> None:
        self._token = settings.http_token
        self._facts = facts
        self._fleet = FleetWatch(facts)
        self._metrics = MetricsText(facts)
        self._making = threading.Lock()
        self._made: _Made | None = None
        self._pool = ThreadPoolExecutor(4, "http-answers")
        self._verbs = ThreadPoolExecutor(1, "http-verbs")
        self._verbs_waiting = 0
        self._tables = TableReports()
        self._tables_waiting = 0

    def close(self) -> None:
        """Ends what is under way, as far as it can be, and does not wait for it."""
        self._fleet.close()
        self._tables.close()
        for pool in (self._pool, self._verbs):
            pool.shutdown(wait=False, cancel_futures=True)

    def liveness(self) -> Answer:
        return self._by_reasons(self._facts.liveness())

    def readiness(self) -> Answer:
        return self._by_reasons(self._facts.readiness())

    def _by_reasons(self, reasons: Sequence[str]) -> Answer:
        document = {"worker": self._facts.worker, "ok": not reasons, "reasons": list(reasons)}
        return Answer(503 if reasons else 200, documents.to_bytes(document))

    def coordinator(self, sink: str) -> Answer:
        """Answers 200 where this worker leads the sink, or, without a sink, any."""
        hosted = self._hosted(sink)
        led = [name for name in hosted if self._facts.leads(name)]
        document = {"worker": self._facts.worker, "leads": led}
        return Answer(200 if led else 503, documents.to_bytes(document))

    async def health(self, sink: str) -> Answer:
        return await self._of_fleet("health", sink)

    async def status(self, sink: str) -> Answer:
        return await self._of_fleet("status", sink)

    async def history(self, sink: str) -> Answer:
        return await self._of_fleet("history", sink)

    async def overview(self) -> Answer:
        return await self._of_fleet("overview", "")

    async def table(self, sink: str) -> Answer:
        """The files and services of one sink's table."""
        names = self._hosted(sink)
        if len(names) != 1:
            return refusal(400, f"say of which sink: ?sink=NAME, one of {', '.join(names[:20])}")
        settings = next(hosted.settings for hosted in self._facts.sinks if hosted.settings.name == names[0])
        if self._tables_waiting >= MOST_TABLES:
            return refusal(503, "other tables are being read; ask again in some seconds")
        self._tables_waiting += 1
        try:
            report = await self._in_pool(lambda: self._tables.of(settings))
        except SinkError as error:
            return refusal(503, str(error))
        finally:
            self._tables_waiting -= 1
        return Answer(200, documents.to_bytes(report))

    async def metrics(self) -> Answer:
        text, zipped = await self._in_pool(self._metrics.text)
        return Answer(200, text, CONTENT_TYPE, zipped)

    async def perform(self, verb: str, sink: str, worker: str, authorization: str) -> Answer:
        """The verb on one sink, or on all of this worker's."""
        refused = self._refused(authorization)
        if refused is not None:
            return refused
        perform = self._facts.verbs.get(verb)
        if perform is None:
            return refusal(404, f"this worker has no verb {verb!r}")
        if verb == "drain" and not worker:
            return refusal(400, "drain needs the worker to drain: ?worker=NAME")
        names = self._hosted(sink)
        hosted = [known for known in self._facts.sinks if known.settings.name in names]
        if self._verbs_waiting >= MOST_VERBS:
            return refusal(503, f"{MOST_VERBS} verbs are under way already; try again")
        self._verbs_waiting += 1
        try:
            performed = in_context(lambda: _perform(perform, hosted, worker))
            return await asyncio.get_running_loop().run_in_executor(self._verbs, performed)
        finally:
            self._verbs_waiting -= 1

    def _refused(self, authorization: str) -> Answer | None:
        """Returns 401 without a token, 403 for a wrong one, and where there is none."""
        if self._token is None:
            return refusal(403, "http.token is not set: nothing can be changed by HTTP; use the commands of `sink`")
        scheme, _, given = authorization.partition(" ")
        if scheme.lower() != "bearer" or not given.strip():
            return refusal(401, "send the token of http.token: Authorization: Bearer ...")
        wanted = self._token.get_secret_value().encode()
        if not hmac.compare_digest(given.strip().encode(errors="surrogateescape"), wanted):
            return refusal(403, "that is not the token of http.token")
        return None

    def _hosted(self, sink: str) -> list[str]:
        """Returns the sink's name, or all. Raises UnknownSink."""
        names = sorted(hosted.settings.name for hosted in self._facts.sinks)
        if not sink:
            return names
        if sink not in names:
            raise UnknownSink(sink, names)
        return [sink]

    async def _of_fleet(self, kind: str, sink: str) -> Answer:
        return await self._in_pool(lambda: self._document(kind, sink))

    async def _in_pool(self, make: Callable[[], _T]) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, make)

    def _document(self, kind: str, sink: str) -> Answer:
        fleet = self._fleet.ask()
        names = fleet.names
        if sink and sink not in names:
            raise UnknownSink(sink, names)
        chosen = [sink] if sink else names
        if kind == "health":
            healthy, body = documents.health(fleet, chosen)
            return Answer(200 if healthy else 503, body)
        with self._making:
            if self._made is None or self._made.fleet is not fleet:
                self._made = _Made(fleet)
            known = self._made.documents.get((kind, sink))
            if known is None:
                known = self._made.documents[kind, sink] = _document_of(kind, fleet, chosen)
            return known


def _document_of(kind: str, fleet: Fleet, names: Sequence[str]) -> Answer:
    if kind == "overview":
        body = documents.overview(fleet)
    else:
        body = documents.status(fleet, names) if kind == "status" else documents.history(fleet, names)
    return Answer(200, body, zipped=_zipped(body))


def _zipped(body: bytes) -> bytes | None:
    return gzip.compress(body, 1) if len(body) >= ZIPPED_FROM else None


def _perform(verb: Callable[[Settings, Any, str], Any], hosted: Sequence[HostedSink], worker: str) -> Answer:
    """Performs the verb on each sink, also where another one refused; the status is that of the first that did."""
    done: dict[str, Any] = {}
    failed: dict[str, str] = {}
    status = 200
    for sink in hosted:
        name = sink.settings.name
        try:
            done[name] = verb(sink.settings, sink.client, worker)
        except SinkError as error:
            failed[name] = str(error)
            status = _status_of(error) if status == 200 else status
    if not hosted:
        return refusal(503, "this worker has no session of ZooKeeper yet")
    return Answer(status, documents.to_bytes({"done": done, "failed": failed}))


def _status_of(error: SinkError) -> int:
    if isinstance(error, Unavailable):
        return 503
    return 400 if isinstance(error, ConfigError) else 409
