"""`sink` and `python -m sink`: imports the command line and runs it. Ctrl-C meanwhile ends it in a sentence."""

import sys

from sink.runtime.process.interruption import quiet_interrupt


def main() -> int:
    with quiet_interrupt():
        from sink.cli import main as run
    return run()


if __name__ == "__main__":
    sys.exit(main())
