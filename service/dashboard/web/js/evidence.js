// The evidence log. The page verifies inclusion by itself, as RFC 6962 says: the hash of the
// leaf and the path of hashes give the root that was signed.
import { html, useState } from './lib.js';
import { get, me, send } from './api.js';
import { Badge, Copy, Empty, Fact, Failed, Head, Loading, Time, useLoad } from './ui.js';
import { href } from './route.js';
import { clockTime, instant } from './time.js';

const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
const join = (...parts) => {
	const all = new Uint8Array(parts.reduce((n, p) => n + p.length, 0));
	parts.reduce((at, p) => (all.set(p, at), at + p.length), 0);
	return all;
};
const sha256 = async (data) => new Uint8Array(await crypto.subtle.digest('SHA-256', data));
const utf8 = (text) => new TextEncoder().encode(text);
/** A leaf, or an opening, as it was hashed: canonical JSON, whose members keep their order here. */
export const canonical = (value) => utf8(JSON.stringify(value));
const leafHash = (leaf) => sha256(join(Uint8Array.of(0), leaf));
const nodeHash = (l, r) => sha256(join(Uint8Array.of(1), l, r));

/** The root that an entry and its path lead to; null if the path has the wrong length. */
export async function rootOf(n, size, leaf, path) {
	let hash = await leafHash(leaf);
	let rest = path.length;
	const fold = async (lo, hi) => {
		if (hi - lo === 1) return true;
		// The largest power of two below the size splits a tree.
		let k = 1;
		while (k * 2 < hi - lo) k *= 2;
		const isLeft = n < lo + k;
		if (!(await (isLeft ? fold(lo, lo + k) : fold(lo + k, hi)))) return false;
		const other = path[path.length - rest];
		if (!other) return false;
		rest--;
		hash = isLeft ? await nodeHash(hash, other) : await nodeHash(other, hash);
		return true;
	};
	return (await fold(0, size)) && rest === 0 ? hash : null;
}

const same = (a, b) => a && a.length === b.length && a.every((v, i) => v === b[i]);

/** 'proved', 'wrong', 'pending' (not under a checkpoint yet), or 'unable' (no cryptography on plain HTTP). */
async function prove(entry, list) {
	if (entry.n >= list.size) return 'pending';
	if (!globalThis.crypto?.subtle) return 'unable';
	const hex = [...await sha256(join(utf8('semel-opening-1\n'), canonical(entry.opening)))].map((b) => b.toString(16).padStart(2, '0')).join('');
	if (entry.opening && hex !== entry.leaf.commitment) return 'wrong';
	return same(await rootOf(entry.n, list.size, canonical(entry.leaf), (entry.proof || []).map(bytes)), bytes(list.root)) ? 'proved' : 'wrong';
}

export async function loadEntries(params, signal) {
	const list = await get('v1/evidence/entries?' + new URLSearchParams({ newest: true, ...params }), signal);
	for (const e of list.entries) e.status = await prove(e, list);
	return list;
}

const types = {
	'execution.rejected': 'it was rejected for good by who executes it', 'execution.started': 'a further attempt began',
	'execution.executed': 'it was executed', 'execution.failed': 'the attempt failed', 'execution.aborted': 'the attempt ended, and nothing had happened',
	'execution.abandoned': 'the attempt was given up, and another may follow', 'execution.settled': 'it was settled',
	'execution.released': 'its claim was given back, and nothing was executed', 'execution.held': 'it is held: nobody knows what its attempt did',
	'effect.changed': 'effect', 'message.changed': 'message', 'compensation.changed': 'compensation by',
	'confirmation.requested': 'a confirmation was asked for', 'confirmation.refused': 'a wrong confirmation was refused', 'confirmation.given': 'it was confirmed', 'confirmation.consumed': 'its confirmation was used',
	'record.moved': 'the refusal got a record of its own, for the caller who got it', 'record.forgotten': 'its window was over, and its outcome was dropped: the call is still known', 'record.purged': 'an operator purged the record', 'store.restored': 'the store was restored from a backup',
};

const decisions = { duplicate_replayed: 'replay', conflict_rejected: 'conflict' };

/** An entry in words. */
export function tell(e) {
	const p = e.leaf.payload;
	const kind = e.leaf.artifact_type;
	let text = types[kind] || kind.replace(/[._]/g, ' ');
	if (p.decision === 'duplicate_replayed') text = 'a duplicate got the outcome that exists';
	else if (p.decision === 'first_seen') text = p.executed ? 'it was seen for the first time, and its execution began' : 'it was seen for the first time';
	else if (p.reason === 'idempotency_conflict') text = 'a delivery with another payload was refused';
	else if (p.decision) text = 'a delivery was answered ' + p.decision;
	else if (kind === 'execution.settled') text = 'it was settled as ' + p.disposition;
	if (p.state) text += `${e.opening?.item ? ' ' + e.opening.item : ''} is ${p.state}`;
	if (p.count) text = `${p.count} deliveries were answered ${decisions[p.decision] || p.decision}, from ${clockTime(instant(p.from))} to ${clockTime(instant(p.until))}`;
	if (p.by) text += `, by ${e.opening?.settled_by || p.by}${e.opening?.reason ? ': ' + e.opening.reason : ''}`;
	return text;
}

