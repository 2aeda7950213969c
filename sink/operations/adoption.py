"""Finds the Kafka offsets that another writer left in a table's commits, and plans how a sink begins exactly there.

Hudi Streamer and hudi-kafka-connect put their offsets into every commit: for each partition the offset to be read next.
The newest completed commit with offsets counts, in the active or the archived timeline; later commits of other writers
(a clustering, a new column) have none. An adoption is a reset of a sink that has not begun: it uses the same fence and
the same records, and does not touch the table.

A job that still writes the table voids it, and so does a topic that was created again, or another Kafka cluster: the
other writers record neither topic ids nor clusters, so that only offsets outside the log are detected. Until the sink's
first commit an adoption lives in ZooKeeper alone; adopt again if ZooKeeper was emptied. Errors: ConfigError (nothing
can be adopted, or not with these settings), Conflict (the sink, or another one, has begun, or workers are alive),
TableError, Unavailable.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

import structlog

from coordination.errors import ConfigError, Conflict, SinkError, TableError, in_sentences
from coordination.state.codec import decode_checkpoint
from coordination.state.model import NO_TRANSACTION, LogView, TopicPartition
from coordination.state.tree import KeeperView
from coordination.zookeeper.keeper import Keeper
from sink.config import Settings
from sink.hudi.client import TABLE_VERSION
from sink.hudi.commits import active_names, read_commits, readable
from sink.operations.reset import Reset, ResetRequest, TimelineSnapshot, plan_reset
from sink.operations.reset_checks import is_interrupted
from sink.storage.access import NO_ACCESS, Access
from sink.storage.table_files import UPGRADE, open_table

STREAMER_V2 = ("streamer.checkpoint.key.v2", "streamer.checkpoint.reset.key.v2")
STREAMER_V1 = ("deltastreamer.checkpoint.key", "deltastreamer.checkpoint.reset_key")
"""The keys of the offsets, and of a `--checkpoint` that replaces them. Hudi looks at version 2 first."""
CONNECT = "kafka.commit.offsets"

_STREAMER = re.compile(r"(?P<topic>[A-Za-z0-9._-]{1,249})(?P<pairs>(,\d{1,9}:\d{1,18})+)", re.ASCII)
_CONNECT = re.compile(r"\d{1,9}=\d{1,18}(,\d{1,9}=\d{1,18})*", re.ASCII)
_MAX_QUOTED = 200
LOG = structlog.get_logger("sink.worker")


class Tool(Enum):
    STREAMER = "Hudi Streamer"
    CONNECT = "hudi-kafka-connect"


@dataclass(frozen=True, slots=True)
class CommitOffsets:
    """Offsets that `tool` wrote under `key` into the commit of `instant`. `text` is empty if the commit only records a
    `--checkpoint`.
    """

    tool: Tool
    key: str
    instant: str
    text: str

    def __str__(self) -> str:
        return f"commit {self.instant}, {self.key} of {self.tool.value}"


@dataclass(frozen=True, slots=True)
class ForeignOffsets:
    """The newest offsets of other writers in the whole timeline, and the topics that each sink has read."""

    newest: tuple[CommitOffsets, ...]
    sinks: Mapping[str, frozenset[str]]


def read_foreign_offsets(base_path: str, access: Access = NO_ACCESS) -> ForeignOffsets:
    """Reads the whole timeline: only then it is known that there are no offsets."""
    newest: tuple[CommitOffsets, ...] = ()
    sinks: dict[str, frozenset[str]] = {}
    table = open_table(base_path, access)
    with readable(base_path):
        names = active_names(table)
    for commit in read_commits(table, names):
        for sink, text in commit.checkpoints.items():
            origin = f"{base_path}: checkpoint of sink {sink} in commit {commit.instant}"
            sinks[sink] = sinks.get(sink, frozenset()) | set(decode_checkpoint(text, origin).topics)
        in_commit = tuple(offsets_in_commit(commit.extra, commit.instant))
        if in_commit and (not newest or commit.instant > newest[0].instant):
            newest = in_commit
    return ForeignOffsets(newest, sinks)


def offsets_in_commit(extra: Mapping[str, str], instant: str) -> Iterator[CommitOffsets]:
    """Yields other writers' offsets in a commit's extra metadata."""
    for key, reset_key in (STREAMER_V2, STREAMER_V1):
        if extra.get(key) or extra.get(reset_key):
            yield CommitOffsets(Tool.STREAMER, key, instant, extra.get(key) or "")
            break
    if extra.get(CONNECT):
        yield CommitOffsets(Tool.CONNECT, CONNECT, instant, extra[CONNECT])


def unadopted_offsets_warning(foreign_offsets: ForeignOffsets, sink: str, view: KeeperView) -> str | None:
    """Returns a warning if a new sink would ignore the offsets of another tool in its table. Pure."""
    if not foreign_offsets.newest or sink in foreign_offsets.sinks or view.states:
        return None
    return (
        f"{foreign_offsets.newest[0]}: found offsets, and sink {sink} has not begun in this table. To resume at these"
        " offsets, run `sink adopt` before the first worker starts."
    )


def choose(base_path: str, foreign_offsets: ForeignOffsets) -> CommitOffsets:
    """Returns the offsets to adopt. Raises ConfigError if there are none, or several."""
    if not foreign_offsets.newest:
        raise ConfigError(
            f"{base_path}: no commit has offsets of Hudi Streamer or hudi-kafka-connect. There is nothing to adopt,"
            " name the offsets with `sink reset --offset`."
        )
    if len(foreign_offsets.newest) > 1:
        first, second = foreign_offsets.newest
        raise ConfigError(
            f"{base_path}: {first} and {second.key} of {second.tool.value} are in one commit. Name the offsets that"
            " count with `sink reset --offset`."
        )
    return foreign_offsets.newest[0]


def offsets_of(
    commit_offsets: CommitOffsets, topics: Sequence[str], topic: str | None = None
) -> dict[TopicPartition, int]:
    """Returns the next offset to be read by partition, all of configured `topics`. hudi-kafka-connect does not record
    the topic: `topic` names it if several are configured.
    """
    if topic is not None and topic not in topics:
        raise ConfigError(f"--topic {topic} is not one of kafka.topic.names ({', '.join(topics)})")
    if commit_offsets.tool is Tool.CONNECT:
        if topic is None and len(topics) > 1:
            raise ConfigError(
                f"{commit_offsets}: it does not say of which topic its offsets are, and kafka.topic.names has"
                f" {', '.join(topics)}. Name it with --topic."
            )
        return _connect(commit_offsets, topic or topics[0])
    offsets = (
        _streamers(commit_offsets)
        if commit_offsets.text.startswith("{")
        else _streamer(commit_offsets, commit_offsets.text)
    )
    found_topics = sorted({partition.topic for partition in offsets})
    if unknown := [name for name in found_topics if name not in topics]:
        raise ConfigError(
            f"{commit_offsets}: offsets of {', '.join(found_topics)}, but kafka.topic.names is {', '.join(topics)}. Add"
            f" {', '.join(unknown)}, or begin elsewhere with `sink reset --offset`."
        )
    if topic is not None and found_topics != [topic]:
        raise ConfigError(f"{commit_offsets}: offsets of {', '.join(found_topics)}, not of {topic}. Leave --topic out.")
    return offsets


def _streamer(commit_offsets: CommitOffsets, text: str) -> dict[TopicPartition, int]:
    """Parses `orders,0:120,1:80`, the format of Streamer's Kafka sources."""
    match = _STREAMER.fullmatch(text)
    if match is None:
        raise _unreadable(commit_offsets, text, "TOPIC,PARTITION:OFFSET,...")
    return _pairs(commit_offsets, match["topic"], match["pairs"][1:], ":")


