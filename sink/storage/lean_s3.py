"""Has Hadoop ask S3 less for what Hudi asks it again and again: a subclass of Hadoop's file system for `s3a`.

Hudi opens a table some ten times for a commit, and its metadata table as often, and reads their properties each time;
Hadoop asks twice whether a file is there that is not, and makes a directory again when its last file is gone. On an
object store all that is what a small commit waits for. Here:

- `hoodie.properties` and the index definitions are read once for as long as the table lock is held: whoever changes
  them takes the lock. Changes by this JVM are seen at once.
- Below `.hoodie`, a name that only a file can have is asked for as a file, a marker's directory as a directory.
- The directories of markers are not made again.

Guarantee: all else is Hadoop's. Where the file system of a bucket is there already it stays, and asks more. Compiled in
the JVM by Janino, which Spark brings, and put first as `sink.storage.inline_reads` puts its own; executors of a cluster
go without. Voided by who changes a table's properties without the table lock: until it is released they are not seen.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

from pyspark.sql import SparkSession

from sink.java_errors import JAVA_ERRORS
from sink.storage.access import S3_SCHEMES, bucket_of, scheme_of
from sink.storage.inline_reads import compiled

_NAME = "sink.LeanS3AFileSystem"
_HADOOPS = "org.apache.hadoop.fs.s3a.S3AFileSystem"
_SOURCE = """
package sink;

import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.EOFException;
import java.io.IOException;
import java.util.Iterator;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.PositionedReadable;
import org.apache.hadoop.fs.Seekable;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.fs.s3a.S3AFileSystem;
import org.apache.hadoop.io.IOUtils;
import org.apache.hadoop.util.Progressable;

public class LeanS3AFileSystem extends S3AFileSystem {
  private static final byte[] CHANGED = new byte[0];
  // By table, by file: what was read since its lock was taken.
  private final Map tables = new ConcurrentHashMap();

  public void begin(String table) {
    tables.put(table, new ConcurrentHashMap());
  }

  public void end(String table) {
    tables.remove(table);
  }

  public FSDataInputStream open(Path path, int bufferSize) throws IOException {
    Map kept = keptFor(path);
    if (kept == null) {
      return super.open(path, bufferSize);
    }
    byte[] content = (byte[]) kept.get(path.toString());
    if (content == null) {
      ByteArrayOutputStream read = new ByteArrayOutputStream();
      IOUtils.copyBytes(super.open(path, bufferSize), read, 4096, true);
      content = read.toByteArray();
      kept.putIfAbsent(path.toString(), content);
    }
    return content == CHANGED ? super.open(path, bufferSize) : new FSDataInputStream(new Content(content));
  }

  public FSDataOutputStream create(Path path, FsPermission permission, boolean overwrite, int bufferSize,
      short replication, long blockSize, Progressable progress) throws IOException {
    change(path);
    return super.create(path, permission, overwrite, bufferSize, replication, blockSize, progress);
  }

  public boolean rename(Path from, Path to) throws IOException {
    change(from);
    change(to);
    return super.rename(from, to);
  }

  public boolean delete(Path path, boolean recursive) throws IOException {
    change(path);
    return super.delete(path, recursive);
  }

  public boolean exists(Path path) throws IOException {
    String name = path.getName();
    if (path.toString().contains("/.hoodie/")) {
      if (name.contains(".marker.") || name.contains(".log.")) {
        return isFile(path);
      }
      if (path.toString().contains("/.temp/") && name.indexOf('.') < 0 && !name.startsWith("MARKERS")) {
        return isDirectory(path);
      }
    }
    return super.exists(path);
  }

  protected void maybeCreateFakeParentDirectory(Path path) throws IOException {
    if (!path.toString().contains("/.hoodie/.temp/")) {
      super.maybeCreateFakeParentDirectory(path);
    }
  }

  private Map keptFor(Path path) {
    String name = path.getName();
    if (name.equals("hoodie.properties") || name.equals("index.json")) {
      Iterator locked = tables.entrySet().iterator();
      while (locked.hasNext()) {
        Map.Entry table = (Map.Entry) locked.next();
        if (path.toString().startsWith((String) table.getKey())) {
          return (Map) table.getValue();
        }
      }
    }
    return null;
  }

