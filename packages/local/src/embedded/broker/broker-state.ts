import { Role, type TopicPartition } from "@krabka/core";
import { ByteReader, ByteWriter } from "../../state/binary.js";
import { ClientBook } from "./client-book.js";
import { Openings } from "./openings.js";
import type { PartitionLog } from "./partition-log.js";
import { decodeRecord } from "./record-bytes.js";
import { type BrokerAnswer, type BrokerRequest, type Command, type RecordBatch, refuse } from "./request.js";
import { RoleBook } from "./role-book.js";
import { StateSnapshot } from "./state-snapshot.js";
import { Topics } from "./topics.js";

/** What a command did. Nothing changed if `touched` is undefined. */
export interface Applied {
  readonly answer: BrokerAnswer;
  /** Partitions that got records. */
  readonly touched: readonly PartitionLog[] | undefined;
}

const FORMAT_VERSION = 2;
/** So that no other service's checkpoint passes for one of a broker. */
const MAGIC = "krabka embedded broker";
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
  #topics = new Topics();
  #roles = new RoleBook();
  #clients = new ClientBook();
  #openings = new Openings();

  get roles(): Pick<RoleBook, "current" | "size"> {
    return this.#roles;
  }

  get openings(): Pick<Openings, "current" | "contradiction"> {
    return this.#openings;
  }

  get topics(): Pick<Topics, "get" | "partition" | "partitions" | "bytes" | "clean"> {
    return this.#topics;
  }

  isKnown(client: string): boolean {
    return this.#clients.isKnown(client);
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

  snapshot(): StateSnapshot {
    const head = new ByteWriter().string(MAGIC).uint8(FORMAT_VERSION);
    this.#openings.encode(head);
    this.#roles.encode(head);
    this.#clients.encode(head);
    return new StateSnapshot([head.finish(), ...this.#topics.snapshot()]);
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
    state.#topics = Topics.decode(reader);
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
        return this.#createTopic(request);
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
        const log = this.#topics.partition(request.target);
        if (log === undefined) return unchanged(this.#unknown(request.target));
        log.deleteAll();
        return { answer: { status: "written", atMs, bases: [log.end] }, touched: [log] };
      }
    }
  }

  #open({ name, position, raiseBy }: Extract<BrokerRequest, { kind: "open" }>): Applied {
    this.#openings.begin(name, position);
    if (raiseBy > 0n) this.#roles.raise(raiseBy);
    const touched = raiseBy > 0n ? this.#topics.partitions() : [];
    for (const log of touched) log.skip(raiseBy);
    return { answer: { status: "done" }, touched };
  }

  /** Also what is left of them in the coordination topics: their leases, and registrations that nobody took back. */
  #forgetRoles(count: number, atMs: number): Applied {
    const forgotten = this.#roles.forget(count);
    const touched = this.#topics.partitions().filter((log) => log.compacted && log.removeRoles(forgotten, atMs));
    const { producerIds } = this.#roles;
    for (const { fences } of this.#topics.partitions()) fences.keepOnly(producerIds);
    return { answer: { status: "done" }, touched };
  }

  #createTopic({ topic, partitions, compacted }: Extract<BrokerRequest, { kind: "create-topic" }>): Applied {
    const isThere = this.#topics.get(topic) !== undefined;
    const flaw = this.#topics.create(topic, partitions, compacted);
    if (flaw !== undefined) return unchanged(flaw);
    return isThere ? unchanged({ status: "done" }) : { answer: { status: "done" }, touched: [] };
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
    const log = this.#topics.partition(target);
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
    const log = this.#topics.partition(batch);
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

const flawOfRole = (role: string): BrokerAnswer | undefined => {
  try {
    Role.of(role);
    return undefined;
  } catch (error) {
    return refuse("invalid", (error as Error).message);
  }
};
