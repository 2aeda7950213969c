"""Starts the worker's Spark session, with pinned jars and Hudi's extensions, and without output on the terminal.

Guarantee: the session's time zone is UTC, and so is the driver JVM's. The JVM's output goes to the given file, or
nowhere. The user's `spark.*` settings win, except for required ones (serializer, extensions, catalog, the session's
time zone, speculation, a local master's authentication). On a cluster the executors get the packages `sink` and
`coordination` from the driver, and need pyarrow themselves. An earlier SparkContext in this process voids this. Raises
ConfigError and Unavailable.
"""

from __future__ import annotations

import importlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from py4j.java_gateway import JavaGateway
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from coordination.errors import ConfigError, Unavailable
from sink.clients.host.child_environment import SAFE_PATH
from sink.clients.java.class_archive import archive_option
from sink.clients.java.errors import JAVA_ERRORS, error_text, message
from sink.clients.java.heap import BUFFER, DEFAULT_HEAP, HEAP, local_tasks, slots
from sink.clients.java.installation import exit_reason, find_java, pyspark_jars
from sink.clients.java.kerberos import await_login, log_in
from sink.clients.java.launch import DEFAULT_JAVA_OPTIONS, JAVA_OPTIONS, launch
from sink.clients.java.loopback_peers import refuse_strangers_updates
from sink.clients.java.options import collector, committing_jvm, security_properties
from sink.clients.spark.inline_reads import executor_options
from sink.clients.spark.log import crash_options, jvm_output, log4j_configuration
from sink.clients.spark.pools import ALLOCATIONS
from sink.clients.spark.privacy import (
    LOCAL_PRIVACY,
    close_ports,
    local_directories,
    private_hadoop,
    temporary_files,
)
from sink.clients.spark.specification import SessionSpecification, is_one_process
from sink.clients.spark.storage import class_path, session_options
from sink.clients.spark.task_numbers import number_tasks_anew
from sink.storage.identity import for_java

if TYPE_CHECKING:
    from pyarrow import RecordBatch

SHIPPED = ("sink", "coordination")
WARM_UP = "warm-up"

_DEFAULTS: Mapping[str, str] = {
    "spark.ui.enabled": "false",
    "spark.ui.killEnabled": "false",
    "spark.ui.showConsoleProgress": "false",
    HEAP: DEFAULT_HEAP,
    # Hudi buffers so much for each file of rows that it writes to a local disk, where Hadoop's default is 32 MiB.
    "spark.hadoop.fs.local.block.size": str(BUFFER),
    "spark.sql.shuffle.partitions": "2",
    # Files that Hudi rewrites have no Spark version: without these two, dates before 1900 fail a clustering.
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    # Without it Hudi cannot rewrite rows with null in an array, and UPDATE and DELETE silently change nothing.
    "spark.hadoop.parquet.avro.write-old-list-structure": "false",
    "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
    # A transaction's jobs get the next free core while table services rewrite files.
    "spark.scheduler.mode": "FAIR",
}
_REQUIRED: Mapping[str, str] = {
    "spark.kryo.registrator": "org.apache.spark.HoodieSparkKryoRegistrar",
    "spark.sql.extensions": "org.apache.spark.sql.hudi.HoodieSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.hudi.catalog.HoodieCatalog",
    "spark.sql.session.timeZone": "UTC",
    "spark.speculation": "false",
}

_LOADED_FIRST = "org.apache.hudi.metadata.HoodieMetadataPayload"
"""Hudi 1.2 compares schemas by identity: if a JVM parses the metadata table's schema before it loads this class, it
cannot write column statistics until it ends."""

_NO_ATTACHING = "-Djol.skipHotspotSAAttach=true -Djol.skipDynamicAttach=true"
"""Without these, Hudi starts another JVM to attach to this one, for better estimates of object sizes."""

_IN_UTC = "-Duser.timezone=UTC"
"""Hudi names instants by the JVM's local time: hosts in different zones would disagree, and each autumn an hour would
repeat."""

_SHORT_LIVED = "-XX:TieredStopAtLevel=1"

_SOURCES_FIELD = "updatingResource"

_MISSING_MODULE = re.compile(r"ModuleNotFoundError: No module named '([^']+)'")


