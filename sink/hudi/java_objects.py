"""The Java objects of one table, made by py4j: configuration, clients of its storage, values.

Guarantee: nothing here changes a table. Raises what py4j raises (`JAVA_ERRORS`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

from py4j.java_gateway import GatewayClient, JavaClass
from pyspark import SparkContext
from pyspark.sql import SparkSession

from sink.clients.java.heap import memory_options

COMMIT = "commit"
DELTA_COMMIT = "deltacommit"
METADATA = "hoodie.metadata.enable"
FORCED_OPTIONS = ("hoodie.clean.failed.writes.policy",)
_TASKS = (
    "hoodie.metadata.index.column.stats.parallelism",
    "hoodie.metadata.index.partition.stats.parallelism",
    "hoodie.finalize.write.parallelism",
    "hoodie.markers.delete.parallelism",
)
"""Hudi's default is a task for each file, up to 200, which costs more than the work."""


class JavaPackage:
    """A package of the JVM; the root has no name. An attribute is a class of the package, or a package within it.

    py4j asks the JVM for each part of a name whether it is a class, and the JVM searches all of its jars for
    `org.apache.class`: with Hudi's calls that was a tenth of the work of a committing JVM. Here a part that begins with
    a capital is a class. For a wrong name py4j raises an error at its first use.
    """

    def __init__(self, client: GatewayClient, name: str = "") -> None:
        self._client = client
        self._name = name

    def __getattr__(self, part: str) -> Any:
        if part.startswith("_"):
            raise AttributeError(part)
        name = f"{self._name}.{part}".lstrip(".")
        is_class = part.rpartition(".")[2][:1].isupper()
        member = JavaClass(name, self._client) if is_class else JavaPackage(self._client, name)
        setattr(self, part, member)
        return member


