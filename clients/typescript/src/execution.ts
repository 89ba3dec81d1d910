import type { Client, Sending } from "./client.js";
import { Ended, rejected, SemelError } from "./errors.js";
import type { Begun, Effect, Record } from "./types.js";

/** The right to execute one call. Its lease is renewed every third of its length. */
export class Execution {
  /** Names the execution in the API. */
  readonly name: string;
  /** Rises with every holder: give it to what can refuse an older one. */
  readonly fence: number;
  /** Counts the attempts, from 1. */
  readonly attempt: number;
  readonly #client: Client;
  readonly #lost = new AbortController();
  readonly #ledger = new Map<string, Effect["state"]>();
  readonly #financial: boolean;
  #since: number;
  #lease: number;
  #ended = false;
  #timer: ReturnType<typeof setTimeout> | undefined;

  /** For {@link Client.once}. began is a moment before the lease did. */
  constructor(client: Client, begun: Begun, began: number) {
    this.name = begun.execution ?? "";
    this.fence = begun.fence ?? 0;
    this.attempt = begun.attempt ?? 1;
    this.#client = client;
    this.#financial = begun.financial ?? false;
    this.#since = began;
    this.#lease = begun.lease_ms ?? 0;
    for (const e of begun.record.effects) this.#ledger.set(e.name, e.state);
  }

  /** Ends when the right to execute is lost: another may have it, so stop. */
  get signal(): AbortSignal { return this.#lost.signal; }

  /** For {@link Client.once}: does the work and ends the execution. */
  async run(work: (x: Execution) => unknown): Promise<Record> {
    // Nobody knows when the lease began, so it must have time left before the work begins.
    if (this.#age() > this.#lease / 3 && !(await this.#renew())) throw new SemelError("store_unavailable", "the lease could not be renewed before the work", { cause: this.signal.reason });
    this.#beat();
    const alive = { more: () => this.#age() < this.#lease };
    let result: unknown;
    try {
      result = await work(this);
    } catch (e) {
      this.#stop();
      throw await this.#failed(e, alive);
    }
    this.#stop();
    if (this.#open()) return this.#client.end(this.name, "hold", { reason: "the handler returned a result and left an effect without one" });
    return this.#client.complete(this.name, result, alive);
  }

  /** Ends the execution by the error of its handler, and returns what the caller gets. */
  async #failed(e: unknown, alive: Pick<Sending, "more">): Promise<unknown> {
    const message = (e instanceof Error ? e.message : String(e)).slice(0, 1000) || "the handler failed";
    const ended = e instanceof Ended ? e : undefined;
    let how = ended?.mark ?? (this.#open() ? "unknown" : this.#done() || this.#financial ? "failed" : "aborted");
    if (how !== "rejected" && this.#open()) how = "unknown";
    if (this.signal.aborted && (!ended || how === "failed")) return this.signal.reason; // policy settles what the lease leaves
    const paths = { rejected: "reject", failed: "fail", aborted: "abort", unknown: "hold" } as const;
    const body = how === "unknown" ? { reason: message } : { error: { code: ended?.code ?? "", message } };
    const record = await this.#client.end(this.name, paths[how], body, alive);
    return new SemelError(how, message, { action: how === "unknown" ? "verify" : how === "aborted" ? "wait" : "stop", reason: ended?.code, record: record.id, cause: e });
  }

  /**
   * Calls a provider under the ledger: the intent is durable before `call` runs, which gets the
   * key for the provider. A later attempt gets the recorded result, and a call without a known
   * result is never made again.
   *
   * Throw `rejected` from `call` if the provider refused for good, and `nothingDone` if nothing
   * was sent. Every other error leaves the effect without a result.
   */
  async effect<T>(name: string, call: (key: string) => T | Promise<T>): Promise<T> {
    if (this.#ledger.get(name) === "started") throw new Ended("unknown", `effect ${name} was started, and its result is not known`);
    const ef = await this.#effect<Effect>("effects", { name });
    if (ef.state === "confirmed") return ef.result as T;
    if (ef.state === "refuted" && ef.error) throw rejected(ef.error.code ?? "", ef.error.message ?? "");
    this.#ledger.set(name, "started");
    let result: T;
    try {
      result = await call(ef.key);
    } catch (e) {
      if (e instanceof Ended && (e.mark === "rejected" || e.mark === "aborted")) {
        const error = e.mark === "rejected" ? { error: { code: e.code, message: e.message } } : {};
        await this.#effect("effects/settle", { name, state: "refuted", ...error });
        this.#ledger.set(name, "refuted");
      }
      throw e;
    }
    await this.#effect("effects/settle", { name, state: "confirmed", result });
    this.#ledger.set(name, "confirmed");
    return result;
  }

  async #effect<T>(what: string, body: { name: string; [more: string]: unknown }): Promise<T> {
    if (this.#age() >= this.#lease * 0.9) this.#lose(new SemelError("lease_lost", "the lease could not be renewed in time"));
    if (what === "effects") this.signal.throwIfAborted();
    const path = `/v1/executions/${encodeURIComponent(this.name)}/${what}`;
    try {
      return await this.#client.send<T>(path, { method: "POST", body, lost: "unknown", ...(what === "effects" ? { tries: 1 } : {}) });
    } catch (e) {
      if (!(e instanceof SemelError)) throw e;
      if (e.code === "effect_unknown") throw new Ended("unknown", e.message, "", e);
      if (what !== "effects" || e.status !== undefined && e.status < 500) throw e;
      // The answer was lost, and nothing was called yet.
      return await this.#client.send<T>(path, { method: "POST", body: { ...body, not_called: true }, lost: "unknown" });
    }
  }

  #open(): boolean { return [...this.#ledger.values()].includes("started"); }
  #done(): boolean { return [...this.#ledger.values()].includes("confirmed"); }
  #age(): number { return performance.now() - this.#since; }

  #stop(): void {
    this.#ended = true;
    clearTimeout(this.#timer);
  }

  #lose(why: SemelError): void {
    this.#lost.abort(why);
  }

  /** Renews the lease at each third of it, until the execution ends. */
  #beat(): void {
    const pause = Math.max(this.#lease / 3 - this.#age(), this.#lease / 30);
    this.#timer = setTimeout(async () => {
      if (!(await this.#renew()) && this.#age() >= this.#lease * 0.9) this.#lose(new SemelError("lease_lost", "the lease could not be renewed in time"));
      if (!this.#ended && !this.signal.aborted) this.#beat();
    }, pause);
  }

  async #renew(): Promise<boolean> {
    const began = performance.now();
    try {
      const left = Math.max(this.#lease * 0.9 - this.#age(), this.#lease / 30);
      this.#lease = await this.#client.renew(this.name, { tries: 1, signal: AbortSignal.timeout(left) });
      this.#since = began;
      return true;
    } catch (e) {
      if (e instanceof SemelError && ["lease_lost", "already_ended", "not_found"].includes(e.code)) {
        this.#lose(new SemelError("lease_lost", e.message, { cause: e }));
      }
      return false;
    }
  }
}
