"""A ZooKeeper chroot that does not exist is refused with one sentence, by the worker as by `sink validate`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

pytestmark = pytest.mark.integration

SENTENCE = "zookeeper.connect: the chroot does not exist. Create that znode first."


@pytest.fixture
def config(tmp_path: Path, chroot: str, kafka, topic) -> Path:
    settings = {
        "zookeeper.connect": f"{chroot}/not-there",
        "kafka.bootstrap.servers": kafka.address,
        "kafka.topic.names": topic(),
        "sink.name": "orders",
        "target.table.name": "orders",
        "target.base.path": str(tmp_path / "table"),
        "schema.ddl": "id BIGINT",
        "log.dir": str(tmp_path),
        "worker.id": "w1",
    }
    path = tmp_path / "sink.yaml"
    path.write_text(yaml.safe_dump(settings))
    return path


@pytest.mark.parametrize(
    ("command", "status"), [(["sink.worker"], 2), (["sink.cli", "validate"], 1)], ids=["worker", "validate"]
)
def test_a_chroot_that_does_not_exist_is_refused(config: Path, command: list[str], status: int) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", *command, "--config", str(config)], capture_output=True, text=True, timeout=200
    )
    assert ended.returncode == status, ended.stdout
    assert SENTENCE in " ".join((ended.stdout + ended.stderr).split())
