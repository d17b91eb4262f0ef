import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.LongDeserializer;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Produced;

/**
 * Counts words with Kafka Streams: `java WordCount.java host:port directory`.
 *
 * The counts live in a table whose changelog is a topic of the broker. Halfway the application is closed and begun anew
 * in an empty directory, so that it has to restore the table from there. What it has counted is printed at the end.
 */
public class WordCount {
    private static final List<String> FIRST = List.of("all streams lead to kafka", "hello kafka streams");
    private static final List<String> SECOND = List.of("join kafka summit", "hello again");
    private static final Map<String, Long> WANTED = new TreeMap<>(Map.of(
        "all", 1L, "streams", 2L, "lead", 1L, "to", 1L, "kafka", 3L, "hello", 2L, "join", 1L, "summit", 1L, "again", 1L));

    public static void main(String[] arguments) throws Exception {
        String address = arguments[0];
        Path directory = Path.of(arguments[1]);
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", address))) {
            List<NewTopic> topics = List.of(new NewTopic("lines", 2, (short) 1), new NewTopic("counts", 1, (short) 1));
            admin.createTopics(topics).all().get(30, TimeUnit.SECONDS);
            run(address, directory.resolve("one"), FIRST, false);
            Map<String, Long> found = run(address, directory.resolve("two"), SECOND, true);
            System.out.println("topics " + new ArrayList<>(new java.util.TreeSet<>(admin.listTopics().names().get())));
            System.out.println("counts " + found);
        }
    }

    private static Map<String, Long> run(String address, Path state, List<String> lines, boolean last) throws Exception {
        StreamsBuilder builder = new StreamsBuilder();
        builder.<String, String>stream("lines")
            .flatMapValues(line -> Arrays.asList(line.split(" ")))
            .groupBy((key, word) -> word)
            .count()
            .toStream()
            .to("counts", Produced.with(Serdes.String(), Serdes.Long()));
        Properties settings = new Properties();
        settings.put("application.id", "wordcount");
        settings.put("bootstrap.servers", address);
        settings.put("state.dir", state.toString());
        settings.put("default.key.serde", Serdes.String().getClass().getName());
        settings.put("default.value.serde", Serdes.String().getClass().getName());
        settings.put("commit.interval.ms", "200");
        settings.put("auto.offset.reset", "earliest");
        settings.put("replication.factor", "1");
        // An application that is closed does not leave its group: the next one waits for the end of its session.
        settings.put("session.timeout.ms", "2000");
        settings.put("heartbeat.interval.ms", "500");
        try (KafkaStreams streams = new KafkaStreams(builder.build(), settings)) {
            streams.setUncaughtExceptionHandler(error -> {
                error.printStackTrace();
                System.exit(3);
                return null;
            });
            streams.start();
            produce(address, lines);
            long words = FIRST.stream().mapToLong(line -> line.split(" ").length).sum();
            if (last) {
                words = WANTED.values().stream().mapToLong(Long::longValue).sum();
            }
            return counted(address, words);
        }
    }

    private static void produce(String address, List<String> lines) throws Exception {
        Map<String, Object> settings = Map.of("bootstrap.servers", address);
        try (var producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            for (String line : lines) {
                producer.send(new ProducerRecord<>("lines", line)).get(30, TimeUnit.SECONDS);
            }
        }
    }

    /** The latest count of each word, once they come to so many words. */
    private static Map<String, Long> counted(String address, long words) {
        Map<String, Object> settings = Map.of(
            "bootstrap.servers", address, "group.id", "reader-" + words, "auto.offset.reset", "earliest");
        Map<String, Long> found = new TreeMap<>();
        long deadline = System.nanoTime() + Duration.ofSeconds(60).toNanos();
        try (var consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new LongDeserializer())) {
            consumer.subscribe(Set.of("counts"));
            while (found.values().stream().mapToLong(Long::longValue).sum() < words) {
                if (System.nanoTime() > deadline) {
                    throw new IllegalStateException("counted only " + found);
                }
                for (ConsumerRecord<String, Long> record : consumer.poll(Duration.ofMillis(200))) {
                    found.put(record.key(), record.value());
                }
            }
        }
        return found;
    }
}
