export { Client, type Call, type Options, type Outcome } from "./client.js";
export { Execution } from "./execution.js";
export { Ended, failed, nothingDone, rejected, SemelError, unknown, type Action, type Mark } from "./errors.js";
export { Key, Keys, type KeyStore } from "./keys.js";
export type * from "./types.js";
