"""Runs `sink`, the command line. An error is one sentence; only a defect of the sink shows a traceback.

Exit status: 0 done; 1 the answer is no (an audit that does not hold, a configuration that does not fit, a halted sink);
2 it could not be done; 130 interrupted; 141 the reader of its output has closed it.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Sequence

import typer

from coordination.errors import SinkError
from coordination.state.versions import PROTOCOL
from sink.commands.audit import audit
from sink.commands.control import drain, flush, pause, resume, switchover
from sink.commands.doctor import doctor
from sink.commands.errors import app as errors
from sink.commands.examples import epilog
from sink.commands.infer import infer
from sink.commands.reland import reland
from sink.commands.reset import adopt, reset
from sink.commands.run import run, wait
from sink.commands.status import history, status
from sink.commands.validate import validate
from sink.devtools.demo.command import demo
from sink.runtime.process.interruption import EXIT_INTERRUPTED
from sink.telemetry.shown import shown_output
from sink.telemetry.version import dependency_versions, sink_version

EXIT_CANNOT = 2
EXIT_PIPE_CLOSED = 141
"""That of a program which SIGPIPE ends."""

app = typer.Typer(
    name="sink",
    help="Lands Kafka topics in Apache Hudi tables, exactly once.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
COMMANDS = (
    *(demo, status, audit, reland, reset, adopt, validate, infer, doctor),
    *(history, pause, resume, flush, switchover, drain, wait, run),
)
for command in COMMANDS:
    app.command(epilog=epilog(command.__name__))(command)
app.add_typer(errors, name="errors", epilog=epilog("errors"))


@app.command(epilog=epilog("version"))
def version() -> None:
    """Show the versions of the sink and of what it is built on."""
    typer.echo(f"sink {sink_version()}")
    typer.echo(f"protocol {PROTOCOL}")
    for name, number in dependency_versions().items():
        typer.echo(f"{name} {number}")


def main(arguments: Sequence[str] | None = None) -> int:
    with shown_output():
        return _main(arguments)


def _main(arguments: Sequence[str] | None) -> int:
    try:
        answer = app(list(arguments) if arguments is not None else None, prog_name="sink", standalone_mode=False)
    except SinkError as error:
        print(f"sink: {error}", file=sys.stderr)
        return EXIT_CANNOT
    except typer.TyperException as error:
        message = error.format_message()
        # Without arguments, the message is the help itself.
        is_help = message.startswith("Usage:")
        end = "" if message.endswith((".", "?")) else "."
        print(message if is_help else f"sink: {message}{end} See `sink --help`.", file=sys.stderr)
        return EXIT_CANNOT
    except (KeyboardInterrupt, typer.Abort):
        print("sink: interrupted", file=sys.stderr)
        return EXIT_INTERRUPTED
    except SystemExit as end:
        # Typer ends the process with the status for "no" then.
        if isinstance(end.__context__, BrokenPipeError):
            return EXIT_PIPE_CLOSED
        raise
    except Exception:  # noqa: BLE001 - Python would end with the status for "no"
        traceback.print_exc()
        print("sink: this is a defect of the sink. Report it with the lines above.", file=sys.stderr)
        return EXIT_CANNOT
    if answer == EXIT_INTERRUPTED:
        print("sink: interrupted", file=sys.stderr)
    return answer if isinstance(answer, int) else 0


if __name__ == "__main__":
    sys.exit(main())
