import { createHash, randomUUID } from "node:crypto";
import { link, mkdir, open, readFile, rm } from "node:fs/promises";
import { join } from "node:path";
import type { KeyStore } from "./keys.js";

/** Keeps keys in a directory, a file for each. Several processes may share it. */
export class Files implements KeyStore {
  constructor(readonly directory: string) {}

  async get(name: string): Promise<string | undefined> {
    try {
      return await readFile(this.#path(name), "utf8");
    } catch (e) {
      if ((e as NodeJS.ErrnoException).code === "ENOENT") return undefined;
      throw e;
    }
  }

  async add(name: string, key: string): Promise<string> {
    await mkdir(this.directory, { recursive: true });
    // A crash before the link leaves a file that nobody reads; after it, the key.
    const fresh = join(this.directory, `new-${randomUUID()}`);
    const file = await open(fresh, "wx", 0o600);
    try {
      await file.writeFile(key);
      await file.sync();
    } finally {
      await file.close();
    }
    try {
      await link(fresh, this.#path(name));
    } catch (e) {
      if ((e as NodeJS.ErrnoException).code !== "EEXIST") throw e;
    } finally {
      await rm(fresh, { force: true });
    }
    await this.#sync();
    const kept = await this.get(name);
    if (kept === undefined) throw new Error(`the key of ${name} was removed while it was made`);
    return kept;
  }

  async remove(name: string): Promise<void> {
    await rm(this.#path(name), { force: true });
    await this.#sync();
  }

  #path(name: string): string {
    return join(this.directory, createHash("sha256").update(name).digest("hex"));
  }

  async #sync(): Promise<void> {
    if (process.platform === "win32") return; // directories can't be synced there
    const directory = await open(this.directory, "r");
    await directory.sync().finally(() => directory.close());
  }
}
