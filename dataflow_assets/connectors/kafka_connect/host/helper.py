"""The inner loop in Java, compiled when the host starts: a list of records is one crossing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

COLUMNS = ("topic", "key", "value", "partition", "offset", "dropped", "refused")

# Janino knows neither lambdas nor generics.
TEXT = """
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.connect.connector.ConnectRecord;
import org.apache.kafka.connect.data.Field;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.errors.DataException;
import org.apache.kafka.connect.json.JsonConverter;
import org.apache.kafka.connect.source.SourceRecord;
import org.apache.kafka.connect.source.SourceTask;
import org.apache.kafka.connect.transforms.Transformation;
import org.apache.kafka.connect.transforms.predicates.Predicate;

public class Helper {
  private final JsonConverter json = new JsonConverter();
  private final JsonConverter values = new JsonConverter();
  private final boolean plain;
  private final ArrayList steps = new ArrayList();
  private final ArrayList conditions = new ArrayList();
  private final ArrayList negated = new ArrayList();
  private String at; // what happens to a record

  public Helper(boolean plain, boolean schemas) {
    this.plain = plain;
    HashMap options = new HashMap();
    options.put("schemas.enable", "false");
    options.put("decimal.format", "NUMERIC");
    options.put("converter.type", "value");
    options.put("replace.null.with.default", "false"); // a NULL of the source stays one
    json.configure(options, false);
    options.put("schemas.enable", Boolean.toString(schemas));
    values.configure(options, false);
  }

  public void add(Transformation step, Predicate condition, boolean negate) {
    steps.add(step);
    conditions.add(condition);
    negated.add(Boolean.valueOf(negate));
  }

  private ConnectRecord transformed(ConnectRecord record) {
    for (int i = 0; i < steps.size() && record != null; i++) {
      Predicate condition = (Predicate) conditions.get(i);
      boolean negate = ((Boolean) negated.get(i)).booleanValue();
      if (condition == null || condition.test(record) != negate)
        record = ((Transformation) steps.get(i)).apply(record);
    }
    return record;
  }

  public byte[] pack(List records) throws Exception {
    int n = records.size();
    byte[][][] cells = new byte[7][n][];
    int i = 0;
    for (Iterator it = records.iterator(); it.hasNext(); i++) {
      SourceRecord delivered = (SourceRecord) it.next();
      byte[][] row = packed(delivered);
      for (int c = 0; c < 7; c++) cells[c][i] = row[c];
    }
    long total = 4;
    for (int c = 0; c < 7; c++) {
      total += n + 4L * (n + 1);
      for (i = 0; i < n; i++) total += cells[c][i] == null ? 0 : cells[c][i].length;
    }
    if (total > Integer.MAX_VALUE)
      throw new IllegalStateException("a poll has delivered more than 2 GB");
    ByteBuffer out = ByteBuffer.allocate((int) total).order(ByteOrder.LITTLE_ENDIAN);
    out.putInt(n);
    for (int c = 0; c < 7; c++) {
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

  private byte[][] packed(SourceRecord delivered) throws Exception {
    byte[][] row = new byte[7][];
    row[3] = cell(json, null, delivered.sourcePartition());
    row[4] = cell(json, null, delivered.sourceOffset());
    try {
      fill(row, delivered);
    } catch (RuntimeException error) {
      if (error instanceof KafkaException && !(error instanceof DataException)) throw error;
      refuse(row, delivered, error);
    } catch (StackOverflowError error) {
      refuse(row, delivered, error);
    }
    return row;
  }

  private void fill(byte[][] row, SourceRecord delivered) throws Exception {
    at = "a transform refuses the record";
    ConnectRecord r = transformed(delivered);
    if (r == null) {
      row[5] = new byte[0];
      return;
    }
    row[0] = r.topic() == null ? null : r.topic().getBytes("UTF-8");
    at = "the key cannot be converted to JSON";
    row[1] = cell(json, r.keySchema(), r.key());
    at = "the value cannot be converted to JSON";
    row[2] = plain(r.value()) ? bytes(r.value()) : cell(values, r.valueSchema(), r.value());
  }

  // The record as text: no JSON, so that nobody takes it for what it was.
  private void refuse(byte[][] row, SourceRecord delivered, Throwable error) throws Exception {
    StringBuilder why = new StringBuilder(at);
    String before = ": ";
    Throwable one = error;
    for (int depth = 0; one != null && depth < 5; depth++) {
      why.append(before).append(one);
      before = "; the cause: ";
      one = one.getCause();
    }
    row[6] = why.toString().getBytes("UTF-8");
    row[2] = text(delivered).getBytes("UTF-8");
    if (row[0] == null && delivered.topic() != null) row[0] = delivered.topic().getBytes("UTF-8");
  }

  private static String text(SourceRecord delivered) {
    try {
      return delivered.toString();
    } catch (RuntimeException error) {
      return delivered.getClass().getName();
    } catch (StackOverflowError error) {
      return delivered.getClass().getName();
    }
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

  private byte[] cell(JsonConverter to, Schema schema, Object value) throws Exception {
    return value == null ? null : to.fromConnectData("", schema, exact(value));
  }

  // JsonConverter writes the whole array behind a buffer, however little of it the buffer shows.
  private static Object exact(Object value) throws Exception {
    if (value instanceof ByteBuffer) return bytes(value);
    if (value instanceof Struct) return exactStruct((Struct) value);
    if (value instanceof List) return exactList((List) value);
    if (value instanceof Map) return exactMap((Map) value);
    return value;
  }

  private static Struct exactStruct(Struct value) throws Exception {
    Struct made = null;
    for (Iterator it = value.schema().fields().iterator(); it.hasNext();) {
      Field field = (Field) it.next();
      Object inner = value.getWithoutDefault(field.name());
      Object other = exact(inner);
      if (other == inner) continue;
      if (made == null) made = copied(value);
      made.put(field, other instanceof byte[] ? ByteBuffer.wrap((byte[]) other) : other);
    }
    return made == null ? value : made;
  }

  private static Struct copied(Struct value) {
    Struct made = new Struct(value.schema());
    for (Iterator it = value.schema().fields().iterator(); it.hasNext();) {
      Field field = (Field) it.next();
      Object inner = value.getWithoutDefault(field.name());
      if (inner != null) made.put(field, inner);
    }
    return made;
  }

  private static List exactList(List value) throws Exception {
    ArrayList made = new ArrayList(value.size());
    boolean differs = false;
    for (Iterator it = value.iterator(); it.hasNext();) {
      Object inner = it.next();
      made.add(exact(inner));
      differs |= made.get(made.size() - 1) != inner;
    }
    return differs ? made : value;
  }

  private static Map exactMap(Map value) throws Exception {
    LinkedHashMap made = new LinkedHashMap();
    boolean differs = false;
    for (Iterator it = value.entrySet().iterator(); it.hasNext();) {
      Map.Entry entry = (Map.Entry) it.next();
      Object inner = exact(entry.getValue());
      differs |= inner != entry.getValue();
      made.put(entry.getKey(), inner);
    }
    return differs ? made : value;
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


def unpack(data: bytes) -> pa.RecordBatch:
    """Returns what `pack` has packed, without a copy of the texts.

    `dropped` is null but for records that a transformation has dropped; `refused` says why a
    record could be no JSON: its value is the record as text.
    """
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
