"""The jars that Hadoop needs for a store, by the scheme of the base path. No I/O."""

from __future__ import annotations

from dataclasses import dataclass

from sink.storage.access import S3_SCHEMES


@dataclass(frozen=True, slots=True)
class Connector:
    """The jars that Hadoop needs for a scheme."""

    name: str
    artifact: str
    """Identifies the jar in spark.jars and spark.jars.packages."""
    coordinates: tuple[str, ...]


_S3 = Connector(
    "s3a", "hadoop-aws", ("org.apache.hadoop:hadoop-aws:3.3.4", "com.amazonaws:aws-java-sdk-bundle:1.12.262")
)
_AZURE = Connector("abfs", "hadoop-azure", ("org.apache.hadoop:hadoop-azure:3.3.4",))
_GOOGLE = Connector("gs", "gcs-connector", ())
CONNECTORS = {**dict.fromkeys(S3_SCHEMES, _S3), "abfs": _AZURE, "abfss": _AZURE, "gs": _GOOGLE}
"""The schemes that need jars beside PySpark's. The versions match the Hadoop in PySpark."""
