"""`make fuzz ARGS="--minutes 10 --parser avro"`: looks for inputs that crash a parser, hold it or fill the memory.

Each parser runs in a process of its own, from the corpus. With atheris (`pip install '.[fuzz]'`) coverage leads the
search; without it, inputs of the corpus are cut, joined and changed at random. An input that is found is written to
`--found`: fix the parser, and move it to `tests/hostile/corpus/PARSER/`. One line a parser is printed, and appended to
`--results`.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path
from random import Random

ROOT = Path(__file__).parents[2]
SECONDS = 5
MOST_BYTES = 4_096
MEMORY_MB = 200
"""That one input may take. The process has some 300 MB before the first, and code that atheris has instrumented loses
another 20 kB with each."""
MOST_BYTES_OF_PROCESS = 6 << 30
HEADER = "parser\tseconds\tinputs\tcoverage\tengine\tfound\twhen"


def arguments(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.hostile", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="for each parser")
    parser.add_argument("--parser", help="one of them; by default each in turn")
    parser.add_argument("--found", type=Path, default=Path("build/fuzz"), help="folder for inputs that were found")
    parser.add_argument("--results", type=Path, help="file to append a line for each parser to")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    return parser.parse_args(words)


def main() -> int:
    options = arguments(sys.argv[1:])
    if options.child:
        if importlib.util.find_spec("atheris"):
            led_by_coverage(options.child, options.minutes, options.found)
        else:
            at_random(options.child, options.minutes, options.found)
        return 0
    from tests.hostile.parsers import PARSERS

    found = 0
    for name in [options.parser] if options.parser else PARSERS:
        line = run(name, options)
        print(line, flush=True)
        found += int(line.split("\t")[5])
        if options.results:
            new = not options.results.exists()
            with options.results.open("a") as file:
                file.write(f"{HEADER}\n" * new + f"{line}\n")
    return 1 if found else 0


def run(name: str, options: argparse.Namespace) -> str:
    folder = options.found.absolute() / name
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "tests.hostile", "--child", name, "--minutes", str(options.minutes)]
    start = time.monotonic()
    with tempfile.TemporaryFile("w+") as output:
        child = subprocess.run(
            [*command, "--found", str(folder)], cwd=ROOT, stdout=output, stderr=subprocess.STDOUT, check=False
        )
        output.seek(0)
        text = output.read()
    if child.returncode:
        (folder / "output").write_text(text[-20_000:])
    inputs = max(map(int, re.findall(r"^#(\d+)", text, re.MULTILINE)), default=0)
    coverage = max(map(int, re.findall(r"\bcov: (\d+)", text)), default=0)
    engine = "atheris" if importlib.util.find_spec("atheris") else "random"
    when = datetime.now(timezone.utc).strftime("%Y-%m-%d")
    seconds = time.monotonic() - start
    return f"{name}\t{seconds:.0f}\t{inputs}\t{coverage}\t{engine}\t{int(child.returncode != 0)}\t{when}"


def led_by_coverage(name: str, minutes: float, found: Path) -> None:
    import atheris

    with atheris.instrument_imports(include=["sink", "coordination"]):
        from tests.hostile import corpus
        from tests.hostile.child import fault_of, parse

    resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES_OF_PROCESS, MOST_BYTES_OF_PROCESS))
    seeds = Path(tempfile.mkdtemp())
    for number, seed in enumerate(corpus.seeds(name)):
        (seeds / str(number)).write_bytes(seed[:MOST_BYTES])
        # Imports and caches are not input's.
        parse(name, seed[:MOST_BYTES])

    def one(data: bytes) -> None:
        if fault := fault_of(name, data, SECONDS, MEMORY_MB):
            raise AssertionError(fault)

    flags = {
        "max_total_time": round(minutes * 60),
        "timeout": 4 * SECONDS,
        "rss_limit_mb": 0,
        "max_len": MOST_BYTES,
        "artifact_prefix": f"{found}/",
        "print_final_stats": 1,
    }
    atheris.Setup(["fuzz", *(f"-{flag}={value}" for flag, value in flags.items()), str(seeds)], one)
    atheris.Fuzz()


def at_random(name: str, minutes: float, found: Path) -> None:
    from tests.hostile import corpus
    from tests.hostile.child import fault_of, parse

    resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES_OF_PROCESS, MOST_BYTES_OF_PROCESS))
    random, known, count = Random(0), [seed[:MOST_BYTES] for seed in corpus.seeds(name)], 0
    end = time.monotonic() + minutes * 60
    parse(name, known[0])
    while time.monotonic() < end:
        data = changed(random, known)
        # Written first: a crash of the process leaves it behind.
        (found / "last").write_bytes(data)
        count += 1
        if fault := fault_of(name, data, SECONDS, MEMORY_MB):
            os.replace(found / "last", found / f"found-{count}")
            print(f"#{count} {fault}")
            sys.exit(1)
    (found / "last").unlink()
    print(f"#{count}")


def changed(random: Random, known: list[bytes]) -> bytes:
    data = bytearray(random.choice(known))
    for _ in range(random.randint(1, 6)):
        at = random.randint(0, len(data))
        match random.randrange(4):
            case 0 if data:
                data[min(at, len(data) - 1)] = random.randrange(256)
            case 1:
                del data[at : at + random.randint(1, 16)]
            case 2:
                data[at:at] = random.randbytes(random.randint(1, 8))
            case _:
                other = random.choice(known)
                start = random.randint(0, len(other))
                data[at:at] = other[start : start + random.randint(1, 64)]
    return bytes(data[:MOST_BYTES])


if __name__ == "__main__":
    sys.exit(main())
