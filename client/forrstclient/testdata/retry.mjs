// call runs a function once for its key, however often it has to ask.
export async function call(url, key, target, { tries = 4, headers = {}, sleep = (ms) => new Promise((wake) => setTimeout(wake, ms)) } = {}) {
  for (let attempt = 1; ; attempt++) {
    let pause = 100 * 2 ** attempt * Math.random(); // unless the service says
    let again = true;
    let problem;
    try {
      const response = await fetch(url, {
        method: "POST",
        headers: { "Content-Type": "application/json", ...headers },
        body: JSON.stringify({
          protocol: { name: "forrst", version: "0.1.0" },
          id: crypto.randomUUID(), // another one for each try
          call: target, // function, version and arguments
          extensions: [{ urn: "urn:forrst:ext:idempotency", options: { key } }], // the same for all
        }),
      });
      const answer = await response.json();
      if (answer.protocol?.name !== "forrst") throw new Error("not an answer of the service");
      if (!answer.errors) return answer.result;
      const [error] = answer.errors;
      const data = (name) => answer.extensions?.find((x) => x.urn.endsWith(":ext:" + name))?.data;
      const retry = data("retry");
      const after = error.details?.retry_after ?? retry?.after;
      if (after) pause = after.value * { millisecond: 1, second: 1e3, minute: 60e3, hour: 3600e3, day: 86400e3 }[after.unit];
      again = retry?.allowed ?? error.code === "IDEMPOTENCY_PROCESSING";
      problem = Object.assign(new Error(error.message), error);
      const recorded = /^IDEMPOTENCY_/.test(error.code) || /^(processed|cached|conflict)$/.test(data("idempotency")?.status);
      if (attempt > 1 && !recorded) {
        // "Nothing was executed" is about this request alone.
        problem = Object.assign(new Error("an earlier request may have run the function", { cause: problem }), { code: "UNKNOWN" });
      }
    } catch (lost) {
      problem = lost; // it may have run: asking again with the same key is safe
    }
    if (!again || attempt >= tries) throw problem; // keep the key, and ask again later
    await sleep(pause);
  }
}
