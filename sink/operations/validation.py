"""Checks a configuration against the live servers, the storage and the table, and reports all problems at once.

Each check is independent of the others and leaves no change: at most it makes an ephemeral znode and a file that it
deletes again. Results hold for the moment of the check only. Raises nothing: a check that cannot be made is a finding.
"""

from __future__ import annotations

import json
import socket
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import confluent_kafka as ck
from kazoo.exceptions import KazooException, NoAuthError
from kazoo.handlers.threading import KazooTimeoutError

from coordination.errors import ConfigError, SinkError, Unavailable, WrongLog
from coordination.state.model import LogView
from coordination.zookeeper.keeper import Keeper
from sink.clients.java.errors import JAVA_ERRORS, message
from sink.clients.java.installation import find_java, require_heap
from sink.clients.kafka.log import Log, QuietLogger, UnknownTopic, topics_of
from sink.clients.spark.session import bare_jvm
from sink.clients.spark.storage_probe import Jvm, probed
from sink.clients.zookeeper.session import connected, require_chroot
from sink.config import Settings
from sink.config.hudi_keys import notes
from sink.config.record_formats import registry_access, value_format
from sink.decode.column_records import UnusableSchema
from sink.decode.debezium import event_type
from sink.decode.records import SchemaMismatch
from sink.decode.registry.client import Registry
from sink.hudi.creation import columns_conflict, index_conflict, schema_conflicts
from sink.hudi.existing_rows import rows_conflict
from sink.hudi.files import Content, inspect_base_path
from sink.hudi.options import preflight_errors
from sink.hudi.placement import BUCKETS, LOCK_IDENTITY
from sink.hudi.shared_lock import LockIdentity, lock_conflict
from sink.infer.record_types import select_message
from sink.librdkafka import make_admin
from sink.operations.adoption import read_foreign_offsets, unadopted_offsets_warning
from sink.operations.check_results import CheckResult
from sink.operations.record_checks import REGISTRY_SECONDS, check_records
from sink.operations.table_version import require_own_table
from sink.operations.timeline_snapshot import read_timeline_snapshot
from sink.schema.table_schema import TableSchema
from sink.storage.files import is_reachable, open_storage, unwritable
from sink.write.engines.task_input import require_valid_consumer
from sink.write.rows.row_spec import spec_of, table_schema
from sink.write.rows.value_rules import left_open

METASTORE_SECONDS = 5.0
_NEEDED = ("settings", "schema", "Kafka")
"""Parts without which records are not looked at."""


def validate(settings: Settings, jvm: Jvm = bare_jvm, sample: bool = False) -> list[CheckResult]:
    """Returns each finding once, in the order of the parts. `jvm` returns the JVM that tries the table's store. With
    `sample` it reads the last records of the topics, if what they need is right."""
    schema, findings = _schema(settings)
    checks: list[tuple[str, Callable[[], Iterator[CheckResult]]]] = [
        ("Java", lambda: _java(settings)),
        ("logs", lambda: _logs(settings)),
        ("ZooKeeper", lambda: _zookeeper(settings)),
        ("Kafka", lambda: _kafka(settings)),
        ("Kafka", lambda: _reader(settings)),
        ("schema registry", lambda: _registry(settings, schema)),
        ("table", lambda: _table(settings, schema, jvm)),
        ("table", lambda: _lock(settings)),
        ("errors table", lambda: _errors(settings)),
        ("offsets", lambda: _offsets(settings)),
        ("catalogue", lambda: _catalog(settings)),
        ("Hudi", lambda: (CheckResult("Hudi", sentence, note=True) for sentence in notes(settings.hudi))),
    ]
    for part, check in checks:
        try:
            findings += check()
        except SinkError as error:
            findings.append(CheckResult(part, str(error), wrong=True))
    if sample and schema is not None and not any(finding.wrong and finding.part in _NEEDED for finding in findings):
        try:
            findings += check_records(settings, schema)
        except SinkError as error:
            findings.append(CheckResult("records", str(error), wrong=True))
    return list({finding.sentence: finding for finding in reversed(findings)}.values())[::-1]


def _schema(settings: Settings) -> tuple[TableSchema | None, list[CheckResult]]:
    """Checks the columns, and whether table and engine support the settings."""
    warnings: list[str] = []
    origin = f"schema.file ({settings.schema_file})" if settings.schema_file else "schema.ddl"
    try:
        schema = table_schema(settings.table, settings.records, origin, warnings.append)
        setting_errors = list(preflight_errors(settings.table, schema))
        if settings.operation != "upsert" or not setting_errors:
            spec_of(settings.table, settings.records, schema).decoder()
    except SinkError as error:
        return None, [CheckResult("schema", str(error), wrong=True)]
    columns = schema.spark.names
    summary = f"{len(columns)} columns: {', '.join(columns[:12])}{', ...' if columns[12:] else ''}"
    findings = [CheckResult("schema", sentence) for sentence in (summary, *warnings)]
    findings += [CheckResult("values", sentence, note=True) for sentence in left_open(settings.records.form, schema)]
    return schema, findings + [CheckResult("settings", str(error), wrong=True) for error in setting_errors]


