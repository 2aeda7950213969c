"""Examples at the end of each command's `--help`."""

from __future__ import annotations

from collections.abc import Mapping

EXAMPLES: Mapping[str, tuple[str, ...]] = {
    "demo": ("sink demo", "sink demo --keep --directory /tmp/tour"),
    "status": (
        "sink status --config orders.yaml",
        "sink status --config fleet.yaml --watch",
        "sink status --config fleet.yaml --sink orders --json",
    ),
    "audit": ("sink audit --config orders.yaml", "sink audit --config orders.yaml --no-log --json"),
    "reland": (
        "sink reland --config orders.yaml orders:3=120..130",
        "sink reland --config orders.yaml orders:3=120..130 orders:0=7 --yes",
    ),
    "reset": (
        "sink reset --config orders.yaml --yes",
        "sink reset --config orders.yaml --to earliest --topic orders --yes",
        "sink reset --config orders.yaml --to 2026-11-25T14:30:00Z --yes",
        "sink reset --config orders.yaml --offset orders:3=1500 --yes",
    ),
    "adopt": ("sink adopt --config orders.yaml", "sink adopt --config orders.yaml --yes"),
    "validate": ("sink validate --config orders.yaml",),
    "infer": ("sink infer --config orders.yaml > orders.ddl",),
    "doctor": ("sink doctor --config orders.yaml", "sink doctor --config orders.yaml --output report.tar.gz"),
    "history": ("sink history --config orders.yaml", "sink history --config orders.yaml --aborted --json"),
    "pause": ('sink pause --config orders.yaml --reason "the lake moves"',),
    "resume": ("sink resume --config orders.yaml",),
    "flush": ("sink flush --config orders.yaml", "sink flush --config orders.yaml --timeout 60"),
    "switchover": ("sink switchover --config orders.yaml",),
    "drain": ("sink drain --config orders.yaml worker-2",),
    "wait": ("sink wait --config orders.yaml --caught-up --timeout 600",),
    "run": ("sink run --config orders.yaml --until-end", "sink run --config orders.yaml --until 2026-11-25T00:00:00Z"),
    "version": ("sink version",),
    "errors": (
        "sink errors --config orders.yaml --group-by reason",
        "sink errors --config orders.yaml --topic orders --offset 100..200 --json",
    ),
    "errors replay": ("sink errors replay --config orders.yaml", "sink errors replay --config orders.yaml --yes"),
}


def epilog(command: str) -> str:
    """Returns the examples as click takes them: after \\b a paragraph keeps its lines."""
    return "\n".join(["\b", "Examples:", *(f"  {line}" for line in EXAMPLES[command])])
