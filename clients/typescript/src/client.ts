import { refusal, SemelError } from "./errors.js";
import { Execution } from "./execution.js";
import type { Key } from "./keys.js";
import type { Begun, Beginning, Failure, Problem, Record, Renewed } from "./types.js";

/** How a client reaches its service. Times are in milliseconds. */
export interface Options {
  /** The address of the API, such as http://127.0.0.1:8080. */
  url: string;
  /** The token to send, or what finds it. Nobody gets it before they answered as a service. */
  token?: string | (() => string | Promise<string>);
  /** How long one try may take. Defaults to 10 seconds. */
  timeout?: number;
  /** How often a request is sent if no answer comes. Defaults to 4. */
  tries?: number;
  /** The pause before the second try; it doubles, with jitter. Defaults to 100. */
  pause?: number;
  /** Sends the requests. Defaults to the global fetch. */
  fetch?: typeof fetch;
}

/** What a call may have beside its operation and key. */
export interface Call extends Omit<Beginning, "key"> {
  /** How long a duplicate waits for the first call, in milliseconds. Defaults to not at all. */
  wait?: number;
}

/** What became of a call. */
export interface Outcome<T> {
  /** What the handler returned, now or the first time. */
  value: T;
  /** The handler didn't run now: this is the recorded answer. */
  replayed: boolean;
  record: Record;
}

/** A request that may be sent more than once. */
export interface Sending {
  method?: string;
  headers?: globalThis.Record<string, string>;
  body?: unknown;
  /** How much longer than the timeout one try may take. */
  wait?: number;
  /** The code if no answer comes. */
  lost: string;
  /** Tries go on while it holds. */
  more?: () => boolean;
  /** Tries end with it. */
  signal?: AbortSignal;
  tries?: number;
}

const transient = new Set(["overloaded", "body_too_slow", "store_unavailable", "unknown", "closed", "internal", "body_unreadable"]);

/**
 * The client of a Semel service. It may be used for any number of calls at once.
 *
 * {@link Client.once} is all that most programs need.
 */
export class Client {
  readonly #url: string;
  readonly #options: Required<Omit<Options, "token">> & Pick<Options, "token">;
  #met = false;

  constructor(options: Options) {
    this.#url = options.url.replace(/\/+$/, "");
    this.#options = { timeout: 10_000, tries: 4, pause: 100, fetch: (...args) => globalThis.fetch(...args), ...options };
  }

