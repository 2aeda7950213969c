"""Makes the answers: looks at the process and the fleet, and performs verbs for clients with the token.

Slow work runs in the threads of its own pool. A document of one reading is made once for all clients.
"""

from __future__ import annotations

import asyncio
import gzip
import hmac
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

from prometheus_client.exposition import CONTENT_TYPE_LATEST

from coordination.errors import ConfigError, SinkError, Unavailable
from sink.http import documents
from sink.http.facts import HostedSink, Verb, WorkerFacts
from sink.http.fleet import FleetReading, FleetWatch
from sink.http.table_process import TableSummaryProcess
from sink.operations.control import decisive_errors
from sink.telemetry.logs import in_context

_T = TypeVar("_T")
JSON = "application/json"
ZIPPED_FROM = 4096
MOST_TABLES = 2
"""The most readings of tables that wait or run: quick answers need the other threads of the pool."""
MOST_VERBS = 8
"""The most verbs that wait or run."""
_DOCUMENTS: Mapping[str, Callable[[FleetReading, Sequence[str]], bytes]] = {
    "status": documents.status,
    "history": documents.history,
    "overview": documents.overview,
}
CONTENT_TYPE = CONTENT_TYPE_LATEST
AGE_SECONDS = 1.0


class MetricsText:
    """The process's metrics as one text, made at most once a second for all clients. Any thread may call `text`."""

    def __init__(self, make: Callable[[], bytes]) -> None:
        self._make = make
        self._making = threading.Lock()
        self._text, self._zipped, self._made_at = b"", b"", -AGE_SECONDS

    def text(self) -> tuple[bytes, bytes]:
        """Returns the text, plain and compressed by gzip."""
        with self._making:
            if time.monotonic() - self._made_at >= AGE_SECONDS:
                self._text = self._make()
                self._zipped = gzip.compress(self._text, 1)
                self._made_at = time.monotonic()
            return self._text, self._zipped


@dataclass(frozen=True, slots=True)
class HttpResponse:
    status: int
    body: bytes
    content_type: str = JSON
    zipped: bytes | None = None


def refusal(status: int, error: str) -> HttpResponse:
    return HttpResponse(status, documents.to_bytes({"error": error}))


class UnknownSink(Exception):
    """This worker does not host a sink of that name."""

    def __init__(self, name: str, names: Sequence[str]) -> None:
        hosted = ", ".join(names[:20]) or "none"
        super().__init__(f"this worker hosts no sink {name[:100]!r}. It hosts: {hosted}.")


