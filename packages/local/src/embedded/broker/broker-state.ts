import { Role, type TopicPartition } from "@krabka/core";
import { ByteReader, ByteWriter } from "../../state/binary.js";
import { ClientBook } from "./client-book.js";
import { Openings } from "./openings.js";
import { PartitionLog, type Retention } from "./partition-log.js";
import { decodeRecord } from "./record-bytes.js";
import { type BrokerAnswer, type BrokerRequest, type Command, type RecordBatch, refuse } from "./request.js";
import { RoleBook } from "./role-book.js";

export interface Topic {
  readonly compacted: boolean;
  readonly partitions: readonly PartitionLog[];
}

/** What a command did. Nothing changed if `touched` is undefined. */
export interface Applied {
  readonly answer: BrokerAnswer;
  /** Partitions that got records. */
  readonly touched: readonly PartitionLog[] | undefined;
}

const FORMAT_VERSION = 2;
/** So that no other service's checkpoint passes for one of a broker. */
const MAGIC = "krabka embedded broker";
const MAX_PARTITIONS = 10_000;
/** Kafka's own limit for names of topics. */
const TOPIC_NAME = /^[a-zA-Z0-9._-]{1,249}$/;
/** The last one that an int16 takes. No role ever has it, so under it an id is shut out for good. */
const RETIRED_EPOCH = 32767;

const unchanged = (answer: BrokerAnswer): Applied => ({ answer, touched: undefined });

const fenced = (role: string): BrokerAnswer =>
  refuse("fenced", `The pair for role ${JSON.stringify(role)} is not the newest one, or its id was shut out`);

/**
 * The whole state of a broker, and what each command makes of it. Deterministic: the same commands give the same offsets, pairs and
 * answers, whoever replays them and whenever. Checks come before changes, so a refused command changes nothing.
 */
export class BrokerState {
  readonly #topics = new Map<string, Topic>();
  #roles = new RoleBook();
  #clients = new ClientBook();
  #openings = new Openings();

  get roles(): Pick<RoleBook, "current" | "size"> {
    return this.#roles;
  }

  get openings(): Pick<Openings, "current" | "contradiction"> {
    return this.#openings;
  }

  topic(name: string): Topic | undefined {
    return this.#topics.get(name);
  }

  partition({ topic, partition }: TopicPartition): PartitionLog | undefined {
    return this.#topics.get(topic)?.partitions[partition];
  }

