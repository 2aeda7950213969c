"""Runs `sink demo` and saves a picture of it: `python -m tests.docs.picture SVG [options of sink demo]`.

The picture shows a terminal in the middle of the demo, with a killed coordinator and its successor.
"""

from __future__ import annotations

import io
import sys
from pathlib import Path

from rich.console import Console

from sink import cli
from sink.devtools.demo import play
from sink.devtools.demo.view import Picture, Screen

WIDTH = 104
LATEST = 0.8
"""The largest share of landed records at which a picture is taken."""


class RecordingScreen(Screen):
    """Shows the demo as `Screen` does, and saves the newest picture of the demo at work."""

    file: Path

    def __init__(self) -> None:
        super().__init__()
        self._recorded_events: list[str] = []
        self._showing = False

    def say(self, event: str) -> None:
        super().say(event)
        if not self._showing:
            self._recorded_events.append(self._events[-1])

    def show(self, now: Picture) -> None:
        self._showing = True
        super().show(now)
        self._showing = False
        roles = [worker.role for worker in now.workers]
        taken_over = "killed" in roles and any("coordinator" in role for role in roles)
        if taken_over and now.open and now.landed < LATEST * now.total:
            self._save()

    def _save(self) -> None:
        live_events, self._events = self._events, self._recorded_events
        recorder = Console(record=True, width=WIDTH, force_terminal=True, file=io.StringIO(), highlight=False)
        recorder.print(self._render())
        self._events = live_events
        svg = recorder.export_svg(title="make demo")
        # Rich's SVG loads its fonts from another host: the picture has to look the same without it.
        self.file.write_text("\n".join(line.rstrip() for line in _without_remote_fonts(svg).splitlines()) + "\n")


def _without_remote_fonts(svg: str) -> str:
    begin, end = svg.index("@font-face"), svg.rindex("@font-face")
    end = svg.index("}", end) + 1
    return svg[:begin] + svg[end:].replace("Fira Code, monospace", "Fira Code, DejaVu Sans Mono, monospace")


def main() -> int:
    RecordingScreen.file = Path(sys.argv[1])
    play.Screen = RecordingScreen  # type: ignore[misc]
    return cli.main(["demo", *sys.argv[2:]])


if __name__ == "__main__":
    sys.exit(main())
