"""The versions of the sink and its libraries. Raises nothing."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

DISTRIBUTION = "hudi-keeper-sink"
PARTS = ("pyspark", "kazoo", "confluent-kafka", "pyarrow", "hudi", "hdfs-native", "duckdb")


def sink_version() -> str:
    return _version(DISTRIBUTION) or "unreleased"


def dependency_versions() -> dict[str, str]:
    """Returns the installed versions of the sink's libraries."""
    return {name: installed for name in PARTS if (installed := _version(name)) is not None}


def _version(distribution: str) -> str | None:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None
