import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.lang.reflect.Field;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.ExecutionException;
import java.util.stream.Stream;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.ApiException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.utils.ProducerIdAndEpoch;
import org.apache.kafka.common.utils.Utils;

/**
 * Competes for a role as another implementation of the wire format would: it knows no terms, looks at no header, takes the
 * newest lease record for the lease, and gives up the whole partition, with exit code 3, at the first record that the
 * format does not allow.
 *
 * <p>Kafka's own Java client speaks EndTxn version 5 to brokers with transaction.version=2 (KIP-890), so the epoch of this
 * member rises with each commit.
 */
public final class ForeignMember {
  private static final int EXIT_MALFORMED = 3;
  private static final Duration POLL = Duration.ofMillis(20);
  private static final int PATIENCE_MS = 10_000;

  record Registration(long offset, long registeredAtMs) {}

  private final String role;
  private final String member;
  private final long leaseMs;
  private final long renewMs;
  private final long staggerMs;
  private final String bootstrap;
  private final TopicPartition partition;
  private final KafkaConsumer<byte[], byte[]> consumer;
  private final ConcurrentLinkedQueue<String> commands = new ConcurrentLinkedQueue<>();
  private final Map<String, Integer> decoded = new LinkedHashMap<>();

  /** In the order of the offsets: a member that registers again is taken out and put in at the end. */
  private final LinkedHashMap<String, Registration> roster = new LinkedHashMap<>();

  private Lease lease;
  private boolean competing;
  private boolean leading;
  private KafkaProducer<byte[], byte[]> producer;
  private long ownOffset = -1;
  private long renewAtMs;

  private ForeignMember(String[] args) {
    bootstrap = args[1];
    String topic = args[2];
    role = args[3];
    member = args[4];
    leaseMs = Long.parseLong(args[5]);
    renewMs = Long.parseLong(args[6]);
    staggerMs = Long.parseLong(args[7]);
    competing = args[0].equals("member");
    consumer = new KafkaConsumer<>(Map.of(
        "bootstrap.servers", bootstrap,
        "isolation.level", "read_committed",
        "auto.offset.reset", "earliest",
        "enable.auto.commit", false,
        // A question about the log's end waits behind the long poll of the same connection.
        "fetch.max.wait.ms", 20,
        "allow.auto.create.topics", false),
        new ByteArrayDeserializer(), new ByteArrayDeserializer());
    int count = consumer.partitionsFor(topic).size();
    byte[] name = role.getBytes(StandardCharsets.UTF_8);
    partition = new TopicPartition(topic, Utils.toPositive(Utils.murmur2(name)) % count);
  }

  public static void main(String[] args) throws Exception {
    try {
      if (args[0].equals("decode")) decodeLines();
      else new ForeignMember(args).run();
    } catch (Malformed malformed) {
      System.err.println("Gave up the partition: " + malformed.getMessage());
      Runtime.getRuntime().halt(EXIT_MALFORMED);
    } catch (Throwable failure) {
      failure.printStackTrace();
      Runtime.getRuntime().halt(1);
    }
  }

  /** Each line of the input is a key and a value, in hex or as {@code null}; each line of the output says what came of it. */
  private static void decodeLines() throws IOException {
    for (String line : (Iterable<String>) lines().lines()::iterator) {
      String[] pair = line.split(" ", -1);
      try {
        Entry entry = StrictFormat.decode(fromHex(pair[0]), fromHex(pair[1]));
        boolean writesTheSame = Arrays.equals(StrictFormat.key(entry), fromHex(pair[0]))
            && Arrays.equals(StrictFormat.value(entry), fromHex(pair[1]));
        emit("decoded", "writesTheSame", writesTheSame);
      } catch (Malformed malformed) {
        emit("malformed", "why", malformed.getMessage());
      }
    }
  }

  private static byte[] fromHex(String hex) {
    return hex.equals("null") ? null : HexFormat.of().parseHex(hex);
  }

  private static BufferedReader lines() {
    return new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
  }

  private void run() throws Exception {
    Thread input = new Thread(this::takeCommands);
    input.setDaemon(true);
    input.start();
    consumer.assign(Set.of(partition));
    consumer.seekToBeginning(Set.of(partition));
    catchUp();
    if (competing) register();
    for (;;) {
      poll();
      for (String command = commands.poll(); command != null; command = commands.poll()) execute(command);
      if (leading) renewWhenDue();
      else if (competing) compete();
    }
  }

