"""Requests that concern records which can no longer come: their topic was deleted meanwhile."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka.admin import AdminClient

from coordination.errors import Conflict
from coordination.state.tree import PARTITIONS
from sink.cli import main
from sink.clients.kafka.log import Log
from sink.clients.zookeeper.session import connected
from sink.config import load_configuration
from sink.operations import catching_up
from sink.operations.catching_up import TOPIC_GONE
from sink.operations.control import Overdue, SinkControl
from sink.operations.observed_sink import observed_sink
from tests.fleet import Fleet, produce
from tests.one_sink import load

pytestmark = pytest.mark.integration


def test_a_wait_ends_with_a_sentence_when_its_topic_is_deleted(
    zookeeper: Any, kafka: Any, chroot: str, topic: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catching_up, "ASK_SECONDS", 0.5)
    name = topic(2)
    produce(kafka.address, name, 10, 2)
    fleet = Fleet(tmp_path, chroot, kafka.address, name)
    settings = load(fleet.configure("nobody"))
    with connected(settings.ensemble) as client:
        control = SinkControl(observed_sink(settings), client, "a test")
        log = Log(settings.kafka_native)
        target = catching_up.target_of(log, control.sink, control.read())
        log.close()
        with pytest.raises(Overdue, match="is 10 offsets before the end"):
            catching_up.wait_for(control, target, 2.0)

        admin = AdminClient({"bootstrap.servers": kafka.address})
        admin.delete_topics([name])[name].result(30)
        with pytest.raises(Conflict, match=f"10 offsets before the end, and cannot reach it: .* no topic {name} any"):
            catching_up.wait_for(control, target, 60.0)
    fleet.close()


@pytest.mark.parametrize("command", [("flush",), ("wait", "--caught-up")])
def test_a_request_to_all_sinks_passes_over_a_sink_of_a_pattern_whose_topic_is_gone(
    command: tuple[str, ...], zookeeper: Any, kafka: Any, chroot: str, tmp_path: Path, capsys: Any
) -> None:
    gone = f"gone-{uuid4().hex[:8]}"
    file = tmp_path / "fleet.yaml"
    file.write_text(f"""
zookeeper.connect: {chroot}
kafka.bootstrap.servers: {kafka.address}
schema.ddl: id BIGINT
sinks:
  every: {{kafka.topic.regex: "{gone}", target.base.path: "{tmp_path}/{{topic}}"}}
""")
    [pattern] = load_configuration(file, {}).patterns
    with connected(pattern.probe.ensemble) as client:
        client.ensure_path(f"{pattern.probe.process.zookeeper_root}/{gone}/{PARTITIONS}/{gone}")
    assert main([*command, "--config", str(file)]) == 0
    assert f"{gone}: {TOPIC_GONE}" in capsys.readouterr().out
    assert main([*command, "--config", str(file), "--sink", gone, "--timeout", "1"]) == 2
