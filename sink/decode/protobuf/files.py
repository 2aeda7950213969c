"""Makes Protobuf descriptor sets from a registry, which has sources or descriptors, and from files.

Guarantee: a set is complete. It contains every imported file, before the files that import it; the wanted file is the
last one. The well-known imports (google/protobuf, type, api and rpc, confluent) need not be registered or be beside a
file. An import that a registry lacks does no harm where only options of fields and messages need it. A file name from
a registry never leads out of a temporary directory. Sources are compiled by grpcio-tools in a separate
process; descriptors need no compiler. Raises ConfigError for a source that does not compile, an incomplete set, and
invalid descriptors; MissingCompiler and Unavailable if the compiler is not there or gives no answer, which tells
nothing of the source.
"""

from __future__ import annotations

import base64
import binascii
import importlib
import importlib.util
import pkgutil
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path, PurePosixPath

from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError

from coordination.errors import ConfigError, Unavailable
from sink.decode.protobuf.options import without_custom_options
from sink.decode.registry.client import RegisteredSchema

COMPILER = "grpc_tools"
COMPILE_SECONDS = 60
_KNOWN_PACKAGES = (
    "google.protobuf",
    "google.type",
    "google.api",
    "google.rpc",
    "confluent_kafka.schema_registry.confluent",
    "confluent_kafka.schema_registry.confluent.type",
    "confluent_kafka.schema_registry.confluent.types",
)
_ON_EVERY_HOST = "google/protobuf/"
_IMPORT = re.compile(r"""\bimport\s+(?:public\s+|weak\s+)?["']([^"']+)["']""")
_NOT_FOUND = re.compile(r"^(.+): File not found\.$", re.MULTILINE)
_SHORT = 1000


class MissingCompiler(ConfigError):
    """This host has no compiler for a source."""


class _MissingImport(ConfigError):
    def __init__(self, origin: str, names: Sequence[str]) -> None:
        more = f" and {len(names) - 1} more, which are" if len(names) > 1 else ", which is"
        super().__init__(
            f"{origin} imports {names[0]}{more} missing. Register the schema with references to its imports. A file"
            " needs them beside it, a descriptor set protoc's --include_imports."
        )
        self.names = names


def descriptor_set(schema: RegisteredSchema) -> bytes:
    """Returns a serialized FileDescriptorSet: all imports, then the registered file as `schema-<id>.proto`."""
    root = f"schema-{schema.id}.proto"
    origin = f"schema id {schema.id}"
    files: dict[str, FileDescriptorProto] = {}
    sources: dict[str, str] = {}
    for name, content in _texts(schema, root, origin).items():
        descriptor = _descriptor_of(content)
        if descriptor is None:
            sources[name] = content
        else:
            # Registries and serializers choose other names; the importing files use this one.
            descriptor.name = name
            files[name] = descriptor
    if sources:
        with tempfile.TemporaryDirectory() as directory:
            compiled = _compile_registered(Path(directory), sources, files, origin)
        files = {file.name: file for file in compiled.file} | files
    return _ordered(files, root, origin).SerializeToString()


def descriptor_set_of_file(path: str | Path) -> bytes:
    """Compiles a `.proto`, whose imports may be in its directory or above; reads any other file as a descriptor set.

    The wanted file is the last one."""
    path = Path(path)
    try:
        if path.suffix == ".proto":
            name, root = _import_root(path.absolute())
            files = {file.name: file for file in _compile(root, [name], {}, str(path)).file}
            return _ordered(files, name, str(path)).SerializeToString()
        content = path.read_bytes()
        files_in_set = FileDescriptorSet.FromString(content)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read ({error.strerror}). Check the path.") from None
    except DecodeError:
        files_in_set = FileDescriptorSet()
    if not files_in_set.file or not all(file.name for file in files_in_set.file):
        raise ConfigError(f"{path} is not a descriptor set. Make one: protoc --include_imports --descriptor_set_out.")
    by_name = {file.name: file for file in files_in_set.file}
    for file in files_in_set.file:
        _ordered(by_name, file.name, str(path), well_known={})
    return content


def registered_set(schema_id: str, descriptors: bytes) -> RegisteredSchema:
    """Returns the last file of a complete descriptor set as a registry has it: it refers to those that it imports.
    Those of google/protobuf are left out, which every host has."""
    files = {file.name: file for file in FileDescriptorSet.FromString(descriptors).file}

    @cache
    def registered(name: str) -> RegisteredSchema:
        file = files[name]
        imports = [path for path in file.dependency if path in files and not path.startswith(_ON_EVERY_HOST)]
        text = base64.b64encode(file.SerializeToString()).decode()
        return RegisteredSchema(schema_id, "PROTOBUF", text, tuple((path, registered(path)) for path in imports))

    return registered(next(reversed(files)))


