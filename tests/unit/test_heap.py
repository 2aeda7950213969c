"""A heap has room for so many sinks and slots, and one that is too small is refused."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from coordination.errors import ConfigError
from sink.clients.java.heap import MOST_SLOTS, heap_bytes, least_heap, local_tasks, require_room, slots
from sink.config import load_configuration
from sink.operations.heap_room import heap_room

MIB = 1 << 20


@pytest.mark.parametrize(
    ("size", "expected"),
    [("1g", 1024), ("768m", 768), ("768M", 768), ("512", 512), (" 2gb ", 2048), ("524288k", 512), ("1t", 1 << 20)],
)
def test_a_size_is_read_as_spark_reads_it(size: str, expected: int) -> None:
    assert heap_bytes(size) == expected * MIB


@pytest.mark.parametrize("size", ["", "g", "2 GB", "1.5g", "-1g", "much"])
def test_a_size_that_spark_refuses_is_left_to_java(size: str) -> None:
    assert heap_bytes(size) is None
    assert require_room(size, 30).startswith("spark.driver.memory is")


def test_a_heap_that_is_too_small_is_refused_with_the_figure_and_what_to_do() -> None:
    needed = least_heap(200) // MIB
    with pytest.raises(ConfigError, match=f"spark.driver.memory: 768m is too little: 200 sinks need {needed}m"):
        require_room("768m", 200)
    assert require_room(f"{needed}m", 200) == f"spark.driver.memory is {needed}m: 200 sinks need {needed}m"


@pytest.mark.parametrize(("sinks", "size"), [(1, "512m"), (3, "768m"), (3, "1g"), (30, "1g")])
def test_small_fleets_have_room_in_what_the_docs_recommend(sinks: int, size: str) -> None:
    require_room(size, sinks)


@pytest.mark.parametrize(
    ("master", "tasks"), [("local", 1), ("local[3]", 3), ("local[*]", 8), ("local[3,5]", 3), ("spark://s:7077", 0)]
)
def test_the_tasks_of_a_local_master_are_counted(master: str, tasks: int) -> None:
    assert local_tasks(master, processors=8) == tasks


def test_slots_follow_the_heap_and_leave_room_for_sinks_and_cores() -> None:
    by_heap = [slots(size * MIB, sinks=3, cores=2) for size in range(256, 4096, 64)]
    assert by_heap == sorted(by_heap)
    assert (by_heap[0], by_heap[-1]) == (1, MOST_SLOTS)
    assert slots(1024 * MIB, 3, 2) > slots(1024 * MIB, 60, 2)
    assert slots(1024 * MIB, 3, 1) > slots(1024 * MIB, 3, 4)


def test_a_worker_with_too_little_heap_ends_before_it_asks_any_server(tmp_path: Path) -> None:
    config = tmp_path / "worker.properties"
    addresses = {"zookeeper.connect": "127.0.0.1:9", "kafka.bootstrap.servers": "127.0.0.1:9"}
    table = {"kafka.topic.names": "t", "target.base.path": tmp_path / "t", "target.table.name": "t"}
    settings = {**addresses, **table, "schema.ddl": "id BIGINT", "spark.driver.memory": "300m"}
    config.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    command = [sys.executable, "-m", "sink.worker", "--config", str(config)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 2
    assert "spark.driver.memory: 300m is too little: 1 sink needs" in ended.stderr


def test_the_heap_of_a_clusters_driver_is_the_clusters_matter(tmp_path: Path) -> None:
    common = {"zookeeper.connect": "z:1", "kafka.bootstrap.servers": "k:1", "schema.ddl": "id BIGINT"}
    sinks = {name: {"kafka.topic.names": name, "target.base.path": str(tmp_path / name)} for name in ("a", "b")}
    config = tmp_path / "fleet.yaml"
    for master, sentence in (("local[2]", "spark.driver.memory is 1g: 2 sinks need 456m"), ("spark://s:7077", "")):
        config.write_text(yaml.safe_dump({**common, "spark.master": master, "sinks": sinks}))
        assert heap_room(load_configuration(config)) == sentence
