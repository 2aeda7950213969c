"""Asks the Kafka brokers for topic ids, log starts, read-committed ends, high watermarks and the cluster id.

Guarantee: a view shows one incarnation of each topic: it asks for ids and partitions before and after the offsets, and
starts again if they changed. An end is the last stable offset: no offset before it belongs to an open transaction. The
high watermark was asked for before it, so that offsets between them belong to, or lie behind, an open transaction. A
view is bounded in time and changes nothing. Raises Unavailable, UnknownTopic, AccessDenied, and ConfigError for
settings that librdkafka refuses and for brokers without topic ids (before 2.8): a recreated topic looks the same there.
"""

from __future__ import annotations

import difflib
import logging
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import closing, contextmanager
from functools import partial
from typing import Any, Protocol, TypeVar

import confluent_kafka as ck
from confluent_kafka.admin import OffsetSpec
from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_exponential

from coordination.errors import ConfigError, SinkError, Unavailable
from coordination.state.model import LogView, PartitionLog, TopicPartition
from sink.librdkafka import KafkaAdmin, make_admin, url_safe

LOG = logging.getLogger(__name__)
TIMEOUT_SECONDS = 10.0
GRACE_SECONDS = 1.0
"""Seconds to look for a missing topic: not every broker knows a new one at once."""
LIST_SECONDS = 30.0
"""Seconds between two requests for the list of all topics: a cluster may have many thousands of partitions."""

_Code = ck.KafkaError
_MISSING = {_Code.UNKNOWN_TOPIC_OR_PART, _Code._UNKNOWN_TOPIC, _Code.TOPIC_EXCEPTION}
_DENIED = {
    _Code.TOPIC_AUTHORIZATION_FAILED,
    _Code.CLUSTER_AUTHORIZATION_FAILED,
    _Code.SASL_AUTHENTICATION_FAILED,
    _Code._AUTHENTICATION,
}
_UNSETTLED = {
    _Code.NOT_LEADER_FOR_PARTITION,
    _Code.LEADER_NOT_AVAILABLE,
    _Code.REPLICA_NOT_AVAILABLE,
    _Code.OFFSET_NOT_AVAILABLE,
    _Code.FENCED_LEADER_EPOCH,
    _Code.UNKNOWN_LEADER_EPOCH,
    _Code.UNKNOWN_TOPIC_OR_PART,
    _Code._UNKNOWN_PARTITION,
    _Code._UNKNOWN_TOPIC,
}
"""Error codes of a partition while its topic is created or moved."""

_COMMITTED = ck.IsolationLevel.READ_COMMITTED
_NO_ID = "A" * 22
"""The topic id, all zeros, of brokers that know none."""

_T = TypeVar("_T")
_Topics = dict[str, tuple[str, tuple[int, ...]]]


class LogSource(Protocol):
    """Takes views, in this process (`Log`) or through a child process (`sink.clients.kafka.shared_log.SharedLog`)."""

    def view(self, topics: Sequence[str], pattern: str | None = None, optional: Sequence[str] = ()) -> LogView: ...


class UnknownTopic(SinkError):
    """The cluster has no topic of that name."""

    def __init__(self, topics: Sequence[str], bootstrap: str, similar_names: Sequence[str]) -> None:
        hint = f" (near it: {', '.join(similar_names)})" if similar_names else ""
        super().__init__(
            f"no such topic at {bootstrap}: {', '.join(topics)}{hint}. Create it or correct kafka.topic.names."
        )
        self.topics, self.similar_names = tuple(topics), tuple(similar_names)
        self._arguments = self.topics, bootstrap, self.similar_names

    def __reduce__(self) -> tuple[type[UnknownTopic], tuple[Sequence[str], str, Sequence[str]]]:
        """Pickles the arguments: by default Python would pickle the text."""
        return UnknownTopic, self._arguments


class AccessDenied(SinkError):
    """The brokers refused the credentials or the request. Another attempt fails, too."""


class Unsettled(Unavailable):
    """The topics changed during the view, or a partition has no leader. Take the view again."""