def start_session(
    specification: SessionSpecification,
    app: str,
    spark_log: Path | None = None,
    parallel_sinks: bool = False,
    rolls_log: bool = True,
) -> SparkSession:
    """Starts a session for all sinks of a process. `parallel_sinks`: whether transactions of several sinks run in
    parallel. Output of Spark, Hudi and the JVM goes to `spark_log`, which `rolls_log` bounds, and without which no
    other user can lead it to another file.
    """
    conf = _conf(specification, app)
    with tempfile.TemporaryDirectory(prefix="sink-session-") as directory:
        log4j = Path(directory, "log4j2.properties")
        log4j.write_text(log4j_configuration(spark_log, rolls_log))
        archive = archive_option() if _is_alone(conf) else ""
        user_options = [conf.get(name, "") for name in (JAVA_OPTIONS, DEFAULT_JAVA_OPTIONS)]
        committing_options = (
            committing_jvm(*user_options) if all(sink.only_commits for sink in specification.sinks) else ""
        )
        first_options = [archive, _IN_UTC, crash_options(spark_log), temporary_files(), committing_options]
        _add_java_options(conf, first=" ".join(first_options), last=_NO_ATTACHING)
        _add_java_options(conf, last=f"-Dlog4j2.configurationFile={log4j.as_uri()}")
        pools = Path(directory, "pools.xml")
        pools.write_text(ALLOCATIONS)
        conf.setIfMissing("spark.scheduler.allocation.file", pools.as_uri())
        # The JVM reads both files when it starts; they may be deleted then.
        context = _context(conf, specification, spark_log, parallel_sinks)
    _forget_sources(context)
    if not _is_local(conf):
        # Executors fetch the archive when they start: it must exist as long as the context.
        context.addPyFile(str(_pack_packages(Path(context._temp_dir))))
    return SparkSession(context)


@contextmanager
def bare_jvm(specification: SessionSpecification) -> Iterator[JavaGateway]:
    """Starts a JVM with a worker's class path, without Spark. Raises Unavailable."""
    # Certificates and a realm may be named there. The heap and its collector are a worker's.
    properties = security_properties(specification.options.get(JAVA_OPTIONS, ""))
    options = " ".join([temporary_files(), _SHORT_LIVED, *properties])
    conf = SparkConf(False).set(HEAP, "256m").set(JAVA_OPTIONS, options)
    user_jars = [Path(jar) for jar in specification.options.get("spark.jars", "").split(",") if jar]
    try:
        jars = [*class_path(specification), *user_jars]
        with tempfile.TemporaryDirectory(prefix="sink-jvm-") as directory, _environment(jars):
            log4j = Path(directory, "log4j2.properties")
            log4j.write_text(log4j_configuration(None))
            _add_java_options(conf, last=f"-Dlog4j2.configurationFile={log4j.as_uri()}")
            gateway = launch(conf, subprocess.DEVNULL)
    except (*JAVA_ERRORS, OSError) as error:
        raise Unavailable(f"Java did not start: {message(error)}") from error
    try:
        log_in(gateway.jvm, specification.options, specification.sinks[0].access.hdfs)
        yield gateway
    finally:
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait()


def warm_up(spark: SparkSession) -> None:
    """Runs one small job with SQL, Arrow and a Python worker, so that the first task of a new worker does not delay the
    fleet.

    Its job group is `WARM_UP`. Raises what Spark raises, and ConfigError if the executors' Python lacks a module.
    """
    spark.sparkContext.setJobGroup(WARM_UP, "before joining the fleet", True)
    try:
        spark.range(1).mapInArrow(_import_writer, "id long").count()
    except JAVA_ERRORS as error:
        if (missing := _MISSING_MODULE.search(error_text(error))) is None:
            raise
        raise ConfigError(
            f"spark.master: the executors' Python has no module {missing[1]!r}. Install there what the worker has"
            " (pyarrow, numpy, pandas, confluent-kafka, xxhash): simplest is the same virtual environment at the same"
            " place."
        ) from error


def _import_writer(batches: Iterable[RecordBatch]) -> Iterator[RecordBatch]:
    importlib.import_module("sink.write.engines.slice_task")
    yield from batches


