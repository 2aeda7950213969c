"""Times how long a sink holds the table lock, by what for: transactions and services, the metadata table's too.

`python -m tests.bench.lock_holds --delay 0.02` makes small commits in one JVM, without a fleet and without Kafka, and
runs the services after every ten: on a disk, or on an S3 server that answers each request so many seconds late. A
second table, merged on read, is changed by Spark and compacted. Prints the number of holds, the median and the longest.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from coordination.state.model import TableView
from coordination.zookeeper.table_service_lock import ServiceOutcome
from sink.clients.spark.session import start_session
from sink.hudi.table import Table
from sink.schema.table_schema import parse_ddl
from tests.integration.table_kit import DDL, Driver, checkpoint, table_settings
from tests.storage.s3_proxy import S3Proxy
from tests.storage.s3_server import MotoServer, Store

OFTEN = {
    "hoodie__metadata__enable": "true",
    "hoodie__metadata__index__column__stats__enable": "true",
    "services__clustering": "true",
    "hoodie__keep__min__commits": "12",
    "hoodie__keep__max__commits": "14",
    "hoodie__clean__commits__retained": "5",
    "hoodie__compact__inline__max__delta__commits": "2",
    "spark__driver__memory": "900m",
}


class Holds:
    """Gives no lock, for nobody else knows the table, and notes how long it would have been held."""

    def __init__(self) -> None:
        self.seconds: dict[str, list[float]] = defaultdict(list)

    @contextmanager
    def __call__(self, purpose: str) -> Iterator[None]:
        began = time.monotonic()
        yield
        self.seconds[purpose].append(time.monotonic() - began)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--commits", type=int, default=30)
    parser.add_argument("--delay", type=float, help="on S3, so many seconds a request (default: on a disk)")
    options = parser.parse_args()
    holds = Holds()
    with tempfile.TemporaryDirectory(prefix="sink-holds-") as name, ExitStack() as servers:
        directory, location, proxy = Path(name), {}, None
        if options.delay is not None:
            server = servers.enter_context(MotoServer(directory / "s3"))
            proxy = servers.enter_context(S3Proxy(directory / "proxy", server.url))
            store = Store(proxy.url)
            location = {**store.settings, "target.base.path": f"s3a://{store.make_bucket()}/orders"}
        try:
            _append(directory, location, holds, options, proxy)
        finally:
            _print_table(holds)
    return 0


def _print_table(holds: Holds) -> None:
    print(f"{'held for':24} {'holds':>6} {'median s':>9} {'longest s':>10}")
    for purpose, seconds in sorted(holds.seconds.items(), key=lambda item: -max(item[1])):
        print(f"{purpose:24} {len(seconds):6} {statistics.median(seconds):9.2f} {max(seconds):10.2f}")


def _append(
    directory: Path, location: dict[str, str], holds: Holds, options: argparse.Namespace, proxy: S3Proxy | None
) -> None:
    settings = table_settings(directory / "table", "127.0.0.1:9", **OFTEN, **location)
    spark = start_session(settings.session, "holds", directory / "spark.log")
    driver = Driver(spark, settings, None)  # type: ignore[arg-type]
    driver.table = Table(spark, settings.table, parse_ddl(DDL, settings.provenance), holds)
    driver.table.ensure()
    if proxy is not None:
        proxy.delay(options.delay)
    for number in range(1, options.commits + 1):
        instant = driver.table.begin(number, 1)
        driver.table.complete(instant, driver.write(instant, number * 10), checkpoint(number), _allow)
        if number % 10 == 0:
            _require_success((*driver.table.metadata_services(), *driver.table.services()))
    _compact(driver, settings.base_path, holds, directory, location)
    spark.stop()


def _compact(driver: Driver, base_path: str, holds: Holds, directory: Path, location: dict[str, str]) -> None:
    merged = f"{base_path}_merged"
    driver.spark.sql(
        f"CREATE TABLE merged (id bigint, kind string) USING hudi LOCATION '{merged}' TBLPROPERTIES (type='mor',"
        " primaryKey='id', 'hoodie.compact.inline'='false', 'hoodie.clean.automatic'='false')"
    )
    driver.spark.sql("INSERT INTO merged SELECT id, 'a' FROM range(1000)")
    for number in range(1, 3):
        driver.spark.sql(f"UPDATE merged SET kind = 'b{number}' WHERE id < {100 * number}")
    more = {**OFTEN, **location, "target.base.path": merged}
    settings = table_settings(directory / "merged", "127.0.0.1:9", **more)
    table = Table(driver.spark, settings.table, parse_ddl("id bigint, kind string", provenance=False), holds)
    _require_success(table.services())


def _require_success(services: tuple[ServiceOutcome, ...]) -> None:
    for service in services:
        assert not service.reason, service
        print(f"{service.name}: {service.seconds:.1f} s, instant {service.instant or 'none'}")


def _allow(view: TableView) -> None:
    """A guard that allows every completion."""


if __name__ == "__main__":
    sys.exit(main())