def _java(settings: Settings) -> Iterator[CheckResult]:
    java = find_java()
    if heap := settings.spark.get("spark.driver.memory"):
        require_heap(java, heap)
    yield CheckResult("Java", f"Java {java.version} at {java.binary}")


def _logs(settings: Settings) -> Iterator[CheckResult]:
    directory = settings.log_dir.absolute()
    fault = unwritable(directory)
    sentence = f"log.dir: {fault.sentence}" if fault else f"{directory} can be written"
    yield CheckResult("logs", sentence, wrong=bool(fault))


def _zookeeper(settings: Settings) -> Iterator[CheckResult]:
    with connected(settings.ensemble) as client:
        yield CheckResult("ZooKeeper", f"{settings.zookeeper} answers")
        root = settings.root_znode
        keeper = Keeper(client, root, lambda: None)
        try:
            require_chroot(client)
            keeper.require_own_version()
            existing = root
            while existing and client.exists(existing) is None:
                existing = existing.rpartition("/")[0]
            probe = client.create(f"{existing}/sink-validate-{uuid.uuid4().hex}", b"", ephemeral=True)
            client.delete(probe)
        except NoAuthError:
            yield CheckResult(
                "ZooKeeper", f"{existing or '/'} may not be written by this user. Correct its ACL.", wrong=True
            )
        except ConfigError as error:
            yield CheckResult("ZooKeeper", str(error), wrong=True)
        except (KazooException, KazooTimeoutError) as error:
            raise Unavailable(f"ZooKeeper at {settings.zookeeper} stopped answering ({error!r}). Try again.") from error
        else:
            yield CheckResult("ZooKeeper", f"{existing or '/'} can be written")
        yield from _fleet(settings, keeper)


def _fleet(settings: Settings, keeper: Keeper) -> Iterator[CheckResult]:
    view = keeper.read()
    if view.info is None:
        yield CheckResult("fleet", f"no sink {settings.name} yet")
        return
    if view.halt is not None:
        yield CheckResult("fleet", f"the sink has halted: {view.halt.reason}", wrong=True)
    workers = ", ".join(member.worker for member in view.members)
    if view.info.config == settings.config_digest:
        yield CheckResult("fleet", f"sink {settings.name}, same configuration, workers: {workers or 'none'}")
    elif view.members:
        yield CheckResult(
            "fleet",
            f"{workers} run as sink {settings.name!r} with another configuration. Use the same settings on"
            " every worker, stop the others first, or choose another sink.name.",
            wrong=True,
        )
    else:
        yield CheckResult("fleet", f"sink {settings.name} ran with another configuration before. No worker runs now.")


def _kafka(settings: Settings) -> Iterator[CheckResult]:
    with closing(Log(settings.kafka_native)) as log:
        view = log.view(settings.topics, settings.topic_pattern)
    yield CheckResult("Kafka", f"{settings.bootstrap} answers, cluster {view.cluster}")
    yield from _identities(settings, view)
    topics = settings.topics if view.matching is None else view.matching
    if not topics:
        sentence = f"kafka.topic.regex: no topic matches {settings.topic_regex} yet. The first one that does is read."
        yield CheckResult("Kafka", sentence, note=True)
    for topic in topics:
        log_ranges = [log_range for partition, log_range in view.partitions.items() if partition.topic == topic]
        unread = sum(log_range.end - log_range.start for log_range in log_ranges)
        yield CheckResult("Kafka", f"topic {topic}: {len(log_ranges)} partitions, {unread:,} offsets to read")
        if held_back := sum(log_range.held_back for log_range in log_ranges):
            sentence = f"topic {topic}: an open Kafka transaction holds back {held_back:,} acknowledged offsets"
            yield CheckResult("Kafka", sentence, note=True)
    if topics:
        yield from _permissions(settings, topics)


