import { SemelError } from "./errors.js";
import { Execution } from "./execution.js";
import type { Key } from "./keys.js";
import type { Begun, Beginning, Failure, Problem, Record, Renewed } from "./types.js";

/** How a client reaches its service. Times are in milliseconds. */
export interface Options {
  /** The address of the API, such as http://127.0.0.1:8480. */
  url: string;
  /** The token to send, or what finds it. Nobody gets it before they answered as a service. */
  token?: string | (() => string | Promise<string>) | undefined;
  /** How long one try may take. Defaults to 10 seconds. */
  timeout?: number;
  /** How often a request is sent if no answer comes. Defaults to 4. */
  tries?: number;
  /** The bound of the first pause between tries; it doubles with every try. Defaults to 100. */
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
  /** What the handler returned, now or the first time, as JSON gives it back. */
  value: T;
  /** The handler didn't run now: this is the recorded answer. */
  replayed: boolean;
  record: Record;
}

/** How a request is repeated. Every request of this client may be. */
export interface Sending {
  /** Tries go on while it holds. */
  more?: () => boolean;
  /** Tries end with it. */
  signal?: AbortSignal;
  tries?: number;
}

const transient = ["overloaded", "body_too_slow", "store_unavailable", "unknown", "closed", "internal", "body_unreadable"];

/** Whether the service may have done what it was asked, or may do it if it is asked again. */
export const uncertain = (e: unknown): e is SemelError => e instanceof SemelError && transient.includes(e.code);

/**
 * The client of a Semel service. It may be used for any number of calls at once.
 *
 * {@link Client.once} is all that most programs need.
 */
export class Client {
  readonly #options: Required<Omit<Options, "token">> & Pick<Options, "token">;
  /** The parts of the API that have given a marked answer. */
  readonly #met = new Set<string>();

  constructor(options: Options) {
    this.#options = { timeout: 10_000, tries: 4, pause: 100, fetch: (...args) => globalThis.fetch(...args), ...options, url: options.url.replace(/\/+$/, "") };
  }

  /**
   * Runs `work` once for each key: every retry gets the same outcome. The signal of the execution
   * ends when the right to execute is lost; stop then, because another may have it.
   *
   * Throws a {@link SemelError} if there is no result: `action` says what to do.
   */
  async once<T>(operation: string, key: string | Key, work: (x: Execution) => T | Promise<T>, call: Call = {}): Promise<Outcome<T>> {
    if (typeof key === "string") return this.#once(operation, key, work, call);
    try {
      const outcome = await this.#once(operation, await key.use(), work, call);
      key.settled();
      return outcome;
    } catch (e) {
      // What failed now may run again, if the operation says so.
      if (e instanceof SemelError && e.code === "rejected") key.settled();
      throw e;
    }
  }

