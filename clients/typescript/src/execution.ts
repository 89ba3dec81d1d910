import { kept, uncertain, type Client, type Sending } from "./client.js";
import { Ended, rejected, SemelError, unknown } from "./errors.js";
import type { Begun, Effect, Record } from "./types.js";

/** How an attempt ended: its record, and what the handler returned or threw. */
interface Run { record: Record; result?: unknown; cause?: unknown }
interface Finding { state: Effect["state"]; error?: unknown; result?: unknown }

const paths = { rejected: "reject", failed: "fail", aborted: "abort", unknown: "hold", abandoned: "abandon" } as const;

/** The right to execute one call. Its lease is renewed every third of its length. */
export class Execution {
  /** Names the execution in the API. */
  readonly name: string;
  /** Rises with every holder: give it to what can refuse an older one. */
  readonly fence: number;
  /** Counts the attempts, from 1. */
  readonly attempt: number;
  readonly #lost = new AbortController();
  readonly #ledger = new Map<string, Effect["state"]>();
  /** Effects that were asked for without an answer. They weren't called. */
  readonly #unsure = new Set<string>();
  #notStarted: unknown;
  #lease: number;
  #ended = false;
  #timer: ReturnType<typeof setTimeout> | undefined;

  /** For {@link Client.once}. since is a moment before the lease began. */
  constructor(readonly client: Client, readonly begun: Begun, private since: number) {
    this.name = begun.execution ?? "";
    this.fence = begun.fence ?? 0;
    this.attempt = begun.attempt ?? 1;
    this.#lease = begun.lease_ms ?? 0;
    for (const e of begun.record.effects) this.#ledger.set(e.name, e.state);
  }

