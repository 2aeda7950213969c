"""Java's own methods as Java's functional interfaces, so that a stream of any length costs a few round trips.

Guarantee: no JVM code of our own; each function is a public method of a class that is there already, by name and
types of its parameters. Raises what py4j raises (`JAVA_ERRORS`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sink.hudi.java_objects import HudiObjects


class JavaFunctions:
    def __init__(self, hudi: HudiObjects) -> None:
        self.kind = hudi.java_class
        self._array = hudi.java_array
        jvm: Any = hudi.context._jvm
        self._class, self._int = jvm.java.lang.Class, jvm.int
        self._invoke = hudi.jvm.java.lang.invoke
        self._lookup = self._invoke.MethodHandles.publicLookup()

    def method(self, owner: Any, name: str, *parameters: Any) -> Any:
        """Returns a handle of a public method; if the method is not static, the object is the first parameter."""
        kinds = self._array(self._class, *parameters)
        return self._lookup.unreflect(owner.getMethod(name, kinds))

    def chain(self, first: Any, *more: Any) -> Any:
        """Composes handles: each takes the result of the one before."""
        for handle in more:
            result_type = first.type().returnType()
            adapted_type = handle.type().changeParameterType(0, result_type)
            first = self._invoke.MethodHandles.filterReturnValue(first, handle.asType(adapted_type))
        return first

    def with_derived(self, action: Any, derive: Any) -> Any:
        """Returns a handle of one parameter: `action(it, derive(it))`."""
        kind, derived_type = action.type(), derive.type().returnType()
        swapped = kind.changeParameterType(0, derived_type).changeParameterType(1, kind.parameterType(0))
        order = self._array(self._int, 1, 0)
        typed = action.asType(kind.changeParameterType(1, derived_type))
        reordered = self._invoke.MethodHandles.permuteArguments(typed, swapped, order)
        return self._invoke.MethodHandles.foldArguments(reordered, derive)

    def function(self, handle: Any) -> Any:
        return self._as_interface("java.util.function.Function", handle)

    def consumer(self, handle: Any) -> Any:
        return self._as_interface("java.util.function.Consumer", handle)

    def _as_interface(self, interface: str, handle: Any) -> Any:
        return self._invoke.MethodHandleProxies.asInterfaceInstance(self.kind(interface), handle)
