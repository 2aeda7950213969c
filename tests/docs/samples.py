"""Runs the commands of docs/tutorial.md and docs/commands.md and writes their output into the pages.

`python -m tests.docs.samples` starts real servers and workers in the directory that the tutorial names, and takes
some minutes. The commands of docs/commands.md run where the tutorial says so, in the same shell. The script
ends every process that it started.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import psutil

from tests.docs.pages import COMMANDS, PICTURE, ROOT, TUTORIAL, Shown, with_outputs

HERE = "<!-- the commands of commands.md run here -->\n"
BIN = str(Path(sys.executable).parent)
LOG = "/tmp/tour.log"
STOP = f"""eval "$(sed -n 's/^  stop:  //p' {LOG})"; rm {LOG}"""
END = "--- end of output ---"
SETUP = f"""
export PATH={BIN}:$PATH PYTHONPATH={ROOT} COLUMNS=110
sink() {{
    if [ "$1" = demo ]; then shift; python -m tests.docs.picture {PICTURE} "$@" | tee {LOG}; else command sink "$@"; fi
}}
set -m
cd "$HOME"
"""


class Shell:
    """One bash that runs every command, so that directories, variables and jobs stay."""

    def __init__(self) -> None:
        # The script has a descriptor of its own: commands that read standard input would consume it.
        read, write = os.pipe()
        self._bash = subprocess.Popen(
            ["bash", f"/dev/fd/{read}"], pass_fds=(read,), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, start_new_session=True,
        )  # fmt: skip
        os.close(read)
        self._script = os.fdopen(write, "w")
        self.run(SETUP)

    def shown(self, command: Shown) -> str:
        if command.wait:
            self.run(command.wait)
        print(f"$ {command.typed}", end="", flush=True)
        output = self.run(command.typed)
        print(output, end="", flush=True)
        return _neutral(output)

    def run(self, script: str) -> str:
        assert self._bash.stdout is not None
        print(f"{script.rstrip()}\necho; echo '{END}'", file=self._script, flush=True)
        lines: list[str] = []
        for line in self._bash.stdout:
            if line.rstrip("\n") == END:
                break
            lines.append(line)
        else:
            raise EOFError(f"the shell ended in: {script}{''.join(lines)}")
        output = "".join(line.rstrip() + "\n" for line in lines).rstrip("\n")
        return f"{output}\n" if output else ""

    def end(self) -> None:
        """Ends the demo and every process of the shell's session, even if the shell has ended."""
        subprocess.run(["bash", "-c", STOP], check=False)
        for process in psutil.process_iter():
            with suppress(psutil.NoSuchProcess, ProcessLookupError):
                if os.getsid(process.pid) == self._bash.pid:
                    process.kill()
        self._script.close()
        self._bash.wait()


def _neutral(output: str) -> str:
    """Removes this machine's paths and options, and the demo's progress lines."""
    output = re.sub(r"^ *[\d.]+ s  [\d,]+ landed, .*\n", "", output.replace(BIN, ".venv/bin"), flags=re.MULTILINE)
    return re.sub(r"env (-u \S+ )+", "", output)


def main() -> None:
    shell = Shell()
    try:
        before, here, after = TUTORIAL.read_text().partition(HERE)
        if not here:
            raise ValueError(f"{TUTORIAL} does not say where the commands of {COMMANDS.name} run: {HERE}")
        tutorial = with_outputs(before, shell.shown)
        COMMANDS.write_text(with_outputs(COMMANDS.read_text(), shell.shown))
        tutorial += here + with_outputs(after, shell.shown)
        TUTORIAL.write_text(tutorial)
    finally:
        shell.end()


if __name__ == "__main__":
    main()
