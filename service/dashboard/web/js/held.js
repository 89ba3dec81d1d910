// What waits for somebody: held calls, and what is executed at the moment.
import { html, useMemo, useState } from './lib.js';
import { mayChange, search } from './api.js';
import { Badge, Countdown, Empty, Failed, Head, Loading, RecordLink, Time, Word, useKeys, useLoad } from './ui.js';
import { ActionDialog, actions, fitting } from './actions.js';
import { BulkDialog } from './bulk.js';
import { columnsOf } from './subject.js';
import { events, ofNode } from './live.js';
import { keyOf } from './id.js';
import { clockTime, now } from './time.js';
import { go, href } from './route.js';

const limit = 200;

/** How long after the one before a call may have begun, in milliseconds, to have the same cause. */
const together = 60_000;
/** From how many calls on a cause has a line of its own, with what all of them get. */
const several = 3;
/** How many calls of one cause are drawn at once; more when somebody asks. */
const few = 5;

/** Held calls by what they have in common: one operation, one reason, and when they began. */
export function groupsOf(list) {
	const groups = [];
	const newest = new Map();
	for (const r of list.toSorted((a, b) => (a.started_at < b.started_at ? 1 : -1))) {
		const cause = JSON.stringify([r.tenant, r.operation, r.held_reason]);
		const g = newest.get(cause);
		if (g && Date.parse(g.calls.at(-1).started_at) - Date.parse(r.started_at) <= together) g.calls.push(r);
		else groups.push(newest.set(cause, { id: r.id, calls: [r] }).get(cause));
	}
	return groups;
}

