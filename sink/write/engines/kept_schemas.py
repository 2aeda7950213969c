"""Keeps the schemas that decode a process's records in its table (`sink.hudi.schema_texts`).

Guarantee: when `keep` returns, the table has the schema of each id and that of value.schema.file, so that no commit
names one that is not there. Voided where the registry has deleted an id meanwhile, or has another schema under it: a
warning says so, once, and the write goes on. A process asks registry and storage once for each schema. Raises what the
registry and py4j raise.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from pyspark.sql import SparkSession

from coordination.errors import ConfigError
from sink.decode.file_schema import file_schema
from sink.decode.fingerprints import bounded_fingerprint
from sink.decode.formats import ValueFormat
from sink.decode.registry.client import RegisteredSchema, RegistryAccess, UnknownSchema, registry
from sink.hudi.java_objects import HudiObjects
from sink.hudi.schema_texts import document, keep, names_kept

LOG = logging.getLogger(__name__)


class KeptSchemas:
    """Thread-safe: a schema that two threads keep is written twice, with the same content."""

    def __init__(self, spark: SparkSession, base_path: str, form: ValueFormat, registry: RegistryAccess | None) -> None:
        self._table = HudiObjects(spark, base_path, "", {})
        self._access = registry
        self._bounds = form.bounds
        self._base_path = base_path
        file = file_schema(form)
        self._of_file = {} if file is None else {file[0]: file[1]}
        self._done: frozenset[str] = frozenset()

    def keep(self, used: Iterable[tuple[str, str]]) -> None:
        """Keeps these schemas, id and fingerprint of each, and that of the file."""
        ids = {name: schema_id for schema_id, name in used}
        missing = (ids.keys() | self._of_file.keys()) - self._done
        if not missing:
            return
        for name in sorted(missing - names_kept(self._table)):
            schema = self._of_file.get(name) or self._registered(ids[name], name)
            if schema is not None:
                keep(self._table, name, document(schema))
        self._done |= missing

    def _registered(self, recorded_id: str, name: str) -> RegisteredSchema | None:
        assert self._access is not None
        why = "the registry has another schema under this id by now"
        try:
            schema = registry(self._access).schema(self._access.id_of(recorded_id))
            if bounded_fingerprint(schema, self._bounds) == name:
                return schema
        except (UnknownSchema, ConfigError, ValueError) as error:
            why = str(error)
        LOG.warning("%s: the schema of id %s is not kept in the table: %s", self._base_path, recorded_id, why)
        return None
