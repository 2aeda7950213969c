"""Real workers as child processes."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from sink.devtools.local.child_process import Child


class LocalWorker(Child):
    """A process `python -m sink.worker --config FILE`, whose output goes to `log`. `program` is another module with its
    arguments that runs a worker."""

    def __init__(
        self,
        config: Path,
        log: Path,
        environment: Mapping[str, str] | None = None,
        name: str = "",
        program: Sequence[str] = ("sink.worker",),
    ) -> None:
        command = (sys.executable, "-m", *program, "--config", str(config))
        super().__init__(name or log.stem, command, log, environment)
        self.config = config