def _conf(specification: SessionSpecification, app: str) -> SparkConf:
    # False: ignore system properties that other code may have set.
    conf = SparkConf(False)
    if _on_this_host(specification.master):
        conf.set("spark.driver.bindAddress", "127.0.0.1").set("spark.driver.host", "127.0.0.1")
    conf.setAll(list(_DEFAULTS.items()))
    conf.set("spark.pyspark.python", sys.executable)
    if _is_local(conf.setMaster(specification.master)):
        roots = sorted({str(package.parent) for package in _package_directories()})
        conf.set("spark.executorEnv.PYTHONPATH", os.pathsep.join(roots))
        conf.setAll([(f"spark.executorEnv.{name}", value) for name, value in SAFE_PATH.items()])
        conf.set("spark.python.daemon.module", "sink.write.engines.daemon")
        conf.setAll(list(private_hadoop().items()))
    conf.setAll(list(session_options(specification).items()))
    conf.setAll(list(specification.options.items()))
    conf.setAll(list(_REQUIRED.items()))
    if _is_local(conf):
        conf.setAll(list(LOCAL_PRIVACY.items()))
    if not _is_alone(conf):
        user_jars = filter(None, specification.options.get("spark.jars", "").split(","))
        jars = [*map(str, class_path(specification)), *user_jars]
        conf.set("spark.jars", ",".join(jars))
    # Executors load the class with their first task, before Hudi's classes.
    registered = filter(None, conf.get("spark.kryo.classesToRegister", "").split(","))
    conf.set("spark.kryo.classesToRegister", ",".join([*registered, _LOADED_FIRST]))
    return conf.setAppName(app)


def _is_local(conf: SparkConf) -> bool:
    return is_one_process(conf.get("spark.master") or "")


def _is_alone(conf: SparkConf) -> bool:
    """Returns whether there is one JVM only, without the user's jars, which Hudi's classes must see."""
    return _is_local(conf) and not any(map(conf.contains, ("spark.jars", "spark.jars.packages")))


def _add_slots(conf: SparkConf, cores: int, slots: int) -> None:
    """Adds slots to a local master's cores, for the jobs of a commit while the cores write other transactions."""
    if cores:
        _, comma, failures = (conf.get("spark.master") or "").partition(",")
        conf.setMaster(f"local[{cores + slots}{comma}{failures or ']'}")
        conf.setIfMissing("spark.default.parallelism", str(cores))


def _on_this_host(master: str) -> bool:
    """Returns whether all executors run on this host. Other executors must reach the driver by Spark's default address,
    or the user's."""
    return master.startswith(("local", "spark://127.", "spark://localhost:"))


def _add_java_options(conf: SparkConf, first: str = "", last: str = "") -> None:
    """Adds options before and after the user's; the last one wins."""
    conf.set(JAVA_OPTIONS, f"{first} {conf.get(JAVA_OPTIONS, '')} {last}".strip())


def _add_options(conf: SparkConf, options: Mapping[str, str]) -> None:
    """Appends to settings that are lists."""
    for name, value in options.items():
        current = conf.get(name, "")
        conf.set(name, f"{current},{value}" if current else value)


def _context(
    conf: SparkConf, specification: SessionSpecification, spark_log: Path | None, parallel_sinks: bool
) -> SparkContext:
    # The context looks only in the environment for the Python of its tasks, not at spark.pyspark.python.
    os.environ["PYSPARK_PYTHON"] = conf.get("spark.pyspark.python") or sys.executable
    sinks = specification.sinks
    # On the class path jars are not copied at every start, and come after PySpark's, some of which they repeat.
    appended_jars = class_path(specification) if _is_alone(conf) else ()
    environment = _environment(appended_jars, conf.get("spark.local.dir") or "")
    with jvm_output(spark_log) as output, environment, _preserved_interrupt_handler():
        try:
            gateway = _launch(conf, output, spark_log)
            await_login(gateway.jvm, dict(conf.getAll()), [sink.access.hdfs for sink in sinks])
            if not _is_local(conf):
                _add_options(conf, executor_options(gateway.jvm, specification.base_paths))
            has_overlap = any(sink.only_commits and sink.in_flight > 1 for sink in sinks)
            runtime = gateway.jvm.Runtime.getRuntime()
            cores = local_tasks(conf.get("spark.master") or "", runtime.availableProcessors())
            if added := has_overlap + (slots(runtime.maxMemory(), len(sinks), cores) if parallel_sinks else 0):
                _add_slots(conf, cores, added)
            refuse_strangers_updates()
            context = SparkContext(conf=conf, gateway=gateway)
            gateway.jvm.org.apache.spark.util.Utils.classForName(_LOADED_FIRST, True, False)
            number_tasks_anew(context)
            if _is_local(conf):
                close_ports(context)
            return context
        except (*JAVA_ERRORS, OSError) as error:
            raise _not_started(conf, message(error), spark_log) from error


