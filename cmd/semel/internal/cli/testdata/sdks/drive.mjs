// What an application does around its SDK: each line of the standard input is the key
// of a call to make, 50 at a time. A line of the output is the key, a tab, and what
// became of the call: the id that its answer has, or "held".
import {createInterface} from 'node:readline';
import {setTimeout as pause} from 'node:timers/promises';

export const [url, mode] = process.argv.slice(2);

// call makes one call by the SDK and resolves to the id in the answer. reason takes an
// error of the SDK apart, into the status and the code of the answer, if there was one.
export async function drive(call, reason) {
	const keys = [];
	for await (const line of createInterface({input: process.stdin})) keys.push(line);
	const left = keys.values();
	const worker = async () => {
		for (const key of left) console.log(`${key}\t${await end(key)}`);
	};
	await Promise.all(Array.from({length: 50}, worker));

	// The call is made again, under its key, whenever the SDK has given up without an
	// answer that says what became of it.
	async function end(key) {
		for (;;) {
			try {
				return await call(key);
			} catch (error) {
				const {status, code} = reason(error);
				if (code === 'held') return 'held';
				if (status && ![409, 500, 502, 503, 504].includes(status)) throw error;
				if (mode === 'own keys') return 'given up'; // nobody knows the key
				await pause(100);
			}
		}
	}
}
