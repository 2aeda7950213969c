"""Makes serialized FileDescriptorSets from registered schemas, which are sources or descriptors, and from local files.

Guarantee: a set is complete. It contains every imported file, before the files that import it; the last file is the one
that was asked for. Nobody has to provide the well-known imports (google/protobuf, google/type, google/api, google/rpc,
confluent). A registered schema may lack an import that only custom options need. A name from a registry is neither a
path out of the temporary directory nor an option of the compiler.

grpcio-tools (protoc) compiles sources in a separate process; descriptors need no compiler. Raises ConfigError for a
source that does not compile, an incomplete set, and invalid descriptors; MissingCompiler without grpcio-tools;
Unavailable if the compiler is killed or times out. The last two do not mean that the schema is wrong.
"""

from __future__ import annotations

import base64
import binascii
import errno
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
from sink.schema.warnings import shown_path

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
"""Python packages with the generated modules of the well-known imports."""
_PROTOBUF_RUNTIME = "google/protobuf/"
"""Imports that every Protobuf library brings with it."""
_IMPORT_NAME = re.compile(r"[^\\\0\ud800-\udfff]+")
"""An import name: without backslashes, which separate paths on some hosts, and what no file name can have."""
_IMPORT = re.compile(r"""\bimport\s+(?:public\s+|weak\s+)?["']([^"']+)["']""")
_NOT_FOUND = re.compile(r"^(.+): File not found\.$", re.MULTILINE)
_MOST_SHOWN = 1000
"""Characters of the compiler's errors in a message."""
_UNUSABLE_NAME = frozenset({errno.EEXIST, errno.EISDIR, errno.ENOTDIR, errno.ENAMETOOLONG})
"""Errors of a file whose name is also a directory's, or is too long."""


class MissingCompiler(ConfigError):
    """The schema is a .proto source, and this host has no compiler."""


class _MissingImport(ConfigError):
    def __init__(self, origin: str, names: Sequence[str]) -> None:
        more = f" and {len(names) - 1} more, which are" if len(names) > 1 else ", which is"
        super().__init__(
            f"{origin} imports {shown_path(names[0])}{more} missing. Register it with references to its imports (a"
            " local file: put them beside it; a descriptor set: make it with protoc --include_imports)."
        )
        self.names = names


def descriptor_set(schema: RegisteredSchema) -> bytes:
    """Returns the set of a registered schema. Its own file is named `schema-<id>.proto`."""
    root = f"schema-{schema.id}.proto"
    origin = f"schema id {schema.id}"
    files: dict[str, FileDescriptorProto] = {}
    sources: dict[str, str] = {}
    for name, content in _texts(schema, root, origin).items():
        descriptor = _descriptor_of(content)
        if descriptor is None:
            sources[name] = content
        else:
            # Registries and serializers choose other names. Files import it by this one.
            descriptor.name = name
            files[name] = descriptor
    if sources:
        with tempfile.TemporaryDirectory() as directory:
            compiled = _compile_registered(Path(directory), sources, files, origin)
        files = {file.name: file for file in compiled.file} | files
    return _ordered(files, root, origin).SerializeToString()


def descriptor_set_of_file(path: str | Path) -> bytes:
    """Returns the set of a local file. Compiles a `.proto`, whose imports are relative to its directory or to one
    above. Reads any other file as a descriptor set.
    """
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
        _ordered(by_name, file.name, str(path), is_self_contained=True)
    return content


def registered_set(schema_id: str, descriptors: bytes) -> RegisteredSchema:
    """Returns the last file of a complete descriptor set in the form of a registry: with references to its imports.
    Imports of google/protobuf get no reference, because every Protobuf library has them.
    """
    files = {file.name: file for file in FileDescriptorSet.FromString(descriptors).file}

    @cache
    def registered(name: str) -> RegisteredSchema:
        file = files[name]
        imports = [path for path in file.dependency if path in files and not path.startswith(_PROTOBUF_RUNTIME)]
        text = base64.b64encode(file.SerializeToString()).decode()
        return RegisteredSchema(schema_id, "PROTOBUF", text, tuple((path, registered(path)) for path in imports))

    return registered(next(reversed(files)))


