import java.nio.ByteBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;

/** What a record says. A registration without an instant, and a lease without a holder, are tombstones. */
record Entry(boolean isLease, String role, String member, Long registeredAtMs, Lease lease) {
  boolean isTombstone() {
    return registeredAtMs == null && lease == null;
  }
}

record Lease(String member, long producerId, short epoch, long grantedAtMs, long deadlineMs) {}

/** Ends the program: a reader that met one record it does not know cannot tell what else it misreads. */
final class Malformed extends RuntimeException {
  private static final long serialVersionUID = 1;

  Malformed(String what) {
    super(what);
  }
}

/** The frozen format, version 0: big-endian, string = int16 length and UTF-8. */
final class StrictFormat {
  private static final int LONGEST_NAME = 249;
  private static final short VERSION = 0;
  private static final short REGISTRATION = 0;
  private static final short LEASE = 1;

  static Entry decode(byte[] key, byte[] value) {
    if (key == null) throw new Malformed("a record without a key");
    ByteBuffer keyBytes = ByteBuffer.wrap(key);
    version("key", keyBytes);
    short kind = int16("key", keyBytes);
    if (kind != REGISTRATION && kind != LEASE) throw new Malformed("key of unknown kind " + kind);
    boolean isLease = kind == LEASE;
    String role = name("role", string("key", keyBytes));
    String member = string("key", keyBytes);
    end("key", keyBytes);
    if (isLease && !member.isEmpty()) throw new Malformed("lease key names member " + member);
    if (!isLease) name("member", member);
    if (value == null) return new Entry(isLease, role, member, null, null);
    if (value.length == 0) throw new Malformed("an empty value, which is no tombstone");
    ByteBuffer bytes = ByteBuffer.wrap(value);
    version("value", bytes);
    String named = name("member", string("value", bytes));
    if (!isLease) {
      long registeredAtMs = int64("value", bytes);
      end("value", bytes);
      if (!named.equals(member)) throw new Malformed("registration of " + named + " under the key of " + member);
      return new Entry(false, role, member, registeredAtMs, null);
    }
    Lease lease = new Lease(
        named, int64("value", bytes), int16("value", bytes), int64("value", bytes), int64("value", bytes));
    end("value", bytes);
    if (lease.producerId() < 0 || lease.epoch() < 0) throw new Malformed("negative pair " + lease);
    return new Entry(true, role, "", null, lease);
  }

  static byte[] key(Entry entry) {
    byte[] role = entry.role().getBytes(StandardCharsets.UTF_8);
    byte[] member = entry.member().getBytes(StandardCharsets.UTF_8);
    return ByteBuffer.allocate(8 + role.length + member.length)
        .putShort(VERSION).putShort(entry.isLease() ? LEASE : REGISTRATION)
        .putShort((short) role.length).put(role)
        .putShort((short) member.length).put(member)
        .array();
  }

  static byte[] value(Entry entry) {
    Lease lease = entry.lease();
    if (entry.isTombstone()) return null;
    byte[] member = (lease == null ? entry.member() : lease.member()).getBytes(StandardCharsets.UTF_8);
    ByteBuffer bytes = ByteBuffer.allocate(12 + member.length + (lease == null ? 0 : 18))
        .putShort(VERSION).putShort((short) member.length).put(member);
    if (lease == null) return bytes.putLong(entry.registeredAtMs()).array();
    return bytes.putLong(lease.producerId()).putShort(lease.epoch())
        .putLong(lease.grantedAtMs()).putLong(lease.deadlineMs())
        .array();
  }

  private static void version(String what, ByteBuffer bytes) {
    short version = int16(what, bytes);
    if (version != VERSION) throw new Malformed(what + " of version " + version);
  }

  private static short int16(String what, ByteBuffer bytes) {
    return need(what, bytes, 2).getShort();
  }

  private static long int64(String what, ByteBuffer bytes) {
    return need(what, bytes, 8).getLong();
  }

  private static String string(String what, ByteBuffer bytes) {
    short length = int16(what, bytes);
    if (length < 0 || length > LONGEST_NAME) throw new Malformed(what + " with a name of " + length + " bytes");
    ByteBuffer part = need(what, bytes, length).slice().limit(length);
    bytes.position(bytes.position() + length);
    try {
      // Unlike String's constructor a new decoder reports what is not UTF-8.
      return StandardCharsets.UTF_8.newDecoder().decode(part).toString();
    } catch (CharacterCodingException notUtf8) {
      throw new Malformed(what + " with a name that is not UTF-8");
    }
  }

  private static ByteBuffer need(String what, ByteBuffer bytes, int size) {
    if (bytes.remaining() < size) throw new Malformed(what + " ends inside a field");
    return bytes;
  }

  private static String name(String what, String name) {
    if (name.isEmpty()) throw new Malformed(what + " is empty");
    return name;
  }

  private static void end(String what, ByteBuffer bytes) {
    if (bytes.hasRemaining()) throw new Malformed(what + " with " + bytes.remaining() + " bytes too many");
  }
}
