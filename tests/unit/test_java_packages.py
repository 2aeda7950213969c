"""Names of the JVM's classes are told from packages without asking the JVM."""

from __future__ import annotations

from py4j.java_gateway import JavaClass, JavaGateway

from sink.clients.java_packages import JavaPackage


def test_a_part_that_begins_with_a_capital_is_a_class_and_nothing_is_asked() -> None:
    """The client has no JVM: a question would raise."""
    root = JavaPackage(JavaGateway()._gateway_client)
    found = root.org.apache.hudi.common.table.HoodieTableConfig
    assert isinstance(found, JavaClass)
    assert found._fqn == "org.apache.hudi.common.table.HoodieTableConfig"
    assert root.org.apache.hudi.common.table.HoodieTableConfig is found
    nested = getattr(root, "org.apache.hudi.common.table.timeline.HoodieInstant$State")
    assert isinstance(nested, JavaClass)
    assert isinstance(root.java.util, JavaPackage)