class Log:
    """An Admin client, made at first use. Not thread-safe."""

    def __init__(self, native: Mapping[str, str], timeout: float = TIMEOUT_SECONDS) -> None:
        """`native` are librdkafka's settings, with `bootstrap.servers`. `timeout` bounds one question, in seconds."""
        self._native = native
        self._timeout = timeout
        self._bootstrap = self._native["bootstrap.servers"]
        self._admin: KafkaAdmin | None = None
        self._connection_errors: dict[int, str] = {}
        self._deadline = 0.0
        self._listed: tuple[float, tuple[str, ...]] | None = None

    def view(self, topics: Sequence[str], pattern: str | None = None, optional: Sequence[str] = ()) -> LogView:
        """Takes a view of `topics`, of the topics whose whole name matches `pattern`, and of the `optional` topics that
        the brokers know: the other optional topics are `deleted`. It lists topics at most every `LIST_SECONDS`."""
        return settled(lambda: self.view_once(topics, pattern, optional), self._timeout)

    def view_once(self, topics: Sequence[str], pattern: str | None = None, optional: Sequence[str] = ()) -> LogView:
        """Takes a view, like `view`, but does not wait for the topics to settle: raises Unsettled or UnknownTopic."""
        with self._asking() as admin:
            return self._take_view(admin, tuple(topics), pattern, tuple(optional))

    def topics(self, pattern: str | None = None) -> tuple[str, ...]:
        """Returns the names of all topics that this user may see, or of those whose whole name matches `pattern`. It
        lists topics at most every `LIST_SECONDS`."""
        with self._asking() as admin:
            return self._names(admin, pattern)

    def offsets_at(self, partitions: Sequence[TopicPartition], seconds: float) -> dict[TopicPartition, int | None]:
        """Returns the first offset of each partition with a timestamp of at least `seconds` since 1970. Raises what
        `view` raises."""
        if not partitions:
            return {}
        spec = OffsetSpec.for_timestamp(int(seconds * 1000))
        with self._asking() as admin:
            offsets = self._results(self._list_offsets(admin, partitions, spec, _COMMITTED))
        return {topic_partition: offset if offset >= 0 else None for topic_partition, offset in offsets.items()}

    def close(self) -> None:
        """Drops the connections. A later view opens new ones."""
        if self._admin is not None:
            self._admin.close()
        self._admin = None

    @contextmanager
    def _asking(self) -> Iterator[KafkaAdmin]:
        """Gives a client for questions that take `timeout` seconds together."""
        self._deadline = time.monotonic() + self._timeout
        if self._admin is None:
            settings: dict[str, Any] = {**self._native, "error_cb": partial(_note, self._connection_errors)}
            self._admin = make_admin(settings, QuietLogger())
        self._admin.poll(0)
        self._connection_errors.clear()
        try:
            yield self._admin
        except Unavailable as error:
            if not isinstance(error, Unsettled):
                # librdkafka waits for the controller that it knows, also where that broker is gone for good.
                self.close()
            raise

    def _take_view(
        self, admin: KafkaAdmin, required: Sequence[str], pattern: str | None, optional: Sequence[str]
    ) -> LogView:
        matching = None if pattern is None else self._names(admin, pattern)
        topics = tuple(dict.fromkeys([*required, *optional, *(matching or ())]))
        if not topics and matching is None:
            raise ValueError("no topic to look at")
        cluster = self._answer(
            "cluster id", lambda seconds_left: admin.describe_cluster(request_timeout=seconds_left)
        ).cluster_id
        descriptions, missing = self._describe(admin, topics)
        if missing:
            self._listed = None
            if unknown := [topic for topic in missing if topic in required]:
                raise UnknownTopic(unknown, self._bootstrap, self._similar_names(admin, unknown))
            if any(topic in (matching or ()) for topic in missing):
                raise Unsettled(f"{', '.join(missing)} went while {self._bootstrap} was asked")
        if without_id := [topic for topic, (topic_id, _) in descriptions.items() if topic_id == _NO_ID]:
            raise ConfigError(
                f"Kafka at {self._bootstrap} gives {', '.join(without_id)} no topic id, by which the sink tells a topic"
                " from one that was created again. Upgrade the brokers to 2.8 or later."
            )
        if not descriptions:
            return LogView(cluster, {}, matching=matching, deleted=missing)
        partitions = [TopicPartition(topic, number) for topic in descriptions for number in descriptions[topic][1]]
        starts, high_watermarks, ends = self._offsets(admin, partitions)
        if self._describe(admin, tuple(descriptions)) != (descriptions, ()):
            raise Unsettled(
                f"{', '.join(topics)} changed on {self._bootstrap} during the view. The sink takes it again."
            )
        log_ranges = {
            partition: PartitionLog(
                descriptions[partition.topic][0], starts[partition], ends[partition], high_watermarks[partition]
            )
            for partition in partitions
        }
        return LogView(cluster, log_ranges, matching=matching, deleted=missing)

    def _names(self, admin: KafkaAdmin, pattern: str | None) -> tuple[str, ...]:
        if self._listed is None or time.monotonic() > self._listed[0] + LIST_SECONDS:
            try:
                names = admin.list_topics(timeout=self._seconds_left()).topics
            except ck.KafkaException as error:
                raise self._request_error("list of topics", error.args[0]) from error
            self._listed = time.monotonic(), tuple(sorted(names))
        return tuple(name for name in self._listed[1] if pattern is None or re.fullmatch(pattern, name))

    def _describe(self, admin: KafkaAdmin, topics: Sequence[str]) -> tuple[_Topics, tuple[str, ...]]:
        """Returns topic id and partition numbers of each existing topic, and the missing topics."""
        if not topics:
            return {}, ()
        futures = self._submit(
            lambda seconds_left: admin.describe_topics(ck.TopicCollection(list(topics)), request_timeout=seconds_left)
        )
        topics_found: _Topics = {}
        missing = []
        for topic in topics:
            try:
                description = futures[topic].result(self._seconds_left())
            except ck.KafkaException as error:
                if error.args[0].code() not in _MISSING:
                    raise self._request_error(f"topic {topic}", error.args[0]) from error
                missing.append(topic)
            except FutureTimeout as error:
                raise self._no_answer(f"topic {topic}") from error
            else:
                topics_found[topic] = (
                    url_safe(description.topic_id),
                    tuple(sorted(partition.id for partition in description.partitions)),
                )
        return topics_found, tuple(missing)

    def _offsets(
        self, admin: KafkaAdmin, partitions: Sequence[TopicPartition]
    ) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int], dict[TopicPartition, int]]:
        """Returns log starts, high watermarks and ends, with three requests to each leader for any number of
        partitions. Asks for the ends last.
        """
        earliest, latest = OffsetSpec.earliest(), OffsetSpec.latest()  # type: ignore[no-untyped-call]
        requests = [
            self._list_offsets(admin, partitions, spec, isolation)
            for spec, isolation in ((earliest, _COMMITTED), (latest, ck.IsolationLevel.READ_UNCOMMITTED))
        ]
        starts, high_watermarks = (self._results(request) for request in requests)
        return starts, high_watermarks, self._results(self._list_offsets(admin, partitions, latest, _COMMITTED))

    def _list_offsets(
        self, admin: KafkaAdmin, partitions: Sequence[TopicPartition], spec: OffsetSpec, isolation: ck.IsolationLevel
    ) -> Mapping[ck.TopicPartition, Future[Any]]:
        wanted = {ck.TopicPartition(partition.topic, partition.partition): spec for partition in partitions}
        return self._submit(
            lambda seconds_left: admin.list_offsets(wanted, isolation_level=isolation, request_timeout=seconds_left)
        )

    def _results(self, request: Mapping[ck.TopicPartition, Future[Any]]) -> dict[TopicPartition, int]:
        return {
            TopicPartition(partition.topic, partition.partition): self._offset(partition, future)
            for partition, future in request.items()
        }

    def _offset(self, partition: ck.TopicPartition, future: Future[Any]) -> int:
        question = f"offsets of {partition.topic}-{partition.partition}"
        try:
            return int(future.result(self._seconds_left()).offset)
        except ck.KafkaException as error:
            if error.args[0].code() in _UNSETTLED:
                raise Unsettled(f"{question} at {self._bootstrap}: {error.args[0].str()}") from error
            raise self._request_error(question, error.args[0]) from error
        except FutureTimeout as error:
            raise self._no_answer(question) from error

    def _answer(self, question: str, ask: Callable[[float], Future[Any]]) -> Any:
        try:
            return self._submit(ask).result(self._seconds_left())
        except ck.KafkaException as error:
            raise self._request_error(question, error.args[0]) from error
        except FutureTimeout as error:
            raise self._no_answer(question) from error

    def _submit(self, ask: Callable[[float], _T]) -> _T:
        try:
            return ask(self._seconds_left())
        except ck.KafkaException as error:
            raise self._request_error("request", error.args[0]) from error

    def _seconds_left(self) -> float:
        """Returns the seconds until the time-out of the view; never 0, so that an available answer is read."""
        return max(self._deadline - time.monotonic(), 0.01)

    def _similar_names(self, admin: KafkaAdmin, missing: Iterable[str]) -> list[str]:
        try:
            names = [name for name in admin.list_topics(timeout=self._seconds_left()).topics if name[:2] != "__"]
        except ck.KafkaException as error:
            LOG.debug("no list of topics for a hint: %s", error)
            return []
        matches_by_topic = (difflib.get_close_matches(topic, names, 3) for topic in missing)
        return list(dict.fromkeys(name for names in matches_by_topic for name in names))

    def _request_error(self, question: str, error: ck.KafkaError) -> SinkError:
        if error.code() == _Code.TOPIC_AUTHORIZATION_FAILED:
            return AccessDenied(
                f"{question} at {self._bootstrap}: {error.str()}. Grant this user DESCRIBE and READ on the topic."
            )
        if error.code() in _DENIED:
            return AccessDenied(
                f"{question} at {self._bootstrap}: {error.str()}. Check kafka.security.protocol and kafka.sasl.*."
            )
        return self._no_answer(question, error.str())

    def _no_answer(self, question: str, reason: str = "out of time") -> SinkError:
        """Returns the error for a missing answer, with the connection errors since the view began."""
        if self._admin is not None:
            self._admin.poll(0)
        denial = next((message for code, message in self._connection_errors.items() if code in _DENIED), None)
        if denial is not None:
            return AccessDenied(
                f"{question} at {self._bootstrap}: {denial}. Check kafka.security.protocol and kafka.sasl.*."
            )
        causes = [message for code, message in self._connection_errors.items() if code != _Code._ALL_BROKERS_DOWN]
        if not causes:
            return Unavailable(
                f"Kafka at {self._bootstrap} gave no answer ({question}: {reason}). The sink asks again."
            )
        return Unavailable(
            f"Kafka at {self._bootstrap} cannot be reached ({question}: {causes[-1]}). Start it or correct "
            "kafka.bootstrap.servers."
        )


