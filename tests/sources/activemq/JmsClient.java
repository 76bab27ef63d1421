import jakarta.jms.Connection;
import jakarta.jms.DeliveryMode;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Session;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.concurrent.CountDownLatch;
import javax.management.ObjectName;
import javax.management.remote.JMXConnector;
import javax.management.remote.JMXConnectorFactory;
import javax.management.remote.JMXServiceURL;
import org.apache.activemq.ActiveMQConnectionFactory;
import org.apache.activemq.RedeliveryPolicy;

/** Does on a broker what a STOMP client cannot. Reads "action queue" lines, answers "done" or "failed ..." to each. */
public class JmsClient {
    private static String url;
    private static String jmxPort;
    private static String brokerName;

    public static void main(String[] arguments) throws Exception {
        url = arguments[0];
        jmxPort = arguments[1];
        brokerName = arguments[2];
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        System.out.println("ready");
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] words = line.split(" ");
            try {
                act(words);
                System.out.println("done");
            } catch (Exception error) {
                System.out.println("failed " + error);
            }
        }
        System.exit(0);
    }

    private static void act(String[] words) throws Exception {
        String queue = words[1];
        switch (words[0]) {
            case "send" -> send(queue, 1);
            case "send2" -> send(queue, 2);
            case "rollback" -> tryThreeTimes(queue, true, Session.SESSION_TRANSACTED);
            case "recover" -> tryThreeTimes(queue, false, Session.CLIENT_ACKNOWLEDGE);
            case "commit" -> transact(queue, true);
            case "close_uncommitted" -> transact(queue, false);
            case "read_one_of_two" -> readOneOfTwo(queue);
            case "exclusive" -> exclusive(queue);
            case "load" -> load(queue, Integer.parseInt(words[2]), Integer.parseInt(words[3]));
            case "rollback_loop" -> new Thread(() -> loop(queue, true)).start();
            case "recover_loop" -> new Thread(() -> loop(queue, false)).start();
            case "purge" -> manage(queue, "purge");
            case "move" -> manage(queue, "moveMatchingMessagesTo", "1=1", queue + ".moved");
            case "copy" -> manage(queue, "copyMatchingMessagesTo", "1=1", queue + ".copied");
            case "retry" -> manage(queue, "retryMessages");
            default -> throw new IllegalArgumentException(words[0]);
        }
    }

    private static Connection connect() throws Exception {
        ActiveMQConnectionFactory factory = new ActiveMQConnectionFactory(url);
        RedeliveryPolicy policy = new RedeliveryPolicy();
        policy.setMaximumRedeliveries(2);
        policy.setInitialRedeliveryDelay(100);
        policy.setRedeliveryDelay(100);
        factory.setRedeliveryPolicy(policy);
        Connection connection = factory.createConnection();
        connection.start();
        return connection;
    }

    private static void send(String queue, int messages) throws Exception {
        Connection connection = connect();
        Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
        MessageProducer producer = session.createProducer(session.createQueue(queue));
        for (int i = 0; i < messages; i++) {
            producer.send(session.createTextMessage("message " + i));
        }
        connection.close();
    }

    /** Fails a message until the client's redelivery policy gives it up. */
    private static void tryThreeTimes(String queue, boolean transacted, int mode) throws Exception {
        Connection connection = connect();
        Session session = connection.createSession(transacted, mode);
        MessageConsumer consumer = session.createConsumer(session.createQueue(queue));
        while (consumer.receive(1500) != null) {
            if (transacted) {
                session.rollback();
            } else {
                session.recover();
            }
        }
        connection.close();
    }

    /** Fails a message for ever, ten times a second. */
    private static void loop(String queue, boolean transacted) {
        try {
            ActiveMQConnectionFactory factory = new ActiveMQConnectionFactory(url);
            RedeliveryPolicy policy = new RedeliveryPolicy();
            policy.setMaximumRedeliveries(RedeliveryPolicy.NO_MAXIMUM_REDELIVERIES);
            policy.setInitialRedeliveryDelay(100);
            policy.setRedeliveryDelay(100);
            factory.setRedeliveryPolicy(policy);
            Connection connection = factory.createConnection();
            connection.start();
            int mode = transacted ? Session.SESSION_TRANSACTED : Session.CLIENT_ACKNOWLEDGE;
            Session session = connection.createSession(transacted, mode);
            MessageConsumer consumer = session.createConsumer(session.createQueue(queue));
            while (consumer.receive() != null) {
                if (transacted) {
                    session.rollback();
                } else {
                    session.recover();
                }
            }
        } catch (Exception ended) {
            // The broker closed the consumer: that is what is being looked for.
        }
    }

    private static void transact(String queue, boolean commit) throws Exception {
        Connection connection = connect();
        Session session = connection.createSession(true, Session.SESSION_TRANSACTED);
        MessageConsumer consumer = session.createConsumer(session.createQueue(queue));
        consumer.receive(2000);
        Thread.sleep(200);
        if (commit) {
            session.commit();
        }
        connection.close();
    }

    private static void readOneOfTwo(String queue) throws Exception {
        Connection connection = connect();
        Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
        MessageConsumer consumer = session.createConsumer(session.createQueue(queue));
        consumer.receive(2000);
        Thread.sleep(200);
        connection.close();
    }

    private static void exclusive(String queue) throws Exception {
        Connection connection = connect();
        Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
        String destination = queue + "?consumer.exclusive=true&consumer.prefetchSize=1";
        MessageConsumer consumer = session.createConsumer(session.createQueue(destination));
        consumer.receive(2000);
        Thread.sleep(200);
        connection.close();
    }

    /** Lets messages through a queue, at a rate per second or, with 0, as fast as it goes. */
    private static void load(String queue, int messages, int rate) throws Exception {
        CountDownLatch left = new CountDownLatch(messages);
        Connection consuming = connect();
        Session inbound = consuming.createSession(false, Session.AUTO_ACKNOWLEDGE);
        inbound.createConsumer(inbound.createQueue(queue)).setMessageListener(message -> left.countDown());
        Connection producing = connect();
        Session outbound = producing.createSession(false, Session.AUTO_ACKNOWLEDGE);
        MessageProducer producer = outbound.createProducer(outbound.createQueue(queue));
        producer.setDeliveryMode(DeliveryMode.NON_PERSISTENT);
        long started = System.nanoTime();
        for (int i = 0; i < messages; i++) {
            producer.send(outbound.createTextMessage("message " + i));
            if (rate > 0 && i % 20 == 0) {
                long due = started + i * 1_000_000_000L / rate;
                Thread.sleep(Math.max(0, (due - System.nanoTime()) / 1_000_000));
            }
        }
        left.await();
        producing.close();
        consuming.close();
    }

    private static void manage(String queue, String operation, String... arguments) throws Exception {
        String service = "service:jmx:rmi:///jndi/rmi://127.0.0.1:" + jmxPort + "/jmxrmi";
        String[] types = new String[arguments.length];
        java.util.Arrays.fill(types, "java.lang.String");
        ObjectName name = new ObjectName(
                "org.apache.activemq:type=Broker,brokerName=" + brokerName
                        + ",destinationType=Queue,destinationName=" + queue);
        try (JMXConnector connector = JMXConnectorFactory.connect(new JMXServiceURL(service))) {
            connector.getMBeanServerConnection().invoke(name, operation, arguments, types);
        }
    }
}