def _compile_registered(
    directory: Path, sources: Mapping[str, str], files: Mapping[str, FileDescriptorProto], origin: str
) -> FileDescriptorSet:
    """Compiles sources in this directory, which is empty. `files` are the descriptors that they may import.

    If imports are missing, compiles again with empty files in their place and without custom options. A schema that
    still fails needs the imports for more than options: the first error stands.
    """
    _write_sources(directory, sources, origin)
    try:
        return _compile(directory, sorted(sources), files, origin)
    except _MissingImport as error:
        without_options = {name: without_custom_options(content) for name, content in sources.items()}
        _write_sources(directory, without_options, origin)
        empty = {name: FileDescriptorProto(name=name) for name in error.names}
        try:
            return _compile(directory, sorted(sources), {**files, **empty}, origin)
        except MissingCompiler:
            raise
        except ConfigError:
            raise error from None


def _write_sources(directory: Path, sources: Mapping[str, str], origin: str) -> None:
    for name, content in sources.items():
        path = directory / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content, encoding="utf-8")
        except (OSError, UnicodeEncodeError) as error:
            if isinstance(error, OSError) and error.errno not in _UNUSABLE_NAME:
                raise
            reason = error.strerror if isinstance(error, OSError) else error.reason
            raise ConfigError(
                f"{origin}: {shown_path(name)!r} cannot be written as a file ({reason}). Register the schema and its"
                " references again, with other names and in UTF-8."
            ) from None


def _texts(schema: RegisteredSchema, root: str, origin: str) -> dict[str, str]:
    """Returns the texts of the schema and of all that it refers to, by the names that imports use. `root` is the
    schema's own name.
    """
    texts: dict[str, str] = {}
    pending = [(root, schema)]
    while pending:
        name, registered = pending.pop()
        path = PurePosixPath(name)
        if registered.kind != "PROTOBUF":
            raise ConfigError(
                f"{origin}: {name} is of kind {registered.kind}, not PROTOBUF. Register the references again."
            )
        is_below = bool(path.parts) and not path.is_absolute() and ".." not in path.parts and str(path) == name
        if not is_below or not _IMPORT_NAME.fullmatch(name):
            raise ConfigError(
                f"{origin}: {shown_path(name)!r} is not a valid import name. Register the reference again."
            )
        if texts.setdefault(name, registered.text) != registered.text:
            raise ConfigError(f"{origin}: {name} names two different files. Register the references again.")
        pending += registered.references
    return texts


def _descriptor_of(content: str) -> FileDescriptorProto | None:
    """Returns the descriptor that this text has in base64, or None for a source. The blanks and braces of a source are
    not base64.
    """
    try:
        return FileDescriptorProto.FromString(base64.b64decode(content, validate=True))
    except (binascii.Error, ValueError, DecodeError):
        return None