def _identities(settings: Settings, view: LogView) -> Iterator[CheckResult]:
    """Compares cluster and topic ids with those of the table's newest checkpoint."""
    try:
        if not is_reachable(settings.base_path, settings.storage):
            return
        checkpoint = read_timeline_snapshot(settings.base_path, settings.name, settings.storage).checkpoint
    except SinkError:
        return  # what is wrong with the table or its store is said elsewhere
    if checkpoint is None:
        return
    found = {partition.topic: log_range.topic_id for partition, log_range in view.partitions.items()}
    for topic, topic_id in checkpoint.topics.items():
        planned, here = (checkpoint.cluster, topic_id), (view.cluster, found.get(topic, topic_id))
        if planned != here:
            yield CheckResult("Kafka", str(WrongLog(topic, planned, here)), wrong=True)


def _reader(settings: Settings) -> Iterator[CheckResult]:
    """Raises the errors of the reader of records, as a worker would when it starts. Yields nothing."""
    require_valid_consumer(settings.records.consumer)
    yield from ()


def _registry(settings: Settings, schema: TableSchema | None) -> Iterator[CheckResult]:
    """Checks whether the registry answers, and whether its schemas for the topics fit the table."""
    access = registry_access(settings)
    if access is None:
        return
    part, schema_registry = "schema registry", Registry(replace(access, patience_seconds=REGISTRY_SECONDS))
    subjects = schema_registry.subjects()
    yield CheckResult(part, f"{', '.join(settings.registry_urls)} answers, {len(subjects)} subjects")
    form = value_format(settings)
    if schema is not None:
        form = replace(form, types=schema.types)
    if schema is not None and settings.value_envelope == "debezium":
        schema = TableSchema(event_type(schema.unchecked), provenance=False)
    topics = topics_of(settings.kafka_native, settings.topics, settings.topic_pattern)
    for subject in (f"{topic}-value" for topic in topics):
        if subject not in subjects:
            yield CheckResult(part, f"{subject} is not a subject: values of that topic name their schemas themselves")
        elif schema is not None and form.columnar:
            latest = schema_registry.latest(subject)
            try:
                newest = select_message(latest, settings.value_message, settings.schema_types, settings.schema_bounds)
                form.reader(form.columns(schema.value_struct), latest, newest.message)
            except (ConfigError, SchemaMismatch, UnusableSchema) as error:
                yield CheckResult(part, f"{subject}, schema id {latest.id}: {error}", wrong=True)
            else:
                yield CheckResult(part, f"{subject}, schema id {latest.id}, fits the columns")


def _permissions(settings: Settings, names: Sequence[str]) -> Iterator[CheckResult]:
    """Reports this user's permissions, as the brokers describe them. A broker without authorisation lists none, or
    all.
    """
    topics = ck.TopicCollection(list(names))
    with closing(make_admin(settings.kafka_native, QuietLogger())) as admin:
        answers = admin.describe_topics(topics, include_authorized_operations=True, request_timeout=10)
        for topic, answer in answers.items():
            try:
                allowed = answer.result(15).authorized_operations
            except (ck.KafkaException, TimeoutError) as error:
                yield CheckResult("Kafka", f"topic {topic}: the broker does not say what this user may do ({error})")
                continue
            if allowed and "READ" not in {operation.name for operation in allowed}:
                yield CheckResult("Kafka", f"topic {topic} may not be read. Grant READ and DESCRIBE.", wrong=True)


def _table(settings: Settings, schema: TableSchema | None, jvm: Jvm) -> Iterator[CheckResult]:
    if settings.engine == "hudi" and not is_reachable(settings.base_path, settings.storage):
        yield CheckResult("table", f"{settings.base_path} is reached by Spark alone: a worker looks when it starts")
        return
    require_own_table(settings)
    yield from (writable := list(_writable(settings, jvm)))
    if any(finding.wrong for finding in writable):
        return
    base = inspect_base_path(settings.base_path, settings.storage)
    if base.content is Content.OTHER:
        names = ", ".join(base.names)
        yield CheckResult(
            "table",
            f"{settings.base_path} holds something else than a Hudi table ({names}). Name an empty place with"
            " target.base.path.",
            wrong=True,
        )
        return
    if base.content is Content.NOTHING:
        yield CheckResult("table", f"{settings.base_path} is empty: the table will be created")
        return
    yield CheckResult(
        "table", f"{settings.base_path} holds the Hudi table {base.properties.get('hoodie.table.name', '?')}"
    )
    table = settings.table
    conflicts = list(schema_conflicts(table, base.properties))
    conflicts += filter(None, [index_conflict(base.properties, base.indexes)])
    if schema is not None and base.schema is not None:
        conflicts += filter(None, [columns_conflict(json.dumps(base.schema), schema, table)])
    is_new_to_upserts = table.upserts and BUCKETS not in base.properties
    if is_new_to_upserts and schema is not None and not any((*conflicts, *preflight_errors(table, schema))):
        conflicts += filter(None, [rows_conflict(table, _java_hudi(settings, jvm))])
    for sentence in conflicts:
        yield CheckResult("table", f"{settings.base_path}: {sentence}", wrong=True)


