"""The inner loop in Java, compiled when the host starts: a list of records is one crossing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

COLUMNS = ("topic", "key", "value", "partition", "offset")

# Janino knows neither lambdas nor generics.
TEXT = """
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.json.JsonConverter;
import org.apache.kafka.connect.source.SourceRecord;
import org.apache.kafka.connect.source.SourceTask;

public class Helper {
  private final JsonConverter json = new JsonConverter();
  private final boolean plain;

  public Helper(boolean plain) {
    this.plain = plain;
    HashMap options = new HashMap();
    options.put("schemas.enable", "false");
    options.put("decimal.format", "NUMERIC");
    options.put("converter.type", "value");
    json.configure(options, false);
  }

  public byte[] pack(List records) throws Exception {
    int n = records.size();
    byte[][][] cells = new byte[5][n][];
    int i = 0;
    for (Iterator it = records.iterator(); it.hasNext(); i++) {
      SourceRecord r = (SourceRecord) it.next();
      cells[0][i] = r.topic() == null ? null : r.topic().getBytes("UTF-8");
      cells[1][i] = cell(r.keySchema(), r.key());
      cells[2][i] = plain(r.value()) ? bytes(r.value()) : cell(r.valueSchema(), r.value());
      cells[3][i] = cell(null, r.sourcePartition());
      cells[4][i] = cell(null, r.sourceOffset());
    }
    long total = 4;
    for (int c = 0; c < 5; c++) {
      total += n + 4L * (n + 1);
      for (i = 0; i < n; i++) total += cells[c][i] == null ? 0 : cells[c][i].length;
    }
    if (total > Integer.MAX_VALUE)
      throw new IllegalStateException("a poll has delivered more than 2 GB");
    ByteBuffer out = ByteBuffer.allocate((int) total).order(ByteOrder.LITTLE_ENDIAN);
    out.putInt(n);
    for (int c = 0; c < 5; c++) {
      for (i = 0; i < n; i++) out.put((byte) (cells[c][i] == null ? 0 : 1));
      int at = 0;
      out.putInt(0);
      for (i = 0; i < n; i++) {
        at += cells[c][i] == null ? 0 : cells[c][i].length;
        out.putInt(at);
      }
      for (i = 0; i < n; i++) if (cells[c][i] != null) out.put(cells[c][i]);
    }
    return out.array();
  }

  private boolean plain(Object value) {
    return plain
        && (value instanceof String || value instanceof byte[] || value instanceof ByteBuffer);
  }

  private static byte[] bytes(Object value) throws Exception {
    if (value instanceof String) return ((String) value).getBytes("UTF-8");
    if (value instanceof byte[]) return (byte[]) value;
    ByteBuffer from = (ByteBuffer) ((ByteBuffer) value).duplicate();
    byte[] to = new byte[from.remaining()];
    from.get(to);
    return to;
  }

  private byte[] cell(Schema schema, Object value) {
    return value == null ? null : json.fromConnectData("", schema, value);
  }

  public byte[] text(Object map) { return json.fromConnectData("", null, map); }

  public Object map(byte[] text) { return json.toConnectData("", text).value(); }

  public void done(SourceTask task, List records) throws Exception {
    for (Iterator it = records.iterator(); it.hasNext();)
      task.commitRecord((SourceRecord) it.next(), null);
    task.commit();
  }
}
"""


def unpacked(data: bytes) -> pa.RecordBatch:
    """What `pack` has packed, without a copy of the texts."""
    buffer = pa.py_buffer(data)
    rows = int(np.frombuffer(data, "<i4", 1)[0])
    arrays = list(_arrays(buffer, data, rows))
    return pa.RecordBatch.from_arrays(arrays, names=list(COLUMNS))


def _arrays(buffer: Any, data: bytes, rows: int) -> Iterator[pa.Array]:
    at = 4
    for name in COLUMNS:
        valid = np.packbits(np.frombuffer(data, np.uint8, rows, at), bitorder="little")
        at += rows
        offsets = np.frombuffer(data, "<i4", rows + 1, at)
        at += 4 * (rows + 1)
        size = int(offsets[-1])
        parts = [pa.py_buffer(valid), pa.py_buffer(offsets.copy()), buffer.slice(at, size)]
        kind = pa.binary() if name == "value" else pa.string()
        yield pa.Array.from_buffers(kind, rows, parts)
        at += size
