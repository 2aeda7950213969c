"""Starts a JVM with Spark's launcher, and keeps settings and JVM options off its command line, which every local user
can read.

Guarantee: settings and options are passed in files of mode 0600 in this process's private directory, which are removed
once the JVM has started. The JVM's command line shows only the application's name, the heap size, class paths, the
names of those files, and the user's own argument files (`@FILE`). Raises ConfigError for options that Spark's launcher
or the JVM would refuse, and what PySpark and the file system raise.
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
    # With a file of ours the launcher does not read Spark's own defaults.
    settings = _defaults() | dict(conf.getAll())
    with tempfile.TemporaryDirectory(prefix="launch-", dir=private_directory()) as directory:
        for name in (JAVA_OPTIONS, DEFAULT_JAVA_OPTIONS):
            if name in settings:
                settings[name] = _move_to_files(name, settings[name], Path(directory))
        file = Path(directory, "spark.properties")
        _write(file, javaproperties.dumps(settings, timestamp=None).encode())
        # The name tells an operator whose JVM it is.
        named = ["--name", settings["spark.app.name"]] if "spark.app.name" in settings else []
        os.environ[_ARGUMENTS] = shlex.join([*named, "--properties-file", str(file), "pyspark-shell"])
        try:
            gateway: JavaGateway = launch_gateway(None, {"stdout": output, "stderr": output})  # type: ignore[no-untyped-call]
        finally:
            del os.environ[_ARGUMENTS]
    # Another local user could fill the JVM's heap through py4j's port.
    close_port(gateway)
    return gateway


def _move_to_files(name: str, options: str, directory: Path) -> str:
    """Moves options into argument files, and returns the options that name these files. The user's `@FILE` options stay
    where they are.
    """
    try:
        arguments = split_options(options)
    except ValueError as error:
        raise ConfigError(f"{name}: {error}") from None
    if any(argument.startswith("-Xmx") for argument in arguments):
        raise ConfigError(f"{name}: Spark does not allow -Xmx here. Set spark.driver.memory.")
    named: list[str] = []
    # An argument file must not name another one, so each of the user's `@FILE` options splits ours.
    for is_file, group in groupby(arguments, lambda argument: argument.startswith("@")):
        if is_file:
            named += group
            continue
        file = directory / f"{name}.{len(named)}"
        lines = (f'"{argument.translate(_ESCAPES)}"\n' for argument in group)
        _write(file, os.fsencode("".join(lines)))
        named.append(f"@{file}")
    return shlex.join(named)


def _defaults() -> dict[str, str]:
    """Returns the settings of spark-defaults.conf, which the launcher would read by itself."""
    directory = os.environ.get("SPARK_CONF_DIR") or Path(os.environ.get("SPARK_HOME", ""), "conf")
    with suppress(FileNotFoundError):
        return javaproperties.loads(Path(directory, "spark-defaults.conf").read_text("utf-8", "replace"))
    return {}


def _write(file: Path, content: bytes) -> None:
    with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as opened:
        opened.write(content)
