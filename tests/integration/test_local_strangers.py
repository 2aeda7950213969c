"""Another local user reads nothing out of a worker's Spark, and stops nothing."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Barrier, Event, Thread
from typing import Any

import psutil
import pyarrow as pa
import pytest
from py4j.java_gateway import JavaGateway
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from sink.clients.host.private_directory import private_directory
from sink.clients.java.installation import pyspark_jars
from sink.clients.java.portless_gateway import close_port
from sink.clients.spark.privacy import collect_binary, local_rows
from sink.clients.spark.session import bare_jvm
from tests.fleet import Fleet, produce
from tests.integration.conftest import MakeFleet
from tests.integration.table_kit import table_settings
from tests.processes import python_workers
from tests.strangers import attack, attacking
from tests.waiting import eventually
from tests.workers import Part

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

CONNECTIONS = 20
ATTEMPTS = 20
STOPPED = "Spark's local executor was stopped"
STOP_EXECUTOR = """
def stop_executor(context):
    jvm = context._jvm
    rpc = jvm.org.apache.spark.SparkEnv.get().rpcEnv()
    endpoint = rpc.setupEndpointRef(rpc.address(), "LocalSchedulerBackendEndpoint")
    kind = jvm.java.lang.Class.forName("org.apache.spark.scheduler.local.StopExecutor$")
    endpoint.askSync(kind.getField("MODULE$").get(None), jvm.scala.reflect.ClassTag.Any())
"""


def unchanged(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


def listening(process: psutil.Process) -> set[int]:
    """Returns the ports on which a process listens."""
    connections = process.net_connections("tcp")
    return {connection.laddr.port for connection in connections if connection.status == psutil.CONN_LISTEN}


def test_the_jvm_of_a_local_master_listens_on_no_port(tmp_path: Path) -> None:
    """In a process of its own: in that of the tests HDFS may listen."""
    program = f"""
    from pathlib import Path
    import psutil
    from sink.clients.spark.session import start_session
    from tests.integration.table_kit import table_settings
    from tests.integration.test_local_strangers import listening, unchanged
    path = Path({str(tmp_path)!r})
    spark = start_session(table_settings(path / "table", "127.0.0.1:9").session, "none", path / "spark.log")
    print(spark.range(3).mapInArrow(unchanged, "id long").count())
    large = spark.range(2).selectExpr("repeat('x', 3000000) AS text").repartition(2)
    print([len(row.get(0)) for row in large._jdf.collect()])
    print(listening(psutil.Process(spark.sparkContext._gateway.proc.pid)))
    """
    output = subprocess.check_output([sys.executable, "-c", textwrap.dedent(program)], text=True)
    assert output.splitlines() == ["3", "[3000000, 3000000]", "set()"]


OTHER_LOOPBACK = "127.0.0.2"
"""From there a process may have the number of a port that another process has on 127.0.0.1."""


def test_a_connection_that_was_made_before_a_gateway_closed_its_port_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    strangers: list[socket.socket] = []

    def close_port_beside_strangers(gateway: JavaGateway) -> None:
        address = ("127.0.0.1", gateway._gateway_client.java_parameters.port)
        gateway.jvm.java.lang.System.currentTimeMillis()
        own_port = gateway._gateway_client.get_thread_connection().socket.getsockname()[1]
        strangers.extend(socket.create_connection(address) for _ in range(4))
        strangers.append(socket.create_connection(address, source_address=(OTHER_LOOPBACK, own_port)))
        strangers[0].sendall(b"x" * 1000)
        close_port(gateway)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(address)

    monkeypatch.setattr("sink.clients.java.launch.close_port", close_port_beside_strangers)
    with bare_jvm(table_settings(tmp_path / "table", "127.0.0.1:9").session) as gateway:
        for stranger in strangers:
            stranger.settimeout(30)
            with contextlib.suppress(ConnectionResetError):
                assert stranger.recv(1) == b""
        assert listening(psutil.Process(gateway.proc.pid)) == set()


def test_each_thread_has_a_connection_that_the_jvm_made_and_no_stranger_gets_its_secret(tmp_path: Path) -> None:
    """A stranger connects first, from the port number that the JVM takes then."""
    with bare_jvm(table_settings(tmp_path / "table", "127.0.0.1:9").session) as gateway:
        java, connector = gateway.jvm.java, gateway._gateway_client._create_new_connection.__self__
        local_address = java.net.InetAddress.getByName("127.0.0.1")
        strangers: list[socket.socket] = []

        def after_a_stranger(host: str, port: int) -> Any:
            for _ in range(ATTEMPTS):
                strangers.append(socket.create_connection((host, port), source_address=(OTHER_LOOPBACK, 0)))
                # Another process may have that number on 127.0.0.1.
                with contextlib.suppress(Py4JJavaError):
                    return java.net.Socket(host, port, local_address, strangers[-1].getsockname()[1])
            raise AssertionError("no number of a port is free twice")

        connector.new_java_socket = after_a_stranger
        barrier = Barrier(8)

        def thread_id(_: int) -> int:
            barrier.wait()
            return int(gateway.jvm.java.lang.Thread.currentThread().getId())

        with ThreadPoolExecutor(8) as pool:
            assert len(set(pool.map(thread_id, range(8)))) == 8
        assert len(strangers) >= 8
        for stranger in strangers:
            stranger.settimeout(30)
            with contextlib.suppress(ConnectionResetError):
                assert stranger.recv(1) == b""


OF_THE_SINK = """
from sink.clients.spark.session import start_session
from tests.integration.table_kit import table_settings
settings = table_settings(path / "table", "127.0.0.1:9", spark__jars=jar)
spark = start_session(settings.session, "none", path / "spark.log")
"""
"""The user's jar is fetched from the driver, so that it listens."""
OF_PYSPARK = """
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").config("spark.driver.host", "127.0.0.1").getOrCreate()
"""


