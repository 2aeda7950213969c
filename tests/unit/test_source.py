"""Spark's Kafka source gets the right options."""

from __future__ import annotations

from pathlib import Path

from sink.config import load
from sink.write.source import kafka_options

SETTINGS = {
    "zookeeper.connect": "zk:2181",
    "kafka.bootstrap.servers": "kafka:9093",
    "kafka.topic.names": "orders",
    "target.base.path": "/lake/orders",
    "target.table.name": "orders",
    "schema.ddl": "id long",
    "kafka.security.protocol": "SASL_PLAINTEXT",
    "kafka.sasl.mechanism": "SCRAM-SHA-512",
    "kafka.sasl.username": "sink",
    "kafka.sasl.password": "secret",
}


def test_it_logs_in_as_the_other_clients_do(tmp_path: Path) -> None:
    config = tmp_path / "sink.properties"
    config.write_text("".join(f"{name}={value}\n" for name, value in SETTINGS.items()))
    options = kafka_options(load(config, {}))
    assert "ScramLoginModule" in options["sasl.jaas.config"]
    assert options["bootstrap.servers"] == "kafka:9093"
    assert options["isolation.level"] == "read_committed"
    assert "sasl.password" not in options
