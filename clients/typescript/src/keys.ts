import { SemelError } from "./errors.js";

/** Where keys are kept between runs of a program. Every method is durable when it returns. */
export interface KeyStore {
  get(name: string): Promise<string | undefined>;
  /** Keeps the key unless there is one, and returns the one that is kept. */
  add(name: string, key: string): Promise<string>;
  remove(name: string): Promise<void>;
}

/**
 * Finds the key of a call by your name for it, such as an order number. A program that dies
 * between sending a call and recording its outcome uses the same key when it is back.
 */
export class Keys {
  constructor(readonly store: KeyStore) {}

  /** The key of the call that is under way under this name. */
  for(name: string): Key { return new Key(this.store, name); }
}

/**
 * A key with a life: it is kept before the first try, all tries of one call share it, and a
 * settled outcome ends it. Call {@link Key.done} once you have recorded that outcome; then the
 * same name begins another call. Using an ended key is an error, because a second call that is
 * meant would get the first one's answer.
 */
export class Key {
  #settled = false;
  constructor(readonly store: KeyStore, readonly name: string) {}

  /** The key itself, kept. {@link Client.once} calls it. */
  async use(): Promise<string> {
    if (this.#settled) throw new SemelError("key_settled", `the call ${this.name} has its outcome: record that, call done(), and take another key for another call`, { action: "new_key" });
    return (await this.store.get(this.name)) ?? this.store.add(this.name, crypto.randomUUID());
  }

  /** Says that the call has an outcome that stays. {@link Client.once} calls it. */
  settled(): void { this.#settled = true; }

  /** Forgets the key, once you have recorded the outcome. */
  async done(): Promise<void> {
    this.#settled = true;
    await this.store.remove(this.name);
  }
}
