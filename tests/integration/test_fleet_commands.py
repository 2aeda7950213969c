"""Commands for a configuration of several sinks, against real servers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import Producer
from kazoo.client import KazooClient

from coordination.zookeeper.keeper import Keeper
from sink import cli
from sink.config import load_configuration
from tests.integration.table_kit import connected
from tests.waiting import eventually

pytestmark = pytest.mark.integration


@pytest.fixture
def prefix() -> str:
    return f"many-{uuid4().hex[:8]}"


@pytest.fixture
def make(kafka: Any, chroot: str, tmp_path: Path, prefix: str) -> Callable[..., str]:
    """Writes a configuration of two sinks and a pattern, and gives its path."""

    def config(more: str = "", pattern: bool = True) -> str:
        pattern_sink = f"""
  found:
    kafka.topic.regex: "{prefix}-.*"
    target.base.path: {tmp_path}/found/{{topic}}
"""
        path = tmp_path / "fleet.yaml"
        path.write_text(f"""
zookeeper.connect: {chroot}
kafka.bootstrap.servers: {kafka.address}
schema.ddl: id BIGINT
log.dir: {tmp_path}
sinks:
  one:
    kafka.topic.names: {prefix}
    target.base.path: {tmp_path}/one
  two:
    kafka.topic.names: {prefix}
    target.base.path: {tmp_path}/two
    {more}
{pattern_sink if pattern else ""}
""")
        return str(path)

    return config


@pytest.fixture
def sink(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    def run(*arguments: str) -> tuple[int, str, str]:
        code = cli.main(arguments)
        out, err = capsys.readouterr()
        return code, out, err

    return run


def test_validate_checks_all_sinks_and_what_topics_would_become(make, sink, topic, prefix: str) -> None:
    topic(name=prefix), topic(name=f"{prefix}-a"), topic(name=f"{prefix}-b")
    code, out, _ = sink("validate", "--config", make())
    assert code == 0, out
    assert f"found: topics that match {prefix}-.* would be 2 sinks now: {prefix}-a, {prefix}-b" in out
    assert out.count("answers, cluster") == 1, "what all have in common is told once"
    assert [name for name in ("one", "two", f"{prefix}-a", f"{prefix}-b") if f"sink      {name}" not in out] == []
    assert "of 4 sinks passed" in out


def test_validate_says_what_is_wrong_with_each_sink_at_once(make, sink, topic, tmp_path: Path, prefix: str) -> None:
    topic(name=prefix)
    (tmp_path / "two").mkdir()
    (tmp_path / "two" / "letter.txt").write_text("dear reader")
    config = make("partition.field.name: nothing")
    code, out, _ = sink("validate", "--config", config, "--json")
    document = json.loads(out)
    assert (code, document["valid"]) == (1, False)
    wrong = {
        sink_report["sink"]: [finding["sentence"] for finding in sink_report["findings"] if finding["wrong"]]
        for sink_report in document["sinks"]
    }
    assert wrong["one"] == []
    assert any("partition.field.name" in sentence for sentence in wrong["two"])
    assert any("holds something else than a Hudi table" in sentence for sentence in wrong["two"])
    code, out, _ = sink("validate", "--config", config, "--sink", "one")
    assert code == 0, out


def test_validate_checks_the_other_sinks_beside_one_whose_settings_cannot_be_used(
    make, sink, topic, tmp_path: Path, prefix: str
) -> None:
    topic(name=prefix)
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "letter.txt").write_text("dear reader")
    config = make("schema.ddl: id BIGNIT")
    code, out, _ = sink("validate", "--config", config)
    assert code == 1
    assert "BIGNIT" in out
    assert "holds something else than a Hudi table" in out
    code, out, _ = sink("validate", "--config", config, "--sink", "one")
    assert (code, "BIGNIT" in out, "holds something else" in out) == (1, False, True)
    code, out, _ = sink("validate", "--config", config, "--sink", "two")
    assert (code, "BIGNIT" in out, "holds something else" in out) == (1, True, False)


def test_a_topic_that_cannot_become_a_table_is_a_note(make, sink, topic, tmp_path: Path, prefix: str) -> None:
    topic(name=prefix), topic(name=f"{prefix}-a")
    path = make(f"errors.tolerance: all\n    errors.table.base.path: {tmp_path}/found/{prefix}-a")
    code, out, _ = sink("validate", "--config", path)
    assert code == 0, out
    assert f"topic {prefix}-a: target.base.path: {tmp_path}/found/{prefix}-a is a place of sink two too" in out


def test_a_command_for_one_sink_asks_which(make, sink, topic, prefix: str) -> None:
    topic(name=prefix)
    config = make(pattern=False)
    for command in ("adopt", "history", "reset", "infer", "errors"):
        code, _, err = sink(command, "--config", config)
        assert code == 2
        assert "has 2 sinks (one, two), and this command takes one. Name it with --sink" in err
    assert sink("history", "--config", config, "--sink", "two")[0] == 0


def test_infer_takes_a_sink_that_a_topic_has_brought_about(make, sink, topic, kafka, prefix: str) -> None:
    name = topic(name=f"{prefix}-a")
    producer = Producer({"bootstrap.servers": kafka.address})
    producer.produce(name, b'{"id": 1, "name": "x"}')
    producer.flush()
    code, out, _ = sink("infer", "--config", make(), "--sink", f"{prefix}-a")
    assert code == 0
    assert "name STRING" in out


def test_status_and_audit_tell_of_all_sinks_and_what_cannot_be_audited_has_its_exit_status(
    make, sink, topic, prefix: str
) -> None:
    topic(name=prefix), topic(name=f"{prefix}-a")
    config = make()
    code, out, _ = sink("status", "--config", config, "--json")
    assert code == 0
    assert [sink_status["sink"] for sink_status in json.loads(out)["sinks"]] == ["one", "two", f"{prefix}-a"]
    code, out, err = sink("audit", "--config", config)
    assert code == 2
    assert f"3 of 3 sinks could not be audited: one, two, {prefix}-a" in err
    assert out.count("it does not exist. Check target.base.path") == 3


def test_a_sink_whose_topic_is_gone_can_still_be_looked_at(make, sink, topic, zookeeper, prefix: str) -> None:
    config = make()
    fleet = load_configuration(Path(config), {})
    client = KazooClient(fleet.process.zookeeper)
    client.start()
    try:
        client.create(f"/sink/{prefix}-gone/partitions/{prefix}-gone", makepath=True)
        assert Keeper(client, f"/sink/{prefix}-gone", lambda: None).read() is not None
    finally:
        client.stop()
        client.close()

    def is_known() -> bool:
        return f"{prefix}-gone" in sink("status", "--config", config, "--no-lag")[1]

    eventually("the sink is known", is_known)


def test_a_pause_takes_the_sinks_that_are_named_or_all(make, sink, topic, chroot: str, prefix: str) -> None:
    topic(name=prefix)
    config = make(pattern=False)
    with connected(chroot) as client:
        for settings in load_configuration(Path(config), {}).sinks:
            Keeper(client, settings.root_znode, lambda: None).bootstrap(settings.config_digest)

    def paused() -> list[bool]:
        code, out, _ = sink("status", "--config", config, "--no-lag", "--json")
        assert code in (0, 1)
        return [sink_status["paused"] is not None for sink_status in json.loads(out)["sinks"]]

    code, _, err = sink("pause", "--config", config, "--sink", "two", "--no-wait")
    assert code == 0, err
    assert paused() == [False, True]
    code, out, err = sink("pause", "--config", config, "--no-wait")
    assert code == 0, err
    assert [line.partition(":")[0] for line in out.splitlines()] == ["one", "two"]
    assert paused() == [True, True]
    assert sink("resume", "--config", config)[0] == 0
    assert paused() == [False, False]
