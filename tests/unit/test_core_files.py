"""A worker and its children write no core file, which would hold every secret."""

from __future__ import annotations

import subprocess
import sys


def test_neither_a_worker_nor_a_child_writes_a_core_file() -> None:
    program = """
import resource, subprocess, sys
_, limit = resource.getrlimit(resource.RLIMIT_CORE)
resource.setrlimit(resource.RLIMIT_CORE, (limit, limit))
from sink.runtime.process.launch import _write_no_core_file
_write_no_core_file()
print(resource.getrlimit(resource.RLIMIT_CORE)[0], flush=True)
subprocess.run([sys.executable, "-c", "import resource; print(resource.getrlimit(resource.RLIMIT_CORE)[0])"])
"""
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.split() == ["0", "0"]
