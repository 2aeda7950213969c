"""Starts a JVM with Spark's launcher, and keeps settings and JVM options off the command line, which every local user
reads.

Guarantee: both are handed over in files of mode 0600 in this process's private directory, which are removed when the
JVM has read them. Its command line shows its name, the size of the heap, class paths, the names of those files, and
options that name files of options themselves (`@FILE`). Raises ConfigError for options that no JVM of Spark's takes,
and what PySpark and the file system raise.
"""

from __future__ import annotations

import os
import shlex
import tempfile
from contextlib import suppress
from itertools import groupby
from pathlib import Path
from typing import IO, Any

import javaproperties
from py4j.java_gateway import JavaGateway
from pyspark import SparkConf
from pyspark.java_gateway import launch_gateway

from coordination.errors import ConfigError
from sink.clients.host.private_directory import private_directory
from sink.clients.java.options import split_options
from sink.clients.java.portless_gateway import close_port

JAVA_OPTIONS = "spark.driver.extraJavaOptions"
DEFAULT_JAVA_OPTIONS = "spark.driver.defaultJavaOptions"
_ARGUMENTS = "PYSPARK_SUBMIT_ARGS"
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n", "\r": r"\r", "\t": r"\t", "\f": r"\f"})


def launch(conf: SparkConf, output: IO[Any] | int) -> JavaGateway:
    """Starts the JVM, with its stdout and stderr to `output`. The environment names Java and Spark."""
    settings = dict(conf.getAll())
    with tempfile.TemporaryDirectory(prefix="launch-", dir=private_directory()) as directory:
        for name in (JAVA_OPTIONS, DEFAULT_JAVA_OPTIONS):
            if name in settings:
                settings[name] = _in_files(name, settings[name], Path(directory))
        file = Path(directory, "spark.properties")
        # With a file of ours the launcher leaves out Spark's defaults. The last value of a name counts.
        _write(file, _defaults() + b"\n\n" + javaproperties.dumps(settings, timestamp=None).encode())
        # The name tells an operator whose JVM it is.
        named = ["--name", settings["spark.app.name"]] if "spark.app.name" in settings else []
        os.environ[_ARGUMENTS] = shlex.join([*named, "--properties-file", str(file), "pyspark-shell"])
        try:
            gateway: JavaGateway = launch_gateway(None, {"stdout": output, "stderr": output})  # type: ignore[no-untyped-call]
        finally:
            del os.environ[_ARGUMENTS]
    close_port(gateway)
    return gateway


def _in_files(name: str, options: str, directory: Path) -> str:
    """Writes options to files, and returns options that name the files."""
    try:
        arguments = split_options(options)
    except ValueError as error:
        raise ConfigError(f"{name}: {error}") from None
    if any(argument.startswith("-Xmx") for argument in arguments):
        raise ConfigError(f"{name}: -Xmx sets the heap, whose size the sink has to know. Set spark.driver.memory.")
    named: list[str] = []
    # Java reads no file that another file names.
    for is_file, group in groupby(arguments, lambda argument: argument.startswith("@")):
        if is_file:
            named += group
            continue
        file = directory / f"{name}.{len(named)}"
        lines = (f'"{argument.translate(_ESCAPES)}"\n' for argument in group)
        _write(file, os.fsencode("".join(lines)))
        named.append(f"@{file}")
    return shlex.join(named)


def _defaults() -> bytes:
    """Returns the settings that Spark's launcher takes by itself."""
    directory = os.environ.get("SPARK_CONF_DIR") or Path(os.environ.get("SPARK_HOME", ""), "conf")
    with suppress(FileNotFoundError):
        return Path(directory, "spark-defaults.conf").read_bytes()
    return b""


def _write(file: Path, content: bytes) -> None:
    with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as opened:
        opened.write(content)
