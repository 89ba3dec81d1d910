// Reads the event stream that a POST is answered with by a stock EventSource, which connects again
// by itself after its last event: node stream.mjs URL KEY. Prints the events, and how often it
// connected.
import { EventSource } from "eventsource";

const [url, key] = process.argv.slice(2);
const events = [];
let connected = 0;
const awake = setInterval(() => {}, 1000); // it waits for nothing while it waits to connect
const source = new EventSource(url, {
  fetch: (input, init) => {
    connected++;
    return fetch(input, { ...init, method: "POST", headers: { ...init.headers, "Idempotency-Key": key } });
  },
});
source.onmessage = (event) => events.push(event.data);
source.addEventListener("done", () => {
  source.close();
  clearInterval(awake);
  console.log(JSON.stringify({ events, connected }));
});
