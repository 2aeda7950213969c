"""`sink demo`: a fleet lands order events exactly once on this machine, although its coordinator is killed.

ZooKeeper, Kafka, workers and SIGKILL are real; the audit at the end shares no code with the writer. All processes end
with the demo, however it ends, unless `keep` lets them live on after the audit. Raises `Unavailable` if a process does
not start or no record lands for a while, and keeps the logs that it names; `ConfigError` if the directory has an
earlier demo.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from coordination.errors import ConfigError, SinkError, Unavailable, in_sentences
from coordination.state.incarnations import worker_of
from coordination.state.model import Phase
from coordination.state.tree import KeeperView
from sink.audit.audit import audit
from sink.audit.log import TopicAccess
from sink.audit.report import Report
from sink.clients.host.child_environment import overrides_a_setting
from sink.clients.java.installation import spark_jars
from sink.commands.auditor import sink_errors
from sink.devtools.demo.fleet import NAME, PARTITIONS, TOPIC, DemoCluster
from sink.devtools.demo.orders import Feed
from sink.devtools.demo.tables import TABLES
from sink.devtools.demo.view import Screen, in_doubt, picture
from sink.devtools.jars import kafka_jars
from sink.telemetry.terminal import quiet

RECORDS = 500_000
FEED_SECONDS = 45.0
FIRST_WORKERS = ("worker-1", "worker-2", "worker-3")
LATE_WORKER = "worker-4"
TRANSACTIONS = 6
"""The least number of transactions, so that the coordinator can be killed during one."""
STILL_SECONDS = 300.0
POLL_SECONDS = 0.05
KILL_AFTER = 0.2
"""The share of the records that land before the coordinator is killed."""


@dataclass
class DemoProgress:
    """The events of the demo so far, in monotonic seconds."""

    victim: str = ""
    killed_at: float = 0.0
    killed_epoch: int = 0
    elected_after: float = 0.0
    landed_at_kill: int = 0
    takeover: float = 0.0
    landed: int = -1
    moved_at: float = field(default_factory=time.monotonic)


def run(
    keep: bool = False,
    records: int = RECORDS,
    directory: Path | None = None,
    feed_seconds: float = FEED_SECONDS,
    storage: str = "local",
) -> int:
    """Runs the demo. Returns exit status 0 if the audit held, else 1. `directory` gets logs, and a table on disk.

    `storage` is one of `sink.devtools.demo.tables.TABLES`.
    """
    quiet()
    home = _home(directory)
    table = TABLES[storage](home)
    try:
        table.prepare()
        spark_jars()
        kafka_jars()
    except SinkError:
        if directory is None:
            home.rmdir()
        raise
    cluster = DemoCluster(home, -(-records // TRANSACTIONS), table)
    try:
        with Screen() as screen:
            progress = _play(cluster, screen, records, feed_seconds)
            screen.say("everything has landed: auditing the table against the topic")
            with sink_errors():
                topics = TopicAccess(cluster.kafka.address)
                report = audit(table.base_path, NAME, topics, storage=table.access, content=True)
        proven = report.held and report.rows == records
        _print_result(screen, progress, report, records)
        _print_query(screen, cluster, keep)
        if keep:
            _print_next_commands(screen, cluster)
        else:
            cluster.stop_workers()
            cluster.end()
            cluster.delete_server_data()
        return 0 if proven else 1
    except KeyboardInterrupt:
        cluster.end()
        cluster.delete_server_data()
        if directory is None:
            shutil.rmtree(cluster.directory, ignore_errors=True)
        raise
    except BaseException:
        cluster.end()  # keep all files: the error names the logs
        raise


def _home(directory: Path | None) -> Path:
    """Returns the directory of the demo. It is absolute, because a worker takes no relative base path."""
    if directory is None:
        return Path(tempfile.mkdtemp(prefix="sink-demo-"))
    home = directory.absolute()
    if any((home / part).exists() for part in ("table", "kafka", "zookeeper", "s3")):
        raise ConfigError(f"{home} has an earlier demo. Remove it, or name another directory.")
    return home


def _play(cluster: DemoCluster, screen: Screen, records: int, feed_seconds: float) -> DemoProgress:
    *names, last_name = (name for name, _ in _addresses(cluster))
    screen.say(f"starting {', '.join(names)} and {last_name}")
    cluster.start()
    servers = ", ".join(f"{name} {address}" for name, address in _addresses(cluster))
    screen.say(f"{servers}, topic {TOPIC} with {PARTITIONS} partitions")
    for name in FIRST_WORKERS:
        cluster.start_worker(name)
    screen.say(f"starting {len(FIRST_WORKERS)} workers, each with a PySpark session of its own")
    screen.say(f"each has a page of the fleet; that of {FIRST_WORKERS[0]}: http://{cluster.pages[FIRST_WORKERS[0]]}/")
    feed = Feed(cluster.kafka.address, TOPIC, PARTITIONS, records, records / feed_seconds)
    progress = DemoProgress()
    try:
        while not _step(cluster, screen, feed, progress, records):
            time.sleep(POLL_SECONDS)
    finally:
        feed.stop()
    return progress


def _step(cluster: DemoCluster, screen: Screen, feed: Feed, progress: DemoProgress, records: int) -> bool:
    """Looks once and acts on it. Returns True when everything has landed."""
    view = cluster.view()
    _require_life(cluster, view, progress)
    if len(view.members) >= len(FIRST_WORKERS) and not feed.started:
        screen.say(f"the fleet is up: producing {records:,} events")
        feed.start()
    current = picture(view, cluster.workers, feed.produced, records)
    screen.show(current)
    if current.landed != progress.landed or not feed.started:
        progress.landed, progress.moved_at = current.landed, time.monotonic()
    if time.monotonic() - progress.moved_at > STILL_SECONDS:
        raise Unavailable(f"no record landed for {STILL_SECONDS:.0f} s. See the logs in {cluster.logs}.")
    if not progress.victim and current.landed >= KILL_AFTER * records and _is_being_written(view):
        _kill_coordinator(cluster, screen, progress, view, current.landed)
    elif progress.victim and not progress.takeover:
        _watch_takeover(screen, progress, view, current.landed)
    is_landed = feed.started and feed.done and current.landed >= records and not view.transactions
    return is_landed and bool(progress.takeover or not progress.victim)


def _is_being_written(view: KeeperView) -> bool:
    """Returns whether a transaction is STARTED and some participant is still writing."""
    return any(
        transaction.header.phase is Phase.STARTED and len(transaction.statuses) < len(transaction.plan.slices)
        for transaction in view.transactions
    )


def _kill_coordinator(
    cluster: DemoCluster, screen: Screen, progress: DemoProgress, view: KeeperView, landed: int
) -> None:
    assert view.coordinator is not None
    progress.victim = worker_of(view.coordinator)
    worker = cluster.workers[progress.victim]
    worker.kill()
    progress.killed_at = time.monotonic()
    progress.killed_epoch, progress.landed_at_kill = view.epoch, landed
    number = view.transactions[0].header.number
    screen.say(
        f"SIGKILL to the coordinator, {progress.victim} (pid {worker.pid}), in transaction {number}: "
        f"{in_doubt(view)} partitions are BEFORE"
    )
    cluster.start_worker(LATE_WORKER)
    screen.say(f"starting {LATE_WORKER}")


def _watch_takeover(screen: Screen, progress: DemoProgress, view: KeeperView, landed: int) -> None:
    seconds_since_kill = time.monotonic() - progress.killed_at
    if not progress.elected_after and view.epoch > progress.killed_epoch and view.coordinator:
        progress.elected_after = seconds_since_kill
        successor = worker_of(view.coordinator)
        screen.say(f"{successor} is coordinator, epoch {view.epoch}, {seconds_since_kill:.1f} s after the kill")
    if landed > progress.landed_at_kill and progress.elected_after:
        progress.takeover = seconds_since_kill
        screen.say(f"first commit of the new coordinator {seconds_since_kill:.1f} s after the kill")


def _require_life(cluster: DemoCluster, view: KeeperView, progress: DemoProgress) -> None:
    """Raises `Unavailable` if the sink halted, or a worker ended that the demo did not kill."""
    if view.halt is not None:
        raise Unavailable(in_sentences(f"the sink halted: {view.halt.reason}", f"See the logs in {cluster.logs}."))
    for name, worker in cluster.workers.items():
        if name != progress.victim and not worker.running:
            raise Unavailable(f"{name} ended with status {worker.exit_status}: {worker.tail()} (log: {worker.log})")


def _addresses(cluster: DemoCluster) -> list[tuple[str, str]]:
    servers = [("ZooKeeper", cluster.zookeeper.address), ("Kafka", cluster.kafka.address)]
    return servers + [(server.name, server.address) for server in cluster.table.servers]


def _print_result(screen: Screen, progress: DemoProgress, report: Report, records: int) -> None:
    screen.console.print()
    report.render(screen.console)
    if report.held and report.rows != records:
        screen.console.print(
            f"Not held: {records:,} events were produced, the table has {report.rows:,}.", style="bold red"
        )
    takeover = (
        f"Takeover: {progress.takeover:.1f} s from the SIGKILL of {progress.victim} to the next commit "
        f"(new epoch after {progress.elected_after:.1f} s)."
        if progress.takeover
        else "No takeover: everything had landed before there was a transaction to kill the coordinator in."
    )
    screen.console.print(takeover, soft_wrap=True)


def _print_query(screen: Screen, cluster: DemoCluster, keep: bool) -> None:
    """Prints a query of the table. Runs it now if the table ends with its server."""
    table, is_temporary = cluster.table, bool(cluster.table.servers) and not keep
    locations = f"\nThe table {'was' if is_temporary else 'is'} in {table.base_path}, logs are in {cluster.logs}. "
    introduction = "It is read with hudi-rs and DuckDB:" if is_temporary else f"To query it, in {sys.executable}:"
    screen.console.print(f"{locations}{introduction}\n", soft_wrap=True)
    screen.console.print(table.query, soft_wrap=True, markup=False)
    if is_temporary:
        query_run = subprocess.run([sys.executable, "-c", table.query], capture_output=True, text=True, check=False)
        screen.console.print(f"\n{query_run.stdout or query_run.stderr}", soft_wrap=True, markup=False)
        screen.console.print("It ends with the demo's S3 server, which keeps it in memory; --keep leaves both running.")


def _print_next_commands(screen: Screen, cluster: DemoCluster) -> None:
    config = next(reversed(cluster.workers.values())).config  # any worker: there is no late worker if none was killed
    # Print the path of `sink`, which `make demo` leaves out of PATH. Unset variables that would lead to a real sink.
    unset_options = "".join(f"-u {name} " for name in sorted(os.environ) if overrides_a_setting(name))
    sink_command = ("env " + unset_options if unset_options else "") + str(Path(sys.executable).with_name("sink"))
    for line in (
        "\nServers and fleet are still running:",
        f"  {', '.join(f'{name} {address}' for name, address in _addresses(cluster))}, topic {TOPIC}",
        f"  look:  {sink_command} status --config {config} --watch",
        f"  page:  {' or '.join(cluster.living_pages())}",
        f"  check: {sink_command} audit --config {config}",
        f"  stop:  {cluster.detach()}",
    ):
        screen.console.print(line, soft_wrap=True, markup=False)
