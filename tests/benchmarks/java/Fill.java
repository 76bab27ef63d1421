import java.io.BufferedInputStream;
import java.io.DataInputStream;
import java.io.EOFException;
import java.util.Properties;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Sends records to a topic as fast as the broker takes them.
 *
 * <p>Arguments: bootstrap, topic, partitions. Standard input: per record a big-endian length and the value's bytes.
 * Records go to the partitions in turn, so that each holds its share of every moment. Prints the number sent.
 */
public final class Fill {
  public static void main(String[] args) throws Exception {
    Properties settings = new Properties();
    settings.put("bootstrap.servers", args[0]);
    settings.put("linger.ms", "20");
    settings.put("batch.size", "262144");
    settings.put("buffer.memory", "67108864");
    settings.put("max.request.size", "8388608");
    int partitions = Integer.parseInt(args[2]);
    long sent = 0;
    Exception[] failure = new Exception[1];
    DataInputStream in = new DataInputStream(new BufferedInputStream(System.in, 1 << 20));
    try (KafkaProducer<byte[], byte[]> producer =
        new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer())) {
      while (true) {
        int length;
        try {
          length = in.readInt();
        } catch (EOFException end) {
          break;
        }
        byte[] value = in.readNBytes(length);
        int partition = (int) (sent++ % partitions);
        producer.send(
            new ProducerRecord<>(args[1], partition, null, value),
            (metadata, error) -> {
              if (error != null) {
                failure[0] = error;
              }
            });
      }
    }
    if (failure[0] != null) {
      throw failure[0];
    }
    System.out.println(sent);
  }
}
