import static org.apache.spark.sql.functions.array;
import static org.apache.spark.sql.functions.col;
import static org.apache.spark.sql.functions.explode;
import static org.apache.spark.sql.functions.when;

import java.io.Serializable;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.spark.api.java.function.FlatMapGroupsWithStateFunction;
import org.apache.spark.api.java.function.MapFunction;
import org.apache.spark.api.java.function.VoidFunction2;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Encoder;
import org.apache.spark.sql.Encoders;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.streaming.GroupState;
import org.apache.spark.sql.streaming.GroupStateTimeout;
import org.apache.spark.sql.streaming.OutputMode;
import org.apache.spark.sql.streaming.StreamingQuery;
import org.apache.spark.sql.streaming.Trigger;

/**
 * The service's core signals with what Spark offers by itself: flatMapGroupsWithState per message, and per queue or FIFO group.
 *
 * <p>The first keeps one state per message and tells how it changed: by an event, or by a timeout when its visibility window ends or
 * it has been held too long. The second keeps what is live in a queue (in a group of an ordered one), sorted by time, because the
 * oldest message of a queue is known in every batch, whether an event came of it or not. Published are, per batch: ages of the oldest
 * message in four scopes, messages by state, totals by kind, poison messages, dead-letter arrivals and messages held too long by id,
 * groups stuck behind their first message, queues nobody receives from. Repeated and late events are not distinguished.
 *
 * <p>Arguments: bootstrap, topic, checkpoint, records per trigger, parallelism, state store, records in the topic.
 */
public final class PerMessageAndQueue {
  private static final long HELD_MS = 900_000;
  private static final long LATENESS_MS = 600_000;
  private static final long STUCK_MS = 300_000;
  private static final int POISON_RECEIVES = 3;
  private static final int SCOPES = 4;
  /** What was last said of each queue or group. A restart would have to read it back; here it is only in memory. */
  private static final Map<String, Standing> LATEST = new HashMap<>();

  public static void main(String[] args) throws Exception {
    SparkSession spark = Baseline.session("per message and queue", args[4], args[5]);
    Dataset<Event> events =
        Baseline.events(spark, args[0], args[1], args[3], Encoders.bean(Event.class).schema())
            .filter(col("message_id").isNotNull())
            // A move is heard of in both queues.
            .withColumn("place", explode(when(col("to_queue").isNull(), array(col("queue"))).otherwise(array(col("queue"), col("to_queue")))))
            .as(Encoders.bean(Event.class));
    Dataset<Change> changes =
        events
            .groupByKey(
                (MapFunction<Event, String>) e -> e.system + '\0' + e.scope + '\0' + e.place + '\0' + e.idThere(),
                Encoders.STRING())
            .flatMapGroupsWithState(
                new Follow(),
                OutputMode.Append(),
                Encoders.bean(Message.class),
                Encoders.bean(Change.class),
                GroupStateTimeout.ProcessingTimeTimeout());
    Encoder<Line> line = Encoders.kryo(Line.class);
    Dataset<Standing> standings =
        changes
            .groupByKey((MapFunction<Change, String>) c -> c.group == null ? c.queue : c.queue + '\0' + c.group, Encoders.STRING())
            .flatMapGroupsWithState(
                new Gather(), OutputMode.Append(), line, Encoders.bean(Standing.class), GroupStateTimeout.NoTimeout());
    StreamingQuery query =
        standings
            .writeStream()
            .outputMode("append")
            .option("checkpointLocation", args[2])
            .trigger(Trigger.ProcessingTime(0))
            .foreachBatch((VoidFunction2<Dataset<Standing>, Long>) PerMessageAndQueue::publish)
            .start();
    Baseline.runUntil(query, Long.parseLong(args[6]));
  }

  /** Ages go on though nothing is heard: every queue's are computed from what was last said of it. */
  private static void publish(Dataset<Standing> changed, Long batch) {
    long now = System.currentTimeMillis();
    for (Standing standing : changed.collectAsList()) {
      Standing before = LATEST.put(standing.key, standing);
      standing.addTotals(before);
    }
    Map<String, long[]> ages = new HashMap<>();
    int signals = 0;
    int stuck = 0;
    int stalled = 0;
    for (Standing standing : LATEST.values()) {
      long[] oldest = ages.computeIfAbsent(standing.queue(), queue -> new long[SCOPES]);
      long[] since = {standing.oldest, standing.oldestVisible, standing.oldestCloudWatch, standing.oldestNotPoison};
      for (int scope = 0; scope < SCOPES; scope++) {
        oldest[scope] = Math.max(oldest[scope], since[scope] == 0 ? 0 : now - since[scope]);
      }
      signals += standing.signals.size();
      standing.signals = new ArrayList<>();
      stuck += standing.live > 1 && standing.headReceives > 1 && now - standing.oldest > STUCK_MS ? 1 : 0;
      stalled += standing.visible > 0 && now - standing.lastReceivedAt > STUCK_MS ? 1 : 0;
    }
    System.out.println("SIGNALS " + batch + " " + ages.size() + " " + signals + " " + stuck + " " + stalled);
  }

