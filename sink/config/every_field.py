"""Every setting as a field of one model: the groups, and the settings passed through to Kafka, Spark and Hudi."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator

from sink.config.fields import setting
from sink.config.groups.catalog import CatalogSettings
from sink.config.groups.endpoints import EndpointSettings
from sink.config.groups.files import FileSettings
from sink.config.groups.http import HttpSettings
from sink.config.groups.meanings import MeaningSettings
from sink.config.groups.records import RecordSettings
from sink.config.groups.rows import RowSettings
from sink.config.groups.storage import StorageSettings
from sink.config.groups.transactions import TransactionSettings
from sink.config.groups.worker import WorkerSettings
from sink.config.groups.zookeeper import ZooKeeperSettings
from sink.storage.access import CONNECTORS, scheme_of
from sink.telemetry.redaction import Properties


def _pass_through(value: Any) -> Properties:
    return value if isinstance(value, Properties) else Properties(value)


PassThrough = Annotated[Properties, BeforeValidator(_pass_through)]


# Pydantic takes the fields of the last base first. The reference lists them, and they are checked, in that order.
class ProcessSettings(HttpSettings, WorkerSettings, StorageSettings, ZooKeeperSettings):
    """Settings that a worker's process has once, for all its sinks. In a configuration of several sinks they may be set
    only in the part that all sinks share.
    """

    spark: PassThrough = setting("spark.*", "Any other setting of Spark.", default_factory=Properties)


class SettingsFields(
    FileSettings,
    CatalogSettings,
    TransactionSettings,
    RowSettings,
    MeaningSettings,
    RecordSettings,
    EndpointSettings,
    ProcessSettings,
):
    """Every setting, not yet checked for contradictions."""

    kafka: PassThrough = setting(
        "kafka.*",
        "Any other setting of the Kafka consumer, under Kafka's own name.",
        default_factory=Properties,
    )
    hudi: PassThrough = setting(
        "hoodie.*",
        "Settings of Hudi; each is [refused, checked or harmless](hudi-settings.md).",
        default_factory=Properties,
        same_on_all_workers=True,
    )

    @property
    def in_flight(self) -> int:
        """Transactions that may be open at once: as set, or 2 on an object store, else 1. There a commit waits for
        requests, and the next transaction can be written meanwhile.
        """
        commits_wait = self.only_commits and scheme_of(self.base_path) in CONNECTORS
        return self.in_flight_max or (2 if commits_wait else 1)

    @property
    def only_commits(self) -> bool:
        """Whether the JVM of a worker sees no record: Python tasks write the files."""
        return self.operation == "append" and self.engine == "arrow"
