"""Attacks by another local user. The tests run this file as a script, which becomes that user, and read one JSON line.

`rpc` is a JVM with Spark's classes that speaks to the driver's RPC and block manager, as an executor would; `knock`
connects to every new port of a process and its children, and keeps the connections; `connect` connects to one port.
"""

from __future__ import annotations

import contextlib
import encodings.idna
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from pyspark import SparkConf
from pyspark.java_gateway import launch_gateway

from sink.clients.java.installation import pyspark_jars

STRANGER = 65534
"""The user `nobody`."""
NOT_ROOT = "another user's attack needs root: run the tests as root"
_LISTENS = "0A"
_STOP = "org.apache.spark.scheduler.local.StopExecutor$"
_BLOCKS = "org.apache.spark.network.netty.NettyBlockTransferService"


def attack(name: str, **arguments: Any) -> Any:
    """Runs an attack as a stranger to its end, and returns what it reports. Skips the test where none can run."""
    with attacking(name, **arguments) as process:
        output, _ = process.communicate(timeout=120)
    assert process.returncode == 0, output
    return json.loads(output.splitlines()[-1])


@contextmanager
def attacking(name: str, **arguments: Any) -> Iterator[subprocess.Popen[str]]:
    """Starts an attack as a stranger, and ends it."""
    if os.getuid() != 0:
        pytest.skip(NOT_ROOT)
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": "/nonexistent",
        "JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xmx128m",
        **{name: os.environ[name] for name in ("JAVA_HOME", "SPARK_HOME") if name in os.environ},
    }
    readable = subprocess.run(["ls", str(pyspark_jars())], user=STRANGER, group=STRANGER, capture_output=True)
    if readable.returncode != 0:
        pytest.skip("another user cannot read PySpark's jars: put the project where every user can read it")
    command = [sys.executable, __file__, name, json.dumps(arguments)]
    process = subprocess.Popen(command, cwd="/", env=environment, text=True, stdout=subprocess.PIPE)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def rpc(rpc_port: int, block_port: int, app: str, block: str) -> dict[str, str]:
    """Asks for an endpoint, a block and the executor's end. Returns what each answered."""
    gateway = launch_gateway(SparkConf(False), {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL})
    jvm: Any = gateway.jvm
    spark = jvm.org.apache.spark
    conf = spark.SparkConf(False).set("spark.app.id", app).set("spark.rpc.askTimeout", "10s")
    setting = getattr(getattr(spark.internal.config, "package$"), "MODULE$").AUTH_SECRET_FILE()
    security = spark.SecurityManager(conf, jvm.scala.Option.empty(), setting)
    env = spark.rpc.RpcEnv.create("stranger", "127.0.0.1", 0, conf, security, True)
    answers = {}

    def stop() -> Any:
        address = spark.rpc.RpcAddress("127.0.0.1", rpc_port)
        message = jvm.java.lang.Class.forName(_STOP).getField("MODULE$").get(None)
        endpoint = env.setupEndpointRef(address, "LocalSchedulerBackendEndpoint")
        return endpoint.askSync(message, jvm.scala.reflect.ClassTag.Any())

    def read_block() -> Any:
        (constructor,) = jvm.java.lang.Class.forName(_BLOCKS).getConstructors()
        serializer = spark.serializer.SerializerManager(spark.serializer.KryoSerializer(conf), conf)
        values = [conf, security, serializer, "127.0.0.1", "127.0.0.1", 0, 1, None]
        arguments = gateway.new_array(jvm.java.lang.Object, len(values))
        for index, value in enumerate(values):
            arguments[index] = value
        service = constructor.newInstance(arguments)
        service.init(None)
        return service.fetchBlockSync("127.0.0.1", block_port, "driver", block, None).size()

    for name, ask in (("block", read_block), ("stop", stop)):
        try:
            answers[name] = f"answered: {ask()}"
        except Exception as error:  # noqa: BLE001 (whatever Spark answers is the result)
            answers[name] = f"refused: {error}"
    gateway.shutdown()
    return answers


def connect(port: int, times: int) -> list[str]:
    """Connects to a port, and returns for each connection what it sent first; empty when it was closed."""
    answers = []
    for _ in range(times):
        with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
            answers.append(connection.recv(4).hex())
    return answers


def knock(seconds: float, pid: int) -> int:
    """Connects at once to each new port of a process and its children, with sockets of a stranger's. Returns the number
    of ports. It stays root to tell their ports from those of other tests."""
    connections: dict[int, socket.socket] = {}
    passed_over: set[int] = set()
    end = time.monotonic() + seconds
    spare = strangers_socket()
    while time.monotonic() < end:
        for port, inode in listening_ports().items():
            if port in connections or inode in passed_over:
                continue
            if not belongs_to(inode, pid):
                passed_over.add(inode)
                continue
            connections[port] = spare
            with contextlib.suppress(OSError):
                spare.connect(("127.0.0.1", port))
                spare.sendall(b"\0\0\0\4nope")
            spare = strangers_socket()
    return len(connections)


def strangers_socket() -> socket.socket:
    """Makes a socket that the kernel counts as a stranger's."""
    os.seteuid(STRANGER)
    try:
        made = socket.socket()
    finally:
        os.seteuid(0)
    made.settimeout(5)
    return made


def belongs_to(inode: int, pid: int) -> bool:
    """Returns whether a process or one of its children has the socket open."""
    for process in (pid, *(child.pid for child in psutil.Process(pid).children(recursive=True))):
        with contextlib.suppress(OSError):
            for descriptor in os.scandir(f"/proc/{process}/fd"):
                with contextlib.suppress(OSError):
                    if os.readlink(descriptor.path) == f"socket:[{inode}]":
                        return True
    return False


def listening_ports() -> dict[int, int]:
    """Returns the ports on which processes listen, with the inodes of the sockets."""
    ports = {}
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            columns = line.split()
            if columns[3] == _LISTENS:
                ports[int(columns[1].rpartition(":")[2], 16)] = int(columns[9])
    return ports


def become_stranger() -> None:
    """Gives up every right of this process, after it has imported what only root may be able to read."""
    assert encodings.idna
    os.setgroups([])
    os.setresgid(STRANGER, STRANGER, STRANGER)
    os.setresuid(STRANGER, STRANGER, STRANGER)


if __name__ == "__main__":
    if sys.argv[1] != "knock":
        become_stranger()
    print(json.dumps(globals()[sys.argv[1]](**json.loads(sys.argv[2]))), flush=True)