def _streamers(commit_offsets: CommitOffsets) -> dict[TopicPartition, int]:
    """Parses `{"a": "orders,0:120", "b": "payments,0:7"}`: several Streamers of one table, by their identifiers."""
    try:
        parts = json.loads(commit_offsets.text)
    except (ValueError, RecursionError):
        raise _unreadable(commit_offsets, commit_offsets.text, "JSON") from None
    offsets: dict[TopicPartition, int] = {}
    for value in parts.values():
        for partition, offset in _streamer(commit_offsets, str(value)).items():
            if partition in offsets:
                raise ConfigError(
                    f"{commit_offsets}: two writers have read {partition}, one up to {offsets[partition]}, one up to"
                    f" {offset}. Name the offsets that count with `sink reset --offset`."
                )
            offsets[partition] = offset
    if not offsets:
        raise _unreadable(commit_offsets, commit_offsets.text, "TOPIC,PARTITION:OFFSET,...")
    return offsets


def _connect(commit_offsets: CommitOffsets, topic: str) -> dict[TopicPartition, int]:
    """Parses `0=120,1=80`."""
    if _CONNECT.fullmatch(commit_offsets.text) is None:
        raise _unreadable(commit_offsets, commit_offsets.text, "PARTITION=OFFSET,...")
    return _pairs(commit_offsets, topic, commit_offsets.text, "=")


