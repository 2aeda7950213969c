"""`python -m sink.devtools.local.jars`: find Java, and fetch the jars of a Kafka broker, for the demo and for tests.

With `--java` it only finds Java: exit status 1 if there is none that runs both Spark and a broker. Errors as
`sink.clients.artifacts`.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from coordination.errors import SinkError
from sink.clients.artifacts import fetch
from sink.clients.java import BROKER_VERSIONS, find_java

KAFKA = (
    "org.apache.kafka:kafka_2.13:4.3.0",
    "org.apache.logging.log4j:log4j-slf4j-impl:2.25.4",
)
"""The artifacts of a Kafka broker, on a class path of its own, because its Scala is not Spark's. The second one is for
its log."""


def kafka_jars() -> list[Path]:
    """Returns the jars of a Kafka broker."""
    return fetch("kafka", KAFKA)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m sink.devtools.local.jars", description=__doc__)
    parser.add_argument("--java", action="store_true", help="only find Java, for Spark and for a broker")
    arguments = parser.parse_args()
    try:
        for use, java in (("Spark", find_java()), ("a broker", find_java(BROKER_VERSIONS))):
            print(f"java {java.version} for {use}: {java.binary}")
        if not arguments.java:
            jars = kafka_jars()
            print(f"kafka: {len(jars)} jars in {jars[0].parent}")
    except SinkError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
