"""Schemas by id from a Confluent-compatible Schema Registry, on executors and in the worker.

Guarantee: a schema comes with all that it refers to, resolved. An id is asked for once in a process and kept for ever,
since registries never change what an id means. Only a definite answer decides: that a schema does not exist is
believed when a registry says so in its own words (error codes 40401 to 40403), refused credentials and certificates
are told at once, and everything else (no connection, no answer in time, 429, 5xx, a page of some proxy, a path
without a registry) is asked again, from each URL in turn, until patience ends. No secret is in a message or a log.
Voided by a server that sends its answer drop by drop: time-outs count the silence. Patience may be exceeded by the
attempt that is under way when it ends. Raises RegistryUnavailable, UnknownSchema and ConfigError.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast

from tenacity import RetryCallState, Retrying, retry_if_exception_type, stop_before_delay, wait_exponential, wait_random

from coordination.errors import ConfigError
from sink.decode.registry_access import RegistryAccess, clients, redactor
from sink.decode.registry_answers import RegistryUnavailable, UnknownSchema, definite, reason

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import SchemaRegistryClient

__all__ = ["RegisteredSchema", "Registry", "RegistryAccess", "RegistryUnavailable", "UnknownSchema", "registry"]

Kind = Literal["AVRO", "JSON", "PROTOBUF"]
KINDS: tuple[Kind, ...] = ("AVRO", "JSON", "PROTOBUF")

LOG = logging.getLogger(__name__)
WARN_SECONDS = 10.0
LARGEST_ID = (1 << 31) - 1
"""Ids are Java's integers: what lies beyond is no id, and registries answer it as they answer a wrong path."""
_T = TypeVar("_T")


class _NoAnswer(Exception):
    """The errors of all URLs."""


@dataclass(frozen=True)
class RegisteredSchema:
    """`references` are by the name that `text` uses for them. A text of kind PROTOBUF is a .proto source, or a
    FileDescriptorProto in base64, as the registry has it: `sink.decode.proto_files` reads both."""

    id: int
    kind: Kind
    text: str
    references: tuple[tuple[str, RegisteredSchema], ...] = ()


class Registry:
    """Safe for threads. Take the one of `registry`, to share what is known."""

    def __init__(self, access: RegistryAccess) -> None:
        """Asks nothing yet. Raises ConfigError for settings that cannot be used."""
        self._clients = clients(access)
        self._redactor = redactor(access)
        self._patience = access.patience_seconds
        self._lock = threading.Lock()
        self._schemas: dict[int, Future[RegisteredSchema]] = {}
        self._warned_at = -WARN_SECONDS

    def schema(self, schema_id: int) -> RegisteredSchema:
        return self._schema(schema_id, ())

    def subjects(self) -> list[str]:
        """All that there are, by name."""
        return self._ask("its subjects", lambda client: sorted(map(str, client.get_subjects())))

    def latest(self, subject: str) -> RegisteredSchema:
        """As it is now: asked each time."""
        return self.schema(self._id(subject, "latest", deleted=False))

    def version(self, subject: str, number: int) -> RegisteredSchema:
        return self.schema(self._id(subject, number, deleted=False))

    def _schema(self, schema_id: int, referring: tuple[int, ...]) -> RegisteredSchema:
        """`above` are the ids on the way here, each of which refers to the next."""
        if schema_id in referring:
            raise ConfigError(f"schema id {schema_id} refers to itself by way of {referring}; register it anew")
        if not 0 <= schema_id <= LARGEST_ID:
            raise UnknownSchema(f"schema id {schema_id} is no id of any registry: they end at {LARGEST_ID}")
        own: Future[RegisteredSchema] = Future()
        with self._lock:
            pending = self._schemas.setdefault(schema_id, own)
        if pending is own:
            try:
                own.set_result(self._fetch(schema_id, referring))
            except BaseException as error:
                with self._lock:
                    del self._schemas[schema_id]
                own.set_exception(error)
                raise
        return pending.result()

    def _fetch(self, schema_id: int, referring: tuple[int, ...]) -> RegisteredSchema:
        request = f"schema id {schema_id}"
        answer = self._ask(request, lambda client: _complete(client.get_schema(schema_id)))
        if answer.schema_type == "PROTOBUF":
            # Some give the descriptor itself, which spares a compiler; others do not know the format and ignore it.
            answer = self._ask(request, lambda client: _complete(client.get_schema(schema_id, fmt="serialized")))
        if answer.schema_type not in KINDS:
            raise ConfigError(f"{request} is of kind {answer.schema_type}; only {', '.join(KINDS)} can be decoded")
        # A version that was deleted since is still part of what the id means.
        references = tuple(
            (
                reference.name,
                self._schema(self._id(reference.subject, reference.version, deleted=True), (*referring, schema_id)),
            )
            for reference in answer.references or ()
        )
        return RegisteredSchema(schema_id, answer.schema_type, answer.schema_str, references)

    def _id(self, subject: str, version: int | Literal["latest"], deleted: bool) -> int:
        def ask(client: SchemaRegistryClient) -> int:
            return int(cast(int, client.get_version(subject, version, deleted=deleted).schema_id))

        return self._ask(f"subject {subject} version {version}", ask)

    def _ask(self, wanted: str, ask: Callable[[SchemaRegistryClient], _T]) -> _T:
        retrying = Retrying(
            retry=retry_if_exception_type(_NoAnswer),
            stop=stop_before_delay(self._patience),
            wait=wait_exponential(multiplier=0.2, max=5) + wait_random(0, 0.2),
            before_sleep=self._warn,
            reraise=True,
        )
        try:
            return cast(_T, retrying(self._ask_each, wanted, ask))
        except _NoAnswer as error:
            raise RegistryUnavailable(
                f"schema registry: no answer for {wanted} within {self._patience:g} s ({error}). The sink asks again"
                " with its next attempt. Check that the registry runs, and schema.registry.url."
            ) from None

    def _ask_each(self, wanted: str, ask: Callable[[SchemaRegistryClient], _T]) -> _T:
        reasons = []
        for url, client in self._clients:
            # The client's own caches keep the latest version for ever, and do not tell formats apart.
            cast(Any, client).clear_caches()
            try:
                return ask(client)
            except Exception as error:  # noqa: BLE001 - what it does not decide, whatever it is, is asked again
                decided = definite(error, url, wanted)
                if decided is not None:
                    # Without its cause, which may repeat a secret.
                    raise decided from None
                reasons.append(f"{url}: {reason(error, self._redactor)}")
        raise _NoAnswer("; ".join(reasons))

    def _warn(self, state: RetryCallState) -> None:
        now = time.monotonic()
        if now - self._warned_at >= WARN_SECONDS and state.outcome and state.next_action:
            self._warned_at = now
            wait = state.next_action.sleep
            LOG.warning("schema registry gives no answer: %s; asking again in %.1f s", state.outcome.exception(), wait)


_REGISTRIES: dict[tuple[int, RegistryAccess], Registry] = {}
_REGISTRIES_LOCK = threading.Lock()


def registry(access: RegistryAccess) -> Registry:
    """The one of this process. Raises ConfigError for settings that cannot be used."""
    # Connections are not to be shared with a fork.
    key = (os.getpid(), access)
    with _REGISTRIES_LOCK:
        if key not in _REGISTRIES:
            _REGISTRIES[key] = Registry(access)
        return _REGISTRIES[key]


def _complete(answer: Any) -> Any:
    if not isinstance(answer.schema_str, str):
        raise ValueError("an answer without a schema")
    return answer