  // What is changed, or below what is changed, is read from the store until the lock is released.
  private void change(Path path) {
    String changed = path.toString();
    Iterator locked = tables.values().iterator();
    while (locked.hasNext()) {
      Map kept = (Map) locked.next();
      Iterator files = kept.keySet().iterator();
      while (files.hasNext()) {
        String file = (String) files.next();
        if (file.startsWith(changed)) {
          kept.put(file, CHANGED);
        }
      }
    }
    Map kept = keptFor(path);
    if (kept != null) {
      kept.put(changed, CHANGED);
    }
  }

  public static class Content extends ByteArrayInputStream implements Seekable, PositionedReadable {
    public Content(byte[] content) {
      super(content);
    }

    public void seek(long position) throws IOException {
      if (position < 0 || position > count) {
        throw new EOFException("position " + position + " of " + count);
      }
      pos = (int) position;
    }

    public long getPos() {
      return pos;
    }

    public boolean seekToNewSource(long position) {
      return false;
    }

    public int read(long position, byte[] buffer, int offset, int length) {
      if (position >= count) {
        return -1;
      }
      int found = Math.min(length, count - (int) position);
      System.arraycopy(buf, (int) position, buffer, offset, found);
      return found;
    }

    public void readFully(long position, byte[] buffer, int offset, int length) throws IOException {
      if (read(position, buffer, offset, length) < length) {
        throw new EOFException("position " + position + " of " + count);
      }
    }

    public void readFully(long position, byte[] buffer) throws IOException {
      readFully(position, buffer, 0, buffer.length);
    }
  }
}
"""
_known: WeakKeyDictionary[Any, dict[str, Any]] = WeakKeyDictionary()
"""By JVM and bucket, the file system; None where another one was there first."""
_loaders: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()
"""By JVM, what has loaded the class: py4j takes two classes of one name for the same."""
_placing = threading.Lock()


def ask_less(spark: SparkSession, base_path: str) -> Any:
    """For every table of the bucket: before anything in this JVM opens it, and any number of times. The file system;
    None elsewhere than on S3, and where it cannot be put in its place.
    """
    scheme = scheme_of(base_path)
    if scheme not in S3_SCHEMES:
        return None
    bucket = f"{base_path.partition('://')[0]}://{bucket_of(base_path)}"
    with _placing:
        placed = _known.setdefault(spark.sparkContext._gateway, {})
        if bucket not in placed:
            try:
                placed[bucket] = _put_first(spark, scheme, bucket)
            except JAVA_ERRORS:
                # Whoever opens the table is told why, in the words for it.
                return None
        return placed[bucket]


@contextmanager
def read_once(spark: SparkSession, base_path: str) -> Iterator[None]:
    """While the table lock is held: the table's properties are read once. Nothing elsewhere than on S3."""
    files, table = ask_less(spark, base_path), base_path.rstrip("/") + "/"
    if files is None:
        yield
        return
    files.begin(table)
    try:
        yield
    finally:
        files.end(table)


def _put_first(spark: SparkSession, scheme: str, bucket: str) -> Any:
    jvm: Any = spark.sparkContext._jvm
    given = spark.sparkContext._jsc.hadoopConfiguration()
    setting = f"fs.{scheme}.impl"
    if str(given.get(setting) or _HADOOPS) != _HADOOPS:
        return None
    gateway = spark.sparkContext._gateway
    if gateway not in _loaders:
        _loaders[gateway] = compiled(jvm, _SOURCE).getClassLoader()
    conf = jvm.org.apache.hadoop.conf.Configuration(given)
    conf.setClassLoader(_loaders[gateway])
    conf.set(setting, _NAME)
    found = jvm.org.apache.hadoop.fs.FileSystem.get(jvm.java.net.URI.create(bucket), conf)
    return found if str(found.getClass().getName()) == _NAME else None