@contextmanager
def _java_hudi(settings: Settings, jvm: Jvm) -> Iterator[Any]:
    with jvm(settings.session) as gateway:
        try:
            yield gateway.jvm.org.apache.hudi
        except JAVA_ERRORS as error:
            raise Unavailable(f"Java: {message(error)}") from None


def _lock(settings: Settings) -> Iterator[CheckResult]:
    """Checks whether the table lock of this ensemble is the one that the table notes."""
    try:
        if not is_reachable(settings.base_path, settings.storage):
            return
        noted = inspect_base_path(settings.base_path, settings.storage).properties.get(LOCK_IDENTITY)
    except SinkError:
        return  # what is wrong with the store is said elsewhere
    with connected(settings.ensemble) as client:
        conflict = lock_conflict(noted, LockIdentity(client, settings.table.lock.path).read(), is_known=True)
    if conflict:
        yield CheckResult("table", f"{settings.base_path}: {conflict}", wrong=True)


def _errors(settings: Settings) -> Iterator[CheckResult]:
    """Checks the targets of bad records: the errors table and the dead-letter topic."""
    if not settings.tolerant:
        return
    part, base_path = "errors table", settings.errors_base_path
    if is_reachable(settings.base_path, settings.storage):
        base = inspect_base_path(base_path, settings.storage)
        name = base.properties.get("hoodie.table.name", "") if base.content is Content.TABLE else ""
        if base.content is Content.NOTHING:
            yield CheckResult(part, f"{base_path} is empty: the errors table is made with the first bad record")
        elif name == settings.errors_table_name:
            yield CheckResult(part, f"{base_path} holds the errors table {name}")
        else:
            content = f"the Hudi table {name}" if name else f"something else ({', '.join(base.names)})"
            yield CheckResult(
                part, f"{base_path} holds {content}. Name an empty place with errors.table.base.path.", wrong=True
            )
    if settings.errors_topic is not None:
        try:
            with closing(Log(settings.kafka_native)) as log:
                log.view((settings.errors_topic,))
        except UnknownTopic:
            yield CheckResult(part, f"errors.deadletter.topic: {settings.errors_topic} is missing. Create it.", True)
        else:
            yield CheckResult(part, f"topic {settings.errors_topic} takes a copy of each bad record")


def _offsets(settings: Settings) -> Iterator[CheckResult]:
    """Notes offsets of another tool in the table that were not adopted."""
    if (
        not is_reachable(settings.base_path, settings.storage)
        or inspect_base_path(settings.base_path, settings.storage).content is not Content.TABLE
    ):
        return
    with connected(settings.ensemble) as client:
        view = Keeper(client, settings.root_znode, lambda: None).read()
    if view.states:
        return
    try:
        warning = unadopted_offsets_warning(
            read_foreign_offsets(settings.base_path, settings.storage), settings.name, view
        )
    except SinkError as error:
        warning = f"whether another tool has left offsets in the table is not known: {error}"
    if warning:
        yield CheckResult("offsets", warning, note=True)


def _catalog(settings: Settings) -> Iterator[CheckResult]:
    """Checks whether a metastore listens. Only a worker's JVM can query it."""
    for uri in (settings.catalog_uris or "").split(",") if settings.catalog_uris else ():
        address = urlsplit(uri)
        try:
            socket.create_connection((address.hostname or "", address.port or 0), METASTORE_SECONDS).close()
        except OSError as error:
            sentence = (
                f"{uri} cannot be reached ({error}): the table lands all the same, and is registered when it can be"
            )
            yield CheckResult("catalogue", f"catalog.metastore.uris: {sentence}", note=True)
        else:
            name = settings.catalog_name.partition(" ")[0]
            yield CheckResult("catalogue", f"{uri} listens. The table will be {name}")


def _writable(settings: Settings, jvm: Jvm) -> Iterator[CheckResult]:
    storage = open_storage(settings.base_path, settings.storage)
    if storage.has_directories and storage.root.startswith("/"):
        if fault := unwritable(Path(storage.root)):
            yield CheckResult("table", f"target.base.path: {fault.sentence}", wrong=True)
        return
    libraries = []
    for answer in probed(settings.base_path, settings.session, jvm):
        if answer.problem:
            # An error of a library may have several lines.
            error_text = " ".join(answer.problem.split())
            yield CheckResult("storage", f"{error_text} (asked by {answer.library})", wrong=True)
        else:
            libraries.append(answer.library)
    if libraries:
        yield CheckResult("storage", f"{settings.base_path} can be reached by {', '.join(libraries)}")
