"""Clients of Kafka: every consumer, admin client and producer of the sink is made here, with the same settings. (The
auditor, which shares no code with the sink, makes its own.)

Guarantee: a `LogConsumer` gives records only of the topics, by id, and of the cluster that it was told to expect; it
raises WrongLog otherwise, also where its connections come to another cluster, or the topic is created again, while it
reads. librdkafka fetches by topic id (from Kafka 3.1 on), and logs each id that a topic's name stands for before it
fetches by it; the consumer reads these lines. They come without a request. A consumer reads committed records unless
it is told otherwise, checks the checksum of every batch, tells where a partition ends, and stores no offset. Void for
brokers before 3.1, which are asked by name. Imports only what every executor has. Raises ConfigError for settings that
librdkafka refuses.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from coordination.errors import ConfigError, DamagedLog, WrongLog

DEFAULTS: Mapping[str, Any] = {
    "reconnect.backoff.ms": "250",
    "reconnect.backoff.max.ms": "2000",
    # A broker sends whole record batches, however small the fetch: accept every size.
    "receive.message.max.bytes": str((1 << 31) - 1),
}
"""Defaults of all clients, which a user's `kafka.*` may override."""
FETCH_BYTES = 16 << 20
"""The most bytes of a consumer's fetch, beyond its first batch. A user's `kafka.fetch.max.bytes` overrides it."""
_FETCH_OVERHEAD = 512
REQUIRED: Mapping[str, Any] = {
    "isolation.level": "read_committed",
    "check.crcs": True,
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "enable.partition.eof": True,
    "allow.auto.create.topics": False,
    # The lines that name clusters and topic ids are at the level of debugging.
    "log_level": 7,
}
"""Settings of a consumer that no user changes."""
_IDENTITIES = "metadata"
"""The kind of librdkafka's debug lines that name clusters and topic ids."""
_NO_KERBEROS = "No provider for SASL mechanism GSSAPI"
_TOPIC_ID = re.compile(r"Topic (?P<topic>\S+) changed id from \S+ to (?P<id>\S+)\Z")
_IDENTITY_SECONDS = 5.0
_CLUSTER = re.compile(r"ClusterId: (?P<cluster>\S+), ControllerId: ")
_DAMAGED = {KafkaError._BAD_MSG, KafkaError._BAD_COMPRESSION, KafkaError._NOT_IMPLEMENTED}
NO_TOPIC_ID = "A" * 22
"""The id of topics of brokers that give none: a UUID of zeros."""


class Logger(Protocol):
    """Takes librdkafka's lines: level, format, facility, client, text."""

    def log(self, level: int, msg: str, /, *values: Any) -> None: ...


