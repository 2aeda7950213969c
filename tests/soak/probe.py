"""Looks from outside at what a worker and its servers hold: memory, threads, descriptors, watches, znodes and files."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import psutil
from kazoo.client import KazooClient

MEGABYTE = 1e6
_HEAP_USED = re.compile(r"(?:generation|heap|Gen) +total \d+K, used (\d+)K")
_METASPACE_USED = re.compile(r"Metaspace +used (\d+)K")
_NATIVE = re.compile(r"^(Total|-\s+Java Heap)\D.*committed=(\d+)KB", re.MULTILINE)
_WATCHES_AND_ZNODES = re.compile(r"^zk_(watch_count|znode_count|approximate_data_size)\s+(\d+)", re.MULTILINE)


def of_worker(pid: int) -> Mapping[str, float]:
    """Returns the worker's quantities, memory in MB. Lets its JVM collect all garbage first. Raises
    psutil.NoSuchProcess and CalledProcessError if a process ends meanwhile."""
    worker = psutil.Process(pid)
    jvm, pythons = None, []
    for child in worker.children(recursive=True):
        if "java" in child.name():
            jvm = jvm or child
        else:
            pythons.append(child)
    if jvm is None:
        raise psutil.NoSuchProcess(pid, msg="its JVM is not there yet")
    return {
        **_of_jvm(jvm),
        "Python of the worker, MB": worker.memory_full_info().uss / MEGABYTE,
        "other Pythons, MB": sum(_unshared(python) for python in pythons),
        "threads": worker.num_threads() + jvm.num_threads(),
        "descriptors": worker.num_fds() + jvm.num_fds(),
        "processes": 2 + len(pythons),
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
    native = {name: int(kilobytes) for name, kilobytes in _NATIVE.findall(_ask(jvm.pid, "VM.native_memory", "summary"))}
    total = native.pop("Total")
    metaspace = _METASPACE_USED.search(heap)
    assert metaspace is not None, heap
    return {
        "live heap, MB": sum(map(int, _HEAP_USED.findall(heap))) * 1024 / MEGABYTE,
        "metaspace, MB": int(metaspace[1]) * 1024 / MEGABYTE,
        "JVM beside its heap, MB": (total - sum(native.values())) * 1024 / MEGABYTE,
        "JVM, resident, MB": jvm.memory_info().rss / MEGABYTE,
    }


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