def _pairs(commit_offsets: CommitOffsets, topic: str, text: str, sign: str) -> dict[TopicPartition, int]:
    offsets: dict[TopicPartition, int] = {}
    for pair in text.split(","):
        partition, _, offset = pair.partition(sign)
        topic_partition = TopicPartition(topic, int(partition))
        if topic_partition in offsets:
            raise ConfigError(
                f"{commit_offsets}: names {topic_partition} twice. Name the offsets that count with `sink reset"
                " --offset`."
            )
        offsets[topic_partition] = int(offset)
    return offsets


def _unreadable(commit_offsets: CommitOffsets, text: str, form: str) -> ConfigError:
    problem = f"{text[:_MAX_QUOTED]!r} is not {form}" if text else "it was reset, and says no offsets"
    return ConfigError(
        f"{commit_offsets}: {problem}: nothing that was read from Kafka can be gone on with. Name the offsets with"
        " `sink reset --offset`."
    )


def require_current_version(base_path: str, access: Access = NO_ACCESS) -> None:
    """Raises TableError for a table version that no worker would open: the operator learns it before the adoption."""
    version = open_table(base_path, access).properties.get("hoodie.table.version", "")
    if version != str(TABLE_VERSION):
        raise TableError(f"{base_path}: the table's version: {version}. The sink writes {TABLE_VERSION}. {UPGRADE}")


def require_not_begun(
    sink: str, table: TimelineSnapshot, foreign_offsets: ForeignOffsets, topics: Sequence[str]
) -> None:
    """Raises Conflict if this sink has a checkpoint in the table, or another sink has read one of `topics`."""
    if table.checkpoint is not None:
        raise Conflict(
            f"sink {sink} has committed to this table already, up to transaction {table.checkpoint.number}: to adopt"
            " offsets now would repeat records or lose them. A sink that has begun is moved with `sink reset`."
        )
    for other_sink, topics_read in sorted(foreign_offsets.sinks.items()):
        if shared_topics := sorted(topics_read & set(topics)):
            raise Conflict(
                f"sink {other_sink} has read {', '.join(shared_topics)} into this table: the offsets of the writer"
                " before it are behind what the table holds. Go on with that sink.name."
            )


def adopt(
    view: KeeperView, sink: str, offsets: Mapping[TopicPartition, int], table: TimelineSnapshot, log: LogView
) -> Reset:
    """Returns the reset that makes `sink` begin at `offsets`. Raises Conflict and ConfigError. Pure."""
    committed = max((state.end for state in view.states.values() if state.end > state.start), default=None)
    if view.ledger.committed != NO_TRANSACTION or committed is not None:
        raise Conflict(
            f"ZooKeeper records that sink {sink} has committed, but the table has no checkpoint of it: it was restored"
            " or made anew. Drop what is recorded with `sink reset --forget --yes`, then adopt again."
        )
    if view.transactions:
        number = view.transactions[0].header.number
        raise Conflict(
            f"sink {sink} has begun to read from elsewhere: its transaction {number} is open. Drop what is recorded"
            " with `sink reset --forget --yes`, then adopt again."
        )
    if view.halt is not None and not is_interrupted(view):
        halted = f"sink {sink} has halted: {view.halt.reason}"
        raise Conflict(in_sentences(halted, "Clear that with `sink reset`, then adopt again."))
    for partition, offset in sorted(offsets.items()):
        log_range = log.partitions.get(partition)
        if log_range is None:
            raise ConfigError(f"{partition}: offset {offset} was left in the table, but Kafka has no such partition")
        if not log_range.start <= offset <= log_range.end:
            raise ConfigError(
                f"{partition}: offset {offset} is outside the log, [{log_range.start}, {log_range.end}]: Kafka has"
                " deleted records that were not read, or this is another topic or cluster than that which was read."
                " Decide with `sink reset --offset`."
            )
    return plan_reset(view, ResetRequest(offsets=offsets), table, log)


def warn_of_foreign_offsets(settings: Settings, keeper: Keeper) -> None:
    """Warns of another tool's offsets, as `sink validate` does before a worker is started."""
    try:
        view = keeper.read()
        if view.states:
            return
        if warning := unadopted_offsets_warning(
            read_foreign_offsets(settings.base_path, settings.storage), settings.name, view
        ):
            LOG.warning("table.not_adopted", reason=warning)
    except SinkError as error:
        LOG.debug("table.offsets_unread", reason=str(error))
