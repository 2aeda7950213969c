"""Settings of the errors table: defaults, and combinations that are refused."""

from __future__ import annotations

import pytest

from coordination.errors import ConfigError
from sink.config import Settings
from tests.one_sink import load

BASE = {
    "zookeeper.connect": "z:2181",
    "kafka.bootstrap.servers": "k:9092",
    "kafka.topic.names": "orders",
    "target.base.path": "/data/orders",
    "target.table.name": "orders",
    "schema.ddl": "id BIGINT",
}


def settings_with(tmp_path, **more: str) -> Settings:
    properties = {**BASE, **{name.replace("__", "."): value for name, value in more.items()}}
    file = tmp_path / "sink.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    return load(file, {})


def test_the_errors_table_is_beside_the_table_and_bad_records_are_not_tolerated(tmp_path) -> None:
    settings = settings_with(tmp_path)
    assert not settings.tolerant
    assert (settings.errors_base_path, settings.errors_table_name) == ("/data/orders_errors", "orders_errors")
    tolerant = settings_with(
        tmp_path, errors__tolerance="ALL", errors__max__ratio="0.25", errors__max__per__transaction="7"
    )
    assert tolerant.tolerant
    assert (tolerant.errors_max, tolerant.errors_ratio, tolerant.errors_topic) == (7, 0.25, None)
    assert settings.config_digest != tolerant.config_digest


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"errors__max__ratio": "0.2"}, "errors.max.ratio is for sinks that tolerate bad records: set errors.toler"),
        ({"errors__deadletter__topic": "dead"}, "errors.deadletter.topic is for sinks that tolerate bad records"),
        ({"errors__tolerance": "all", "errors__max__ratio": "1.5"}, "errors.max.ratio ('1.5') is too large"),
        ({"errors__tolerance": "all", "errors__max__ratio": "half"}, "is not a share. Write a number from 0 to 1"),
        ({"errors__tolerance": "all", "errors__max__per__transaction": "0"}, "is too small. The least is 1"),
        ({"errors__tolerance": "all", "errors__deadletter__topic": "orders"}, "is one of kafka.topic.names"),
        ({"errors__tolerance": "all", "errors__deadletter__topic": "a,b"}, "names several topics. Name one"),
        ({"errors__tolerance": "all", "errors__table__base__path": "/data/orders/errors"}, "is inside the table"),
        ({"errors__tolerance": "all", "errors__table__base__path": "/data/orders"}, "is inside the table"),
        ({"errors__tolerance": "all", "errors__table__base__path": "/data"}, "is inside errors.table.base.path"),
    ],
)
def test_what_does_not_go_together_is_refused_in_one_sentence(tmp_path, more: dict[str, str], reason: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        settings_with(tmp_path, **more)
    assert reason in str(refusal.value)
