"""Works around a connection leak in Hudi's reads inside log files (apache/hudi#19936). Remove it with the fixed Hudi.

Hudi reads the blocks of its metadata table's log files through its own file system, `inlinefs`. In Hudi 1.2.0 its
streams do not close the underlying file: on an object store each keeps a connection, and after two or three commits
the pool is empty and the JVM hangs. Hadoop caches one file system for a scheme and host, the first one it creates. This
module makes that a subclass whose streams close the file, compiled in the JVM by Spark's Janino. The executors of a
cluster get it as a Spark plugin, before their first task.

Guarantee: reads inside log files of that bucket or host keep no connection: in the driver after `close_inline_reads`,
on executors started with `executor_options`. Other code that used Hudi in the same JVM before voids this. Raises
ConfigError if another file system is cached already, or the jar for the executors cannot be written.
"""

from __future__ import annotations

import threading
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from pyspark.sql import SparkSession

from coordination.errors import ConfigError
from sink.clients.host.private_directory import private_directory

_STREAM = "org.apache.hudi.hadoop.fs.inline.InLineFsDataInputStream"
_NAME = "sink.ClosingInLineFileSystem"
_PLUGIN = "sink.ClosingInLineReads"
_INLINE_ADDRESSES = "spark.sink.inline.places"
_FILE_SYSTEM = """
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
_EXECUTORS = """
package sink;

import java.io.IOException;
import java.net.URI;
import java.security.PrivilegedExceptionAction;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.security.UserGroupInformation;
import org.apache.spark.api.plugin.DriverPlugin;
import org.apache.spark.api.plugin.ExecutorPlugin;
import org.apache.spark.api.plugin.PluginContext;
import org.apache.spark.api.plugin.SparkPlugin;
import org.apache.spark.deploy.SparkHadoopUtil;

public class ClosingInLineReads implements SparkPlugin {
  public DriverPlugin driverPlugin() {
    return null;
  }

  public ExecutorPlugin executorPlugin() {
    return new OnExecutor();
  }

  // Hadoop keeps file systems by user. Tasks run as one user, and what they give to Java's common pool as another.
  public static class OnExecutor implements ExecutorPlugin, PrivilegedExceptionAction {
    private Configuration conf;
    private String[] places;

    public void init(PluginContext context, Map extra) {
      conf = SparkHadoopUtil.get().newConfiguration(context.conf());
      conf.setClassLoader(OnExecutor.class.getClassLoader());
      conf.set("fs.inlinefs.impl", "sink.ClosingInLineFileSystem");
      places = context.conf().get("spark.sink.inline.places").split(" ");
      try {
        UserGroupInformation.getLoginUser().doAs(this);
      } catch (Exception e) {
        throw new IllegalStateException(e);
      }
    }

    public void onTaskStart() {
      try {
        run();
      } catch (IOException e) {
        throw new IllegalStateException(e);
      }
    }

    public Object run() throws IOException {
      for (int i = 0; i < places.length; i++) {
        FileSystem.get(URI.create(places[i]), conf);
      }
      return null;
    }
  }
}
"""
_hosts_done: WeakKeyDictionary[Any, set[str]] = WeakKeyDictionary()
"""For each JVM the hosts whose inline reads close the file."""
_fix_lock = threading.Lock()


def close_inline_reads(spark: SparkSession, base_path: str) -> None:
    """Fixes the reads for all tables of the bucket or host. It may be called again; local disks need no fix."""
    host = _host(base_path)
    if not host:
        return
    jvm: Any = spark.sparkContext._jvm
    with _fix_lock:
        hosts = _hosts_done.setdefault(spark.sparkContext._gateway, set())
        if host not in hosts and not _closes(jvm):
            _put_first(jvm, spark.sparkContext._jsc.hadoopConfiguration(), host)
        hosts.add(host)


def executor_options(jvm: Any, base_paths: Iterable[str]) -> dict[str, str]:
    """Returns Spark's settings for the executors of a cluster; an empty dict if the fix is not needed."""
    hosts = sorted({host for host in map(_host, base_paths) if host})
    if not hosts or _closes(jvm):
        return {}
    jar = _jar(jvm)
    # The driver loads the plugin, too.
    _loader(jvm).addURL(jvm.java.io.File(str(jar)).toURI().toURL())
    return {
        "spark.jars": str(jar),
        "spark.plugins": _PLUGIN,
        _INLINE_ADDRESSES: " ".join(_inline_path(jvm, host) for host in hosts),
    }


def _host(base_path: str) -> str:
    """Returns `s3a://bucket`; empty for a path on a local disk."""
    if "://" not in base_path or base_path.startswith("file:"):
        return ""
    return "/".join(base_path.split("/", 3)[:3])


def _loader(jvm: Any) -> Any:
    return jvm.java.lang.Thread.currentThread().getContextClassLoader()


def _closes(jvm: Any) -> bool:
    """Returns whether Hudi's own streams close the underlying file."""
    methods = _loader(jvm).loadClass(_STREAM).getDeclaredMethods()
    return any(str(method.getName()) == "close" for method in methods)


def _inline_path(jvm: Any, host: str) -> str:
    """Returns the `inlinefs` address that Hudi uses for the host's files."""
    paths = jvm.org.apache.hudi.storage
    return str(paths.inline.InLineFSUtils.getInlineFilePath(paths.StoragePath(f"{host}/table"), "f", 0, 0).toUri())


def _put_first(jvm: Any, hadoop_conf: Any, host: str) -> None:
    conf = jvm.org.apache.hadoop.conf.Configuration(hadoop_conf)
    conf.setClassLoader(_compiled(jvm, _FILE_SYSTEM).getClassLoader())
    conf.set("fs.inlinefs.impl", _NAME)
    inline_uri = jvm.java.net.URI.create(_inline_path(jvm, host))
    file_system = str(jvm.org.apache.hadoop.fs.FileSystem.get(inline_uri, conf).getClass().getName())
    if file_system != _NAME:
        raise ConfigError(
            f"{host}: {file_system} already reads inside log files, and keeps a connection for each read. Use Hudi in"
            " this JVM only through the sink."
        )


def _compiled(jvm: Any, source: str) -> Any:
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(_loader(jvm))
    compiler.cook(source)
    return compiler


def _jar(jvm: Any) -> Path:
    """Returns the jar with the classes for executors, which fetch it from the driver when they start."""
    jar = private_directory() / "inline-reads.jar"
    if jar.is_file():
        return jar
    unfinished = jar.with_suffix(f".{threading.get_native_id()}.part")
    try:
        with zipfile.ZipFile(unfinished, "w") as file:
            for source in (_FILE_SYSTEM, _EXECUTORS):
                for name, content in _compiled(jvm, source).getBytecodes().items():
                    file.writestr(f"{str(name).replace('.', '/')}.class", bytes(content))
        unfinished.rename(jar)
    except OSError as error:
        raise ConfigError(f"{jar}: it cannot be written ({error}). Set TMPDIR to another directory.") from error
    return jar