export function HeldScreen() {
	const { data, error, reload } = useLoad(async (signal) => {
		const [held, strangers, running] = await Promise.all(['state:held -unverified', 'state:held unverified', 'state:processing'].map((q) => search(q, { limit, signal })));
		return { held: held.records, moreHeld: !!held.next, strangers: strangers.records, moreStrangers: !!strangers.next, running: running.records.filter((r) => !r.held), more: !!running.next };
	}, [], 2000);
	const [open, setOpen] = useState(null);
	const [at, setAt] = useState(-1);
	const [whole, setWhole] = useState(new Set());
	const groups = useMemo(() => groupsOf(data?.held || []), [data]);
	const strange = useMemo(() => groupsOf(data?.strangers || []), [data]);
	const drawn = (g) => (whole.has(g.calls.at(-1).id) ? g.calls : g.calls.slice(0, few));
	const show = (g) => setWhole((s) => new Set(s).add(g.calls.at(-1).id)); // the oldest, which stays when more come
	const rows = groups.flatMap(drawn);
	useKeys({
		down: () => setAt((i) => Math.min(i + 1, rows.length - 1)), up: () => setAt((i) => Math.max(i - 1, 0)),
		open: () => { if (rows[at]) go('record', rows[at].id); },
		settle: () => { if (rows[at] && mayChange()) setOpen(['settle', rows[at]]); },
	});
	if (!data) return html`<${Head} title="Held and in flight" />${error ? html`<${Failed} error=${error} retry=${reload} />` : html`<${Loading} what="what waits" />`}`;
	const takeovers = events.value.filter((ev) => ev.kind === 'lease_lost' || (ev.kind === 'ended' && (ev.data.by === 'reaper' || ev.data.by === 'reconciler'))).slice(-20).reverse();
	return html`<${Head} title="Held and in flight" />
		${error && html`<${Failed} error=${error} retry=${reload} />`}
		<section class="card"><h2><${Word} name="held">Held<//> <span class="n">${data.held.length}${data.moreHeld ? '+' : ''}</span></h2>
		${data.held.length ? html`<${Waiting} groups=${groups} drawn=${drawn} show=${show} at=${rows[at]?.id} open=${setOpen} />
			${(data.moreHeld || data.held.length > 1) && html`<p><a href=${href('records', '', { q: 'state:held -unverified' })}>Settle many at once</a></p>`}`
		: html`<${Empty} title="Nothing is held"><p>A call is held when its holder went away after it may have done something: the answer of an upstream was lost, or a program died. Semel then refuses to run it again until somebody says what happened.</p><//>`}</section>
		${data.strangers.length > 0 && html`<section class="card"><h2>Held for callers whom nobody verified <span class="n">${data.strangers.length}${data.moreStrangers ? '+' : ''}</span></h2>
		<p class="faint">A stranger can cause these: by a request that the upstream drops, say. They count for no alert.</p>
		<${Waiting} groups=${strange} drawn=${drawn} show=${show} open=${setOpen} />
		<p><a href=${href('records', '', { q: 'state:held unverified' })}>Settle many at once</a></p></section>`}
		<section class="card"><h2>In flight <span class="n">${data.running.length}${data.more ? '+' : ''}</span></h2>
		${data.running.length ? html`<div class="scroll"><table class="hover stack"><thead><tr><th>Running</th><th>Key</th><th>Operation</th><th>Attempt</th><th>Node</th><th><${Word} name="lease">Lease<//></th></tr></thead><tbody>
			${data.running.map((r) => html`<tr key=${r.id}><td><${Time} at=${r.started_at} /></td><td class="k"><${RecordLink} rec=${r} /></td><td>${r.operation}</td><td class="num" data-name="attempt">${r.attempt}</td><td>${r.holder}</td>
			<td data-name="lease"><${Lease} rec=${r} /></td></tr>`)}</tbody></table></div>`
		: html`<${Empty} title="Nothing runs at the moment"><p>Calls are here while their handler or upstream works on them, with the time that their lease has left.</p><//>`}</section>
		<section class="card"><h2>Takeovers and lost leases <small>${ofNode()}, the newest first</small></h2>
		${takeovers.length ? html`<ol class="story">${takeovers.map((ev) => html`<li><i class=${'dot ' + (ev.kind === 'lease_lost' ? 'orange' : 'blue')}></i><${Time} at=${ev.at} /><span><a class="key" href=${href('record', ev.data.record)}>${keyOf(ev.data.record)}</a> ${ev.kind === 'lease_lost' ? `lost its lease (attempt ${ev.data.attempt}): ${ev.data.reason}` : `${ev.data.held ? 'was held' : 'was ended as ' + ev.data.disposition} by the ${ev.data.by} (attempt ${ev.data.attempt}) ${ev.data.held_reason || ev.data.reason || ''}`}</span></li>`)}</ol>` : html`<p class="faint">None.</p>`}</section>
		${Array.isArray(open?.[1]) ? html`<${BulkDialog} name=${open[0]} chosen=${open[1]} close=${() => setOpen(null)} done=${reload} />` : open && html`<${ActionDialog} name=${open[0]} rec=${open[1]} close=${() => setOpen(null)} done=${reload} />`}`;
}

function Waiting({ groups, drawn, show, at, open }) {
	const names = columnsOf(groups.flatMap((g) => g.calls));
	const does = (rec, of, many) => mayChange() && fitting(rec).map((name) => html`<button type="button" class=${actions[name].danger ? 'ghost danger' : 'primary'} onClick=${() => open([name, of])}>${actions[name].title}${many && ` all ${many}`}</button> `);
	return html`<div class="scroll"><table class="hover stack"><thead><tr><th>Began</th><th>Key</th>${names.map((n) => html`<th><bdi>${n}</bdi></th>`)}<th>Operation</th><th>Why</th><th><span class="sr">Actions</span></th></tr></thead>
		${groups.map((g) => html`<tbody key=${g.calls.at(-1).id}>${g.calls.length >= several && html`<tr class="group"><td colspan=${names.length + 4} class="k"><b>${g.calls.length} calls of ${g.calls[0].operation}</b>: ${g.calls[0].held_reason}, ${between(g.calls)}</td><td class="do">${does(alike(g.calls), g.calls, g.calls.length)}</td></tr>`}
		${drawn(g).map((r) => html`<tr key=${r.id} class=${r.id === at ? 'at' : ''}><td><${Time} at=${r.started_at} /></td><td class="k"><${RecordLink} rec=${r} /></td>${names.map((n) => html`<td data-name=${r.attributes?.[n] && n}><bdi>${r.attributes?.[n]}</bdi></td>`)}<td>${g.calls.length < several && r.operation}</td>
		<td>${g.calls.length < several && r.held_reason}${r.effects.filter((e) => e.state === 'started').map((e) => html` <${Badge} tone="violet">${e.name} open<//>`)}</td>
		<td class="do">${does(r, r)}</td></tr>`)}
		${drawn(g).length < g.calls.length && html`<tr><td colspan=${names.length + 5}><button type="button" class="ghost" onClick=${() => show(g)}>Show the other ${g.calls.length - drawn(g).length}</button></td></tr>`}</tbody>`)}</table></div>`;
}

/** When the calls of a group began. */
function between(calls) {
	const [first, last] = [calls.at(-1), calls[0]].map((r) => clockTime(Date.parse(r.started_at)).slice(0, 8));
	return first === last ? `begun at ${first}` : `begun between ${first} and ${last}`;
}

/** What fits all calls of a group fits this. */
const alike = (calls) => ({ ...calls[0], effects: calls.flatMap((r) => r.effects) });

function Lease({ rec }) {
	if (!rec.lease_until) return '–';
	const from = Date.parse(rec.updated_at), to = Date.parse(rec.lease_until);
	return html`<span class="lease-cell"><meter min="0" max=${Math.max(to - from, 1)} value=${Math.max(to - now.value, 0)} aria-label="What the lease has left"></meter> <${Countdown} to=${rec.lease_until} over="over since" /></span>`;
}