class Answers:
    def __init__(self, token: str, facts: WorkerFacts) -> None:
        self._token = token
        self._facts = facts
        self._fleet = FleetWatch(facts)
        self._metrics = MetricsText(facts.metrics)
        self._cache_lock = threading.Lock()
        self._documents: dict[tuple[str, str], HttpResponse] = {}
        """By kind and sink, of one reading."""
        self._documented: FleetReading | None = None
        """That reading."""
        self._pool = ThreadPoolExecutor(4, "http-answers")
        self._verbs = ThreadPoolExecutor(1, "http-verbs")
        self._verb_places = asyncio.Semaphore(MOST_VERBS)
        self._tables = TableSummaryProcess()
        self._table_places = asyncio.Semaphore(MOST_TABLES)

    def close(self) -> None:
        """Cancels pending work, and does not wait for running work."""
        self._fleet.close()
        self._tables.close()
        for pool in (self._pool, self._verbs):
            pool.shutdown(wait=False, cancel_futures=True)

    async def query(self, kind: str, sink: str) -> HttpResponse:
        """Answers a question about one sink, or about all if none is named."""
        match kind:
            case "liveness":
                return self._by_reasons(self._facts.liveness())
            case "readiness":
                return self._by_reasons(self._facts.readiness())
            case "coordinator":
                return self._coordinator(sink)
            case "table":
                return await self._table(sink)
            case "metrics":
                text, zipped = await self._in_pool(self._metrics.text)
                return HttpResponse(200, text, CONTENT_TYPE, zipped)
            case _:
                return await self._in_pool(lambda: self._document(kind, "" if kind == "overview" else sink))

    def _by_reasons(self, reasons: Sequence[str]) -> HttpResponse:
        document = {"worker": self._facts.worker, "ok": not reasons, "reasons": list(reasons)}
        return HttpResponse(503 if reasons else 200, documents.to_bytes(document))

    def _coordinator(self, sink: str) -> HttpResponse:
        """Answers 200 if this worker leads the sink, or any sink if none is named."""
        led_sinks = sorted(hosted.observed.name for hosted in self._hosted(sink) if hosted.leads)
        document = {"worker": self._facts.worker, "leads": led_sinks}
        return HttpResponse(200 if led_sinks else 503, documents.to_bytes(document))

    async def _table(self, sink: str) -> HttpResponse:
        """Answers with the files and bad records of one sink's table."""
        hosted = self._hosted(sink)
        if len(hosted) != 1:
            names = sorted(candidate.observed.name for candidate in hosted)
            return refusal(400, f"say of which sink: ?sink=NAME, one of {', '.join(names[:20])}")
        if self._table_places.locked():
            return refusal(503, "other tables are being read. Ask again in some seconds.")
        async with self._table_places:
            try:
                report = await self._in_pool(lambda: self._tables.report_of(hosted[0].table()))
            except SinkError as error:
                return refusal(503, str(error))
        return HttpResponse(200, documents.to_bytes(report))

    async def perform(self, verb: str, sink: str, worker: str, authorization: str) -> HttpResponse:
        """Performs the verb on one sink, or on all sinks of this worker."""
        denial = self._denial(authorization)
        if denial is not None:
            return denial
        perform = self._facts.verbs.get(verb)
        if perform is None:
            return refusal(404, f"this worker has no verb {verb!r}")
        if verb == "drain" and not worker:
            return refusal(400, "drain needs the worker to drain: ?worker=NAME")
        hosted = self._hosted(sink)
        if self._verb_places.locked():
            return refusal(503, f"{MOST_VERBS} verbs are under way already. Try again.")
        async with self._verb_places:
            task = in_context(lambda: _perform(perform, hosted, worker))
            return await asyncio.get_running_loop().run_in_executor(self._verbs, task)

    def _denial(self, authorization: str) -> HttpResponse | None:
        """Returns 401 without a token, 403 for a wrong token or if http.token is not set, None for the right token."""
        if not self._token:
            return refusal(403, "http.token is not set: nothing can be changed by HTTP. Use the commands of `sink`.")
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            return refusal(401, "send the token of http.token: Authorization: Bearer ...")
        expected = self._token.encode()
        if not hmac.compare_digest(token.strip().encode(errors="surrogateescape"), expected):
            return refusal(403, "that is not the token of http.token")
        return None

    def _hosted(self, sink: str) -> list[HostedSink]:
        """Returns the sink of that name, or all without a name. Raises UnknownSink."""
        sinks = self._facts.sinks
        chosen = [hosted for hosted in sinks if sink in ("", hosted.observed.name)]
        if sink and not chosen:
            raise UnknownSink(sink, sorted(hosted.observed.name for hosted in sinks))
        return chosen

    async def _in_pool(self, make: Callable[[], _T]) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, make)

    def _document(self, kind: str, sink: str) -> HttpResponse:
        fleet = self._fleet.last_reading()
        names = fleet.names
        if sink and sink not in names:
            raise UnknownSink(sink, names)
        chosen = [sink] if sink else names
        if kind == "health":
            healthy, body = documents.health(fleet, chosen)
            return HttpResponse(200 if healthy else 503, body)
        with self._cache_lock:
            if self._documented is not fleet:
                self._documented, self._documents = fleet, {}
            answer = self._documents.get((kind, sink))
            if answer is None:
                body = _DOCUMENTS[kind](fleet, chosen)
                zipped = gzip.compress(body, 1) if len(body) >= ZIPPED_FROM else None
                answer = self._documents[kind, sink] = HttpResponse(200, body, zipped=zipped)
            return answer


def _perform(verb: Verb, hosted: Sequence[HostedSink], worker: str) -> HttpResponse:
    """Performs the verb on each sink, also after an error. The status is that of the first decisive error."""
    if not hosted:
        return refusal(503, "this worker has no session of ZooKeeper yet")
    results: dict[str, Any] = {}
    errors: dict[str, SinkError] = {}
    for sink in hosted:
        name = sink.observed.name
        try:
            results[name] = verb(sink.observed, sink.client, worker)
        except SinkError as error:
            errors[name] = error
    decisive = decisive_errors([*errors.values(), *(None for _ in results)])
    status = _status_of(decisive[0]) if decisive else 200
    failed = {name: str(error) for name, error in errors.items()}
    return HttpResponse(status, documents.to_bytes({"done": results, "failed": failed}))


def _status_of(error: SinkError) -> int:
    if isinstance(error, Unavailable):
        return 503
    return 400 if isinstance(error, ConfigError) else 409
