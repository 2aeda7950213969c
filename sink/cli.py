"""`sink`: the command line. One sentence for what is wrong, never a traceback.

Exit status: 0 done, 1 the answer is no (an audit that did not hold, a configuration that does not fit, a
halted sink), 2 it could not be done, 130 interrupted.
"""

from __future__ import annotations

import os
import sys
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
from sink.telemetry.version import parts, sink_version

EXIT_CANNOT = 2

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
    for name, found in parts().items():
        typer.echo(f"{name} {found}")


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
        hint = "" if message.startswith("Usage:") else "; see `sink --help`"
        print(message if not hint else f"sink: {message.rstrip('.')}{hint}", file=sys.stderr)
        return EXIT_CANNOT
    except (KeyboardInterrupt, typer.Abort):
        print("sink: interrupted", file=sys.stderr)
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # The reader of our output has closed it; the interpreter would complain again when it flushes.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    if answer == EXIT_INTERRUPTED:
        print("sink: interrupted", file=sys.stderr)
    return answer if isinstance(answer, int) else 0


if __name__ == "__main__":
    sys.exit(main())