  async #once<T>(operation: string, key: string, work: (x: Execution) => T | Promise<T>, call: Call): Promise<Outcome<T>> {
    const began = performance.now();
    const begun = await this.begin(operation, key, call);
    if (begun.decision === "replay") return { value: valueOf<T>(begun.record), replayed: true, record: begun.record };
    const { record, result, cause } = await new Execution(this, begun, began).run(work);
    const own = record.disposition === "completed" && record.result_kept === false;
    return { value: own ? (result as T) : valueOf<T>(record, cause), replayed: false, record };
  }

  /**
   * Decides what a delivery gets: `execute` with an execution to renew and end, or `replay` with
   * the record. Everything else is thrown, and nothing may be executed then.
   */
  async begin(operation: string, key: string, call: Call = {}): Promise<Begun> {
    const { wait = 0, ...more } = call;
    // The holder's name is the same in all tries, so that a lost answer is given again.
    const headers: { [name: string]: string } = { "Semel-Holder": crypto.randomUUID() };
    if (wait) headers["Prefer"] = `wait=${Math.ceil(wait / 1000)}`;
    const begun = await this.send<Begun>(`/v1/operations/${encodeURIComponent(operation)}/executions`, { ...more, key }, "store_unavailable", {}, headers, wait);
    const { record, decision } = begun;
    const right = decision === "replay" || decision === "execute" && begun.execution && begun.lease_ms;
    if (!right || record?.operation !== operation || record.idempotency_key !== key) throw new SemelError("store_unavailable", "the answer is not about this call");
    return begun;
  }

  /** Extends the lease, and returns its length. Code `lease_lost` says that the right is gone. */
  async renew(execution: string, how: Sending = {}): Promise<number> {
    const { lease_ms } = await this.on<Renewed>(execution, "renew", {}, how);
    if (!(lease_ms > 0)) throw new SemelError("unknown", "the answer has no lease");
    return lease_ms;
  }

  /** Ends an execution with its result. */
  complete(execution: string, result?: unknown): Promise<Record> { return this.end(execution, "complete", { result }); }

  /** Gives up the execution: ledger and policy say what becomes of the call. */
  abandon(execution: string, reason: string): Promise<Record> { return this.end(execution, "abandon", { reason }); }

  /**
   * Ends an execution: complete, `reject` for good, `fail`, `abort` with the proof that nothing was
   * done, abandon, or `hold` until somebody settles it. Code `unknown` means that the outcome exists,
   * but isn't recorded.
   */
  async end(execution: string, how: "complete" | "reject" | "fail" | "abort" | "abandon" | "hold", body: unknown, sending: Sending = {}): Promise<Record> {
    try {
      const { record } = await this.on<{ record: Record }>(execution, how, body, sending);
      if (!record?.id) throw new SemelError("unknown", "the answer has no record");
      return record;
    } catch (e) {
      if (uncertain(e)) throw new SemelError("unknown", `the outcome is not recorded: ${e.message}`, { cause: e });
      throw e;
    }
  }

  /** The record with this name, as refusals and records have it. */
  async record(name: string): Promise<Record> { return (await this.send<{ record: Record }>(`/v1/records/${encodeURIComponent(name)}`, undefined, "store_unavailable")).record; }

  /** Sends a request about an execution. */
  on<T>(execution: string, what: string, body: unknown, how: Sending = {}): Promise<T> { return this.send<T>(`/v1/executions/${encodeURIComponent(execution)}/${what}`, body, "unknown", how); }

  /** Sends a request until an answer comes, or throws an error with the code `lost`. */
  async send<T>(path: string, body: unknown, lost: string, how: Sending = {}, headers: { [name: string]: string } = {}, wait = 0): Promise<T> {
    const init: RequestInit = body === undefined ? { headers } : { method: "POST", headers: { "Content-Type": "application/json", ...headers }, body: JSON.stringify(body) };
    for (let n = 1; ; n++) {
      const limit = AbortSignal.timeout(Math.ceil(this.#options.timeout + wait));
      init.signal = how.signal ? AbortSignal.any([limit, how.signal]) : limit;
      let error: SemelError;
      try {
        return await this.#try<T>(path, init, lost);
      } catch (e) {
        error = e instanceof SemelError ? e : new SemelError(lost, "the service did not answer", { cause: e });
      }
      const { status = 500, stranger, retryAfter = 0 } = error;
      const again = stranger ? status >= 500 || status === 429 : uncertain(error) && retryAfter <= 30_000;
      if (!again || how.signal?.aborted || n >= (how.tries ?? this.#options.tries) && !how.more?.()) throw error;
      const pause = Math.min(this.#options.pause * 2 ** (n - 1), 2_000);
      await new Promise((done) => setTimeout(done, retryAfter + Math.random() * pause));
    }
  }

  async #try<T>(path: string, init: RequestInit, lost: string): Promise<T> {
    const headers = new Headers(init.headers);
    headers.set("Accept", "application/json, application/problem+json");
    if (this.#options.token !== undefined) {
      const part = partOf(path);
      if (!this.#met.has(part)) await (await this.#ask(part, { signal: init.signal ?? null }, lost)).body?.cancel();
      headers.set("Authorization", `Bearer ${await this.#token(this.#options.token, lost)}`);
    }
    const answer = await this.#ask(path, { ...init, headers }, lost);
    const { status } = answer;
    const text = await answer.text();
    const type = typeOf(answer);
    if (answer.ok && type === "application/json") return JSON.parse(text) as T;
    if (type !== "application/problem+json") throw new SemelError(lost, `the answer (status ${status}) doesn't come from the API`, { status, stranger: true });
    const { code, detail, action, record, challenge, retry_after } = JSON.parse(text) as Problem;
    if (!code) throw new SemelError(lost, `the answer (status ${status}) is not a valid problem`, { status, stranger: true });
    const seconds = retry_after || Number(answer.headers.get("Retry-After") ?? 0);
    throw new SemelError(code, detail, { status, action, record, challenge, ...(seconds > 0 ? { retryAfter: seconds * 1000 } : {}) });
  }

  async #token(token: NonNullable<Options["token"]>, lost: string): Promise<string> {
    try {
      return typeof token === "function" ? await token() : token;
    } catch (e) {
      throw new SemelError(lost, "the program has no token for the request", { cause: e });
    }
  }

  /** Asks, and returns an answer that has the service's mark, or refuses for the time being. */
  async #ask(path: string, init: RequestInit, lost: string): Promise<Response> {
    const answer = await this.#options.fetch(this.#options.url + path, { ...init, redirect: "manual" });
    const marked = answer.headers.get("Semel-Api")?.endsWith("/v1") ?? false;
    if (marked) this.#met.add(partOf(path));
    if (marked || typeOf(answer) === "application/problem+json" && [408, 413, 429, 503].includes(answer.status)) return answer;
    this.#met.delete(partOf(path));
    await answer.body?.cancel();
    throw new SemelError(lost, `a stranger answered (status ${answer.status}), not a Semel service`, { status: answer.status, stranger: true });
  }
}

/** The part of the API that a path is in. A service may have some at an address, and others not. */
const partOf = (path: string) => path.split("/").slice(0, 3).join("/") + "/";
const typeOf = (answer: Response) => answer.headers.get("Content-Type")?.split(";")[0];

/** What a record's call returned. Throws if it didn't return. */
export function valueOf<T>(record: Record, cause?: unknown): T {
  const { id, error, disposition = "failed", held_reason } = record;
  if (record.status === "processing") throw new SemelError("unknown", held_reason ?? "the outcome is not known", { record: id, cause });
  if (record.status === "failed" && record.result_kept !== false) {
    throw new SemelError(disposition === "abandoned" ? "aborted" : disposition, error?.message || `the call was ${disposition}`, { reason: error?.code, record: id, cause });
  }
  return kept<T>(record, id);
}

/** The result of a call or an effect, if it was kept. */
export function kept<T>(of: { result?: unknown; result_base64?: string; result_kept?: boolean; error?: Failure }, record: string): T {
  if (of.result_kept === false) throw new SemelError("result_not_kept", "it ran, and its result was not kept", { record });
  if (of.result_base64 !== undefined) return Uint8Array.from(atob(of.result_base64), (c) => c.charCodeAt(0)) as T;
  return of.result as T;
}
