"""A connector that makes the trouble it is asked for. `build` compiles it into a folder of plugins.

`python -m tests.connectors.kafka_connect.troublesome JAR` does the compiling, in its own process: a
process has one JVM for all of its life.
"""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import jpype

from dataflow_assets.spark import jars, java

CONNECTOR = """
package troublesome;
import java.util.*;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.config.ConfigException;
import org.apache.kafka.connect.source.SourceConnector;

public class TroublesomeConnector extends SourceConnector implements Runnable {
  private Map settings;
  private boolean grown;
  public void start(Map settings) {
    this.settings = settings;
    if ("config".equals(settings.get("trouble"))) throw new ConfigException("no such shop");
    if ("again".equals(settings.get("trouble"))) context().requestTaskReconfiguration();
  }
  public Class taskClass() throws Exception {
    return Class.forName("troublesome.TroublesomeTask", true, getClass().getClassLoader());
  }
  public void run() {
    grown = true;
    context().requestTaskReconfiguration();
  }
  public List taskConfigs(int most) {
    List found = new ArrayList();
    for (int shop = 1; shop <= (grown ? most : 1); shop++) {
      Map one = new HashMap(settings);
      one.put("shop", "" + shop);
      if ("grows".equals(settings.get("trouble")) && !grown) one.put("grow", this);
      found.add(one);
    }
    return found;
  }
  public void stop() {
    System.err.println("the connector was stopped");
  }
  public ConfigDef config() {
    return new ConfigDef()
        .define("trouble", ConfigDef.Type.STRING, ConfigDef.Importance.HIGH, "")
        .define("open.sesame", ConfigDef.Type.PASSWORD, "", ConfigDef.Importance.HIGH, "");
  }
  public String version() { return "1"; }
}
"""
TASK = """
package troublesome;
import java.util.*;
import org.apache.kafka.connect.data.*;
import org.apache.kafka.connect.errors.*;
import org.apache.kafka.connect.source.*;
import org.apache.kafka.clients.producer.RecordMetadata;

public class TroublesomeTask extends SourceTask {
  private Map here;
  private Runnable grow;
  private String trouble, word;
  private int at, polls;
  public String version() { return "1"; }
  public void start(Map settings) {
    trouble = (String) settings.get("trouble");
    try {
      String pause = (String) settings.get("pause");
      if (pause != null) Thread.sleep(Long.parseLong(pause));
    } catch (InterruptedException e) { }
    word = (String) settings.get("open.sesame");
    here = Collections.singletonMap("shop", settings.get("shop"));
    grow = (Runnable) settings.get("grow");
    Map offset = context.offsetStorageReader().offset(here);
    at = offset == null ? 0 : ((Number) offset.get("at")).intValue();
  }
  public void stop() { }
  public List poll() throws InterruptedException {
    polls++;
    if (trouble.equals("retriable") && polls < 3) throw new RetriableException("not yet");
    if (at >= 3) {
      if (trouble.equals("throws"))
        throw new ConnectException("refused " + word, new IllegalStateException("with " + word));
      if (trouble.equals("misfit")) throw new NoSuchMethodError("com.google.Guava.old()");
      if (trouble.equals("blocks")) Thread.sleep(1000000L);
      if (trouble.equals("memory")) {
        List all = new ArrayList();
        while (true) all.add(new long[1000000]);
      }
      Thread.sleep(100L);
      return null;
    }
    if (grow != null && at == 2) grow.run();
    at++;
    Map offset = Collections.singletonMap("at", new Integer(at));
    List found = new ArrayList();
    found.add(record(offset));
    if (trouble.equals("places")) {
      found.add(record(offset));
      found.add(new SourceRecord(null, null, "t", Schema.STRING_SCHEMA, "of no place"));
      found.add(new SourceRecord(here, null, "t", Schema.STRING_SCHEMA, "of no offset"));
    }
    return found;
  }
  private SourceRecord record(Map offset) {
    if (trouble.equals("large")) {
      char[] text = new char[10000000];
      Random random = new Random(at);
      for (int i = 0; i < text.length; i++) text[i] = (char) ('a' + random.nextInt(26));
      return new SourceRecord(here, offset, "t", Schema.STRING_SCHEMA, new String(text));
    }
    SchemaBuilder schema = SchemaBuilder.struct().field("n", Schema.INT32_SCHEMA);
    if (at > 1) schema.field("price", Decimal.schema(2)).field("raw", Schema.BYTES_SCHEMA);
    Schema list = SchemaBuilder.array(Schema.OPTIONAL_BYTES_SCHEMA).build();
    if (at > 1) schema.field("parts", SchemaBuilder.map(Schema.STRING_SCHEMA, list).build());
    Schema stock = SchemaBuilder.int32().optional().defaultValue(new Integer(7)).build();
    if (at > 1) schema.field("stock", stock);
    Struct value = new Struct(schema.build()).put("n", new Integer(at));
    if (at > 1) {
      java.nio.ByteBuffer part = java.nio.ByteBuffer.wrap(new byte[] {9, 1, 2, 9}, 1, 2);
      List parts = Arrays.asList(new Object[] {part, null});
      value.put("price", new java.math.BigDecimal("1.50")).put("raw", part);
      value.put("parts", Collections.singletonMap("p", parts));
    }
    if (trouble.equals("unfit") && at == 2) {
      Map unfit = new HashMap();
      unfit.put("n", new Integer(2));
      unfit.put("price", new java.math.BigDecimal("1.50"));
      return new SourceRecord(here, offset, "t", null, null, null, null, unfit);
    }
    if (at == 3) value = null;
    Schema kind = value == null ? null : value.schema();
    return new SourceRecord(here, offset, "t", null, null, null, kind, value);
  }
  public void commitRecord(SourceRecord record, RecordMetadata metadata)
      throws InterruptedException {
    if (trouble.equals("commit")) Thread.sleep(1000000L);
    if (trouble.equals("told")) throw new ConnectException("not now");
  }
}
"""


def build(folder: Path) -> str:
    """A folder of plugins with this connector alone."""
    plugin = folder / "troublesome" / "plugin"
    plugin.mkdir(parents=True)
    jar = str(plugin / "troublesome.jar")
    subprocess.run([sys.executable, "-m", __name__, jar], check=True)
    return str(plugin.parent)


def _compile(jar: Path) -> None:
    library = next((java.home() / "lib").rglob("libjvm.*"))
    jpype.startJVM(str(library), classpath=[str(path) for path in jars.fetch("connect")])
    with zipfile.ZipFile(jar, "w") as archive:
        for text in (CONNECTOR, TASK):
            compiler = jpype.JClass("org.codehaus.janino.SimpleCompiler")()
            compiler.cook(text)
            for one in compiler.getBytecodes().entrySet():
                name = str(one.getKey()).replace(".", "/")
                archive.writestr(f"{name}.class", bytes(one.getValue()))


if __name__ == "__main__":
    _compile(Path(sys.argv[1]))
