// The API of this server, and the session in front of it. All addresses are relative to the
// page, so it works below any prefix.
import { signal } from './lib.js';

const sessionKey = 'semel.session';

/** Who the user is and what this installation has; null until that is known. */
export const me = signal(null);

/** A refusal in the form of RFC 9457, or no answer at all: then status is 0. */
export class Problem extends Error {
	constructor(status, doc) {
		super(doc.detail || doc.title || 'The server answered ' + status + '.');
		this.status = status;
		this.code = doc.code || '';
		this.title = doc.title || '';
		this.errors = doc.errors || [];
	}
}

/** Half of the session; the other half is a cookie, which no script can read. */
const session = () => { try { return localStorage.getItem(sessionKey) || ''; } catch { return ''; } };

/** Whether this browser has signed in here before, and not out. */
export const hadSession = () => !!session();

function headers(more) {
	const h = { ...more };
	const half = session();
	if (half) h['Semel-Session'] = half;
	return h;
}

/** Sends a request and returns the answer, or throws a Problem. */
export async function send(method, path, options = {}) {
	let answer;
	try {
		answer = await fetch(path, { method, headers: headers(options.headers), body: options.body, signal: options.signal, credentials: 'same-origin' });
	} catch (err) {
		if (err.name === 'AbortError') throw err;
		throw new Problem(0, { title: 'The server does not answer', detail: 'The server does not answer. It may be restarting; the page tries again.' });
	}
	if (answer.ok) return answer;
	let doc = {};
	try { doc = await answer.json(); } catch { /* not one of ours: the status has to do */ }
	const problem = new Problem(answer.status, doc);
	if (answer.status === 401 && path !== 'ui/session' && me.value?.caller) me.value = { ...me.value, caller: null, why: problem.message };
	throw problem;
}

/** Keeps numbers that JavaScript would round, such as ids of 64 bits, as they were written. */
const exact = (_, v, context) => (typeof v === 'number' && context?.source !== undefined && !Number.isSafeInteger(v) && String(v) !== context.source && JSON.rawJSON
	? JSON.rawJSON(context.source) : v);

export async function get(path, signal) {
	return JSON.parse(await (await send('GET', path, { signal })).text(), exact);
}

/** Reads JSON; a number that JavaScript would round stays as it was written. */
export const parseExact = (text) => JSON.parse(text, exact);

/** JSON as people read it, with its numbers as they were; what isn't JSON stays. */
export function pretty(text) {
	try { return JSON.stringify(JSON.parse(text, exact), null, 2); } catch { return text; }
}

export async function post(path, body) {
	const answer = await send('POST', path, { headers: { 'Content-Type': 'application/json' }, body: JSON.stringify(body ?? {}) });
	return answer.status === 204 ? null : answer.json();
}

export async function loadMe() {
	const early = await globalThis.semelEarly; // the first time; see early.js
	globalThis.semelEarly = null;
	me.value = early?.ok ? await early.json() : await get('ui/session');
}

export async function signIn(token) {
	const answer = await send('POST', 'ui/session', { headers: { Authorization: 'Bearer ' + token.trim() } });
	localStorage.setItem(sessionKey, (await answer.json()).session);
	await loadMe();
}

export async function signOut() {
	await send('DELETE', 'ui/session');
	localStorage.removeItem(sessionKey);
	await loadMe();
}

/** The node that answers, in a sentence: what it says of itself isn't of others. */
export const thisNode = () => (me.value?.node ? `this node (${me.value.node})` : 'this node');

const order = { none: 0, viewer: 1, operator: 2, admin: 3 };
/** Whether the user may change something. The server decides; this hides what it would refuse. */
export const mayChange = () => !!me.value && !me.value.read_only && order[me.value.caller?.role] >= 2;

export const recordPath = (id, action) => 'v1/records/' + encodeURIComponent(id) + (action ? '/' + action : '');

export function search(q, { cursor, limit = 50, signal } = {}) {
	const p = new URLSearchParams({ limit: String(limit) });
	if (q) p.set('q', q);
	if (cursor) p.set('cursor', cursor);
	return get('v1/records?' + p, signal);
}

/** A value of a qualifier, quoted where it must be. */
export const quote = (v) => (/^[^\s"]+$/.test(v) ? v : JSON.stringify(v));

/** How many pages are looked at for a name. A page is empty where none of the records that it had time for has it. */
const maxPages = 20;

/** Finds the calls with a text for any of their names, as 'semel why' does: the first page with any, from a cursor on. */
export async function find(text, cursor, signal) {
	const all = { found: [], gone: [], records: 0, next: cursor || '' };
	for (let n = 0; n < maxPages && (n === 0 || all.next && !all.found.length); n++) {
		const page = await get('v1/lookup?' + new URLSearchParams({ q: text, ...(all.next && { cursor: all.next }) }), signal);
		Object.assign(all, { found: page.found, gone: all.gone.concat(page.gone || []), verdict: page.verdict, complete: page.complete, next: page.next || '', records: all.records + page.searched.records, back: page.searched.back_to || all.back });
	}
	return all;
}

export const bytesOf = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));

let takingApart = Promise.resolve();
/** The parts of an answer over HTTP that a record keeps: one after the other, as the server wants it. */
function takeApart(bytes) {
	const next = takingApart.then(async () => {
		const answer = await send('POST', 'ui/answer', { headers: { 'Content-Type': 'application/octet-stream' }, body: bytes });
		return answer.json();
	});
	takingApart = next.catch(() => {});
	return next;
}

/** What a record keeps as its outcome: {kind: 'http', ...}, {kind: 'json'|'text'|'bytes', text} or null. */
export async function outcomeOf(rec) {
	if (rec.result !== undefined) return { kind: 'json', text: JSON.stringify(rec.result, null, 2) };
	if (rec.result_base64 === undefined) return rec.result_kept === false ? { kind: 'gone' } : null;
	const bytes = bytesOf(rec.result_base64);
	if (rec.door === 'http' || bytes[0] === 1) {
		try {
			return { kind: 'http', ...(await takeApart(bytes)) };
		} catch (err) {
			if (![400, 413, 422].includes(err.status)) throw err; // not an answer over HTTP, or a large one
		}
	}
	try {
		return { kind: 'text', text: new TextDecoder('utf-8', { fatal: true }).decode(bytes) };
	} catch {
		return { kind: 'bytes', text: rec.result_base64, size: bytes.length };
	}
}
