import static org.apache.spark.sql.functions.col;

import java.io.Serializable;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.Iterator;
import java.util.List;
import org.apache.spark.api.java.function.FlatMapGroupsWithStateFunction;
import org.apache.spark.api.java.function.MapFunction;
import org.apache.spark.api.java.function.VoidFunction2;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Encoders;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.streaming.GroupState;
import org.apache.spark.sql.streaming.GroupStateTimeout;
import org.apache.spark.sql.streaming.OutputMode;
import org.apache.spark.sql.streaming.StreamingQuery;
import org.apache.spark.sql.streaming.Trigger;

/**
 * What Spark offers by itself: one keyed state per message, kept by flatMapGroupsWithState on the JVM.
 *
 * <p>Per message it computes its age, whether it was received three times or more, whether it has been held too long, and
 * its end; per batch the counts of each and the oldest age. It reads the same topic as the pipeline it is compared with.
 *
 * <p>Arguments: bootstrap, topic, checkpoint, records per trigger, parallelism, state store ("rocksdb" or "memory"),
 * whether it does as the service must ("yes": held messages are found without a further event, and an ended message is
 * remembered for the lateness, so that a late or repeated event does not raise it; "no": neither), records in the topic.
 */
public final class PerMessage {
  private static final long HELD_MS = 900_000;
  private static final long LATENESS_MS = 600_000;
  private static final int POISON_RECEIVES = 3;

  public static void main(String[] args) throws Exception {
    boolean full = args[6].equals("yes");
    SparkSession spark = Baseline.session("per message", args[4], args[5]);
    Dataset<Event> events =
        Baseline.events(spark, args[0], args[1], args[3], Encoders.bean(Event.class).schema())
            .filter(col("message_id").isNotNull())
            .as(Encoders.bean(Event.class));

    Dataset<Signals> signals =
        events
            .groupByKey(
                (MapFunction<Event, String>)
                    e -> e.system + '\0' + e.scope + '\0' + e.queue + '\0' + e.message_id,
                Encoders.STRING())
            .flatMapGroupsWithState(
                new Track(full),
                OutputMode.Update(),
                Encoders.bean(Message.class),
                Encoders.bean(Signals.class),
                full ? GroupStateTimeout.ProcessingTimeTimeout() : GroupStateTimeout.NoTimeout());

    StreamingQuery query =
        signals
            .writeStream()
            .outputMode("update")
            .option("checkpointLocation", args[2])
            .trigger(Trigger.ProcessingTime(0))
            .foreachBatch((VoidFunction2<Dataset<Signals>, Long>) PerMessage::publish)
            .start();
    Baseline.runUntil(query, Long.parseLong(args[7]));
  }

  private static void publish(Dataset<Signals> signals, Long batch) {
    List<Row> perQueue =
        signals
            .selectExpr("queue", "ageMs", "cast(poison as int) poison", "cast(held as int) held", "cast(ended as int) ended")
            .groupBy("queue")
            .agg(
                org.apache.spark.sql.functions.max("ageMs"),
                org.apache.spark.sql.functions.sum("poison"),
                org.apache.spark.sql.functions.sum("held"),
                org.apache.spark.sql.functions.sum("ended"))
            .collectAsList();
    long poison = 0;
    long ended = 0;
    for (Row row : perQueue) {
      poison += row.getLong(2);
      ended += row.getLong(4);
    }
    System.out.println("SIGNALS " + batch + " " + perQueue.size() + " " + poison + " " + ended);
  }