  /** Follows one message. */
  private static final class Follow implements FlatMapGroupsWithStateFunction<String, Event, Message, Change> {
    @Override
    public Iterator<Change> call(String key, Iterator<Event> events, GroupState<Message> state) {
      Message message = state.exists() ? state.get() : new Message();
      long now = System.currentTimeMillis();
      if (state.hasTimedOut() && message.ended) {
        state.remove();
        return List.<Change>of().iterator();
      }
      String[] parts = key.split("\0", 4);
      Change change = new Change();
      change.queue = parts[2];
      change.id = parts[3];
      List<Event> ordered = new ArrayList<>();
      events.forEachRemaining(ordered::add);
      ordered.sort(Comparator.comparingLong(e -> e.at));
      for (Event event : ordered) {
        message.apply(event, change);
      }
      change.group = message.group;
      change.before = message.reported;
      change.after = message.standing(now);
      change.receives = message.receives;
      message.reported = change.after;
      message.tell(change, now);
      state.update(message);
      long next = message.ended ? now + LATENESS_MS : message.nextChange(now);
      if (next > 0) {
        state.setTimeoutDuration(Math.max(1, next - now));
      }
      return List.of(change).iterator();
    }
  }

  /** Keeps what is live in one queue, or one group of an ordered one. */
  private static final class Gather implements FlatMapGroupsWithStateFunction<String, Change, Line, Standing> {
    @Override
    public Iterator<Standing> call(String key, Iterator<Change> changes, GroupState<Line> state) {
      Line line = state.exists() ? state.get() : new Line();
      Standing standing = new Standing();
      standing.key = key;
      while (changes.hasNext()) {
        Change change = changes.next();
        line.replace(change);
        standing.sent += change.sent;
        standing.received += change.received;
        standing.deleted += change.deleted;
        standing.lastReceivedAt = Math.max(standing.lastReceivedAt, change.receivedAt);
        standing.signals.addAll(change.signals);
      }
      if (line.isEmpty()) {
        state.remove();
      } else {
        state.update(line);
      }
      line.say(standing);
      return List.of(standing).iterator();
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
    private String group;
    private String to_queue;
    private String new_message_id;
    private Long sent_at;
    private Integer receive_count;
    private Long invisible_until;
    private String place;

    /** The id in the queue this copy of the event is for. */
    String idThere() {
      return arrives() && new_message_id != null ? new_message_id : message_id;
    }

    boolean arrives() {
      return !place.equals(queue);
    }

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
    public String getGroup() { return group; }
    public void setGroup(String value) { group = value; }
    public String getTo_queue() { return to_queue; }
    public void setTo_queue(String value) { to_queue = value; }
    public String getNew_message_id() { return new_message_id; }
    public void setNew_message_id(String value) { new_message_id = value; }
    public Long getSent_at() { return sent_at; }
    public void setSent_at(Long value) { sent_at = value; }
    public Integer getReceive_count() { return receive_count; }
    public void setReceive_count(Integer value) { receive_count = value; }
    public Long getInvisible_until() { return invisible_until; }
    public void setInvisible_until(Long value) { invisible_until = value; }
    public String getPlace() { return place; }
    public void setPlace(String value) { place = value; }
  }

  /** Where a message stands in each scope: the time its age counts from, 0 where it is in none. */
  public static final class Place implements Serializable {
    private long live;
    private long visible;
    private long cloudWatch;
    private long notPoison;

    public long getLive() { return live; }
    public void setLive(long value) { live = value; }
    public long getVisible() { return visible; }
    public void setVisible(long value) { visible = value; }
    public long getCloudWatch() { return cloudWatch; }
    public void setCloudWatch(long value) { cloudWatch = value; }
    public long getNotPoison() { return notPoison; }
    public void setNotPoison(long value) { notPoison = value; }
  }