def _compile(
    root: Path, names: Sequence[str], descriptors_by_name: Mapping[str, FileDescriptorProto], origin: str
) -> FileDescriptorSet:
    """Runs protoc on the sources `names`, relative to `root`. They may import each other, the descriptors and the
    well-known files.
    """
    if importlib.util.find_spec(COMPILER) is None:
        raise MissingCompiler(
            f"{origin} is a .proto source, which needs a compiler. Run pip install grpcio-tools on every host, or give"
            " a descriptor set (protoc --include_imports --descriptor_set_out)."
        )
    importable = FileDescriptorSet(file={**_known_files(), **descriptors_by_name}.values())
    with tempfile.TemporaryDirectory() as directory:
        importable_file, compiled_file = Path(directory, "importable"), Path(directory, "compiled")
        importable_file.write_bytes(importable.SerializeToString())
        arguments = [f"--descriptor_set_in={importable_file}", f"--proto_path={root}", "--include_imports"]
        command = [
            sys.executable,
            "-I",
            "-m",
            f"{COMPILER}.protoc",
            *arguments,
            f"--descriptor_set_out={compiled_file}",
            # As absolute paths: protoc takes a name that begins with - or @ for an option or a file of options.
            *(str(root / name) for name in names),
        ]
        try:
            compiler = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                encoding="utf-8",
                errors="replace",
                timeout=COMPILE_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise _unanswered(origin, f"gave no answer within {COMPILE_SECONDS} s") from None
        if compiler.returncode < 0:
            raise _unanswered(origin, f"was ended by signal {-compiler.returncode}")
        if compiler.returncode != 0:
            if missing := _NOT_FOUND.findall(compiler.stderr):
                raise _MissingImport(origin, missing)
            errors = compiler.stderr.replace(f"{root}/", "").strip()
            raise ConfigError(f"{origin} does not compile: {errors[:_MOST_SHOWN]}")
        return FileDescriptorSet.FromString(compiled_file.read_bytes())


def _unanswered(origin: str, fault: str) -> Unavailable:
    return Unavailable(
        f"{origin}: the Protobuf compiler {fault}. The sink runs it again with its next attempt. Check the load and the"
        " memory of this host."
    )


def _ordered(
    files: Mapping[str, FileDescriptorProto],
    root: str,
    origin: str,
    is_self_contained: bool = False,
) -> FileDescriptorSet:
    """Returns `root` and the files that it needs, each after its imports.

    With `is_self_contained`, `files` must have every import. Otherwise the well-known files are there too, and an empty
    file takes the place of a missing import that defines no type in use.
    """
    available = {**files} if is_self_contained else {**_known_files(), **files}
    ordered: dict[str, FileDescriptorProto] = {}
    missing: list[str] = []

    def add(name: str, importers: tuple[str, ...]) -> None:
        if name in importers:
            raise ConfigError(f"{origin}: {name} imports itself by way of {', '.join(importers)}. Correct the imports.")
        if name not in available:
            missing.append(name)
            available[name] = FileDescriptorProto(name=name)
        if name not in ordered:
            for imported in available[name].dependency:
                add(imported, (*importers, name))
            ordered[name] = available[name]

    add(root, ())
    files_in_order = FileDescriptorSet(file=ordered.values())
    if missing and (is_self_contained or not _is_complete(files_in_order)):
        raise _MissingImport(origin, missing)
    return files_in_order


def _is_complete(files: FileDescriptorSet) -> bool:
    """Returns whether the files define all types that their fields use. Types of custom options do not count."""
    pool = DescriptorPool()
    try:
        for file in files.file:
            pool.AddSerializedFile(file.SerializeToString())
            pool.FindFileByName(file.name)
    except (TypeError, KeyError):
        return False
    return True


def _import_root(path: Path) -> tuple[str, Path]:
    """Returns the directory to which imports are relative, and before it the file's name from there. It is the nearest
    directory, from the file's own upwards, that has one of the imports; without any, the file's own.
    """
    imports = _IMPORT.findall(path.read_text(encoding="utf-8", errors="replace"))
    for root in path.parents:
        if any((root / name).is_file() for name in imports):
            return path.relative_to(root).as_posix(), root
    return path.name, path.parent


@cache
def _known_files() -> dict[str, FileDescriptorProto]:
    """Returns the descriptors of the well-known imports by their names."""
    files: dict[str, FileDescriptorProto] = {}
    for package in _KNOWN_PACKAGES:
        for module in pkgutil.iter_modules(importlib.import_module(package).__path__):
            if module.name.endswith("_pb2"):
                file = FileDescriptorProto()
                importlib.import_module(f"{package}.{module.name}").DESCRIPTOR.CopyToProto(file)
                files[file.name] = file
    return files
