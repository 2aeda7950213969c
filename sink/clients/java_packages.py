"""Resolves the JVM's classes by name, without asking the JVM.

py4j asks the JVM for each part of a name whether it is a class, and the JVM searches all of its jars for
`org.apache.class`: with Hudi's calls that was a tenth of the work of a committing JVM. Here a part that begins with a
capital is a class. For a wrong name py4j raises an error at its first use.
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
        member = JavaClass(name, self._client) if is_class else JavaPackage(self._client, name)
        setattr(self, part, member)
        return member