class LogConsumer:
    """A consumer that is bound to clusters and topic ids. Not thread-safe."""

    def __init__(self, settings: Mapping[str, Any], logger: Logger, isolation: str = "read_committed") -> None:
        kinds = [kind for kind in str(settings.get("debug", "")).split(",") if kind]
        debug = ",".join(dict.fromkeys([*kinds, _IDENTITIES]))
        self._identities = _Identities(logger)
        self._expected: Mapping[str, str] = {}
        self._cluster = ""
        forced = {**REQUIRED, "isolation.level": isolation, "debug": debug}
        try:
            self._client = Consumer(_with_fetch_size({**DEFAULTS, **settings, **forced}), logger=self._identities)
        except KafkaException as error:
            raise refusal(error) from error

    def serve(self) -> None:
        """Takes the lines that librdkafka wrote while nothing was consumed. They would fill the memory of a consumer
        that is kept and not used. Call it while nothing is assigned."""
        self._client.consume(1, 0.0)

    def fits(self, cluster: str, topic_ids: Mapping[str, str]) -> bool:
        """Whether it may read from this cluster and these topics: it has seen no other ids of them. An empty cluster is
        any."""
        known = (*self._identities.topic_ids.items(), *self._identities.history)
        is_same_cluster = not (cluster and self._identities.clusters) or self._identities.clusters == {cluster}
        return is_same_cluster and all(topic_ids.get(topic, topic_id) == topic_id for topic, topic_id in known)

    def expect(self, cluster: str, topic_ids: Mapping[str, str]) -> None:
        """Binds it to a cluster and to topics by their ids, in URL-safe base64. Call it before `assign`. An empty
        cluster is any. Raises WrongLog if it knows others already."""
        self._cluster, self._expected = cluster, dict(topic_ids)
        self._identities.changed = True
        self._verify()

    def read_from(self, topic: str) -> tuple[str, str]:
        """Returns cluster and topic id that the records came from which it gave so far. Raises WrongLog if the brokers
        have not said which."""
        self._verify()
        cluster, topic_id = self._cluster_id(), self._identities.topic_ids.get(topic, NO_TOPIC_ID)
        if topic_id != self._expected[topic] or (self._cluster and cluster != self._cluster):
            raise WrongLog(topic, (self._cluster, self._expected[topic]), (cluster, topic_id))
        return cluster, topic_id

    def consume(self, count: int, seconds: float) -> list[Message]:
        """Returns up to `count` messages after at most `seconds`. Raises WrongLog."""
        messages = self._client.consume(count, seconds)
        self._verify()
        return messages

    def _verify(self) -> None:
        """Raises WrongLog if a topic or cluster has become another one since the last call, even for a moment."""
        if not self._identities.changed:
            return
        self._identities.changed = False
        history, self._identities.history = self._identities.history, []
        for topic, topic_id in (*self._identities.topic_ids.items(), *history):
            if self._expected.get(topic, topic_id) != topic_id:
                self._raise_wrong(topic, topic_id)
        if self._cluster and self._identities.clusters - {self._cluster}:
            topic = next(iter(self._expected), "")
            self._raise_wrong(topic, self._identities.topic_ids.get(topic, ""))

    def _raise_wrong(self, topic: str, topic_id: str) -> None:
        # A later call must not pass.
        self._identities.changed = True
        self._identities.history.append((topic, topic_id))
        others = self._identities.clusters - {self._cluster} if self._cluster else self._identities.clusters
        # The line that names the cluster may come before or after the one that names the topic's id.
        cluster = ", ".join(sorted(others)) or self._cluster_id()
        found = (cluster, topic_id or self._named_topic_id(topic))
        raise WrongLog(topic, (self._cluster, self._expected.get(topic, "")), found)

    def _cluster_id(self) -> str:
        """Returns the cluster's id by the brokers' answers; an empty text if they name none within some seconds. Asks
        nothing. librdkafka may give records of a cluster before it has taken over its id."""
        try:
            return self._client.cluster_id(_IDENTITY_SECONDS) or ""
        except KafkaException:
            return ""

    def _named_topic_id(self, topic: str) -> str:
        """Returns the id that the brokers give the topic; an empty text if they name none within some seconds. The
        messages that come meanwhile are of another cluster, and are dropped."""
        deadline = time.monotonic() + _IDENTITY_SECONDS
        while topic not in self._identities.topic_ids and time.monotonic() < deadline:
            self._client.consume(1, 0.1)
        return self._identities.topic_ids.get(topic, "")

    # The rest of the consumer

    def assign(self, partitions: Sequence[TopicPartition]) -> None:
        self._require_expected(partitions)
        self._client.assign(list(partitions))

    def incremental_assign(self, partitions: Sequence[TopicPartition]) -> None:
        self._require_expected(partitions)
        self._client.incremental_assign(list(partitions))

    def _require_expected(self, partitions: Sequence[TopicPartition]) -> None:
        unexpected = {partition.topic for partition in partitions} - self._expected.keys()
        assert not unexpected, f"no topic id is expected of {unexpected}: call `expect`"

    def incremental_unassign(self, partitions: Sequence[TopicPartition]) -> None:
        self._client.incremental_unassign(list(partitions))

    def unassign(self) -> None:
        self._client.unassign()

    def pause(self, partitions: Sequence[TopicPartition]) -> None:
        self._client.pause(list(partitions))

    def close(self) -> None:
        self._client.close()


