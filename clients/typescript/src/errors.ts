import type { Challenge, Problem } from "./types.js";

/** What a program does next: see the table of refusals in the service's documentation. */
export type Action = "wait" | "verify" | "fix_request" | "new_key" | "stop";

/** What else is known about a refusal. */
export interface Known {
  status?: number | undefined;
  action?: Action | undefined;
  retryAfter?: number | undefined;
  record?: string | undefined;
  reason?: string | undefined;
  challenge?: Challenge | undefined;
  cause?: unknown;
}

/**
 * A call without a result. `code` is stable, `message` is for people.
 *
 * Code `unknown` means that the work may have been done: don't do it again under another key.
 */
export class SemelError extends Error {
  override readonly name = "SemelError";
  /** The HTTP status, if the service answered. */
  readonly status: number | undefined;
  readonly action: Action;
  /** Milliseconds after which asking again makes sense. */
  readonly retryAfter: number | undefined;
  /** Names the record in the API. */
  readonly record: string | undefined;
  /** The handler's own word for why it was rejected or failed. */
  readonly reason: string | undefined;
  /** What confirms the call, with code `confirmation_required`. */
  readonly challenge: Challenge | undefined;

  constructor(readonly code: string, message: string, known: Known = {}) {
    super(message, known.cause === undefined ? undefined : { cause: known.cause });
    this.status = known.status;
    this.action = known.action ?? (code === "unknown" ? "verify" : code === "store_unavailable" ? "wait" : "stop");
    this.retryAfter = known.retryAfter;
    this.record = known.record;
    this.reason = known.reason;
    this.challenge = known.challenge;
  }
}

/** The error for a problem document. */
export function refusal(p: Problem, retryAfter?: number): SemelError {
  return new SemelError(p.code, p.detail, {
    status: p.status,
    action: p.action as Action | undefined,
    retryAfter: p.retry_after ? p.retry_after * 1000 : retryAfter,
    record: p.record,
    challenge: p.challenge,
  });
}

/** How a handler's error ends the attempt. */
export type Mark = "rejected" | "failed" | "aborted" | "unknown";

/**
 * What a handler throws to say how the attempt ends.
 *
 * An error without a mark ends it as failed if an effect was confirmed or the operation moves
 * money, as unknown if an effect has no result, and otherwise as aborted: nothing was done.
 */
export class Ended extends Error {
  override readonly name = "Ended";
  constructor(readonly mark: Mark, message: string, readonly code = "", cause?: unknown) {
    super(message, cause === undefined ? undefined : { cause });
  }
}

/** The work was refused for good: every retry gets this error. */
export const rejected = (code: string, message: string) => new Ended("rejected", message, code);
/** The work failed; the operation's `on_failure` says whether a retry runs it again. */
export const failed = (message: string, cause?: unknown) => new Ended("failed", message, "", cause);
/** Nothing was done, for certain: the next delivery runs the work. */
export const nothingDone = (message: string, cause?: unknown) => new Ended("aborted", message, "", cause);
/** Nobody knows whether the work was done: the call is held until somebody settles it. */
export const unknown = (message: string, cause?: unknown) => new Ended("unknown", message, "", cause);