  /** The state of one message. */
  public static final class Message implements Serializable {
    private String group;
    private long sentAt;
    private int receives;
    private long heldSince;
    private long heldUntil;
    private long restartAt;
    private boolean ended;
    private boolean poisonTold;
    private boolean heldTold;
    private Place reported = new Place();

    void apply(Event event, Change change) {
      if (event.arrives()) {
        sentAt = event.sent_at != null ? event.sent_at : event.at;
        ended = false;
        change.signals.add(event.type.equals("dead_lettered") ? "DeadLetterArrived" : "Redriven");
        return;
      }
      group = event.group != null ? event.group : group;
      if (event.sent_at != null) {
        sentAt = event.sent_at;
      } else if (sentAt == 0) {
        sentAt = event.at;
      }
      switch (event.type) {
        case "sent" -> change.sent++;
        case "received" -> {
          receives = Math.max(receives + 1, event.receive_count == null ? 0 : event.receive_count);
          heldSince = event.at;
          heldUntil = event.invisible_until == null ? event.at + 30_000 : event.invisible_until;
          restartAt = receives % 3 == 0 ? heldUntil : restartAt;
          change.received++;
          change.receivedAt = Math.max(change.receivedAt, event.at);
        }
        case "extended" -> heldUntil = event.invisible_until == null ? heldUntil : event.invisible_until;
        case "released" -> heldSince = heldUntil = 0;
        case "deleted", "dead_lettered", "expired", "dropped", "redriven" -> {
          ended = true;
          change.deleted += event.type.equals("deleted") ? 1 : 0;
        }
        default -> { }
      }
    }

    Place standing(long now) {
      Place place = new Place();
      if (!ended) {
        place.live = sentAt;
        place.visible = heldUntil > now ? 0 : sentAt;
        place.cloudWatch = restartAt > 0 && restartAt <= now ? restartAt : sentAt;
        place.notPoison = receives < POISON_RECEIVES ? sentAt : 0;
      }
      return place;
    }

    void tell(Change change, long now) {
      if (!ended && receives >= POISON_RECEIVES && !poisonTold) {
        poisonTold = true;
        change.signals.add("PoisonMessage " + change.id);
      }
      if (!ended && heldUntil > now && now - heldSince > HELD_MS && !heldTold) {
        heldTold = true;
        change.signals.add("MessageHeldTooLong " + change.id);
      }
    }

    /** When something will be different without an event; 0: never. */
    long nextChange(long now) {
      if (heldUntil <= now) {
        return 0;
      }
      return heldTold || heldSince + HELD_MS > heldUntil ? heldUntil : heldSince + HELD_MS;
    }

    public String getGroup() { return group; }
    public void setGroup(String value) { group = value; }
    public long getSentAt() { return sentAt; }
    public void setSentAt(long value) { sentAt = value; }
    public int getReceives() { return receives; }
    public void setReceives(int value) { receives = value; }
    public long getHeldSince() { return heldSince; }
    public void setHeldSince(long value) { heldSince = value; }
    public long getHeldUntil() { return heldUntil; }
    public void setHeldUntil(long value) { heldUntil = value; }
    public long getRestartAt() { return restartAt; }
    public void setRestartAt(long value) { restartAt = value; }
    public boolean isEnded() { return ended; }
    public void setEnded(boolean value) { ended = value; }
    public boolean isPoisonTold() { return poisonTold; }
    public void setPoisonTold(boolean value) { poisonTold = value; }
    public boolean isHeldTold() { return heldTold; }
    public void setHeldTold(boolean value) { heldTold = value; }
    public Place getReported() { return reported; }
    public void setReported(Place value) { reported = value; }
  }

  /** How a message changed in a batch. */
  public static final class Change implements Serializable {
    private String queue;
    private String group;
    private String id;
    private Place before = new Place();
    private Place after = new Place();
    private int receives;
    private int sent;
    private int received;
    private int deleted;
    private long receivedAt;
    private List<String> signals = new ArrayList<>();

    public String getQueue() { return queue; }
    public void setQueue(String value) { queue = value; }
    public String getGroup() { return group; }
    public void setGroup(String value) { group = value; }
    public String getId() { return id; }
    public void setId(String value) { id = value; }
    public Place getBefore() { return before; }
    public void setBefore(Place value) { before = value; }
    public Place getAfter() { return after; }
    public void setAfter(Place value) { after = value; }
    public int getReceives() { return receives; }
    public void setReceives(int value) { receives = value; }
    public int getSent() { return sent; }
    public void setSent(int value) { sent = value; }
    public int getReceived() { return received; }
    public void setReceived(int value) { received = value; }
    public int getDeleted() { return deleted; }
    public void setDeleted(int value) { deleted = value; }
    public long getReceivedAt() { return receivedAt; }
    public void setReceivedAt(long value) { receivedAt = value; }
    public List<String> getSignals() { return signals; }
    public void setSignals(List<String> value) { signals = value; }
  }