/** The deliveries among entries, and when it was held, in the form of live events. */
export const deliveriesIn = (entries) => entries.filter(({ leaf: { artifact_type: type, payload: p } }) => type === 'execution.held' || (p.decision && p.decision !== 'first_seen')).map(({ n, leaf: { artifact_type: type, emitted_at: at, payload: p } }) => {
	if (type === 'execution.held') return { seq: 'log' + n, kind: 'ended', at: instant(at), data: { held: true, attempt: p.attempt } };
	const decision = decisions[p.decision] || p.decision;
	return { seq: 'log' + n, kind: 'decided', at: instant(at), data: { decision, attempt: p.attempt, count: p.count } };
});

const proofs = { proved: ['green', 'proved'], wrong: ['red', 'NOT IN THE LOG'], pending: ['grey', 'not signed yet'], unable: ['grey', 'not checked'] };
const why = { proved: 'This page has computed the signed root from the entry.', wrong: 'The entry does not lead to the signed root.', pending: 'The next checkpoint has it, within a second.', unable: 'Browsers offer SHA-256 on HTTPS and on loopback only.' };

export const EntryList = ({ list, records }) => html`<ol class="entries">${list.entries.map((e) => html`<li key=${e.n}>
	<span class="num faint">#${e.n}</span><${Badge} tone=${proofs[e.status][0]} title=${why[e.status]}>${proofs[e.status][1]}<//><${Time} at=${e.leaf.emitted_at} />
	<span>${tell(e)}${e.leaf.payload.attempt ? html`<small> attempt ${e.leaf.payload.attempt}</small>` : ''}${records && e.opening ? html` <a class="key" href=${href('find', e.opening.idempotency_key)}>${e.opening.idempotency_key}</a> <small>${e.opening.operation}</small>` : ''}${records && !e.opening && html` <small>its opening was erased</small>`}</span></li>`)}</ol>`;

export function EvidenceScreen() {
	const head = useLoad((signal) => get('v1/evidence/checkpoint', signal), [], 2000);
	const [before, setBefore] = useState(0);
	const all = me.value.caller.all_tenants;
	const list = useLoad((signal) => (all ? loadEntries(before ? { before } : {}, signal) : null), [before, all], before ? 0 : 2000);
	const [report, setReport] = useState(null);
	const [busy, setBusy] = useState(false);
	const verify = async () => {
		setBusy(true);
		setReport(null);
		try { setReport(await (await send('POST', 'v1/evidence/verify')).json()); } catch (error) { setReport({ error }); } finally { setBusy(false); }
	};
	const c = head.data;
	return html`<${Head} title="Evidence"><button type="button" class="primary" disabled=${busy || !c?.size} onClick=${verify}>${busy ? 'Verifying…' : 'Verify the log'}</button><//>
		${head.error && html`<${Failed} error=${head.error} retry=${head.reload} />`}
		${report && html`<${Report} report=${report} />`}
		${!c ? !head.error && html`<${Loading} what="the checkpoint" />` : html`<section class="card"><h2>Checkpoint</h2>
			${c.fault && html`<p class="note red" role="alert">${c.fault}</p>`}
			<dl class="facts wide"><${Fact} name="Log">${c.origin}<//><${Fact} name="Entries"><span class="num">${c.size}</span><//><${Fact} name="Root"><span class="mono cut">${c.root || '–'}</span> ${c.root && html`<${Copy} text=${c.root} label="the root" />`}<//>
			<${Fact} name="Public key">${c.keys.map((k) => html`<span class="mono cut">${k}</span> <${Copy} text=${k} label="the public key" />`)}<//></dl>
			${c.signed && html`<details><summary>The signed note</summary><pre class="payload" tabindex="0">${c.signed}</pre><${Copy} text=${c.signed} label="the signed note" /></details>`}
			<p class="faint">Keep checkpoints where the operator of this store can't change them: without one, a log that was written anew by who has the key looks whole.</p></section>`}
		${(c || !head.error) && html`<section class="card"><h2>Entries</h2>
		${!all ? html`<p class="faint">An admin of all tenants sees the whole log. Open a record for what the log says about it.</p>`
		: list.error ? html`<${Failed} error=${list.error} retry=${list.reload} />` : !list.data ? html`<${Loading} what="entries" />`
		: !list.data.entries.length ? html`<${Empty} title="No entry yet"><p>Operations write evidence if their policy says <code>evidence: changes</code> or more.</p><//>`
		: html`<${EntryList} list=${list.data} records /><${Pages} next=${list.data.next} before=${before} go=${setBefore} />`}</section>`}`;
}

/** The buttons that lead from one page of entries to another. */
export const Pages = ({ next, before, go }) => html`<p>${before > 0 && html`<button type="button" onClick=${() => go(0)}>Newest</button> `}${next > 0 && html`<button type="button" onClick=${() => go(next)}>Older</button>`}</p>`;

function Report({ report: r }) {
	if (r.error) return html`<${Failed} error=${r.error} />`;
	const faults = r.contradictions_found || 0;
	return html`<section class=${'card ' + (r.finding ? 'bad' : 'good')} role="status"><h2>${r.finding ? 'The log is NOT intact' : 'The log is intact'}</h2>
		<p>${r.entries} entries${r.without_opening ? `, ${r.without_opening} of them without an opening,` : ''} were verified against ${r.checkpoints} signed ${r.checkpoints === 1 ? 'checkpoint' : 'checkpoints'}${r.view === 'log' ? '' : ', in the view of your tenant'}, with nothing but the public key. ${faults ? faults + ' contradictions were found.' : 'They do not contradict each other.'}</p>
		${r.finding && html`<pre class="payload" tabindex="0">${JSON.stringify(r.finding, null, 2)}</pre>`}
		<p class="faint">Do it yourself, elsewhere: <code>semel evidence export</code>, then <code>semel evidence verify</code>.</p></section>`;
}
