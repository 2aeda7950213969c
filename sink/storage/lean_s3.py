"""Has Hadoop ask S3 less for what Hudi asks it again and again: a subclass of Hadoop's file system for `s3a`.

Hudi opens a table some ten times for a commit, and its metadata table as often, and reads their properties each time;
it reads its own log files when it compacts them; Hadoop asks twice whether a file is there that is not, and makes a
directory again when its last file is gone. On an object store all that is what a small commit waits for. Here:

- `hoodie.properties` and the index definitions are read once for as long as the table lock is held: whoever changes
  them takes the lock. Changes by this JVM are seen at once.
- Completed instants and the files of the metadata table are written once. Small ones that this JVM wrote or read under
  the lock are kept, and read from memory under the lock, until another writer has completed anything (`forget`).
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
import java.io.OutputStream;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.regex.Pattern;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.PositionedReadable;
import org.apache.hadoop.fs.Seekable;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.fs.s3a.S3AFileSystem;
import org.apache.hadoop.fs.s3a.S3AInputStream;
import org.apache.hadoop.io.IOUtils;
import org.apache.hadoop.util.Progressable;

public class LeanS3AFileSystem extends S3AFileSystem {
  private static final byte[] CHANGED = new byte[0];
  private static final Pattern COMPLETED = Pattern.compile("/timeline/[0-9]+_[0-9]+[.][a-z]+$");
  static final int LARGEST = 1 << 18;
  private static final int MOST = 1 << 23;
  // By table, by file: what was read since its lock was taken.
  private final Map tables = new ConcurrentHashMap();
  // By file, the one used last at the end.
  private final Map contents = new LinkedHashMap(16, 0.75f, true);
  private int size = 0;

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
    String file = path.toString();
    if (isWrittenOnce(path)) {
      byte[] content = contentOf(file);
      if (content == null) {
        FSDataInputStream stream = super.open(path, bufferSize);
        if (((S3AInputStream) stream.getWrappedStream()).remainingInFile() > LARGEST) {
          return stream;
        }
        content = read(stream);
        keep(file, content);
      }
      return new FSDataInputStream(new Content(content));
    }
    if (!isProperties(path)) {
      return super.open(path, bufferSize);
    }
    byte[] content = (byte[]) kept.get(file);
    if (content == null) {
      content = read(super.open(path, bufferSize));
      kept.putIfAbsent(file, content);
    }
    return content == CHANGED ? super.open(path, bufferSize) : new FSDataInputStream(new Content(content));
  }

  public FSDataOutputStream create(Path path, FsPermission permission, boolean overwrite, int bufferSize,
      short replication, long blockSize, Progressable progress) throws IOException {
    change(path);
    FSDataOutputStream stream =
        super.create(path, permission, overwrite, bufferSize, replication, blockSize, progress);
    return isWrittenOnce(path) ? new FSDataOutputStream(new Copying(this, stream, path.toString()), null) : stream;
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
      if (name.contains(".marker.") || name.contains(".log.") || name.endsWith(".hfile")
          || name.startsWith(".hoodie_partition_metadata")) {
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

  private static boolean isProperties(Path path) {
    return path.getName().equals("hoodie.properties") || path.getName().equals("index.json");
  }

  private static boolean isWrittenOnce(Path path) {
    String file = path.toString();
    boolean isData = path.getName().contains(".log.") || path.getName().endsWith(".hfile");
    return file.contains("/.hoodie/metadata/") && isData || COMPLETED.matcher(file).find();
  }

  private static byte[] read(FSDataInputStream stream) throws IOException {
    ByteArrayOutputStream read = new ByteArrayOutputStream();
    IOUtils.copyBytes(stream, read, 4096, true);
    return read.toByteArray();
  }

  // Null where the lock of the path's table is not held.
  private Map keptFor(Path path) {
    Iterator locked = tables.entrySet().iterator();
    while (locked.hasNext()) {
      Map.Entry table = (Map.Entry) locked.next();
      if (path.toString().startsWith((String) table.getKey())) {
        return (Map) table.getValue();
      }
    }
    return null;
  }

  private byte[] contentOf(String file) {
    synchronized (contents) {
      return (byte[]) contents.get(file);
    }
  }

  void keep(String file, byte[] content) {
    synchronized (contents) {
      byte[] before = (byte[]) contents.put(file, content);
      size += content.length - (before == null ? 0 : before.length);
      Iterator oldest = contents.values().iterator();
      while (size > MOST) {
        size -= ((byte[]) oldest.next()).length;
        oldest.remove();
      }
    }
  }

  // Files whose names begin so.
  public void forget(String begin) {
    synchronized (contents) {
      Iterator files = contents.entrySet().iterator();
      while (files.hasNext()) {
        Map.Entry file = (Map.Entry) files.next();
        if (((String) file.getKey()).startsWith(begin)) {
          size -= ((byte[]) file.getValue()).length;
          files.remove();
        }
      }
    }
  }

  // What is changed, or below what is changed, is read from the store until the lock is released.
  private void change(Path path) {
    String changed = path.toString();
    forget(changed);
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
    if (kept != null && isProperties(path)) {
      kept.put(changed, CHANGED);
    }
  }

  public static class Copying extends OutputStream {
    private final LeanS3AFileSystem files;
    private final FSDataOutputStream stream;
    private final String file;
    private ByteArrayOutputStream copy = new ByteArrayOutputStream();

    public Copying(LeanS3AFileSystem files, FSDataOutputStream stream, String file) {
      this.files = files;
      this.stream = stream;
      this.file = file;
    }

    public void write(int value) throws IOException {
      write(new byte[] {(byte) value}, 0, 1);
    }

    public void write(byte[] bytes, int offset, int length) throws IOException {
      stream.write(bytes, offset, length);
      if (copy != null && copy.size() + length <= LARGEST) {
        copy.write(bytes, offset, length);
      } else {
        copy = null;
      }
    }

    public void flush() throws IOException {
      stream.flush();
    }

    public void close() throws IOException {
      ByteArrayOutputStream whole = copy;
      copy = null;
      stream.close();
      if (whole != null) {
        files.keep(file, whole.toByteArray());
      }
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


def forget(spark: SparkSession, base_path: str) -> None:
    """Of that table what was written once may be another's by now: it is read again."""
    files = ask_less(spark, base_path)
    if files is not None:
        files.forget(base_path.rstrip("/") + "/")


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
