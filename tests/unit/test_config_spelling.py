"""A slip of the pen in a passed-through name is refused; a real name of Kafka, Spark or Hudi never is."""

from __future__ import annotations

import re
import zipfile
from pathlib import Path

import pyspark
import pytest

from coordination.errors import ConfigError
from sink.config.hudi_keys import KEYS
from sink.config.spelling import KNOWN, REAL, mistaken_for
from tests.one_sink import load
from tests.unit.config_kit import MINIMAL


def _below(prefix: str, text: str) -> list[str]:
    return [f"{prefix}.{name}" for name in text.split()]


JARS = Path(pyspark.__file__).parent / "jars"
CONSUMER = _below(
    "kafka",
    """
    allow.auto.create.topics auto.commit.interval.ms client.dns.lookup client.id client.rack
    connections.max.idle.ms default.api.timeout.ms exclude.internal.topics fetch.max.bytes fetch.max.wait.ms
    fetch.min.bytes fetch.wait.max.ms group.id group.instance.id heartbeat.interval.ms
    max.partition.fetch.bytes max.poll.interval.ms max.poll.records metadata.max.age.ms metric.reporters
    metrics.num.samples partition.assignment.strategy receive.buffer.bytes reconnect.backoff.jitter.ms
    reconnect.backoff.max.ms reconnect.backoff.ms request.timeout.ms retries retry.backoff.ms
    sasl.client.callback.handler.class sasl.login.callback.handler.class sasl.login.class
    sasl.oauthbearer.jwks.endpoint.refresh.ms sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms
    sasl.oauthbearer.jwks.endpoint.retry.backoff.ms sasl.oauthbearer.token.endpoint.url security.providers
    send.buffer.bytes session.timeout.ms socket.connection.setup.timeout.max.ms
    socket.connection.setup.timeout.ms ssl.cipher.suites ssl.enabled.protocols
    ssl.endpoint.identification.algorithm ssl.protocol ssl.provider topic.metadata.refresh.fast.cnt
    """,
)
HUDI = sorted(name for name, key in KEYS.items() if key.kind != "refused" and not key.values)
SPARK = _below(
    "spark",
    """
    app.id blockManager.port default.parallelism driver.cores driver.log.persistToDfs.enabled
    driver.maxResultSize driver.memory driver.memoryOverhead driver.memoryOverheadFactor driver.port
    dynamicAllocation.enabled dynamicAllocation.maxExecutors dynamicAllocation.minExecutors eventLog.dir
    executor.cores executor.instances executor.memory executor.memoryOverhead executor.pyspark.memory
    executorEnv.MY_VAR files hadoop.fs.gs.impl hadoop.fs.s3.impl hadoop.fs.s3a.bucket.lake.access.key
    hadoop.fs.s3a.endpoint hadoop.fs.s3n.access.key hadoop.fs.azure.account.key.lake.dfs.core.windows.net
    jars.packages kryoserializer.buffer kryoserializer.buffer.max kryoserializer.buffer.mb
    kubernetes.driver.label.team local.dir locality.wait.node locality.wait.rack memory.fraction
    memory.offHeap.size network.timeout port.maxRetries pyspark.python scheduler.mode shuffle.compress
    speculation.quantile sql.adaptive.enabled sql.catalog.lake sql.catalog.spark_catalog2
    sql.files.maxPartitionBytes sql.files.maxRecordsPerFile sql.shuffle.partitions
    task.cpus task.maxFailures ui.enabled ui.port yarn.am.memory yarn.queue
    """,
)
REAL_NAMES = [*CONSUMER, *HUDI, *SPARK]


def refusal_of(tmp_path: Path, line: str) -> str:
    path = tmp_path / "sink.yaml"
    path.write_text(MINIMAL + line)
    with pytest.raises(ConfigError) as refusal:
        load(path, {})
    return str(refusal.value)


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("spark.speculaton", "spark.speculation"),
        ("spark.driver.memry", "spark.driver.memory"),
        ("spark.driver.memoryoverhead", "spark.driver.memoryOverhead"),
        ("spark.executor.mermoy", "spark.executor.memory"),
        ("spark.hadoop.fs.s3a.acces.key", "spark.hadoop.fs.s3a.access.key"),
        ("hoodie.write.concurency.mode", "hoodie.write.concurrency.mode"),
        ("hoodie.metadata.enabel", "hoodie.metadata.enable"),
        ("hoodie.metadata.enabled", "hoodie.metadata.enable"),
        ("hoodie.parquet.compresion.codec", "hoodie.parquet.compression.codec"),
        ("hoodie.clean.asinc", "hoodie.clean.async"),
        ("hoodie.populate.metafields", "hoodie.populate.meta.fields"),
        ("kafka.fetch.max.byte", "kafka.fetch.max.bytes"),
        ("kafka.max.pol.records", "kafka.max.poll.records"),
    ],
)
def test_a_slip_of_the_pen_is_refused_with_the_name_that_was_meant(tmp_path: Path, written: str, meant: str):
    error_text = refusal_of(tmp_path, f"{written}: x\n")
    assert f"Did you mean {meant}?" in error_text
    assert "line 8" in error_text
    assert len(error_text.splitlines()) == 1


@pytest.mark.parametrize("written", ["kafka.topics", "kafka.topic"])
def test_topics_under_another_name_are_refused_with_the_right_one(tmp_path: Path, written: str):
    assert f"{written} is not a setting of Kafka's clients. Use kafka.topic.names" in refusal_of(
        tmp_path, f"{written}: x\n"
    )


def test_real_names_that_resemble_others_are_passed_on(tmp_path: Path):
    path = tmp_path / "sink.yaml"
    path.write_text(MINIMAL + "".join(f"{name}: 'false'\n" for name in REAL_NAMES))
    settings = load(path, {})
    assert len(settings.kafka) + len(settings.spark) + len(settings.hudi) == len(REAL_NAMES)


def test_no_well_known_name_is_taken_for_another():
    assert [name for name in sorted(KNOWN | REAL) if mistaken_for(name)] == []


def test_no_name_in_sparks_own_jars_is_refused():
    """Names come from the class files that declare Spark's settings, and Hadoop's, which go below spark.hadoop."""
    names = set()
    for module in ("core", "catalyst", "yarn"):
        for jar in JARS.glob(f"spark-{module}_*.jar"):
            names |= _declared(jar, r"internal/config/|SQLConf\$\.class|deploy/yarn/config", "spark")
    for jar in JARS.glob("hadoop-client-api-*.jar"):
        with zipfile.ZipFile(jar) as classes:
            text = classes.read("core-default.xml").decode()
            names |= {f"spark.hadoop.{name}" for name in re.findall(r"<name>\s*([^<\s]+)\s*</name>", text)}
    assert len(names) > 1000
    assert _mistaken(names) == {}


def _declared(jar: Path, classes: str, prefix: str) -> set[str]:
    """Returns the names of settings among the constants of some classes: a tag and a length stand before each."""
    names: set[str] = set()
    name = re.compile(rb"\x01..(" + prefix.encode() + rb"\.[A-Za-z0-9_.-]+[A-Za-z0-9])", re.DOTALL)
    with zipfile.ZipFile(jar) as members:
        for member in filter(re.compile(classes).search, members.namelist()):
            names |= {match.decode() for match in name.findall(members.read(member))}
    return names


def _mistaken(names: set[str]) -> dict[str, str]:
    return {name: near for name in sorted(names) if (near := mistaken_for(name))}
