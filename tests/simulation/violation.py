"""The error that ends a run which breaks an invariant."""

from __future__ import annotations


class Violation(AssertionError):
    """Raised where an invariant does not hold; `invariant` is its sentence."""

    def __init__(self, invariant: str, detail: str) -> None:
        super().__init__(f"{invariant}: {detail}")
        self.invariant, self.detail = invariant, detail

    def __reduce__(self) -> tuple[type[Violation], tuple[str, str]]:
        return Violation, (self.invariant, self.detail)
