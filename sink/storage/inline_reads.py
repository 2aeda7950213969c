"""Lets Hudi's reads inside of log files give their connections back. Goes when Hudi does it itself.

Hudi reads the blocks of its metadata table's log files through a file system of its own, `inlinefs`. In Hudi 1.2.0 its
streams do not close the file that they read from (apache/hudi#19936): on an object store each keeps a connection for
good, and after two or three commits the pool is empty and the JVM hangs. Hadoop keeps one file system for a scheme and
a host, and takes the first that it is given: here that is a subclass whose streams do close, compiled in the JVM by
Janino, which Spark brings.

Guarantee: after `close_inline_reads` no read of this JVM inside of the log files of that bucket or host keeps a
connection. Voided on the executors of a cluster, where it does not reach, and by another Hudi user of the same JVM that
came first. Raises ConfigError where another file system stands in that place already.
"""

from __future__ import annotations

import threading
from typing import Any
from weakref import WeakKeyDictionary

from pyspark.sql import SparkSession

from coordination.errors import ConfigError

_STREAM = "org.apache.hudi.hadoop.fs.inline.InLineFsDataInputStream"
_NAME = "sink.ClosingInLineFileSystem"
_SOURCE = """
package sink;

import java.io.IOException;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.Path;
import org.apache.hudi.hadoop.fs.HadoopFSUtils;
import org.apache.hudi.hadoop.fs.inline.HadoopInLineFSUtils;
import org.apache.hudi.hadoop.fs.inline.InLineFileSystem;
import org.apache.hudi.hadoop.fs.inline.InLineFsDataInputStream;
import org.apache.hudi.storage.StoragePath;

public class ClosingInLineFileSystem extends InLineFileSystem {
  public FSDataInputStream open(Path path, int bufferSize) throws IOException {
    Path outer = HadoopInLineFSUtils.getOuterFilePathFromInlinePath(path);
    StoragePath inline = HadoopFSUtils.convertToStoragePath(path);
    return new Closing(HadoopInLineFSUtils.startOffset(inline), outer.getFileSystem(getConf()).open(outer, bufferSize),
        HadoopInLineFSUtils.length(inline));
  }

  public static class Closing extends InLineFsDataInputStream {
    private final FSDataInputStream outer;

    public Closing(long start, FSDataInputStream outer, long length) throws IOException {
      super(start, outer, length);
      this.outer = outer;
    }

    public void close() throws IOException {
      outer.close();
    }
  }
}
"""
_places: WeakKeyDictionary[Any, set[str]] = WeakKeyDictionary()
"""Of each JVM, what is in order."""
_placing = threading.Lock()


def close_inline_reads(spark: SparkSession, base_path: str) -> None:
    """For every table of the same bucket or host. Any number of times; nothing to do for local disks."""
    if "://" not in base_path or base_path.startswith("file:"):
        return
    jvm: Any = spark.sparkContext._jvm
    host = "/".join(base_path.split("/", 3)[:3])
    with _placing:
        places = _places.setdefault(spark.sparkContext._gateway, set())
        if host not in places and not _closes(jvm):
            _put_first(jvm, spark.sparkContext._jsc.hadoopConfiguration(), base_path)
        places.add(host)


def _closes(jvm: Any) -> bool:
    """Whether Hudi's own streams close what they read from."""
    declared = jvm.java.lang.Thread.currentThread().getContextClassLoader().loadClass(_STREAM).getDeclaredMethods()
    return any(str(method.getName()) == "close" for method in declared)


def _put_first(jvm: Any, given: Any, base_path: str) -> None:
    paths = jvm.org.apache.hudi.storage
    place = paths.inline.InLineFSUtils.getInlineFilePath(paths.StoragePath(base_path), "file", 0, 0).toUri()
    conf = jvm.org.apache.hadoop.conf.Configuration(given)
    conf.setClassLoader(_compiled(jvm))
    conf.set("fs.inlinefs.impl", _NAME)
    found = str(jvm.org.apache.hadoop.fs.FileSystem.get(place, conf).getClass().getName())
    if found != _NAME:
        raise ConfigError(
            f"{base_path}: {found} reads inside of log files already, and would keep a connection for each read; use"
            " Hudi in this JVM through the sink alone"
        )


def _compiled(jvm: Any) -> Any:
    """A class loader that has the class."""
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(jvm.java.lang.Thread.currentThread().getContextClassLoader())
    compiler.cook(_SOURCE)
    return compiler.getClassLoader()
