"""The auditor's failures as errors of the commands: it knows none of these. Imports the auditor when called."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import KafkaException

from coordination.errors import TableError, Unavailable
from coordination.state.versions import other_version
from sink.librdkafka import refusal


@contextmanager
def sink_errors() -> Iterator[None]:
    """Raises TableError, Unavailable, OtherVersion, and ConfigError for settings of Kafka."""
    from sink.audit.failures import CannotAudit, OtherFormat, TryAgain

    try:
        yield
    except CannotAudit as error:
        raise TableError(str(error)) from error
    except TryAgain as error:
        raise Unavailable(str(error)) from error
    except OtherFormat as error:
        raise other_version(error.found, error.origin) from error
    except KafkaException as error:
        raise refusal(error) from error
