"""Settings of a sink whose servers are never contacted."""

from __future__ import annotations

from pathlib import Path

from sink.config import Settings
from tests.one_sink import load


def minimal_settings(directory: Path, **more: str) -> Settings:
    """Loads settings from a file in `directory`; `__` in a name of `more` is a dot."""
    properties = {
        "zookeeper.connect": "127.0.0.1:2181",
        "kafka.bootstrap.servers": "127.0.0.1:9092",
        "kafka.topic.names": "orders",
        "target.base.path": "/lake/orders",
        "target.table.name": "orders",
        "schema.ddl": "id BIGINT, kind STRING",
        **{name.replace("__", "."): value for name, value in more.items()},
    }
    file = directory / "sink.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    return load(file, {})
