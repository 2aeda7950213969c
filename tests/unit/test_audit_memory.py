"""A process of the audit that lacks memory says nothing of the record that it reads."""

from __future__ import annotations

import subprocess
import sys
import textwrap

READS_A_LARGE_RECORD = """
import io, json, resource, sys
import fastavro, psutil
from sink.audit.decode.avro_values import avro_reader
from sink.audit.decode.rules import Rules

schema = {"type": "record", "name": "r", "fields": [{"name": "a", "type": "string"}]}
written = io.BytesIO()
fastavro.schemaless_writer(written, schema, {"a": "x" * (100 << 20)})
value = written.getvalue()
columns = {"type": "struct", "fields": [{"name": "a", "type": "string", "nullable": True, "metadata": {}}]}
read = avro_reader([json.dumps(schema)], columns, Rules())
assert len(read(value)["a"]) == 100 << 20
most = psutil.Process().memory_info().data + (int(sys.argv[1]) << 20)
resource.setrlimit(resource.RLIMIT_DATA, (most, most))
try:
    print(len(read(value)["a"]))
except MemoryError:
    print("MemoryError")
"""


def test_a_good_record_that_does_not_fit_into_memory_is_not_called_bad() -> None:
    command = [sys.executable, "-c", textwrap.dedent(READS_A_LARGE_RECORD)]
    printed = [subprocess.check_output([*command, mebibytes], text=True).strip() for mebibytes in ("1000", "50")]
    assert printed == [str(100 << 20), "MemoryError"]
