"""A command imports little before it does anything."""

from __future__ import annotations

import subprocess
import sys


def test_the_command_line_starts_without_the_libraries_of_the_writer() -> None:
    program = "import sys, sink.cli; print({'numpy', 'pandas', 'pyarrow', 'pyspark'} & set(sys.modules))"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (result.stdout, result.stderr) == ("set()\n", "")
