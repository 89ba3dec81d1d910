// The same key with another payload: a bug of a client, or somebody who tries keys.
import { html, useMemo, useState } from './lib.js';
import { get } from './api.js';
import { Badge, Empty, Failed, Head, Loading, Time, useKeys, useLoad } from './ui.js';
import { Compare } from './compare.js';
import { columnsOf, useRecords } from './subject.js';
import { go, href } from './route.js';

const kinds = { conflict: 'payload', other_caller: 'credential', other_door: 'door' };
const total = (c) => Object.values(c.decisions).reduce((n, m) => n + m, 0);

export function ConflictsScreen() {
	const { data, error, reload } = useLoad((signal) => get('v1/conflicts', signal), [], 3000);
	const [open, setOpen] = useState('');
	const [at, setAt] = useState(-1);
	const groups = useMemo(() => {
		const by = Map.groupBy(data?.conflicts || [], (c) => c.operation);
		return [...by].map(([operation, list]) => ({ operation, list: list.toSorted((a, b) => total(b) - total(a)), count: list.reduce((n, c) => n + total(c), 0) })).sort((a, b) => b.count - a.count);
	}, [data]);
	const rows = groups.flatMap((g) => g.list.slice(0, shown));
	const records = useRecords(rows.map((c) => c.record));
	const names = columnsOf(records);
	const of = new Map(records.map((r) => [r.id, r.attributes || {}]));
	useKeys({ down: () => setAt((i) => Math.min(i + 1, rows.length - 1)), up: () => setAt((i) => Math.max(i - 1, 0)), open: () => { if (rows[at]) go('record', rows[at].record); } });
	const head = html`<${Head} title="Conflicts" />
		<p class="lead">A key names one call. When it comes again with another payload, nothing is executed and nothing is shown: the client gets a refusal. That is a client that uses a key twice, or builds it from too little.</p>`;
	if (!data) return html`${head}${error ? html`<${Failed} error=${error} retry=${reload} />` : html`<${Loading} what="conflicts" />`}`;
	return html`${head}${error && html`<${Failed} error=${error} retry=${reload} />`}
		${!groups.length ? html`<${Empty} title=${`No conflict in the last ${data.kept_days} days`}><p>Every key that came twice came with the payload that it had, on every node.</p><//>`
		: groups.map((g) => html`<section class="card" key=${g.operation}><h2><a href=${href('operations', g.operation)}>${g.operation}</a> <span class="n">${g.count} refused, ${g.list.length} ${g.list.length === 1 ? 'key' : 'keys'}</span></h2>
			<div class="scroll"><table class="hover stack"><thead><tr><th>Key</th>${names.map((n) => html`<th><bdi>${n}</bdi></th>`)}<th>Differs in</th><th class="wide-only">From</th><th class="n">Times</th><th class="wide-only">First</th><th class="wide-only">Last</th><th><span class="sr">Actions</span></th></tr></thead><tbody>
			${g.list.slice(0, shown).map((c) => html`<${Row} key=${c.record} c=${c} names=${names} of=${of.get(c.record)} at=${rows[at]?.record === c.record} open=${open === c.record} toggle=${() => setOpen(open === c.record ? '' : c.record)} />`)}</tbody></table></div>
			${g.list.length > shown && html`<p class="faint">The ${shown} with the most refusals. <a href=${href('records', '', { q: 'operation:' + g.operation })}>All records of the operation</a></p>`}</section>`)}
		<p class="faint">Of the last ${data.kept_days} days, over all nodes, some seconds late.</p>`;
}

/** How many keys of an operation are drawn. */
const shown = 50;

const Row = ({ c, names, of, at, open, toggle }) => html`<tr class=${at ? 'at' : ''}><td class="k"><a class="key" href=${href('record', c.record)}>${c.idempotency_key}</a>${c.tenant && html`<small> ${c.tenant}</small>`}</td>
	${names.map((n) => html`<td data-name=${of?.[n] && n}>${of?.[n] && html`<bdi>${of[n]}</bdi>`}</td>`)}<td>${Object.keys(c.decisions).map((k) => html`<${Badge} tone="red">${kinds[k] || k}<//> `)}</td><td class="mono wide-only">${(c.principals || [c.principal]).map((p) => p || 'shared').join(', ')}</td>
	<td class="n num" data-name="times">${total(c)}</td><td class="wide-only"><${Time} at=${c.first} /></td><td class="wide-only"><${Time} at=${c.last} /></td>
	<td class="do">${c.decisions.conflict && html`<button type="button" aria-expanded=${open} onClick=${toggle}>Compare</button>`}</td></tr>
	${open && html`<tr class="below"><td colspan=${7 + names.length}><${Compare} id=${c.record} /></td></tr>`}`;
