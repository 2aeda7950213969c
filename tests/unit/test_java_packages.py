"""A class of the JVM is told from a package by its name, without asking the JVM."""

from __future__ import annotations

from py4j.java_gateway import JavaClass, JavaGateway

from sink.hudi.java_objects import JavaPackage


def test_a_part_that_begins_with_a_capital_is_a_class_and_nothing_is_asked() -> None:
    """The client has no JVM: a question would raise."""
    root = JavaPackage(JavaGateway()._gateway_client)
    java_class = root.org.apache.hudi.common.table.HoodieTableConfig
    assert isinstance(java_class, JavaClass)
    assert java_class._fqn == "org.apache.hudi.common.table.HoodieTableConfig"
    assert root.org.apache.hudi.common.table.HoodieTableConfig is java_class
    nested = getattr(root, "org.apache.hudi.common.table.timeline.HoodieInstant$State")
    assert isinstance(nested, JavaClass)
    assert isinstance(root.java.util, JavaPackage)
