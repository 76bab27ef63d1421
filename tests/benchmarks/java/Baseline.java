import static org.apache.spark.sql.functions.col;
import static org.apache.spark.sql.functions.explode;
import static org.apache.spark.sql.functions.from_json;
import static org.apache.spark.sql.functions.split;

import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.streaming.StreamingQuery;
import org.apache.spark.sql.streaming.StreamingQueryProgress;
import org.apache.spark.sql.types.StructType;

/** What the baselines have in common: session, source, and running until all records are read. */
final class Baseline {
  private Baseline() {}

  static SparkSession session(String name, String parallelism, String store) {
    String provider = store.equals("rocksdb") ? "RocksDBStateStoreProvider" : "HDFSBackedStateStoreProvider";
    SparkSession spark =
        SparkSession.builder()
            .master("local[" + parallelism + "]")
            .appName(name)
            .config("spark.sql.shuffle.partitions", parallelism)
            .config("spark.ui.enabled", "false")
            .config("spark.sql.streaming.metricsEnabled", "false")
            .config("spark.sql.streaming.minBatchesToRetain", "10")
            .config("spark.sql.streaming.numRecentProgressUpdates", "100000")
            .config("spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled", "true")
            .config("spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows", "false")
            .config("spark.sql.streaming.stateStore.providerClass", "org.apache.spark.sql.execution.streaming.state." + provider)
            .getOrCreate();
    spark.sparkContext().setLogLevel("ERROR");
    return spark;
  }

  /** The events of a topic of newline-delimited JSON, as columns. */
  static Dataset<Row> events(SparkSession spark, String bootstrap, String topic, String perTrigger, StructType schema) {
    return spark
        .readStream()
        .format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", perTrigger)
        .load()
        .select(explode(split(col("value").cast("string"), "\n")).as("line"))
        .select(from_json(col("line"), schema).as("event"))
        .select("event.*");
  }

  /**
   * Waits until `expected` records are read, then ends the process. Prints a line as each batch is done: BATCH, its id, records,
   * milliseconds. Not AvailableNow: with timeouts that never ends, as every batch calls for the next.
   */
  static void runUntil(StreamingQuery query, long expected) throws Exception {
    long records = 0;
    int reported = 0;
    while (records < expected && query.exception().isEmpty()) {
      Thread.sleep(50);
      StreamingQueryProgress[] batches = query.recentProgress();
      for (; reported < batches.length; reported++) {
        StreamingQueryProgress batch = batches[reported];
        records += batch.numInputRows();
        Long tookMs = batch.durationMs().get("triggerExecution");
        System.out.println("BATCH " + batch.batchId() + " " + batch.numInputRows() + " " + tookMs);
      }
    }
    if (query.exception().isDefined()) {
      throw query.exception().get();
    }
    // With timeouts the next batch is at work already, and a state store that is closed under it aborts the process.
    System.out.flush();
    Runtime.getRuntime().halt(0);
  }
}
