// What a decision is about: the order, the amount, and what was asked for.
import { html, useEffect, useState } from './lib.js';
import { get, mayChange, pretty, recordPath } from './api.js';
import { Copy, Fact, Failed, Time } from './ui.js';
import { textOf } from './compare.js';

/** Ids of deliveries and links between records, which nobody tells a call by. */
const plumbing = new Set(['compensates', 'traceparent', 'command_id', 'correlation_id', 'request_id', 'event_id']);

/** The attributes that people know a call by, such as order and amount. */
export const known = (rec) => Object.entries(rec.attributes || {}).filter(([n]) => !plumbing.has(n));

/** The attributes that most of some records have, the usual ones first: each is a column. */
export function columnsOf(records, most = 3) {
	const counts = {};
	for (const r of records) for (const [n] of known(r)) counts[n] = (counts[n] || 0) + 1;
	return Object.entries(counts).sort(([a, n], [b, m]) => m - n || (a < b ? -1 : 1)).slice(0, most).map(([n]) => n);
}

/** A record's attributes in one line, where there is no room for columns. */
export const inLine = (rec) => known(rec).map(([n, v]) => `${n} ${v}`).join(' · ');

/** Whose call it is and what it is about; its payload is behind a button. */
export function Subject({ rec }) {
	return html`<dl class="facts subject">
		<${Fact} name="Operation">${rec.operation}<//>
		${known(rec).map(([n, v]) => html`<${Fact} key=${n} name=${html`<bdi>${n}</bdi>`}><b><bdi>${v}</bdi></b><//>`)}
		<${Fact} name="Caller"><bdi>${[rec.tenant, rec.principal].filter(Boolean).join(', ') || 'shared'}</bdi><//>
		<${Fact} name="Began"><${Time} at=${rec.started_at} />${rec.attempt > 1 && `, attempt ${rec.attempt}`}<//>
		${mayChange() && html`<${Fact} name="Payload"><${Payload} id=${rec.id} /><//>`}</dl>`;
}

function Payload({ id }) {
	const [box, setBox] = useState(null);
	if (!box) return html`<button type="button" onClick=${() => get(recordPath(id, 'payloads')).then((data) => setBox({ data }), (error) => setBox({ error }))}>Show</button>`;
	if (box.error) return html`<${Failed} error=${box.error} />`;
	const { first, keeps } = box.data;
	if (first.payload_base64 === undefined) return html`<span class="faint">It was not kept: ${keeps ? 'it is larger than the operation keeps, or older than the setting' : html`the operation doesn't say <code>keep_payload</code>`}.</span>`;
	const text = textOf(first.payload_base64);
	return text === null ? html`<span class="faint">It isn't text.</span>` : html`<pre class="payload" tabindex="0">${pretty(text)}</pre><${Copy} text=${text} label="the payload" />`;
}

const seen = new Map();
let queue = Promise.resolve();
/** Records by their ids, where a list has no more than those: each is asked for once, one after the other. */
export function useRecords(ids) {
	const [, again] = useState(0);
	useEffect(() => {
		let gone = false;
		for (const id of ids) {
			if (seen.has(id)) continue;
			seen.set(id, null);
			queue = queue.then(async () => {
				try { seen.set(id, (await get(recordPath(id))).record); } catch { seen.delete(id); }
				if (!gone) again((n) => n + 1);
			});
		}
		return () => { gone = true; };
	}, [ids.join()]);
	return ids.map((id) => seen.get(id)).filter(Boolean);
}
