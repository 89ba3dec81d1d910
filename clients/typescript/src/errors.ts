import type { Challenge, Problem } from "./types.js";

/**
 * What a program does next. `wait`: send the same again, after `retryAfter`. `verify`: find out
 * what happened first. `fix_request`: correct the request. `new_key`: what differs is another
 * call. `stop`: nothing helps.
 */
export type Action = NonNullable<Problem["action"]>;

/** The actions of codes that the client itself gives; problems have their own. */
const actions: { [code: string]: Action } = {
  unknown: "wait", store_unavailable: "wait", aborted: "wait", rejected: "fix_request", failed: "verify", result_not_kept: "verify", key_settled: "new_key",
};

/** What else is known about a call without a result. */
export interface Known {
  /** The HTTP status, if somebody answered. */
  status?: number | undefined;
  /** Something else than the service has answered. */
  stranger?: boolean;
  /** Milliseconds after which asking again makes sense. */
  retryAfter?: number | undefined;
  /** Names the record in the API. */
  record?: string | undefined;
  /** The handler's own word for why it was rejected or failed. */
  reason?: string | undefined;
  /** What confirms the call, with code `confirmation_required`. */
  challenge?: Challenge | undefined;
}

export interface SemelError extends Known {}

/**
 * A call without a result. `code` is stable, `message` is for people.
 *
 * Code `unknown` means that the work may have been done: don't do it again under another key.
 */
export class SemelError extends Error {
  readonly action: Action;
  constructor(readonly code: string, message: string, known: Known & { action?: Action | undefined; cause?: unknown } = {}) {
    const { action, cause, ...more } = known;
    super(message, cause === undefined ? undefined : { cause });
    this.name = "SemelError";
    this.action = action ?? actions[code] ?? "stop";
    Object.assign(this, more);
  }
}

/** How a handler's error ends the attempt. */
export type Mark = "rejected" | "failed" | "aborted" | "unknown";

/**
 * What a handler throws to say how the attempt ends.
 *
 * An error without a mark ends it as unknown if an effect has no result, as failed if an effect was
 * confirmed or the operation moves money, and otherwise as aborted: nothing was done.
 */
export class Ended extends Error {
  constructor(readonly mark: Mark, message: string, readonly code = "", cause?: unknown) {
    super(message, cause === undefined ? undefined : { cause });
    this.name = "Ended";
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
