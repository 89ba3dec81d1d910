// Calls the function at a URL by the recipe, and prints what came of it and its pauses.
import { call } from "./retry.mjs";

const pauses = [];
const sleep = async (ms) => void pauses.push(ms);
const target = { function: "payments.charge", version: "1.0.0", arguments: { amount: 100 } };
let said;
try {
  said = { result: await call(process.argv[2], "charge_order456_v1", target, { sleep }) };
} catch (problem) {
  said = { code: String(problem.code ?? problem.name) };
}
console.log(JSON.stringify({ ...said, pauses }));