  /** What is live in one queue or group: in each scope, how many messages count from each millisecond. */
  public static final class Line implements Serializable {
    private final List<TreeMap<Long, Integer>> scopes = new ArrayList<>();
    private final long[] counts = new long[SCOPES];
    private final TreeMap<Long, Integer> receives = new TreeMap<>();

    public Line() {
      for (int scope = 0; scope < SCOPES; scope++) {
        scopes.add(new TreeMap<>());
      }
    }

    void replace(Change change) {
      move(0, change.before.live, change.after.live);
      move(1, change.before.visible, change.after.visible);
      move(2, change.before.cloudWatch, change.after.cloudWatch);
      move(3, change.before.notPoison, change.after.notPoison);
      if (change.group != null) {
        receives.remove(change.before.live);
        if (change.after.live > 0) {
          receives.put(change.after.live, change.receives);
        }
      }
    }

    private void move(int scope, long before, long after) {
      if (before == after) {
        return;
      }
      TreeMap<Long, Integer> times = scopes.get(scope);
      if (before > 0) {
        times.merge(before, -1, (a, b) -> a + b == 0 ? null : a + b);
        counts[scope]--;
      }
      if (after > 0) {
        times.merge(after, 1, Integer::sum);
        counts[scope]++;
      }
    }

    boolean isEmpty() {
      return scopes.get(0).isEmpty();
    }

    void say(Standing standing) {
      standing.oldest = first(0);
      standing.oldestVisible = first(1);
      standing.oldestCloudWatch = first(2);
      standing.oldestNotPoison = first(3);
      standing.live = counts[0];
      standing.visible = counts[1];
      standing.poison = counts[0] - counts[3];
      standing.headReceives = receives.isEmpty() ? 0 : receives.firstEntry().getValue();
    }

    private long first(int scope) {
      return scopes.get(scope).isEmpty() ? 0 : scopes.get(scope).firstKey();
    }
  }

  /** What is reported of a queue or group after a batch in which it changed. */
  public static final class Standing implements Serializable {
    private String key;
    private long oldest;
    private long oldestVisible;
    private long oldestCloudWatch;
    private long oldestNotPoison;
    private long live;
    private long visible;
    private long poison;
    private int headReceives;
    private long lastReceivedAt;
    private long sent;
    private long received;
    private long deleted;
    private List<String> signals = new ArrayList<>();

    String queue() {
      int end = key.indexOf('\0');
      return end < 0 ? key : key.substring(0, end);
    }

    void addTotals(Standing before) {
      if (before != null) {
        sent += before.sent;
        received += before.received;
        deleted += before.deleted;
        lastReceivedAt = Math.max(lastReceivedAt, before.lastReceivedAt);
      }
    }

    public String getKey() { return key; }
    public void setKey(String value) { key = value; }
    public long getOldest() { return oldest; }
    public void setOldest(long value) { oldest = value; }
    public long getOldestVisible() { return oldestVisible; }
    public void setOldestVisible(long value) { oldestVisible = value; }
    public long getOldestCloudWatch() { return oldestCloudWatch; }
    public void setOldestCloudWatch(long value) { oldestCloudWatch = value; }
    public long getOldestNotPoison() { return oldestNotPoison; }
    public void setOldestNotPoison(long value) { oldestNotPoison = value; }
    public long getLive() { return live; }
    public void setLive(long value) { live = value; }
    public long getVisible() { return visible; }
    public void setVisible(long value) { visible = value; }
    public long getPoison() { return poison; }
    public void setPoison(long value) { poison = value; }
    public int getHeadReceives() { return headReceives; }
    public void setHeadReceives(int value) { headReceives = value; }
    public long getLastReceivedAt() { return lastReceivedAt; }
    public void setLastReceivedAt(long value) { lastReceivedAt = value; }
    public long getSent() { return sent; }
    public void setSent(long value) { sent = value; }
    public long getReceived() { return received; }
    public void setReceived(long value) { received = value; }
    public long getDeleted() { return deleted; }
    public void setDeleted(long value) { deleted = value; }
    public List<String> getSignals() { return signals; }
    public void setSignals(List<String> value) { signals = value; }
  }
}
