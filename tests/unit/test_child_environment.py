"""A child process imports nothing from the directory where its parent happens to be."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from coordination.errors import Unavailable
from sink.clients.kafka.process import LogProcess


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.10 cannot leave its directory out: use 3.11 or newer")
def test_a_child_that_asks_kafka_imports_nothing_that_another_user_planted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("confluent_kafka", "structlog", "socket", "sitecustomize"):
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'a').write({name!r})")
    monkeypatch.chdir(tmp_path)
    log = LogProcess({"bootstrap.servers": "127.0.0.1:9"}, timeout=1)
    with pytest.raises(Unavailable):
        log.view_once(("t",))
    log.close()
    assert not (tmp_path / "ran").exists()