def _with_fetch_size(settings: dict[str, Any]) -> dict[str, Any]:
    """Adds the most bytes of a fetch: librdkafka refuses a default of its own that is above what it may receive."""
    most = str(settings["receive.message.max.bytes"])
    fits = min(FETCH_BYTES, int(most) - _FETCH_OVERHEAD) if most.isdigit() else FETCH_BYTES
    return {"fetch.max.bytes": str(fits), **settings}


class _Identities:
    """Reads clusters and topic ids from librdkafka's lines, and hands the lines on. librdkafka calls it within
    `consume`, in the order in which its threads wrote the lines and fetched the records."""

    def __init__(self, logger: Logger) -> None:
        self._logger = logger
        self.topic_ids: dict[str, str] = {}
        self.clusters: set[str] = set()
        self.history: list[tuple[str, str]] = []
        """Topics and the ids that they got since the consumer looked last."""
        self.changed = False

    def log(self, level: int, msg: str, *values: Any) -> None:
        text = str(values[-1]) if values else ""
        if "hanged id from" in text and (match := _TOPIC_ID.search(text)) is not None:
            topic, topic_id = match["topic"], url_safe(match["id"])
            self.topic_ids[topic] = topic_id
            self.history.append((topic, topic_id))
            self.changed = True
        elif "ClusterId: " in text and (match := _CLUSTER.search(text)) is not None:
            self.changed |= match["cluster"] not in self.clusters
            self.clusters.add(match["cluster"])
        self._logger.log(level, msg, *values)


def damage_of(message: Message) -> DamagedLog | None:
    """Returns the error for a batch that cannot be read as it is in the broker's log; None for anything else.
    librdkafka goes on behind that batch: its records would be missing."""
    error = message.error()
    if error is None or error.code() not in _DAMAGED:
        return None
    reason = (
        f"{error.str()}. The broker's log is damaged there: let another replica lead the partition, or delete its"
        " records up to there (see on.data.loss)."
    )
    return DamagedLog(str(message.topic()), int(message.partition() or 0), int(message.offset() or 0), reason)


class KafkaAdmin(AdminClient):
    """An AdminClient that its owner closes. Answers are taken by a thread of librdkafka's, on which Python may collect
    garbage; a client that is destroyed there, because its owner forgot it with a question open, aborts the process."""

    def close(self) -> None:
        """Drops the connections. Questions that are open get no answer."""
        self.__exit__(None, None, None)


def make_admin(settings: Mapping[str, Any], logger: Logger) -> KafkaAdmin:
    try:
        return KafkaAdmin({**DEFAULTS, **settings}, logger=logger)
    except KafkaException as error:
        raise refusal(error) from error


def make_producer(settings: Mapping[str, Any], logger: Logger) -> Producer:
    try:
        return Producer({**DEFAULTS, **settings}, logger=logger)
    except KafkaException as error:
        raise refusal(error) from error


def url_safe(topic_id: object) -> str:
    """Returns a topic id in the URL-safe base64 of Kafka's tools; librdkafka prints plain base64."""
    return str(topic_id).replace("+", "-").replace("/", "_")


def refusal(error: KafkaException) -> ConfigError:
    """Returns the error for settings with which librdkafka makes no client."""
    reason = error.args[0].str()
    if _NO_KERBEROS in reason:
        return ConfigError(
            "kafka.sasl.mechanism: GSSAPI (Kerberos) needs a confluent-kafka that was built with it, and this one was"
            " not. Build its wheel with packaging/kafka-kerberos, and install it here and on all hosts of executors."
        )
    return ConfigError(f"kafka.*: {reason}. Correct or remove the setting.")