  /** How long one try may take. */
  get timeout(): number { return this.#options.timeout; }

  /**
   * Runs `work` once for each key: every retry gets the same outcome. The signal ends when the
   * right to execute is lost; stop then, because another may have it.
   *
   * Throws a {@link SemelError} if there is no result: `action` says what to do.
   */
  async once<T>(operation: string, key: string | Key, work: (x: Execution) => T | Promise<T>, call: Call = {}): Promise<Outcome<T>> {
    if (typeof key === "string") return this.#once(operation, key, work, call);
    const outcome = key.use().then((name) => this.#once(operation, name, work, call));
    outcome.then(() => key.settled(), (e) => { if (e instanceof SemelError && (e.code === "rejected" || e.code === "failed")) key.settled(); });
    return outcome;
  }

  async #once<T>(operation: string, key: string, work: (x: Execution) => T | Promise<T>, call: Call): Promise<Outcome<T>> {
    const began = performance.now();
    const begun = await this.begin(operation, key, call);
    if (begun.decision !== "execute") return { value: valueOf<T>(begun.record), replayed: true, record: begun.record };
    const x = new Execution(this, begun, began);
    const record = await x.run(work);
    return { value: valueOf<T>(record), replayed: false, record };
  }

  /**
   * Decides what a delivery gets: `execute` with an execution to renew and end, or `replay` with
   * the record. Everything else is thrown, and nothing may be executed then.
   */
  async begin(operation: string, key: string, call: Call = {}): Promise<Begun> {
    const { wait, ...more } = call;
    const headers: globalThis.Record<string, string> = { "Semel-Holder": crypto.randomUUID() };
    if (wait) headers["Prefer"] = `wait=${Math.ceil(wait / 1000)}`;
    const path = `/v1/operations/${encodeURIComponent(operation)}/executions`;
    const begun = await this.send<Begun>(path, { method: "POST", headers, body: { ...more, key }, lost: "store_unavailable", ...(wait ? { wait } : {}) });
    if (begun.record?.operation !== operation || begun.record.idempotency_key !== key) throw new SemelError("store_unavailable", "the answer is about another call");
    return begun;
  }

  /** Extends the lease, and returns its length. Code `lease_lost` says that the right is gone. */
  async renew(execution: string, how: Pick<Sending, "signal" | "tries"> = {}): Promise<number> {
    return (await this.#on<Renewed>(execution, "renew", {}, how)).lease_ms;
  }

  /** Ends an execution with its result. */
  complete(execution: string, result?: unknown, how: Pick<Sending, "more"> = {}): Promise<Record> {
    return this.end(execution, "complete", result === undefined ? {} : { result }, how);
  }

  /** Gives up the execution: ledger and policy say what becomes of the call. */
  abandon(execution: string, reason: string): Promise<Record> { return this.end(execution, "abandon", { reason }); }

  /**
   * Ends an execution in another way: `reject` for good, `fail`, `abort` with the proof that
   * nothing was done, or `hold` until somebody settles it. Without an answer the outcome exists, but
   * isn't recorded: `unknown`.
   */
  async end(execution: string, how: "complete" | "reject" | "fail" | "abort" | "abandon" | "hold", body: unknown, more: Pick<Sending, "more"> = {}): Promise<Record> {
    try {
      return (await this.#on<{ record: Record }>(execution, how, body, more)).record;
    } catch (e) {
      if (e instanceof SemelError && transient.has(e.code)) throw new SemelError("unknown", `the outcome is not recorded: ${e.message}`, { cause: e });
      throw e;
    }
  }

  /** The record with this name, as refusals and records have it. */
  async record(name: string): Promise<Record> {
    return (await this.send<{ record: Record }>(`/v1/records/${encodeURIComponent(name)}`, { lost: "store_unavailable" })).record;
  }

  #on<T>(execution: string, what: string, body: unknown, how: Partial<Sending>): Promise<T> {
    return this.send<T>(`/v1/executions/${encodeURIComponent(execution)}/${what}`, { method: "POST", body, lost: "unknown", ...how });
  }

  /** Sends a request until an answer comes. Every request here may be repeated. */
  async send<T>(path: string, q: Sending): Promise<T> {
    const tries = q.tries ?? this.#options.tries;
    for (let n = 1; ; n++) {
      const error = await this.#try<T>(path, q).catch((e: unknown) => {
        if (e instanceof SemelError) return e;
        return new SemelError(q.lost, "the service did not answer", { cause: e });
      });
      if (!(error instanceof SemelError)) return error;
      const again = error.status === undefined || error.status >= 500 || transient.has(error.code);
      if (!again || q.signal?.aborted || (n >= tries && !q.more?.())) throw error;
      const pause = (error.retryAfter ?? 0) + Math.random() * Math.min(this.#options.pause * 2 ** (n - 1), 5_000);
      await new Promise((done) => setTimeout(done, pause));
    }
  }

  async #try<T>(path: string, q: Sending): Promise<T> {
    const headers = new Headers({ Accept: "application/json, application/problem+json", ...q.headers });
    if (this.#options.token !== undefined) {
      if (!this.#met) await this.#fetch("/v1/operations/", {}, q);
      const token = typeof this.#options.token === "function" ? await this.#options.token() : this.#options.token;
      headers.set("Authorization", `Bearer ${token}`);
    }
    const init: RequestInit = { method: q.method ?? "GET", headers };
    if (q.body !== undefined) {
      headers.set("Content-Type", "application/json");
      init.body = JSON.stringify(q.body);
    }
    const answer = await this.#fetch(path, init, q);
    const text = await answer.text();
    const type = (answer.headers.get("Content-Type") ?? "").split(";")[0];
    if (answer.ok && type === "application/json") return JSON.parse(text) as T;
    if (type !== "application/problem+json") throw new SemelError(q.lost, `the answer (status ${answer.status}) doesn't come from the API`, { status: answer.status });
    const seconds = Number(answer.headers.get("Retry-After") ?? 0);
    throw refusal(JSON.parse(text) as Problem, seconds > 0 ? seconds * 1000 : undefined);
  }

  /** Asks, and returns an answer that has the service's mark. */
  async #fetch(path: string, init: RequestInit, q: Sending): Promise<Response> {
    const limit = AbortSignal.timeout(this.#options.timeout + (q.wait ?? 0));
    const signal = q.signal ? AbortSignal.any([limit, q.signal]) : limit;
    const answer = await this.#options.fetch(this.#url + path, { ...init, redirect: "manual", signal });
    this.#met = answer.headers.has("Semel-Api");
    if (this.#met) return answer;
    await answer.body?.cancel();
    throw new SemelError(q.lost, `a stranger answered (status ${answer.status}), not a Semel service`, { status: answer.status });
  }
}

/** What a record's call returned. Throws if it didn't return. */
export function valueOf<T>(record: Record): T {
  if (record.status === "processing") throw new SemelError("unknown", record.held_reason ?? "the outcome is not known", { record: record.id });
  const { error, disposition } = record;
  if (disposition !== "completed") throw new SemelError(disposition ?? "failed", error?.message || `the call was ${disposition}`, { action: "stop", reason: error?.code, record: record.id });
  if (record.result_kept === false) throw new SemelError("result_not_kept", "the call ran, and its result was not kept", { action: "stop", record: record.id });
  if (record.result_base64 !== undefined) return Uint8Array.from(atob(record.result_base64), (c) => c.charCodeAt(0)) as T;
  return record.result as T;
}
