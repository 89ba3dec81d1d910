// Sends one message several times at once to the agent whose card is at a URL, and prints
// the task and its state that each got: node client.mjs URL send|stream MESSAGE_ID TIMES
import { ClientFactory, ClientFactoryOptions, JsonRpcTransportFactory, RestTransportFactory } from "@a2a-js/sdk/client";

const [url, how, messageId, times] = process.argv.slice(2);
const legacyCompat = { enabled: true };
const factory = new ClientFactory(
  ClientFactoryOptions.createFrom(ClientFactoryOptions.default, {
    transports: [new JsonRpcTransportFactory({ legacyCompat }), new RestTransportFactory({ legacyCompat })],
  }),
);

async function once() {
  const client = await factory.createFromUrl(url);
  const params = {
    message: { messageId, contextId: "", taskId: "", role: 1, parts: [{ content: { $case: "text", value: "pay" }, filename: "", mediaType: "", metadata: {} }], metadata: {}, extensions: [], referenceTaskIds: [] },
    tenant: "", configuration: undefined, metadata: {},
  };
  try {
    if (how === "send") return told(await client.sendMessage(params));
    let last;
    for await (const event of client.sendMessageStream(params)) last = told(event) ?? last;
    return last;
  } catch (err) {
    return { error: String(err) };
  }
}

function told(event) {
  const e = event.payload?.value ?? event;
  const state = e.status?.state;
  return state === undefined ? undefined : { task: e.taskId || e.id, state };
}

console.log(JSON.stringify(await Promise.all(Array.from({ length: Number(times) }, once))));
process.exit(0);