@contextmanager
def attacked(session: str, directory: Path) -> Iterator[tuple[dict[str, str], Callable[[], str]]]:
    """Attacks the ports of a Spark session. Yields what the stranger is told, and what runs a job there."""
    program = f"""
import json, sys
from pathlib import Path
path, jar = Path({str(directory)!r}), {str(next(pyspark_jars().glob("xz*.jar")))!r}
{session}
environment = spark._jvm.org.apache.spark.SparkEnv.get()
block = f"broadcast_{{spark.sparkContext.broadcast(['secret'])._jbroadcast.id()}}_piece0"
ports = environment.rpcEnv().address().port(), environment.blockManager().blockManagerId().port()
print(json.dumps([*ports, spark.sparkContext.applicationId, block]), flush=True)
sys.stdin.readline()
print(spark.range(10).count(), flush=True)
"""
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        rpc_port, block_port, app, block = json.loads(process.stdout.readline())

        def job() -> str:
            print(file=process.stdin, flush=True)
            return process.stdout.readline()  # type: ignore[union-attr]

        try:
            yield attack("rpc", rpc_port=rpc_port, block_port=block_port, app=app, block=block), job
        finally:
            process.kill()


@pytest.mark.thorough
def test_a_stranger_at_sparks_ports_gets_no_block_and_stops_no_executor(tmp_path: Path) -> None:
    with attacked(OF_THE_SINK, tmp_path) as (answers, job):
        assert [answer.partition(":")[0] for answer in answers.values()] == ["refused", "refused"], answers
        assert job() == "10\n"


@pytest.mark.thorough
def test_the_same_stranger_gets_the_block_of_a_session_of_pysparks_own_and_stops_its_executor(tmp_path: Path) -> None:
    """So what refuses above is the session, and not what the stranger asks."""
    with attacked(OF_PYSPARK, tmp_path) as (answers, _):
        assert [answer.partition(":")[0] for answer in answers.values()] == ["answered", "answered"], answers


def daemon_ports() -> set[int]:
    """Returns the ports of Spark's Python daemons. A process that was just forked still has its daemon's."""
    ports = set()
    for pid in python_workers():
        with contextlib.suppress(psutil.NoSuchProcess):
            ports |= listening(psutil.Process(pid))
    return ports


def test_the_daemon_forks_for_its_own_jvm_only(spark: SparkSession) -> None:
    spark.range(1).mapInArrow(unchanged, "id long").count()
    ports, processes = daemon_ports(), len(python_workers())
    assert ports
    for port in ports:
        assert attack("connect", port=port, times=CONNECTIONS) == [""] * CONNECTIONS
    assert len(python_workers()) < processes + CONNECTIONS
    assert spark.range(3).mapInArrow(unchanged, "id long").count() == 3


PASSWORD = "c0rrect-horse"


@contextlib.contextmanager
def command_lines() -> Iterator[set[str]]:
    """Yields the command lines of this host's processes, which grow while the block runs."""
    seen: set[str] = set()
    ended = Event()

    def look() -> None:
        while not ended.wait(0.01):
            for file in Path("/proc").glob("[0-9]*/cmdline"):
                with contextlib.suppress(OSError):
                    seen.add(file.read_bytes().replace(b"\0", b" ").decode(errors="replace"))

    thread = Thread(target=look)
    thread.start()
    try:
        yield seen
    finally:
        ended.set()
        thread.join()


