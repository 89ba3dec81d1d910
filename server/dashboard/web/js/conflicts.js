// The same key with another payload: a bug of a client, or somebody who tries keys.
import { html, useMemo } from './lib.js';
import { get, me } from './api.js';
import { Badge, Empty, Head, Time, useLoad } from './ui.js';
import { events, stream } from './live.js';
import { keyOf, readId } from './id.js';
import { href } from './route.js';

const kinds = { conflict: 'another payload', other_caller: 'another credential', other_door: 'another door' };

export function ConflictsScreen() {
	const all = events.value;
	const groups = useMemo(() => {
		const byOperation = {};
		for (const ev of all) {
			if (ev.kind !== 'decided' || !kinds[ev.data.decision]) continue;
			const group = (byOperation[ev.data.operation] ??= { operation: ev.data.operation, count: 0, records: {}, clients: {} });
			group.count++;
			const r = (group.records[ev.data.record] ??= { id: ev.data.record, count: 0, first: ev.at, last: 0, kinds: {} });
			r.count++;
			r.last = ev.at;
			r.kinds[ev.data.decision] = (r.kinds[ev.data.decision] || 0) + 1;
			const who = readId(ev.data.record)?.principal || 'shared';
			group.clients[who] = (group.clients[who] || 0) + 1;
		}
		return Object.values(byOperation).sort((a, b) => b.count - a.count);
	}, [all]);
	return html`<${Head} title="Conflicts" />
		<p class="lead">A key names one call. When it comes again with another payload, nothing is executed and nothing is shown: the client gets a refusal. That is a client that uses a key twice, or builds it from too little.</p>
		${stream.value === 'connecting' ? html`<p class="loading" role="status"><span class="spinner"></span> Connecting…</p>` : !groups.length ? html`<${Empty} title="No conflict among this node's last events"><p>Every key that came twice came with the payload that it had. ${me.value.evidence ? html`Older ones are in the <a href=${href('evidence')}>evidence log</a>.` : ''}</p><//>`
		: groups.map((g) => html`<section class="card" key=${g.operation}><h2><a href=${href('operations', g.operation)}>${g.operation}</a> <span class="n">${g.count}</span></h2>
			<p class="faint">From ${Object.entries(g.clients).map(([who, n]) => html`<span class="mono">${who}</span> (${n}) `)}</p>
			<div class="scroll"><table class="hover"><thead><tr><th>Key</th><th>Refused for</th><th class="n">Times</th><th>First</th><th>Last</th></tr></thead><tbody>
			${Object.values(g.records).sort((a, b) => b.count - a.count).slice(0, 50).map((r) => html`<tr key=${r.id}><td class="k"><a class="key" href=${href('record', r.id)}>${keyOf(r.id)}</a></td><td>${Object.keys(r.kinds).map((k) => html`<${Badge} tone="red">${kinds[k]}<//> `)}</td><td class="n num">${r.count}</td><td><${Time} at=${r.first} /></td><td><${Time} at=${r.last} /></td></tr>`)}</tbody></table></div>
			<${Compared} operation=${g.operation} /></section>`)}`;
}

/** How an operation tells payloads apart; they themselves are not kept, so there is no diff to show. */
function Compared({ operation }) {
	const { data } = useLoad((signal) => get('v1/operations/' + encodeURIComponent(operation), signal).catch(() => null), [operation]);
	return html`<p class="faint">Semel keeps a digest of each payload and not the payload, so it can say that they differ, and not where. ${data?.financial ? 'This operation is financial: check what the client charged.' : ''} Ask the client for both requests, by the key.</p>`;
}