  /** Follows one message. */
  private record Track(boolean full) implements FlatMapGroupsWithStateFunction<String, Event, Message, Signals> {
    @Override
    public Iterator<Signals> call(String key, Iterator<Event> events, GroupState<Message> state) {
      Message message = state.exists() ? state.get() : new Message();
      long now = System.currentTimeMillis();
      List<Event> ordered = new ArrayList<>();
      events.forEachRemaining(ordered::add);
      ordered.sort(Comparator.comparingLong(e -> e.at));
      for (Event event : ordered) {
        message.apply(event);
      }
      Signals signals = new Signals();
      signals.queue = key.split("\0", 4)[2];
      signals.ageMs = message.ended ? 0 : now - message.sentAt;
      signals.poison = !message.ended && message.receives >= POISON_RECEIVES;
      signals.held = !message.ended && message.heldSince > 0 && message.heldUntil > now && now - message.heldSince > HELD_MS;
      signals.ended = message.ended;
      if (message.ended && (!full || state.hasTimedOut())) {
        state.remove();
      } else if (message.ended) {
        state.update(message);
        state.setTimeoutDuration(LATENESS_MS);
      } else {
        state.update(message);
        if (full && message.heldSince > 0) {
          state.setTimeoutDuration(Math.max(1, message.heldSince + HELD_MS - now));
        }
      }
      return List.of(signals).iterator();
    }
  }

  /** One telemetry event: the fields these signals need. */
  public static final class Event implements Serializable {
    private String type;
    private long at;
    private String system;
    private String scope;
    private String queue;
    private String message_id;
    private Long sent_at;
    private Integer receive_count;
    private Long invisible_until;

    public String getType() { return type; }
    public void setType(String value) { type = value; }
    public long getAt() { return at; }
    public void setAt(long value) { at = value; }
    public String getSystem() { return system; }
    public void setSystem(String value) { system = value; }
    public String getScope() { return scope; }
    public void setScope(String value) { scope = value; }
    public String getQueue() { return queue; }
    public void setQueue(String value) { queue = value; }
    public String getMessage_id() { return message_id; }
    public void setMessage_id(String value) { message_id = value; }
    public Long getSent_at() { return sent_at; }
    public void setSent_at(Long value) { sent_at = value; }
    public Integer getReceive_count() { return receive_count; }
    public void setReceive_count(Integer value) { receive_count = value; }
    public Long getInvisible_until() { return invisible_until; }
    public void setInvisible_until(Long value) { invisible_until = value; }
  }

  /** The state of one message. */
  public static final class Message implements Serializable {
    private long sentAt;
    private int receives;
    private long heldSince;
    private long heldUntil;
    private boolean ended;

    void apply(Event event) {
      if (event.sent_at != null) {
        sentAt = event.sent_at;
      } else if (sentAt == 0) {
        sentAt = event.at;
      }
      switch (event.type) {
        case "received" -> {
          receives = Math.max(receives + 1, event.receive_count == null ? 0 : event.receive_count);
          heldSince = event.at;
          heldUntil = event.invisible_until == null ? event.at + 30_000 : event.invisible_until;
        }
        case "extended" -> heldUntil = event.invisible_until == null ? heldUntil : event.invisible_until;
        case "released" -> heldSince = heldUntil = 0;
        case "deleted", "dead_lettered", "expired", "dropped", "redriven" -> ended = true;
        default -> { }
      }
    }

    public long getSentAt() { return sentAt; }
    public void setSentAt(long value) { sentAt = value; }
    public int getReceives() { return receives; }
    public void setReceives(int value) { receives = value; }
    public long getHeldSince() { return heldSince; }
    public void setHeldSince(long value) { heldSince = value; }
    public long getHeldUntil() { return heldUntil; }
    public void setHeldUntil(long value) { heldUntil = value; }
    public boolean isEnded() { return ended; }
    public void setEnded(boolean value) { ended = value; }
  }

  /** What is reported of one message after a batch. */
  public static final class Signals implements Serializable {
    private String queue;
    private long ageMs;
    private boolean poison;
    private boolean held;
    private boolean ended;

    public String getQueue() { return queue; }
    public void setQueue(String value) { queue = value; }
    public long getAgeMs() { return ageMs; }
    public void setAgeMs(long value) { ageMs = value; }
    public boolean isPoison() { return poison; }
    public void setPoison(boolean value) { poison = value; }
    public boolean isHeld() { return held; }
    public void setHeld(boolean value) { held = value; }
    public boolean isEnded() { return ended; }
    public void setEnded(boolean value) { ended = value; }
  }
}
