// Calls tools by a stock client that sends no key, again and again until each call is answered:
// node client.mjs modern|legacy URL WORKERS TIMEOUT <calls, a {"tool","order"} in each line.
// Prints a line for each: {"tool","order","text","tries","unknown"}.
import { createInterface } from "node:readline";

const [how, url, workers, timeout] = process.argv.slice(2);
const options = { timeout: Number(timeout) };
const info = { name: "agent", version: "1" };

async function legacy() {
  const { Client } = await import("@modelcontextprotocol/sdk/client/index.js");
  const { StreamableHTTPClientTransport } = await import("@modelcontextprotocol/sdk/client/streamableHttp.js");
  const client = new Client(info);
  await client.connect(new StreamableHTTPClientTransport(new URL(url)), options);
  return { client, call: (params) => client.callTool(params, undefined, options) };
}

async function modern() {
  const { Client, StreamableHTTPClientTransport } = await import("@modelcontextprotocol/client");
  const client = new Client(info, { versionNegotiation: { mode: { pin: "2026-07-28" } } });
  await client.connect(new StreamableHTTPClientTransport(new URL(url)), options);
  return { client, call: (params) => client.callTool(params, options) };
}

// Some promises of the SDKs never settle if their connection is cut, so a host has its own clock.
const within = (promise) => Promise.race([promise, pause(2 * Number(timeout)).then(() => Promise.reject(new Error("never settled")))]);

const pause = (ms) => new Promise((done) => setTimeout(done, ms));

async function connect() {
  for (;;) {
    try {
      const session = await within({ modern, legacy }[how]());
      await within(session.client.listTools(undefined, options));
      return session;
    } catch (err) {
      if (process.env.LOUD) console.error("connect", String(err));
      await pause(20);
    }
  }
}

const calls = [];
for await (const line of createInterface({ input: process.stdin })) calls.push(JSON.parse(line));

async function work() {
  let session = await connect();
  for (let c = calls.shift(); c; c = calls.shift()) {
    const told = { ...c, tries: 0, unknown: 0 };
    for (let failed = 0; ; ) {
      told.tries++;
      try {
        const result = await within(session.call({ name: c.tool, arguments: { order_id: c.order } }));
        const refusal = result._meta?.["io.github.semelhq/refusal"];
        if (!refusal) {
          told.text = result.content[0].text;
          break;
        }
        if (process.env.LOUD) console.error(c.order, JSON.stringify(refusal));
        told.unknown++;
        await pause(200);
      } catch (err) {
        if (process.env.LOUD) console.error(c.order, String(err));
        if (++failed % 10 === 0) session = await connect(); // its session is gone, perhaps
        await pause(5);
      }
    }
    console.log(JSON.stringify(told));
  }
}

await Promise.all(Array.from({ length: Number(workers) }, work));
process.exit(0);
