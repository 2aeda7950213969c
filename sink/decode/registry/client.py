"""Fetches schemas by id from a Confluent-compatible Schema Registry, on executors and in the worker.

Guarantee: a schema comes with all its references, resolved. A process fetches an id once for as long as it keeps the
schema, because a registry never changes the schema of an id. A schema does not exist only if the registry answers with
its own error codes (40401 to 40403). Refused credentials and certificates raise at once. After any other failure (no
connection, time-out, 429, 5xx, a proxy's page, a wrong path) the client asks the next URL, and retries until
`patience_seconds`; the last attempt may exceed that. No secret is in a message or a log. Voided by a server that sends
its answer byte by byte, because time-outs measure silence. Raises RegistryUnavailable, UnknownSchema, BrokenSchema and
ConfigError.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast

from tenacity import RetryCallState, Retrying, retry_if_exception_type, stop_before_delay, wait_exponential, wait_random

from sink.decode.registry.access import RegistryAccess, clients, redactor
from sink.decode.registry.answers import BrokenSchema, RegistryUnavailable, UnknownSchema, final_error, reason
from sink.decode.registry.unknown_ids import UnknownIds

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import SchemaRegistryClient

__all__ = [
    "BrokenSchema",
    "RegisteredSchema",
    "Registry",
    "RegistryAccess",
    "RegistryUnavailable",
    "UnknownSchema",
    "registry",
]

Kind = Literal["AVRO", "JSON", "PROTOBUF"]
KINDS: tuple[Kind, ...] = ("AVRO", "JSON", "PROTOBUF")

LOG = logging.getLogger(__name__)
WARN_SECONDS = 10.0
SchemaId = int | str
"""A number, or a GUID in its usual text form."""
LARGEST_ID = (1 << 31) - 1
"""Ids are Java integers. A registry answers a larger one like a wrong path."""
MOST_REFERENCES = 500
"""Schemas that one refers to, each counted as often as it is used, by way of at most `_LONGEST_CHAIN` others."""
_LONGEST_CHAIN = 50
_MOST_KEPT, _MOST_CHARACTERS_KEPT = 2_000, 64_000_000
_T = TypeVar("_T")


class _NoAnswer(Exception):
    """No URL gave a final answer. The text has the error of each."""


@dataclass(frozen=True)
class RegisteredSchema:
    """A schema of the registry. `references` have the names that `text` uses. For PROTOBUF `text` is a .proto source or
    a FileDescriptorProto in base64; `sink.decode.protobuf.files` reads both."""

    id: SchemaId
    kind: Kind
    text: str
    references: tuple[tuple[str, RegisteredSchema], ...] = ()
    parts: int = field(default=1, compare=False)
    """The schema and those that it refers to, each as often as it is used."""
    characters: int = field(default=0, compare=False)


def referred(schema: RegisteredSchema) -> list[str]:
    """Returns the texts of all schemas that this one refers to, each after its own references."""
    texts: dict[str, None] = {}
    for _, reference in schema.references:
        texts |= dict.fromkeys(referred(reference)) | {reference.text: None}
    return list(texts)


class Registry:
    """A client of the registry, with a cache. Thread-safe. `registry` returns the shared one of this process."""

    def __init__(self, access: RegistryAccess) -> None:
        """Sends no request yet. Raises ConfigError for invalid settings."""
        self._clients = clients(access)
        self._redactor = redactor(access)
        self._patience = access.patience_seconds
        self._lock = threading.Lock()
        self._schemas: dict[SchemaId, Future[RegisteredSchema]] = {}
        self._unknown = UnknownIds()
        self._warned_at = -WARN_SECONDS

    def subjects(self) -> list[str]:
        """Returns the names of all subjects, sorted."""
        return self._request("its subjects", lambda client: sorted(map(str, client.get_subjects())))

    def latest(self, subject: str) -> RegisteredSchema:
        """Returns the newest schema of the subject, which it asks for each time."""
        return self.schema(self._id(subject, "latest", deleted=False))

    def version(self, subject: str, number: int) -> RegisteredSchema:
        return self.schema(self._id(subject, number, deleted=False))

    def schema(self, schema_id: SchemaId, referring: tuple[SchemaId, ...] = ()) -> RegisteredSchema:
        """Returns the schema. `referring` are the ids that led here, each of which refers to the next."""
        if schema_id in referring:
            raise BrokenSchema(f"schema id {schema_id} refers to itself by way of {referring}. Register it again.")
        if len(referring) > _LONGEST_CHAIN:
            raise BrokenSchema(
                f"schema id {referring[0]} refers to others by way of more than {_LONGEST_CHAIN}. Register it without."
            )
        if isinstance(schema_id, int) and not 0 <= schema_id <= LARGEST_ID:
            raise UnknownSchema(f"schema id {schema_id} is not an id of a registry: they end at {LARGEST_ID}")
        future: Future[RegisteredSchema] = Future()
        with self._lock:
            pending = self._schemas.setdefault(schema_id, future)
        if pending is future:
            try:
                self._unknown.check(schema_id)
                future.set_result(self._fetch(schema_id, referring))
                self._forget_oldest()
            except BaseException as error:
                with self._lock:
                    del self._schemas[schema_id]
                future.set_exception(error)
                raise
        return pending.result()

    def _forget_oldest(self) -> None:
        with self._lock:
            done = [(id_, future.result()) for id_, future in self._schemas.items() if future.done()]
            characters = sum(schema.characters for _, schema in done)
            for id_, schema in done[:-1]:
                if len(self._schemas) <= _MOST_KEPT and characters <= _MOST_CHARACTERS_KEPT:
                    break
                del self._schemas[id_]
                characters -= schema.characters

    def _fetch(self, schema_id: SchemaId, referring: tuple[SchemaId, ...]) -> RegisteredSchema:
        request = f"schema {'id' if isinstance(schema_id, int) else 'GUID'} {schema_id}"

        def get(client: SchemaRegistryClient, fmt: str | None = None) -> Any:
            answer: Any = (
                client.get_schema(schema_id, fmt=fmt)
                if isinstance(schema_id, int)
                else client.get_schema_by_guid(schema_id, fmt)
            )
            if not isinstance(answer.schema_str, str):
                raise ValueError("an answer without a schema")
            return answer

        try:
            answer = self._request(request, get)
        except UnknownSchema as error:
            self._unknown.add(schema_id, str(error))
            raise
        if answer.schema_type == "PROTOBUF":
            # Some registries return the descriptor, which needs no compiler; others ignore the format.
            answer = self._request(request, lambda client: get(client, "serialized"))
        if answer.schema_type not in KINDS:
            raise BrokenSchema(f"{request} is of kind {answer.schema_type}. Only {', '.join(KINDS)} can be decoded.")
        references: list[tuple[str, RegisteredSchema]] = []
        parts, characters = 1, len(answer.schema_str)
        for reference in answer.references or ():
            # References to versions that were deleted since stay valid.
            referred_id = self._id(reference.subject, reference.version, deleted=True)
            inner = self.schema(referred_id, (*referring, schema_id))
            references.append((reference.name, inner))
            parts, characters = parts + inner.parts, characters + inner.characters
            if parts > MOST_REFERENCES:
                raise BrokenSchema(
                    f"{request} refers to more than {MOST_REFERENCES} schemas, each counted as often as it is used."
                    " Register it with fewer."
                )
        return RegisteredSchema(schema_id, answer.schema_type, answer.schema_str, tuple(references), parts, characters)

    def _id(self, subject: str, version: int | Literal["latest"], deleted: bool) -> int:
        def get(client: SchemaRegistryClient) -> int:
            return int(cast(int, client.get_version(subject, version, deleted=deleted).schema_id))

        return self._request(f"subject {subject} version {version}", get)

    def _request(self, request: str, get: Callable[[SchemaRegistryClient], _T]) -> _T:
        retrying = Retrying(
            retry=retry_if_exception_type(_NoAnswer),
            stop=stop_before_delay(self._patience),
            wait=wait_exponential(multiplier=0.2, max=5) + wait_random(0, 0.2),
            before_sleep=self._warn,
            reraise=True,
        )
        try:
            return cast(_T, retrying(self._request_each, request, get))
        except _NoAnswer as error:
            raise RegistryUnavailable(
                f"schema registry: no answer for {request} within {self._patience:g} s ({error}). The sink asks again"
                " with its next attempt. Check that the registry runs, and schema.registry.url."
            ) from None

    def _request_each(self, request: str, get: Callable[[SchemaRegistryClient], _T]) -> _T:
        reasons = []
        for url, client in self._clients:
            # The client would cache the latest version for ever, and does not tell formats apart.
            cast(Any, client).clear_caches()
            try:
                return get(client)
            except Exception as error:  # noqa: BLE001 - after an error that decides nothing, the request is repeated
                decided = final_error(error, url, request)
                if decided is not None:
                    # Without the cause, which may contain a secret.
                    raise decided from None
                reasons.append(f"{url}: {reason(error, self._redactor)}")
        raise _NoAnswer("; ".join(reasons))

    def _warn(self, state: RetryCallState) -> None:
        now = time.monotonic()
        if now - self._warned_at >= WARN_SECONDS and state.outcome and state.next_action:
            self._warned_at = now
            wait = state.next_action.sleep
            LOG.warning("schema registry: no answer (%s). Asking again in %.1f s.", state.outcome.exception(), wait)


_REGISTRIES: dict[tuple[int, RegistryAccess], Registry] = {}
_REGISTRIES_LOCK = threading.Lock()


def registry(access: RegistryAccess) -> Registry:
    """Returns this process's client for `access`. Raises ConfigError for invalid settings."""
    # A fork must not share connections.
    key = (os.getpid(), access)
    with _REGISTRIES_LOCK:
        if key not in _REGISTRIES:
            _REGISTRIES[key] = Registry(access)
        return _REGISTRIES[key]