  /** The input is a pipe that the parent holds; the kernel closes it however the parent ends. */
  private void takeCommands() {
    try (BufferedReader input = lines()) {
      for (String line = input.readLine(); line != null; line = input.readLine()) commands.add(line);
    } catch (IOException gone) {
      // As good as its end.
    }
    Runtime.getRuntime().halt(0);
  }

  private void execute(String command) throws Exception {
    String[] words = command.split(" ", 3);
    switch (words[0]) {
      case "write" -> {
        if (leading) write("write", words[1], words[2]);
        else emit("refused", "during", "write", "exception", "NotLeading");
      }
      case "stale-write" -> write("stale-write", words[1], words[2]);
      case "resign" -> resign();
      case "silence" -> {
        leading = false;
        competing = false;
        emit("silent");
      }
      case "compete" -> {
        competing = true;
        register();
      }
      case "report" -> {
        catchUp();
        emit("report", decoded.entrySet().stream().flatMap(e -> Stream.of(e.getKey(), e.getValue())).toArray());
      }
      case "quit" -> Runtime.getRuntime().halt(0);
      default -> throw new IllegalArgumentException("unknown command: " + command);
    }
  }

  // Reading

  private void poll() {
    for (ConsumerRecord<byte[], byte[]> record : consumer.poll(POLL)) {
      try {
        fold(record.offset(), StrictFormat.decode(record.key(), record.value()));
      } catch (Malformed malformed) {
        throw new Malformed("offset " + record.offset() + ": " + malformed.getMessage());
      }
    }
  }

  /** Until the last stable offset of now. */
  private void catchUp() {
    long end = consumer.endOffsets(Set.of(partition)).get(partition);
    while (consumer.position(partition) < end) poll();
  }

  private void fold(long offset, Entry entry) {
    String kind = (entry.isLease() ? "lease" : "registration") + (entry.isTombstone() ? "Tombstones" : "s");
    decoded.merge(kind, 1, Integer::sum);
    if (!entry.role().equals(role)) return;
    if (!entry.isLease()) {
      roster.remove(entry.member());
      if (entry.registeredAtMs() != null) roster.put(entry.member(), new Registration(offset, entry.registeredAtMs()));
      return;
    }
    lease = entry.lease();
    if (lease == null || lease.member().equals(member)) return;
    emit("follows", "member", lease.member(), "producerId", lease.producerId(), "epoch", lease.epoch(), "offset", offset);
    if (leading && offset > ownOffset) lose("superseded by " + lease.member());
  }

  // Succession

  private void compete() throws Exception {
    if (!roster.containsKey(member)) register();
    if (!isTurn()) return;
    // The mint rests on a state that was read just before.
    catchUp();
    if (roster.containsKey(member) && isTurn()) takeOver();
  }

  private boolean isTurn() {
    long nowMs = System.currentTimeMillis();
    if (lease != null && lease.member().equals(member)) return true;
    long rank = roster.keySet().stream()
        .filter(other -> lease == null || !other.equals(lease.member()))
        .takeWhile(other -> !other.equals(member))
        .count();
    long anchorMs = lease == null ? roster.get(member).registeredAtMs() : lease.deadlineMs();
    return (lease == null && rank == 0) || nowMs >= anchorMs + rank * staggerMs;
  }

  // Writing

  private void register() throws Exception {
    try (KafkaProducer<byte[], byte[]> ordinary = newProducer(Map.of())) {
      Entry entry = new Entry(false, role, member, System.currentTimeMillis(), null);
      RecordMetadata at = ordinary.send(recordOf(entry)).get();
      emit("registered", "offset", at.offset());
    }
    while (!roster.containsKey(member)) catchUp();
  }

  private void takeOver() throws Exception {
    if (producer != null) producer.close(Duration.ZERO);
    producer = newProducer(Map.of("transactional.id", role, "transaction.timeout.ms", PATIENCE_MS));
    try {
      producer.initTransactions();
      writeLease("grant", "leading", leaseMs, List.of());
    } catch (KafkaException failure) {
      refused("grant", failure);
    }
  }

  private void renewWhenDue() throws Exception {
    if (System.currentTimeMillis() >= renewAtMs) writeLease("renewal", "renewed", leaseMs, List.of());
  }