def test_no_command_line_has_a_password_of_the_jvms_options(tmp_path: Path) -> None:
    options = f"-Djavax.net.ssl.trustStorePassword={PASSWORD}"
    settings = table_settings(tmp_path / "table", "127.0.0.1:9", spark__driver__extraJavaOptions=options)
    with command_lines() as seen, bare_jvm(settings.session) as gateway:
        assert gateway.jvm.java.lang.System.getProperty("javax.net.ssl.trustStorePassword") == PASSWORD
    assert any("org.apache.spark.deploy.SparkSubmit" in line for line in seen)
    assert not [line for line in seen if PASSWORD in line]


def test_settings_that_refer_to_the_environment_reach_a_workers_jvm_and_no_command_line(tmp_path: Path) -> None:
    program = f"""
    from pathlib import Path
    from sink.clients.spark.session import start_session
    from sink.config import load_configuration
    path = Path({str(tmp_path)!r})
    [settings] = load_configuration(path / "table.properties").sinks
    jvm = start_session(settings.session, "none", path / "spark.log", rolls_log=False)._jvm
    jvm.org.apache.logging.log4j.LogManager.getLogger("own").warn("a warning")
    print("WARN own a warning" in (path / "spark.log").read_text())
    print(jvm.java.lang.Runtime.getRuntime().maxMemory() >> 20)
    for name in ("word", "user.timezone", "java.io.tmpdir"):
        print(jvm.java.lang.System.getProperty(name))
    beans = jvm.java.lang.management.ManagementFactory.getRuntimeMXBean()
    print("-XX:+ExitOnOutOfMemoryError" in beans.getInputArguments())
    """
    table_settings(tmp_path / "table", "127.0.0.1:9")
    with (tmp_path / "table.properties").open("a") as file:
        file.write("spark.driver.extraJavaOptions=${env:OPTIONS}\n")
    text = (tmp_path / "table.properties").read_text()
    (tmp_path / "table.properties").write_text(
        text.replace("spark.driver.memory=1g", "spark.driver.memory=${env:HEAP}")
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HEAP", "600m")
        patch.setenv("OPTIONS", f"-Dword={PASSWORD} -XX:+UseSerialGC")
        with command_lines() as seen:
            output = subprocess.check_output([sys.executable, "-c", textwrap.dedent(program)], text=True)
    is_logged, heap, word, zone, temporary, ends_without_memory = output.splitlines()
    assert is_logged == "True"
    assert 500 < int(heap) <= 600
    assert (word, zone, ends_without_memory) == (PASSWORD, "UTC", "True")
    assert "sink-private-" in temporary
    assert not [line for line in seen if PASSWORD in line]


def texts_of(process: psutil.Process) -> list[str]:
    """Returns arguments and environment of a process; nothing of one that has ended."""
    try:
        return [*process.cmdline(), *process.environ().values()]
    except psutil.NoSuchProcess:
        return []


def test_sparks_secret_and_files_are_for_its_own_user(spark: SparkSession) -> None:
    jvm = spark._jvm
    assert jvm is not None
    environment = jvm.org.apache.spark.SparkEnv.get()
    secret = environment.securityManager().getSecretKey()
    processes = [psutil.Process(), *psutil.Process().children(recursive=True)]
    seen = [text for process in processes for text in texts_of(process)]
    assert len(secret) > 32
    assert not [text for text in seen if secret in text]
    private = private_directory()
    assert private.stat().st_mode & 0o777 == 0o700
    directories = [
        jvm.java.lang.System.getProperty("java.io.tmpdir"),
        spark.sparkContext._jsc.hadoopConfiguration().get("hadoop.tmp.dir"),
        spark.sparkContext._temp_dir,
        *(place.getPath() for place in environment.blockManager().diskBlockManager().localDirs()),
    ]
    assert {private} == {Path(*Path(place).parts[: len(private.parts)]) for place in directories}


def test_rows_come_through_no_port_as_they_would_through_pysparks(spark: SparkSession) -> None:
    """Every type of a row of the errors table, empty partitions among them."""
    columns = "id, cast(id as string) s, if(id = 2, null, encode(cast(id as string), 'UTF-8')) b"
    more = "timestamp_seconds(id) t, array(named_struct('key', 'k', 'value', X'FF00')) h, id > 1 f, id / 2.0 d"
    frame = spark.sql(f"SELECT {columns}, {more} FROM range(0, 5, 1, 7)")
    assert list(local_rows(frame)) == frame.collect()
    assert list(local_rows(frame.where("id < 0"))) == []
    reports = frame.where("b IS NOT NULL").select("b").orderBy("id")
    assert collect_binary(reports) == [b"0", b"1", b"3", b"4"]


def test_a_jvm_whose_executor_was_stopped_or_whose_heap_is_full_is_gone_with_the_reason(tmp_path: Path) -> None:
    program = f"""
    import sys, time
    from pathlib import Path
    from py4j.protocol import Py4JError
    from sink.clients.spark.session import start_session
    from sink.runtime.watches.jvm_watchdog import JvmWatchdog
    from tests.integration.table_kit import table_settings
    {textwrap.indent(STOP_EXECUTOR, "    ").strip()}
    path = Path({str(tmp_path)!r})
    spark = start_session(table_settings(path / "table", "127.0.0.1:9").session, "none", path / "spark.log")
    watchdog, later_one = JvmWatchdog(spark), JvmWatchdog(spark)
    watchdog.start()
    time.sleep(2.5)
    answered = time.monotonic() - watchdog.answered_at
    stop_executor(spark.sparkContext)
    watchdog._thread.join(5)
    print("answered" if answered < 1.5 else answered, "then:", watchdog.gone)
    gateway = spark.sparkContext._gateway
    try:
        kept = [gateway.new_array(gateway.jvm.long, 50_000_000) for _ in range(10)]
    except (Py4JError, OSError):
        later_one._ping()
        print(later_one.gone)
    """
    result = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True)
    stopped, full = result.stdout.splitlines()[-2:] or result.stderr
    assert stopped == f"answered then: {STOPPED}", result.stderr
    assert full.startswith("it ran out of memory (exit status 3). Raise spark.driver.memory"), result.stderr