def _launch(conf: SparkConf, output: IO[Any] | int, spark_log: Path | None) -> JavaGateway:
    """Starts the JVM. If it ends at once, its output says why, and PySpark does not."""
    log = None if isinstance(output, int) else output.fileno()
    logged_before = os.fstat(log).st_size if log is not None else 0
    try:
        return launch(conf, output)
    except PySparkRuntimeError as error:
        jvm_output = b"" if log is None else os.pread(log, os.fstat(log).st_size - logged_before, logged_before)
        reason = exit_reason(jvm_output.decode(errors="replace"))
        raise _not_started(conf, reason or message(error).rstrip("."), spark_log) from error


def _not_started(conf: SparkConf, reason: str, spark_log: Path | None) -> Unavailable:
    advice = f"See {spark_log}." if spark_log else "Set log.dir for a log."
    return Unavailable(f"Spark did not start on {conf.get('spark.master')}: {reason}. {advice}")


def _forget_sources(context: SparkContext) -> None:
    """Removes the sources of the entries in Hadoop's configuration. Spark sends the configuration with every task, and
    compresses the source of each of its thousand entries by itself: a seventh of a small commit's time. Nothing reads
    the sources.
    """
    jvm: Any = context._jvm
    # Another Hadoop may keep the sources elsewhere: then they are sent.
    with suppress(*JAVA_ERRORS):
        sources = jvm.java.lang.Class.forName("org.apache.hadoop.conf.Configuration").getDeclaredField(_SOURCES_FIELD)
        sources.setAccessible(True)
        sources.get(context._jsc.hadoopConfiguration()).clear()


@contextmanager
def _environment(appended_jars: Sequence[Path], local_roots: str = "") -> Iterator[None]:
    """Sets the environment of Spark's launcher (Java, Spark and the end of the class path), and restores it."""
    variables = {
        "JAVA_HOME": str(find_java().home),
        "SPARK_HOME": str(pyspark_jars().parent),
        # The launcher is a short-lived JVM that builds the command line of the driver's JVM.
        "SPARK_LAUNCHER_OPTS": os.environ.get("SPARK_LAUNCHER_OPTS", f"{_SHORT_LIVED} {collector()}"),
        "SPARK_DIST_CLASSPATH": os.pathsep.join(map(str, appended_jars)),
        # A connection of its own for each thread, as the gateway without a port needs it.
        "PYSPARK_PIN_THREAD": "true",
        **local_directories(local_roots),
        **for_java(os.environ),
    }
    names = (*variables, "PYSPARK_SUBMIT_ARGS")
    saved = {name: os.environ.pop(name) for name in names if name in os.environ}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name in names:
            os.environ.pop(name, None)
        os.environ.update(saved)


@contextmanager
def _preserved_interrupt_handler() -> Iterator[None]:
    """Restores the handler of SIGINT, which SparkContext replaces."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous_handler = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous_handler)


def _package_directories() -> list[Path]:
    return [Path(importlib.import_module(name).__path__[0]) for name in SHIPPED]


def _pack_packages(directory: Path) -> Path:
    """Packs the installed packages into an archive that Python can import from."""
    archive = directory / "sink-packages.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        for package in _package_directories():
            for member in sorted((*package.rglob("*.py"), *package.rglob("*.tsv"))):
                file.write(member, member.relative_to(package.parent))
    return archive