  private void resign() throws Exception {
    if (!leading) return;
    Entry tombstone = new Entry(false, role, member, null, null);
    competing = false;
    if (writeLease("release", "resigned", 0, List.of(recordOf(tombstone)))) leading = false;
  }

  private boolean writeLease(
      String what, String event, long lengthMs, List<ProducerRecord<byte[], byte[]>> more) throws Exception {
    ProducerIdAndEpoch pair = currentPair();
    long nowMs = System.currentTimeMillis();
    Lease written = new Lease(member, pair.producerId, pair.epoch, nowMs, nowMs + lengthMs);
    List<ProducerRecord<byte[], byte[]>> records = new ArrayList<>();
    records.add(recordOf(new Entry(true, role, "", null, written)));
    records.addAll(more);
    try {
      ownOffset = inTransaction(records);
    } catch (KafkaException failure) {
      refused(what, failure);
      return false;
    }
    leading = true;
    renewAtMs = nowMs + renewMs;
    emit(event, "producerId", pair.producerId, "epoch", pair.epoch, "offset", ownOffset);
    return true;
  }

  private void write(String what, String topic, String value) throws Exception {
    try {
      long offset = inTransaction(List.of(new ProducerRecord<>(topic, 0, null, value.getBytes(StandardCharsets.UTF_8))));
      emit("written", "topic", topic, "offset", offset);
    } catch (KafkaException failure) {
      refused(what, failure);
    }
  }

  /** Returns the offset of the first record. */
  private long inTransaction(List<ProducerRecord<byte[], byte[]>> records) throws ExecutionException, InterruptedException {
    producer.beginTransaction();
    var sent = records.stream().map(producer::send).toList();
    producer.commitTransaction();
    return sent.get(0).get().offset();
  }

  private void refused(String what, KafkaException failure) {
    String cause = failure.getClass().getSimpleName();
    for (Throwable at = failure; at != null; at = at.getCause()) {
      if (at instanceof ApiException) cause = at.getClass().getSimpleName();
    }
    emit("refused", "during", what, "exception", cause);
    if (leading) lose(cause);
  }

  private void lose(String why) {
    leading = false;
    competing = false;
    emit("lost", "why", why);
  }

  private ProducerRecord<byte[], byte[]> recordOf(Entry entry) {
    return new ProducerRecord<>(partition.topic(), partition.partition(), StrictFormat.key(entry), StrictFormat.value(entry));
  }

  private KafkaProducer<byte[], byte[]> newProducer(Map<String, Object> more) {
    Map<String, Object> config = new HashMap<>(more);
    config.put("bootstrap.servers", bootstrap);
    config.put("acks", "all");
    config.put("linger.ms", 0);
    config.put("max.block.ms", PATIENCE_MS);
    config.put("request.timeout.ms", PATIENCE_MS / 2);
    config.put("delivery.timeout.ms", PATIENCE_MS);
    return new KafkaProducer<>(config, new ByteArraySerializer(), new ByteArraySerializer());
  }

  /** The client tells nobody its pair. */
  private ProducerIdAndEpoch currentPair() throws ReflectiveOperationException {
    Object transactions = valueOf(producer, "transactionManager");
    return (ProducerIdAndEpoch) valueOf(transactions, "producerIdAndEpoch");
  }

  private static Object valueOf(Object owner, String name) throws ReflectiveOperationException {
    Field field = owner.getClass().getDeclaredField(name);
    field.setAccessible(true);
    return field.get(owner);
  }

  // Telling

  /** One line of JSON; 64-bit integers go as strings. */
  private static void emit(String event, Object... fields) {
    StringBuilder line = new StringBuilder("{\"event\":").append(quoted(event));
    for (int i = 0; i < fields.length; i += 2) {
      Object value = fields[i + 1];
      boolean plain = value instanceof Integer || value instanceof Short || value instanceof Boolean;
      line.append(',').append(quoted((String) fields[i])).append(':').append(plain ? value : quoted(String.valueOf(value)));
    }
    synchronized (System.out) {
      System.out.println(line.append('}'));
      System.out.flush();
    }
  }

  private static String quoted(String text) {
    StringBuilder quoted = new StringBuilder("\"");
    for (char c : text.toCharArray()) {
      if (c < ' ' || c > '~' || c == '"' || c == '\\') quoted.append(String.format("\\u%04x", (int) c));
      else quoted.append(c);
    }
    return quoted.append('"').toString();
  }
}