  partitions(): readonly PartitionLog[] {
    return [...this.#topics.values()].flatMap(({ partitions }) => partitions);
  }

  isKnown(client: string): boolean {
    return this.#clients.isKnown(client);
  }

  /** Of all records. */
  get bytes(): number {
    return this.partitions().reduce((sum, { bytes }) => sum + bytes, 0);
  }

  apply({ atMs, origin, request }: Command): Applied {
    if (origin !== undefined && request.kind !== "register-client") {
      const known = this.#clients.answerTo(origin);
      if (known === "unknown-client") {
        return unchanged(refuse(known, "The client was silent for too long and is not known any more"));
      }
      if (known === "outdated") return unchanged(refuse(known, "The client gave this request up before"));
      if (known !== undefined) return unchanged(known);
    }
    const applied = this.#execute(request, atMs, origin?.client);
    if (applied.touched !== undefined && origin !== undefined) this.#clients.remember(origin, applied.answer, atMs);
    return applied;
  }

  /** Drops what the retention no longer covers in one partition. */
  clean(log: PartitionLog, retention: Retention & { readonly bytesInAll: number }, nowMs: number): void {
    log.clean(retention, nowMs);
    let memoryBytes = this.partitions().reduce((sum, partition) => sum + partition.memoryBytes, 0);
    while (memoryBytes > retention.bytesInAll) {
      const [largest] = this.partitions()
        .filter(({ compacted }) => !compacted)
        .sort((a, b) => b.memoryBytes - a.memoryBytes);
      const before = largest?.memoryBytes ?? 0;
      if (largest?.dropOldest() !== true) return;
      memoryBytes -= before - largest.memoryBytes;
    }
  }

  encode(): Uint8Array {
    const writer = new ByteWriter().string(MAGIC).uint8(FORMAT_VERSION);
    this.#openings.encode(writer);
    this.#roles.encode(writer);
    this.#clients.encode(writer);
    writer.list([...this.#topics], (to, [name, { compacted, partitions }]) => {
      to.string(name).uint8(compacted ? 1 : 0);
      to.list(partitions, (into, log) => log.encode(into));
    });
    // Without the room to grow, since it is kept.
    return writer.finish().slice();
  }

  /** @throws {Error} for bytes that are no state */
  static decode(bytes: Uint8Array): BrokerState {
    const reader = new ByteReader(bytes);
    if (reader.string() !== MAGIC) throw new Error("this is the state of something else than an embedded broker");
    const version = reader.uint8();
    if (version !== FORMAT_VERSION) throw new Error(`a state of format version ${version}; known is ${FORMAT_VERSION}`);
    const state = new BrokerState();
    state.#openings = Openings.decode(reader);
    state.#roles = RoleBook.decode(reader);
    state.#clients = ClientBook.decode(reader);
    for (let left = reader.uint32(); left > 0; left--) {
      const name = reader.string();
      const compacted = reader.uint8() === 1;
      state.#topics.set(name, { compacted, partitions: reader.list((from) => PartitionLog.decode(from, compacted)) });
    }
    reader.end();
    return state;
  }

  #execute(request: BrokerRequest, atMs: number, client: string | undefined): Applied {
    switch (request.kind) {
      case "open":
        if (client !== undefined) return unchanged(refuse("invalid", "Only the owner opens the log"));
        return this.#open(request);
      case "forget-roles":
        if (client !== undefined) return unchanged(refuse("invalid", "Only the owner forgets roles"));
        return this.#forgetRoles(request.count, atMs);
      case "register-client":
        if (client === undefined) return unchanged(refuse("invalid", "A client registers under its own id"));
        this.#clients.register(client, atMs);
        return { answer: { status: "done" }, touched: [] };
      case "create-topic":
        return this.#createTopic(request.topic, request.partitions, request.compacted);
      case "mint": {
        const flaw = flawOfRole(request.role);
        if (flaw !== undefined) return unchanged(flaw);
        return { answer: { status: "minted", pair: this.#roles.mint(request.role), settled: null }, touched: [] };
      }
      case "remint": {
        const { role, pair, unsettled } = request;
        if (!this.#roles.isCurrent(role, pair)) return unchanged(fenced(role));
        // What has not arrived by now never takes effect: its pair is older than the one that is minted here.
        const known =
          unsettled === undefined || client === undefined ? undefined : this.#clients.find(client, unsettled);
        const settled = known?.status === "written" ? known : null;
        return { answer: { status: "minted", pair: this.#roles.mint(role), settled }, touched: [] };
      }
      case "commit":
        return this.#commit(request, atMs);
      case "append":
        return this.#append(request, atMs);
      case "retire":
        return this.#retire(request, atMs);
      case "append-unfenced": {
        const flaw = this.#flawOf(request.batch);
        return flaw === undefined ? this.#store([request.batch], atMs) : unchanged(flaw);
      }
      case "delete-records": {
        const log = this.partition(request.target);
        if (log === undefined) return unchanged(this.#unknown(request.target));
        log.deleteAll();
        return { answer: { status: "written", atMs, bases: [log.end] }, touched: [log] };
      }
    }
  }

  #open({ name, position, raiseBy }: Extract<BrokerRequest, { kind: "open" }>): Applied {
    this.#openings.begin(name, position);
    if (raiseBy > 0n) this.#roles.raise(raiseBy);
    const touched = raiseBy > 0n ? this.partitions() : [];
    for (const log of touched) log.skip(raiseBy);
    return { answer: { status: "done" }, touched };
  }

  /** Also what is left of them in the coordination topics: their leases, and registrations that nobody took back. */
  #forgetRoles(count: number, atMs: number): Applied {
    const forgotten = this.#roles.forget(count);
    const touched = this.partitions().filter((log) => log.compacted && log.removeRoles(forgotten, atMs));
    const { producerIds } = this.#roles;
    for (const { fences } of this.partitions()) fences.keepOnly(producerIds);
    return { answer: { status: "done" }, touched };
  }

  #createTopic(name: string, count: number, compacted: boolean): Applied {
    const found = this.#topics.get(name);
    if (found !== undefined) {
      if (found.compacted === compacted && found.partitions.length === count) return unchanged({ status: "done" });
      return unchanged(
        refuse(
          "topic-differs",
          `Topic ${JSON.stringify(name)} ${describeTopic(found.compacted, found.partitions.length)}; wanted is one that ${describeTopic(compacted, count)}`,
        ),
      );
    }
    if (!TOPIC_NAME.test(name) || name === "." || name === "..") {
      const wanted = "1 to 249 of the letters a-z A-Z 0-9 . _ -";
      return unchanged(refuse("invalid", `A topic's name must be ${wanted}; got ${JSON.stringify(name)}`));
    }
    if (count < 1 || count > MAX_PARTITIONS) {
      return unchanged(refuse("invalid", `A topic has 1 to ${MAX_PARTITIONS} partitions; got ${count}`));
    }
    const partitions = Array.from({ length: count }, () => new PartitionLog(compacted));
    this.#topics.set(name, { compacted, partitions });
    return { answer: { status: "done" }, touched: [] };
  }

  #commit({ role, pair, batches }: Extract<BrokerRequest, { kind: "commit" }>, atMs: number): Applied {
    if (!this.#roles.isCurrent(role, pair)) return unchanged(fenced(role));
    for (const batch of batches) {
      const flaw = this.#flawOf(batch);
      if (flaw !== undefined) return unchanged(flaw);
      if (this.#logOf(batch).fences.isShutOut(pair)) return unchanged(fenced(role));
    }
    this.#roles.heard(role);
    for (const batch of batches) this.#logOf(batch).fences.raise(pair);
    return this.#store(batches, atMs);
  }

  #append({ role, pair, sequence, batch }: Extract<BrokerRequest, { kind: "append" }>, atMs: number): Applied {
    const flaw = this.#flawOf(batch);
    if (flaw !== undefined) return unchanged(flaw);
    const { fences } = this.#logOf(batch);
    const repeated = fences.repeated(pair, sequence, batch.records.length);
    if (repeated !== undefined) return unchanged({ status: "written", atMs: repeated.atMs, bases: [repeated.base] });
    if (!this.#roles.isCurrent(role, pair) || fences.isShutOut(pair)) return unchanged(fenced(role));
    const expected = fences.nextSequence(pair);
    if (sequence !== expected) {
      return unchanged(refuse("invalid", `Sequence number ${expected} is due; got ${sequence}`));
    }
    this.#roles.heard(role);
    const applied = this.#store([batch], atMs);
    if (applied.answer.status === "written") {
      const [base = 0n] = applied.answer.bases;
      fences.appended(pair, { sequence, count: batch.records.length, base, atMs });
    }
    return applied;
  }

  #retire(request: Extract<BrokerRequest, { kind: "retire" }>, atMs: number): Applied {
    const { role, pair, producerId, batch } = request;
    if (!this.#roles.isCurrent(role, pair)) return unchanged(fenced(role));
    const flaw = this.#flawOf(batch);
    if (flaw !== undefined) return unchanged(flaw);
    const { fences } = this.#logOf(batch);
    const last = { producerId, epoch: RETIRED_EPOCH };
    const repeated = fences.repeated(last, 0, batch.records.length);
    if (repeated !== undefined) return unchanged({ status: "written", atMs: repeated.atMs, bases: [repeated.base] });
    const applied = this.#store([batch], atMs);
    if (applied.answer.status === "written") {
      const [base = 0n] = applied.answer.bases;
      fences.appended(last, { sequence: 0, count: batch.records.length, base, atMs });
    }
    return applied;
  }

  #store(batches: readonly RecordBatch[], atMs: number): Applied {
    const logs = batches.map((batch) => this.#logOf(batch));
    const bases = batches.map(({ records }, index) => (logs[index] as PartitionLog).append(records, atMs));
    return { answer: { status: "written", atMs, bases }, touched: logs };
  }

  #logOf(target: TopicPartition): PartitionLog {
    const log = this.partition(target);
    if (log === undefined) throw new Error(`there is no partition ${target.topic}/${target.partition}`);
    return log;
  }

  #unknown({ topic, partition }: TopicPartition): BrokerAnswer {
    const found = this.#topics.get(topic);
    return found === undefined
      ? refuse("unknown-topic", `Topic ${JSON.stringify(topic)} does not exist`)
      : refuse("invalid", `Topic ${JSON.stringify(topic)} has ${found.partitions.length} partitions; got ${partition}`);
  }

  #flawOf(batch: RecordBatch): BrokerAnswer | undefined {
    const log = this.partition(batch);
    if (log === undefined) return this.#unknown(batch);
    if (batch.records.length === 0) return refuse("invalid", "A batch has at least one record; got none");
    for (const bytes of batch.records) {
      const { key } = decodeRecord(bytes);
      if (key === null && log.compacted) {
        return refuse("invalid", `Topic ${JSON.stringify(batch.topic)} is compacted and takes no record without a key`);
      }
    }
    return undefined;
  }
}

const describeTopic = (compacted: boolean, partitions: number): string =>
  `is ${compacted ? "compacted" : "deleted by age"} and has ${partitions} partitions`;

const flawOfRole = (role: string): BrokerAnswer | undefined => {
  try {
    Role.of(role);
    return undefined;
  } catch (error) {
    return refuse("invalid", (error as Error).message);
  }
};
