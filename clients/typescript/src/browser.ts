import type { KeyStore } from "./keys.js";

/** Keeps keys in IndexedDB, for pages and workers. */
export class Indexed implements KeyStore {
  #database: Promise<IDBDatabase> | undefined;
  constructor(readonly database = "semel") {}

  async get(name: string): Promise<string | undefined> {
    return this.#run("readonly", (keys) => keys.get(name) as IDBRequest<string | undefined>);
  }

  async add(name: string, key: string): Promise<string> {
    let kept = key;
    await this.#run("readwrite", (keys) => {
      const old = keys.get(name) as IDBRequest<string | undefined>;
      old.onsuccess = () => {
        if (old.result === undefined) keys.put(key, name);
        else kept = old.result;
      };
      return old;
    });
    return kept;
  }

  async remove(name: string): Promise<void> { await this.#run("readwrite", (keys) => keys.delete(name)); }

  async #run<T>(mode: IDBTransactionMode, step: (keys: IDBObjectStore) => IDBRequest<T>): Promise<T> {
    this.#database ??= new Promise((resolve, reject) => {
      const opening = indexedDB.open(this.database, 1);
      opening.onupgradeneeded = () => opening.result.createObjectStore("keys");
      opening.onsuccess = () => resolve(opening.result);
      opening.onerror = () => reject(opening.error);
    });
    const transaction = (await this.#database).transaction("keys", mode, { durability: "strict" });
    return new Promise((resolve, reject) => {
      const request = step(transaction.objectStore("keys"));
      transaction.oncomplete = () => resolve(request.result);
      transaction.onabort = () => reject(transaction.error);
    });
  }
}
