"""From where to where: ZooKeeper, Kafka's topics and the table; and what sink and worker are called."""

from __future__ import annotations

import socket
from typing import Annotated, Literal

from sink.config.fields import Choice, Group, Secret, TextFile, setting
from sink.config.values import BasePath, DurationMs, Ensemble, Name, Servers, Text, TopicNames, ZnodePath


class EndpointSettings(Group):
    zookeeper: Ensemble = setting(
        "zookeeper.connect",
        "ZooKeeper ensemble: `host:port,...`, optionally with a `/chroot` at the end. Without a port: 2181.",
    )
    zookeeper_root: ZnodePath = setting(
        "zookeeper.root",
        "Znode below which the sinks of this fleet keep their state; `/` for the root of the tree.",
        default="/sink",
    )
    session_timeout_ms: DurationMs = setting(
        "zookeeper.session.timeout.ms",
        "How long a worker may be silent before the fleet takes it for dead. ZooKeeper itself bounds it (2"
        " to 20 of its ticks).",
        default=10_000,
        ge=1000,
        le=600_000,
    )
    zookeeper_ca: TextFile = setting(
        "zookeeper.ssl.ca.location",
        "Certificates (PEM) that ZooKeeper's may be signed by; relative to the configuration file. With it,"
        " connections are made by TLS only.",
        default=None,
    )
    zookeeper_certificate: TextFile = setting(
        "zookeeper.ssl.certificate.location",
        "The worker's own certificate (PEM), where ZooKeeper asks for one.",
        default=None,
    )
    zookeeper_key: TextFile = setting(
        "zookeeper.ssl.key.location", "The private key of that certificate (PEM).", default=None
    )
    zookeeper_key_password: Secret | None = setting(
        "zookeeper.ssl.key.password", "Password of the private key, if it has one.", default=None
    )
    zookeeper_username: Text | None = setting(
        "zookeeper.digest.username", "Name under which sessions are authenticated (scheme `digest`).", default=None
    )
    zookeeper_password: Secret | None = setting(
        "zookeeper.digest.password", "Password of `zookeeper.digest.username`.", default=None
    )
    zookeeper_acl: Annotated[Literal["open", "creator"], Choice] = setting(
        "zookeeper.acl",
        "Who may read and change znodes that workers make: anybody, or only who is authenticated as they are. The"
        " table lock's too: other writers of the table then need the same name.",
        default="open",
    )
    bootstrap: Servers = setting(
        "kafka.bootstrap.servers",
        "Kafka brokers to ask first: `host:port,...`.",
        also=("bootstrap.servers", "hoodie.streamer.source.kafka.bootstrap.servers"),
    )
    topics: TopicNames = setting("kafka.topic.names", "Topics that land in the table.", also=("topics",), fleet=True)
    kafka_reader: Annotated[Literal["librdkafka", "spark"], Choice] = setting(
        "kafka.reader",
        "How records are read: `librdkafka` reads them in Spark's Python workers, at the same cost for any number of"
        " partitions; `spark` reads them with Spark's Kafka source, for what librdkafka's wheels cannot do. Offsets are"
        " asked with librdkafka all the same: Kerberos needs a confluent-kafka that was built with it.",
        default="librdkafka",
    )
    base_path: BasePath = setting(
        "target.base.path",
        "Where the table is: an absolute path or a URI that every worker can reach.",
        also=("hoodie.base.path",),
        fleet=True,
    )
    table_name: Name = setting("target.table.name", "The table's name.", also=("hoodie.table.name",), fleet=True)
    table_type: Annotated[Literal["copy_on_write", "merge_on_read"], Choice] = setting(
        "target.table.type",
        "`copy_on_write`, or `merge_on_read` for upserts that append to log files, which a compaction merges later"
        " (`services.compaction`).",
        also=("hoodie.table.type", "hoodie.datasource.write.table.type"),
        default="copy_on_write",
        fleet=True,
    )
    name: Name = setting(
        "sink.name",
        "Name of the sink: its place in ZooKeeper and in the table's checkpoints. Default: the table's name.",
        also=("name",),
        default_factory=lambda data: data.get("table_name", "sink"),
    )
    worker_id: Name = setting(
        "worker.id",
        "Name of this worker, unique in the fleet. Default: the host's name.",
        default_factory=socket.gethostname,
    )