def _compile_registered(
    directory: Path, sources: Mapping[str, str], files: Mapping[str, FileDescriptorProto], origin: str
) -> FileDescriptorSet:
    """Compiles sources in a directory of their own, without options that no file defines."""

    def compiled(sources: Mapping[str, str], files: Mapping[str, FileDescriptorProto]) -> FileDescriptorSet:
        for name, content in sources.items():
            path = Path(directory, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
        return _compile(directory, sorted(sources), files, origin)

    try:
        return compiled(sources, files)
    except _MissingImport as error:
        plain = {name: without_custom_options(content) for name, content in sources.items()}
        empty = {name: FileDescriptorProto(name=name) for name in error.names}
        try:
            return compiled(plain, {**files, **empty})
        except MissingCompiler:
            raise
        except ConfigError:
            raise error from None


def _texts(schema: RegisteredSchema, root: str, origin: str) -> dict[str, str]:
    """Returns the contents of all files by the names that the imports use."""
    texts: dict[str, str] = {}
    pending = [(root, schema)]
    while pending:
        name, registered = pending.pop()
        path = PurePosixPath(name)
        if registered.kind != "PROTOBUF":
            raise ConfigError(f"{origin}: {name} is of kind {registered.kind}, not PROTOBUF")
        if not path.parts or path.is_absolute() or ".." in path.parts or str(path) != name or "\\" in name:
            raise ConfigError(f"{origin}: {name!r} is not a valid import name. Register the reference again.")
        if texts.setdefault(name, registered.text) != registered.text:
            raise ConfigError(f"{origin}: {name} names two different files. Register the references again.")
        pending += registered.references
    return texts


def _descriptor_of(content: str) -> FileDescriptorProto | None:
    """Returns the descriptor; None for a source, which is never base64, because it has blanks and braces."""
    try:
        return FileDescriptorProto.FromString(base64.b64decode(content, validate=True))
    except (binascii.Error, ValueError, DecodeError):
        return None


def _compile(
    root: Path, names: Sequence[str], descriptors_by_name: Mapping[str, FileDescriptorProto], origin: str
) -> FileDescriptorSet:
    if importlib.util.find_spec(COMPILER) is None:
        raise MissingCompiler(
            f"{origin} is a .proto source, which needs a compiler. Run pip install grpcio-tools on every host, or give"
            " a descriptor set (protoc --include_imports --descriptor_set_out)."
        )
    importable = FileDescriptorSet(file={**_known_files(), **descriptors_by_name}.values())
    with tempfile.TemporaryDirectory() as directory:
        descriptors, compiled = Path(directory, "given"), Path(directory, "made")
        descriptors.write_bytes(importable.SerializeToString())
        arguments = [f"--descriptor_set_in={descriptors}", f"--proto_path={root}", "--include_imports"]
        command = [
            sys.executable,
            "-I",
            "-m",
            f"{COMPILER}.protoc",
            *arguments,
            f"--descriptor_set_out={compiled}",
            *names,
        ]
        try:
            compiler = subprocess.run(
                command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=COMPILE_SECONDS, check=False
            )
        except subprocess.TimeoutExpired:
            raise _unanswered(origin, f"gave no answer within {COMPILE_SECONDS} s") from None
        if compiler.returncode < 0:
            raise _unanswered(origin, f"was ended by signal {-compiler.returncode}")
        if compiler.returncode != 0:
            if missing := _NOT_FOUND.findall(compiler.stderr):
                raise _MissingImport(origin, missing)
            errors = compiler.stderr.replace(f"{root}/", "").strip()
            raise ConfigError(f"{origin} does not compile: {errors[:_SHORT]}")
        return FileDescriptorSet.FromString(compiled.read_bytes())


def _unanswered(origin: str, fault: str) -> Unavailable:
    return Unavailable(
        f"{origin}: the Protobuf compiler {fault}. The sink runs it again with its next attempt. Check the load and the"
        " memory of this host."
    )


def _ordered(
    files: Mapping[str, FileDescriptorProto],
    root: str,
    origin: str,
    well_known: Mapping[str, FileDescriptorProto] | None = None,
) -> FileDescriptorSet:
    """Returns `root` and the files that it needs, each after its imports."""
    available = {**(_known_files() if well_known is None else well_known), **files}
    ordered: dict[str, FileDescriptorProto] = {}
    missing: list[str] = []

    def add(name: str, importers: tuple[str, ...]) -> None:
        if name in importers:
            raise ConfigError(f"{origin}: {name} imports itself by way of {', '.join(importers)}")
        if name not in available:
            missing.append(name)
            available[name] = FileDescriptorProto(name=name)
        if name not in ordered:
            for imported in available[name].dependency:
                add(imported, (*importers, name))
            ordered[name] = available[name]

    add(root, ())
    files_in_order = FileDescriptorSet(file=ordered.values())
    if missing and (well_known is not None or not _is_complete(files_in_order)):
        raise _MissingImport(origin, missing)
    return files_in_order


def _is_complete(files: FileDescriptorSet) -> bool:
    """Whether the files define all types that they use. Those of options do not count."""
    pool = DescriptorPool()
    try:
        for file in files.file:
            pool.AddSerializedFile(file.SerializeToString())
            pool.FindFileByName(file.name)
    except (TypeError, KeyError):
        return False
    return True


def _import_root(path: Path) -> tuple[str, Path]:
    """Returns the file's name and the directory to which imports are relative: the nearest one with an import."""
    imports = _IMPORT.findall(path.read_text(errors="replace"))
    for root in path.parents:
        if any((root / name).is_file() for name in imports):
            return path.relative_to(root).as_posix(), root
    return path.name, path.parent


@cache
def _known_files() -> dict[str, FileDescriptorProto]:
    files: dict[str, FileDescriptorProto] = {}
    for package in _KNOWN_PACKAGES:
        for module in pkgutil.iter_modules(importlib.import_module(package).__path__):
            if module.name.endswith("_pb2"):
                file = FileDescriptorProto()
                importlib.import_module(f"{package}.{module.name}").DESCRIPTOR.CopyToProto(file)
                files[file.name] = file
    return files