  /** Ends when the right to execute is lost: another may have it, so stop. */
  get signal(): AbortSignal {
    // Timers are late while the program computes.
    if (!this.#ended && this.#age() >= this.#lease * 0.9) this.#lost.abort(new SemelError("lease_lost", "the lease could not be renewed in time"));
    return this.#lost.signal;
  }

  /** For {@link Client.once}: does the work and ends the execution. */
  async run(work: (x: Execution) => unknown): Promise<Run> {
    // Nobody knows when the lease began, so it must have time left before the work begins.
    for (let n = 0; this.#age() > this.#lease / 3; n++) {
      if (n < 4 && await this.#renew({})) continue;
      await this.client.end(this.name, "abort", { error: { message: "the lease could not be renewed before the work" } }, { tries: 1 }).catch(() => {});
      throw new SemelError("store_unavailable", "the lease could not be renewed before the work", { cause: this.#lost.signal.reason });
    }
    this.#beat();
    let result: unknown, cause: unknown;
    try {
      result = await work(this);
      // What returned may have had an effect, so it isn't aborted for a result that nobody can send.
      try { JSON.stringify(result); } catch (e) { throw unknown("the result can't be written as JSON", e); }
      if (this.#has("started")) throw unknown("the handler returned a result and left an effect without one");
    } catch (e) {
      cause = e ?? new Error("the handler failed");
    }
    const { aborted, reason } = this.signal;
    this.#ended = true;
    clearTimeout(this.#timer);
    const how = cause === undefined ? "completed" : this.#verdict(cause);
    if (aborted && cause !== undefined && (how === "failed" || !(cause instanceof Ended))) throw reason; // policy settles what the lease leaves
    for (const name of this.#unsure) await this.#settle(name, { state: "refuted" }, 1).catch(() => {});
    const message = (cause instanceof Error ? cause.message : String(cause)).slice(0, 300) || "the handler failed";
    const body = how === "completed" ? { result } : how === "unknown" || how === "abandoned" ? { reason: message } : { error: { code: cause instanceof Ended ? cause.code : "", message } };
    // Renewals have stopped, so that an end that never gets through doesn't keep the call in flight.
    const record = await this.client.end(this.name, how === "completed" ? "complete" : paths[how], body, { more: () => this.#age() < this.#lease });
    return { record, result, cause };
  }

  /** How an attempt ends by the error of its handler. */
  #verdict(e: unknown): keyof typeof paths {
    if (e === this.#notStarted && this.begun.on_abandoned === "retry") return "abandoned"; // the work didn't fail
    if (e instanceof Ended && e.mark === "rejected") return e.mark;
    if (this.#has("started")) return "unknown";
    if (e instanceof Ended) return e.mark;
    return this.#has("confirmed") || this.begun.financial ? "failed" : "aborted";
  }

  /**
   * Calls a provider under the ledger: the intent is durable before `call` runs, which gets the
   * key for the provider. A later attempt gets the recorded result, and a call without a known
   * result is never made again.
   *
   * Throw `rejected` from `call` if the provider refused for good, `nothingDone` if nothing was
   * sent, and `failed` if the provider says that it failed. Every other error leaves the effect
   * without a result.
   */
  async effect<T>(name: string, call: (key: string) => T | Promise<T>): Promise<T> {
    if (this.#ended) throw new SemelError("already_ended", "the execution has ended");
    const before = this.#ledger.get(name);
    if (before === "started") throw unknown(`effect ${name} was started, and its result is not known`);
    this.#ledger.set(name, "started"); // before any pause: the same effect, started beside this one, must not be called too
    let ef: Effect;
    try {
      ef = await this.#start(name);
    } catch (e) {
      if (!(e instanceof Ended)) before ? this.#ledger.set(name, before) : this.#ledger.delete(name);
      throw e;
    }
    if (ef.state !== "started") this.#ledger.set(name, ef.state);
    if (ef.state === "confirmed") return kept<T>(ef, this.begun.record.id);
    if (ef.state === "refuted") throw rejected(ef.error?.code ?? "", ef.error?.message ?? "");
    let result: T;
    try {
      result = await call(ef.key);
    } catch (e) {
      if (!(e instanceof Ended) || e.mark === "unknown") throw e;
      await this.#found(name, { state: "refuted", ...(e.mark === "rejected" ? { error: { code: e.code, message: e.message } } : {}) });
      throw e;
    }
    const settled = await this.#found(name, { state: "confirmed", result });
    return settled.result_kept === false ? result : kept<T>(settled, this.begun.record.id);
  }

  async #start(name: string): Promise<Effect> {
    this.signal.throwIfAborted();
    const ask = async (again: boolean) => {
      const ef = await this.client.on<Effect>(this.name, "effects", again ? { name, not_called: true } : { name }, again ? {} : { tries: 1 });
      if (ef.name !== name || !ef.key) throw new SemelError("unknown", "the answer is about another effect, or has no key");
      return ef;
    };
    let ef: Effect;
    try {
      try {
        ef = await ask(this.#unsure.has(name));
      } catch (e) {
        if (!uncertain(e)) throw e;
        this.#unsure.add(name);
        ef = await ask(true); // nothing was called yet
      }
    } catch (e) {
      this.#judge(e);
      if (uncertain(e)) this.#notStarted = e;
      if (e instanceof SemelError && e.code === "effect_unknown") throw unknown(e.message, e);
      throw e;
    }
    this.#unsure.delete(name);
    if (ef.state === "started" && this.signal.aborted) {
      // The answer took longer than the rest of the lease: another attempt may be at work.
      await this.#settle(name, { state: "refuted" }, 1).catch(() => this.#unsure.add(name));
      throw this.signal.reason;
    }
    return ef;
  }

  /** Records what became of an effect that was called. The attempt may not go on without it. */
  async #found(name: string, finding: Finding): Promise<Effect> {
    try {
      return await this.#settle(name, finding);
    } catch (e) {
      throw unknown(`the result of effect ${name} is not recorded: ${e}`, e);
    }
  }

  async #settle(name: string, finding: Finding, tries?: number): Promise<Effect> {
    const until = performance.now() + this.#lease; // the lease is renewed meanwhile
    const how = tries ? { tries } : { more: () => this.#age() < this.#lease && performance.now() < until };
    const ef = await this.client.on<Effect>(this.name, "effects/settle", { name, ...finding }, how);
    this.#ledger.set(name, finding.state);
    return ef;
  }

  #has(state: Effect["state"]): boolean { return [...this.#ledger.values()].includes(state); }
  #age(): number { return performance.now() - this.since; }

  /** Tells the handler to stop if a refusal means that its right is gone. */
  #judge(e: unknown): void {
    if (e instanceof SemelError && ["lease_lost", "already_ended", "not_found"].includes(e.code)) this.#lost.abort(new SemelError("lease_lost", e.message, { cause: e }));
  }

  /** Renews the lease at each third of it, until the execution ends. */
  #beat(): void {
    this.#timer = setTimeout(async () => {
      const left = Math.ceil(Math.max(this.#lease * 0.9 - this.#age(), this.#lease / 30)); // a fraction is refused
      await this.#renew({ tries: 1, signal: AbortSignal.timeout(left) });
      if (!this.#ended && !this.signal.aborted) this.#beat();
    }, Math.max(this.#lease / 3 - this.#age(), this.#lease / 30));
  }

  async #renew(how: Sending): Promise<boolean> {
    const began = performance.now();
    try {
      this.#lease = await this.client.renew(this.name, how);
      this.since = began;
      return true;
    } catch (e) {
      this.#judge(e);
      return false;
    }
  }
}