class HudiObjects:
    """Base of `HudiClient`: makes the Java objects that its steps need."""

    def __init__(self, spark: SparkSession, base_path: str, avro_schema: str, options: Mapping[str, str]) -> None:
        self.base_path = base_path
        self.options = options
        self._spark = spark
        self._avro = avro_schema

    @property
    def context(self) -> SparkContext:
        return self._spark.sparkContext

    @cached_property
    def jvm(self) -> JavaPackage:
        jvm: Any = self.context._jvm
        return JavaPackage(jvm._gateway_client)

    @cached_property
    def java(self) -> Any:
        return self.jvm.org.apache.hudi

    @cached_property
    def mapper(self) -> Any:
        return self.java.common.util.JsonUtils.getObjectMapper()

    @cached_property
    def engine_context(self) -> Any:
        return self.java.client.common.HoodieSparkEngineContext(self._spark.sparkContext._jsc)

    @cached_property
    def config(self) -> Any:
        tasks = dict.fromkeys(_TASKS, str(self.context.defaultParallelism))
        defaults = {**tasks, **memory_options(self.context)}
        name, options = self.options["hoodie.table.name"], self.java_map({**defaults, **self.options})
        config = self.java.DataSourceUtils.createHoodieConfig(self._avro, self.base_path, name, options)
        # The builder bends some settings to fit others: the policy NEVER becomes LAZY where writers are many.
        for key in (key for key in FORCED_OPTIONS if key in self.options):
            config.setValue(key, self.options[key])
        return config

    @cached_property
    def storage_conf(self) -> Any:
        return self.java.hadoop.fs.HadoopFSUtils.getStorageConf(self._spark.sparkContext._jsc.hadoopConfiguration())

    @property
    def has_metadata_table(self) -> bool:
        return self.options[METADATA] == "true"

    def meta_client(self) -> Any:
        builder = self.java.common.table.HoodieTableMetaClient.builder()
        return builder.setConf(self.storage_conf).setBasePath(self.base_path).build()

    def table(self, meta: Any = None) -> Any:
        """Opens the table for Hudi's steps, which take its timeline from `meta`."""
        tables = self.java.table.HoodieSparkTable
        return tables.create(self.config, self.engine_context, self.meta_client() if meta is None else meta)

    def storage(self) -> Any:
        return self.java.storage.HoodieStorageUtils.getStorage(self.base_path, self.storage_conf)

    def path(self, relative: str = "") -> Any:
        return self.java.storage.StoragePath(f"{self.base_path}/{relative}" if relative else self.base_path)

    def java_map(self, values: Mapping[str, str]) -> Any:
        """Makes a Java map in one call: every call costs a round trip."""
        return self.mapper.readValue(json.dumps(dict(values)), self.java_class("java.util.HashMap"))

    def java_list(self, texts: Iterable[str]) -> Any:
        return self.mapper.readValue(json.dumps(list(texts)), self.java_class("java.util.ArrayList"))

    def java_array(self, kind: Any, *values: Any) -> Any:
        gateway: Any = self.context._gateway
        array = gateway.new_array(kind, len(values))
        for index, value in enumerate(values):
            array[index] = value
        return array

    def java_class(self, name: str) -> Any:
        """Returns a class by Spark's class loader: Hudi may be in a jar that was added."""
        loader = self.jvm.java.lang.Thread.currentThread().getContextClassLoader()
        return self.jvm.java.lang.Class.forName(name, True, loader)

    def call_hidden(
        self, target: Any, method: str, parameters: Sequence[str], *arguments: Any, owner: str | None = None
    ) -> Any:
        """Calls a method that is not public, or whose class is not. `parameters` as for `hidden_method`; `owner` is the
        class that declares the method, if it is not the target's own.
        """
        declared = self.hidden_method(owner or str(target.getClass().getName()), method, parameters)
        return declared.invoke(target, self.java_array(self.jvm.java.lang.Object, *arguments))

    def hidden_method(self, owner: str, method: str, parameters: Sequence[str]) -> Any:
        """Returns a method of the class `owner`. `parameters` are the classes that it declares, or `boolean`."""
        of_boolean = {"boolean": self.jvm.java.lang.Boolean.TYPE} if "boolean" in parameters else {}
        kinds = [of_boolean.get(name) or self.java_class(name) for name in parameters]
        declared = self.java_class(owner).getDeclaredMethod(method, self.java_array(self.jvm.java.lang.Class, *kinds))
        declared.setAccessible(True)
        return declared

    def option(self, value: Any = None) -> Any:
        kind = self.java.common.util.Option
        return kind.empty() if value is None else kind.of(value)

    def commit_metadata(self, extra: Mapping[str, str]) -> Any:
        metadata = self.java.common.model.HoodieCommitMetadata()
        for key, value in extra.items():
            metadata.addMetadata(key, value)
        metadata.setOperationType(self.operation)
        return metadata

    @property
    def operation(self) -> Any:
        kinds = self.java.common.model.WriteOperationType
        return kinds.fromValue(self.options["hoodie.datasource.write.operation"])

    @property
    def merges_on_read(self) -> bool:
        return self.options["hoodie.datasource.write.table.type"] == "MERGE_ON_READ"

    @property
    def action(self) -> str:
        """Names the action of a write on the timeline of a table of this type."""
        return DELTA_COMMIT if self.merges_on_read else COMMIT

    def instant(self, meta: Any, state: str, action: str, requested: str, completed: str | None = None) -> Any:
        states = getattr(self.jvm, "org.apache.hudi.common.table.timeline.HoodieInstant$State")
        return meta.getInstantGenerator().createNewInstant(getattr(states, state), action, requested, completed)

    def names(self, directory: str) -> list[str]:
        """Lists the entries of a directory of the table; none where there is none."""
        storage, path = self.storage(), self.path(directory)
        entries = storage.listDirectEntries(path) if storage.exists(path) else ()
        return [str(entry.getPath().getName()) for entry in entries]

    def content(self, file: str) -> bytes:
        """Returns the whole content of a file of the table."""
        return bytes(self.java.io.util.FileIOUtils.readDataFromPath(self.storage(), self.path(file)).get())

    def files_below(self, directory: str) -> list[str]:
        """Lists the files below a directory of the table, relative to that directory."""
        prefix = str(self.path(directory).toUri().getPath()) + "/"
        files = self.storage().listFiles(self.path(directory))
        return [str(file.getPath().toUri().getPath()).removeprefix(prefix) for file in files]

    def table_schema(self, meta: Any) -> str | None:
        """Returns the newest schema of the table as Avro JSON; None while there is none."""
        schema = self.java.common.table.TableSchemaResolver(meta).getTableSchemaIfPresent(False)
        return str(schema.get().toString()) if schema.isPresent() else None

    def index_definitions(self, meta: Any) -> str:
        """Returns the index definitions as JSON, or an empty text without any."""
        definitions = meta.getIndexMetadata()
        return str(definitions.get().toJson()) if definitions.isPresent() else ""

    def json(self, value: Any) -> Any:
        """Reads a Java value by way of JSON: one round trip for a whole list."""
        return json.loads(self.mapper.writeValueAsString(value))
