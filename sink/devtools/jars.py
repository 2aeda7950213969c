"""`python -m sink.devtools.jars`: fetches the jars that a worker would fetch, and makes the class archive.

`--storage SCHEME` fetches the jars for tables on that store, too, `--broker` those of a Kafka broker, which demo and
tests use. `--java` only finds Java: exit status 1 if there is none that runs both Spark and a broker. Errors as
`sink.clients.java.installation`.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from coordination.errors import SinkError
from sink.clients.java.installation import BROKER_VERSIONS, fetch, find_java, spark_jars, storage_jars
from sink.storage.access import CONNECTORS

KAFKA = (
    "org.apache.kafka:kafka_2.13:4.3.0",
    "org.apache.logging.log4j:log4j-slf4j-impl:2.25.4",
)
"""The artifacts of a Kafka broker, on a class path of its own, because its Scala is not Spark's. The second one is for
its log."""


def kafka_jars() -> list[Path]:
    """Returns the jars of a Kafka broker."""
    return fetch("kafka", KAFKA)


def add_storage_argument(parser: argparse.ArgumentParser) -> None:
    """Adds `--storage SCHEME`, whose values are schemes with jars to fetch."""
    parser.add_argument(
        "--storage",
        action="append",
        default=[],
        metavar="SCHEME",
        choices=sorted(scheme for scheme, connector in CONNECTORS.items() if connector.coordinates),
        help="also the jars for tables whose base path has this scheme, like s3a; may be given several times",
    )


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m sink.devtools.jars", description="Fetch jars ahead of a first start."
    )
    parser.add_argument("--java", action="store_true", help="only find Java, for Spark and for a broker")
    parser.add_argument("--broker", action="store_true", help="also the jars of a Kafka broker, for demo and tests")
    add_storage_argument(parser)
    arguments = parser.parse_args()
    try:
        java = find_java()
        print(f"java {java.version}: {java.binary}")
        if arguments.java:
            broker = find_java(BROKER_VERSIONS)
            print(f"java {broker.version} for a broker: {broker.binary}")
            return 0
        stores = {CONNECTORS[scheme].name: storage_jars(CONNECTORS[scheme]) for scheme in arguments.storage}
        brokers = {"kafka": kafka_jars()} if arguments.broker else {}
        for name, jars in {"spark": spark_jars(), **brokers, **stores}.items():
            print(f"{name}: {len(jars)} jars in {jars[0].parent}", flush=True)
    except SinkError as error:
        print(error, file=sys.stderr)
        return 1
    # Imported here, because it imports Spark. If it fails, only starts are slower.
    from sink.devtools import class_archiving

    class_archiving.main()
    return 0


if __name__ == "__main__":
    sys.exit(main())
