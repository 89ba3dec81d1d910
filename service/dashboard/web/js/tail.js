// Decisions as they are made.
import { html, useState } from './lib.js';
import { Badge, DecisionBadge, Empty, Failed, Head, Loading, useKeys } from './ui.js';
import { thisNode } from './api.js';
import { events, ofNode, stream } from './live.js';
import { keyOf } from './id.js';
import { clockTime, duration } from './time.js';
import { go, href, route } from './route.js';

/** How many lines are drawn: more than anybody reads, few enough to be drawn in a frame. */
const shown = 300;

/** Whether an event has all words of a filter: operation, key, decision, or -word for its absence. */
export function matches(ev, words) {
	const d = ev.data;
	const text = [ev.kind, d.operation, d.tenant, d.decision, d.disposition, d.reason, d.by, d.record && keyOf(d.record), d.held ? 'held' : ''].filter(Boolean).join(' ').toLowerCase();
	return words.every((w) => (w.startsWith('-') && w.length > 1 ? !text.includes(w.slice(1)) : text.includes(w)));
}

export function TailScreen() {
	const q = route.value.params.get('q') || '';
	const [paused, setPaused] = useState(null);
	const [at, setAt] = useState(-1);
	const words = q.toLowerCase().split(/\s+/).filter(Boolean);
	const all = paused || events.value;
	const found = all.filter((ev) => matches(ev, words));
	const lines = found.slice(-shown).reverse();
	const toggle = () => setPaused(paused ? null : events.value);
	useKeys({
		pause: toggle, down: () => setAt((i) => Math.min(i + 1, lines.length - 1)), up: () => setAt((i) => Math.max(i - 1, 0)),
		open: () => { if (lines[at]?.data.record) go('record', lines[at].data.record); },
	});
	const missed = paused ? events.value.length - paused.length : 0;
	return html`<${Head} title="Live tail" of=${stream.value !== 'absent' && ofNode(all)}>
			<span class=${'stream ' + stream.value} role="status">${{ open: paused ? 'paused' : 'live', lost: 'connecting again…', connecting: 'connecting…', absent: 'not available' }[stream.value]}</span>
			<button type="button" onClick=${toggle} aria-pressed=${!!paused}>${paused ? `Go on${missed > 0 ? ` (${missed} new)` : ''}` : 'Pause'}</button><//>
		<form class="query" role="search" onSubmit=${(ev) => ev.preventDefault()}><input class="mono" aria-label="Filter" value=${q} placeholder="charge replay -execute" onInput=${(ev) => go('tail', '', { q: ev.target.value }, true)} /></form>
		${stream.value === 'absent' ? html`<${Empty} title="There are no live events here"><p>The program that mounts this page gives its engine no observer, or your role may not follow decisions.</p><//>`
		: !all.length && stream.value === 'lost' ? html`<${Failed} error=${{ title: "The live events can't be had", message: 'The server does not answer, or refuses. The page connects again by itself.' }} />`
		: !all.length && stream.value === 'connecting' ? html`<${Loading} what="events" />`
		: !all.length ? html`<${Empty} title="Waiting for the first delivery"><p>Every delivery that ${thisNode()} decides about appears here as it happens: executed, replayed, refused, and how attempts end.</p><//>`
		: !lines.length ? html`<${Empty} title="No event matches"><p>All words must occur: an operation, a key, a decision. Put a minus before a word that may not.</p><//>`
		: html`<section class="card"><div class="scroll"><table class="tail hover stack"><thead><tr><th>Time</th><th>What</th><th>Key</th><th>Operation</th><th>Detail</th></tr></thead><tbody>${lines.map((ev, i) => html`<${Line} key=${ev.seq || 'gap' + i} ev=${ev} at=${i === at} />`)}</tbody></table></div></section>
			<p class="faint">${found.length > shown ? `The newest ${shown} of ${found.length} events` : `${found.length} events`}. Other <a href=${href('nodes')}>nodes</a> have their own.</p>`}`;
}

function Line({ ev, at }) {
	const d = ev.data;
	if (ev.kind === 'gap') return html`<tr><td colspan="5" class="late">Some events were missed: this page, or its connection, was too slow.</td></tr>`;
	return html`<tr class=${at ? 'at' : ''}><td class="num">${clockTime(ev.at)}</td><td>${ev.kind === 'decided' ? html`<${DecisionBadge} d=${d.decision} />` : html`<${Badge} tone=${ev.kind === 'ended' ? (d.held ? 'amber' : d.disposition === 'completed' ? 'green' : 'red') : 'orange'}>${ev.kind === 'ended' ? (d.held ? 'held' : 'ended ' + d.disposition) : ev.kind.replace('_', ' ')}<//>`}</td>
		<td class="k">${d.record ? html`<a class="key" href=${href('record', d.record)}>${keyOf(d.record)}</a>` : ''}</td><td>${d.operation}</td>
		<td>${[d.attempt > 1 && 'attempt ' + d.attempt, d.waited_ms && 'waited ' + duration(d.waited_ms), ev.kind === 'ended' && (d.took_ms ? 'after ' + duration(d.took_ms) : 'within 1 ms'), d.by && d.by !== 'holder' && 'by ' + d.by, d.limit, d.held_reason, d.reason, d.count > 1 && d.count + ' records'].filter(Boolean).join(' · ')}</td></tr>`;
}
