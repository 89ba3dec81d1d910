// An actor of Fedify on loopback, for tests. It serves its document and its inbox, and
// delivers activities: standard input has one JSON object per line,
//
//	{"id": of the activity, "to": actor, "inbox": of that actor, "content": text}
//
// It prints one object per line: first {"actor", "key", "inbox"}, its URLs; after a
// delivery {"delivered": id}, with "error" if Fedify gave up; and {"received": id, "from":
// actor} when another server's activity has got past the signature. With the argument
// "proofs" it has an Ed25519 key too, with which Fedify signs the activities themselves.
import { createServer } from "node:http";
import { createInterface } from "node:readline";
import { MemoryKvStore, createFederation, generateCryptoKeyPair } from "@fedify/fedify";
import { Create, Note, Person } from "@fedify/vocab";

const say = (line) => process.stdout.write(JSON.stringify(line) + "\n");

const pairs = [await generateCryptoKeyPair("RSASSA-PKCS1-v1_5")];
if (process.argv[2] === "proofs") {
  pairs.push(await generateCryptoKeyPair("Ed25519"));
}

const federation = createFederation({ kv: new MemoryKvStore(), allowPrivateAddress: true });
federation
  .setActorDispatcher("/users/{identifier}", async (ctx, identifier) => {
    const keys = await ctx.getActorKeyPairs(identifier);
    return new Person({
      id: ctx.getActorUri(identifier),
      preferredUsername: identifier,
      inbox: ctx.getInboxUri(identifier),
      publicKey: keys[0].cryptographicKey,
      assertionMethods: keys.map((k) => k.multikey),
    });
  })
  .setKeyPairsDispatcher(() => pairs);
federation
  .setInboxListeners("/users/{identifier}/inbox")
  .on(Create, (_, activity) => say({ received: activity.id.href, from: activity.actorId.href }));

const server = createServer(async (req, res) => {
  const chunks = [];
  for await (const chunk of req) {
    chunks.push(chunk);
  }
  const request = new Request(new URL(req.url, `http://${req.headers.host}`), {
    method: req.method,
    headers: Object.entries(req.headers),
    body: chunks.length > 0 ? Buffer.concat(chunks) : undefined,
  });
  const answer = await federation.fetch(request, { contextData: undefined });
  res.writeHead(answer.status, Object.fromEntries(answer.headers));
  res.end(Buffer.from(await answer.arrayBuffer()));
});
await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));

const ctx = federation.createContext(new URL(`http://127.0.0.1:${server.address().port}`), undefined);
const name = "alice";
say({
  actor: ctx.getActorUri(name).href,
  key: (await ctx.getActorKeyPairs(name))[0].keyId.href,
  inbox: ctx.getInboxUri(name).href,
});

for await (const line of createInterface({ input: process.stdin })) {
  const { id, to, inbox, content } = JSON.parse(line);
  const activity = new Create({
    id: new URL(id),
    actor: ctx.getActorUri(name),
    to: new URL(to),
    object: new Note({ id: new URL(id + "/note"), attribution: ctx.getActorUri(name), content }),
  });
  try {
    await ctx.sendActivity({ identifier: name }, { id: new URL(to), inboxId: new URL(inbox) }, activity, { immediate: true });
    say({ delivered: id });
  } catch (error) {
    say({ delivered: id, error: String(error) });
  }
}
process.exit(0);