def _note(connection_errors: dict[int, str], error: ck.KafkaError) -> None:
    """Notes the error of a connection. librdkafka only calls this; the request itself times out."""
    connection_errors[error.code()] = error.str()


def settled(take_view: Callable[[], LogView], timeout: float) -> LogView:
    """Calls `take_view` again until the topics have settled. Raises its last error after `timeout` seconds, and an
    UnknownTopic after `GRACE_SECONDS`."""
    began = time.monotonic()

    def is_transient(error: BaseException) -> bool:
        is_missing_topic = isinstance(error, UnknownTopic) and time.monotonic() < began + GRACE_SECONDS
        return is_missing_topic or isinstance(error, Unsettled)

    retrying = Retrying(
        retry=retry_if_exception(is_transient),
        stop=stop_after_delay(timeout),
        wait=wait_exponential(multiplier=0.05, max=1),
        reraise=True,
    )
    return retrying(take_view)


def topics_of(native: Mapping[str, str], names: Sequence[str], pattern: str | None) -> tuple[str, ...]:
    """Returns a sink's topics: the named ones, or those that match the pattern now. Raises what a view raises."""
    if pattern is None:
        return tuple(names)
    with closing(Log(native)) as log:
        return log.topics(pattern)


class QuietLogger:
    """Logs librdkafka's lines at debug level instead of stderr. Errors contain the important ones."""

    def log(self, _level: int, msg: str, *values: object) -> None:
        LOG.debug("librdkafka " + msg, *values)