FILL_HEAP = """
def fill_heap(context):
    gateway = context._gateway
    kept = [gateway.new_array(gateway.jvm.long, 12_500_000) for _ in range(100)]
"""


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("harm", "reason"), [("stop_executor", STOPPED), ("fill_heap", "it ran out of memory (exit status 3)")]
)
def test_a_worker_whose_jvm_is_of_no_use_ends_and_another_one_lands_the_rest(
    make_fleet: MakeFleet, tmp_path: Path, harm: str, reason: str
) -> None:
    fleet = make_fleet(3000)
    stop = tmp_path / "stop"
    program = f"""
    import threading, time
    from pathlib import Path
    {textwrap.indent(STOP_EXECUTOR + FILL_HEAP, "    ").strip()}
    def wait():
        while not Path({str(stop)!r}).exists():
            time.sleep(0.2)
        from pyspark import SparkContext
        {harm}(SparkContext._active_spark_context)
    threading.Thread(target=wait, daemon=True).start()
    """
    place = tmp_path / "site"
    place.mkdir()
    (place / "sitecustomize.py").write_text(textwrap.dedent(program))
    fleet.environment = {"PYTHONPATH": os.pathsep.join([str(place), str(Path(__file__).parents[2])])}
    worker = fleet.start("w1")
    fleet.wait_landed(dict.fromkeys(range(3), 1000))
    stop.touch()
    eventually("the worker ends", lambda: not worker.running, 60, fleet.logs)
    assert reason in fleet.log("w1")
    produce(fleet.kafka, fleet.topic, 300, 3, first=3000)
    stop.unlink()
    fleet.environment = {}
    fleet.start("w2")
    fleet.wait_landed(dict.fromkeys(range(3), 1100))
    fleet.assert_exactly_once(3300)


@pytest.mark.thorough
@pytest.mark.parametrize("operation", ["append", "upsert"])
def test_a_stranger_who_takes_every_first_connection_delays_nothing(
    make_fleet: MakeFleet, operation: str, topic: Callable[..., str]
) -> None:
    """PySpark opens a port for a result, and takes the first connection to it."""
    settings = {"write.operation": "upsert", "record.key.fields": "id"} if operation == "upsert" else {}
    fleet: Fleet = make_fleet(0, **settings)
    worker = fleet.start("w1")
    with attacking("knock", seconds=600, pid=worker.pid) as process:
        for batch in range(4):
            produce(fleet.kafka, fleet.topic, 300, 3, first=300 * batch)
            fleet.wait_landed(dict.fromkeys(range(3), 100 * (batch + 1)))
        assert process.poll() is None
        worker.signal(15, Part.PYTHON)
        eventually("the worker drains", lambda: not worker.running, 90, fleet.logs)
    fleet.assert_exactly_once(1200)
    assert "transaction.aborted" not in fleet.log("w1")
