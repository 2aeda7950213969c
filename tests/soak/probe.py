"""Looks from outside at what a worker and its servers hold: memory, threads, descriptors, watches, znodes and files."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import psutil
from kazoo.client import KazooClient

from tests.workers import WorkerProcess

MEGABYTE = 1e6
_HEAP_USED = re.compile(r"(?:generation|heap|Gen) +total \d+K, used (\d+)K")
_METASPACE_USED = re.compile(r"Metaspace +used (\d+)K")
_HEAP_RANGE = re.compile(r"\[0x([0-9a-f]+),.* 0x([0-9a-f]+)\)")
_WATCHES_AND_ZNODES = re.compile(r"^zk_(watch_count|znode_count|approximate_data_size)\s+(\d+)", re.MULTILINE)


def require_jcmd() -> None:
    """Ends this program with a sentence where the JDK's tool is missing: a JRE has none."""
    if shutil.which("jcmd") is None:
        sys.exit("there is no jcmd: install a JDK (Debian: openjdk-17-jdk-headless), or put its bin directory on PATH")


def of_worker(worker: WorkerProcess) -> Mapping[str, float]:
    """Returns the worker's quantities, memory in MB. Lets its JVM collect all garbage first. Raises
    psutil.NoSuchProcess and CalledProcessError if a process ends meanwhile."""
    python = psutil.Process(worker.pid)
    if (jvm_pid := worker.jvm_pid) is None:
        raise psutil.NoSuchProcess(worker.pid, msg="its JVM is not there yet")
    jvm = psutil.Process(jvm_pid)
    others = [child for child in python.children(recursive=True) if child != jvm]
    return {
        **_of_jvm(jvm),
        "Python of the worker, MB": python.memory_full_info().uss / MEGABYTE,
        "other Pythons, MB": sum(map(_unshared, others)),
        "threads": python.num_threads() + jvm.num_threads(),
        "descriptors": python.num_fds() + jvm.num_fds(),
        "processes": 2 + len(others),
    }


def _unshared(process: psutil.Process) -> float:
    try:
        return float(process.memory_full_info().uss) / MEGABYTE
    except psutil.NoSuchProcess:
        # Spark ends its Python workers whenever they are idle.
        return 0.0


def _of_jvm(jvm: psutil.Process) -> dict[str, float]:
    _ask(jvm.pid, "GC.run")
    heap = _ask(jvm.pid, "GC.heap_info")
    resident = jvm.memory_info().rss
    metaspace = _METASPACE_USED.search(heap)
    assert metaspace is not None, heap
    return {
        "live heap, MB": sum(map(int, _HEAP_USED.findall(heap))) * 1024 / MEGABYTE,
        "metaspace, MB": int(metaspace[1]) * 1024 / MEGABYTE,
        "JVM beside its heap, MB": (resident - _resident_heap(jvm, heap)) / MEGABYTE,
        "JVM, resident, MB": resident / MEGABYTE,
    }


def _resident_heap(jvm: psutil.Process, heap: str) -> int:
    """Returns the bytes of the heap that are resident. Not by the JVM's NativeMemoryTracking, which ends a JVM of
    version 17 now and then when a thread starts on the stack of one that has just ended (`virtualMemoryTracker.cpp`).
    """
    bounds = [int(address, 16) for pair in _HEAP_RANGE.findall(heap) for address in pair]
    low, high = min(bounds), max(bounds)
    return sum(
        each.rss for each in jvm.memory_maps(grouped=False) if low <= int(each.addr.partition("-")[0], 16) < high
    )


def _ask(pid: int, *command: str) -> str:
    return subprocess.run(("jcmd", str(pid), *command), check=True, capture_output=True, text=True, timeout=60).stdout


def of_zookeeper(client: KazooClient) -> Mapping[str, float]:
    names = {"watch_count": "watches", "znode_count": "znodes", "approximate_data_size": "data in ZooKeeper, kB"}
    found = dict(_WATCHES_AND_ZNODES.findall(client.command(b"mntr")))
    return {text: int(found[name]) / (1000 if name.endswith("size") else 1) for name, text in names.items()}


def files(directory: Path) -> int:
    return sum(1 for _ in _walk(directory))


def _walk(directory: Path) -> Iterator[str]:
    for _, _, names in os.walk(directory):
        yield from names
