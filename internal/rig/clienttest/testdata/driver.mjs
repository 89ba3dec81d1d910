// Runs the steps of scenarios, a line of JSON each from standard input, by the client for
// TypeScript, and writes what its user sees of each.
import { createInterface } from "node:readline";

const [url, prefix, directory, built] = process.argv.slice(2);
const { Client, failed, Keys, nothingDone, rejected, SemelError, unknown } = await import(`${built}/index.js`);
const { Files } = await import(`${built}/files.js`);
const marks = { rejected: () => rejected("declined", "it says no"), failed: () => failed("it failed"), nothing: () => nothingDone("nothing was sent"), unknown: () => unknown("nobody knows"), error: () => new Error("something broke") };
const keys = new Keys(new Files(directory));
let client, execution, named = {};

const wait = (signal) => new Promise((done) => (signal.aborted ? done() : signal.addEventListener("abort", done)));

async function run(step, seen, x) {
  let value = null;
  for (const act of step.work ?? []) {
    if (act.effect) value = await x.effect(act.effect, () => { seen.calls++; if (act.throws) throw marks[act.throws](); return act.gives; });
    if (act.swallow) await x.effect(act.swallow, () => { seen.calls++; throw marks.error(); }).catch(() => {});
    if (act.inner) (seen.inner ??= []).push(await perform({ key: step.key, operation: step.operation, payload: step.payload, ...act.inner }));
    if (act.beside) (seen.besides ??= []).push(perform({ key: step.key, operation: step.operation, payload: step.payload, ...act.beside }));
    if (act.lost) { await wait(x.signal); seen.lost = true; }
    if (act.throws && !act.effect) throw marks[act.throws]();
    if ("returns" in act) value = act.returns;
  }
  return value;
}

async function perform(step) {
  const seen = { runs: 0, calls: 0 };
  try {
    await does[step.do ?? "once"](step, seen);
  } catch (e) {
    if (!(e instanceof SemelError)) throw e;
    Object.assign(seen, { code: e.code, action: e.action, reason: e.reason || undefined, record: e.record });
    if (e.challenge) seen.challenge = true;
    if (step.tells) seen.said = e.message;
  }
  if (seen.besides) seen.inner = [...(seen.inner ?? []), ...(await Promise.all(seen.besides))];
  delete seen.besides;
  return seen;
}

function show(seen, record) {
  const effects = record.effects.map((e) => `${e.name}:${e.state}`).sort();
  Object.assign(seen, { status: record.status, disposition: record.disposition, attempt: record.attempt, record: record.id, ...(effects.length ? { effects } : {}) });
}

const does = {
  async client(step) { client = new Client({ url, token: step.vault ? () => { throw new Error(step.vault); } : step.token, tries: 3, pause: 20, timeout: 2000 }); named = {}; },
  async once(step, seen) {
    const name = prefix + step.key;
    const key = step.named ? (named[name] ??= keys.for(name)) : name;
    const outcome = await client.once(step.operation, key, (x) => (seen.runs++, run(step, seen, x)), { payload: step.payload, ...step.call, ...(step.wait ? { wait: step.wait * 1000 } : {}) });
    Object.assign(seen, { value: outcome.value ?? null, replayed: outcome.replayed });
    show(seen, outcome.record);
  },
  async done(step) { await keys.for(prefix + step.key).done(); named = {}; },
  async begin(step, seen) {
    const begun = await client.begin(step.operation, prefix + step.key, { payload: step.payload });
    seen.decision = begun.decision;
    execution = begun.execution ?? execution;
    show(seen, begun.record);
  },
  async renew(step, seen) { seen.renewed = (await client.renew(execution)) > 0; },
  async complete(step, seen) { show(seen, await client.complete(execution, step.result)); },
  async abandon(step, seen) { show(seen, await client.abandon(execution, "it gave up")); },
  async record(step, seen) { show(seen, await client.record(step.record)); },
};

for await (const line of createInterface({ input: process.stdin })) console.log(JSON.stringify(await perform(JSON.parse(line))));
