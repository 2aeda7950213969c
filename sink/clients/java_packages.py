"""The JVM's classes by their names, without a question to the JVM.

py4j asks the JVM at each part of a name whether it is a class, and the JVM looks through all of its jars for
`org.apache.class`: with Hudi's calls that was a tenth of what a JVM that commits did. Here a part that begins with a
capital is a class. Errors of a name that is none come with its first use, as py4j raises them.
"""

from __future__ import annotations

from typing import Any

from py4j.java_gateway import GatewayClient, JavaClass


class JavaPackage:
    """A package; the root has no name. An attribute is a class of the package, or a package within it."""

    def __init__(self, client: GatewayClient, name: str = "") -> None:
        self._client = client
        self._name = name

    def __getattr__(self, part: str) -> Any:
        if part.startswith("_"):
            raise AttributeError(part)
        name = f"{self._name}.{part}".lstrip(".")
        is_class = part.rpartition(".")[2][:1].isupper()
        found = JavaClass(name, self._client) if is_class else JavaPackage(self._client, name)
        setattr(self, part, found)
        return found
