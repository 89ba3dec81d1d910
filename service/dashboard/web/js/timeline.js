// The timeline of a record: a lane for each attempt, and what met it.
import { html, useEffect, useMemo, useRef, useState } from './lib.js';
import { labelSpan, scale, ticks } from './scale.js';
import { duration, absolute, clockTime, instant as t, now } from './time.js';
import { Choice, copyText, download, say } from './ui.js';
import { decision, settledBy, state } from './words.js';

/** When a record was held: its last change may be a later question of the reconciler. */
const heldSince = (rec, deliveries) => deliveries.find((ev) => ev.kind === 'ended' && ev.data.held && ev.data.attempt === rec.attempt)?.at || t(rec.updated_at);

/** Everything that a record and the live events know of when, by attempt. */
export function lanesOf(rec, deliveries, at) {
	const lanes = rec.attempts.map((a, i) => {
		const newest = i === rec.attempts.length - 1;
		const running = newest && rec.status === 'processing';
		const start = t(a.started_at);
		const how = running ? (rec.held ? 'held' : 'processing') : a.disposition || 'completed';
		const heldAt = running && rec.held ? heldSince(rec, deliveries) : 0;
		const end = t(a.ended_at) || heldAt || at;
		return { attempt: a, start, end: Math.max(end, start), how, running: running && !rec.held, waits: heldAt ? at : 0, lease: newest && running && !rec.held ? t(rec.lease_until) : 0, effects: [], marks: [] };
	});
	const lane = (number) => lanes.find((l) => l.attempt.number === number) || lanes[lanes.length - 1];
	for (const ef of rec.effects) {
		const l = lanes.find((l) => l.attempt.fence === ef.fence) || lanes[lanes.length - 1];
		l.effects.push({ ...ef, start: t(ef.started_at), end: t(ef.settled_at) || (l.running ? at : l.end), open: ef.state === 'started' });
	}
	for (const ev of deliveries) {
		if (ev.kind !== 'decided' || ev.data.decision === 'execute') continue;
		lane(ev.data.attempt).marks.push({ at: ev.at, from: ev.at - (ev.data.waited_ms || 0), decision: ev.data.decision, waited: ev.data.waited_ms || 0 });
	}
	for (const l of lanes) {
		const s = l.attempt.settled;
		if (s) l.settled = { ...s, at: t(s.at) };
	}
	return lanes;
}

/** How many deliveries have a mark of their own; more are counted beside the lane. */
const maxMarks = 200;

const left = (x) => ({ left: x.toFixed(3) + '%' });
const stretch = (a, b) => ({ left: a.toFixed(3) + '%', width: Math.max(b - a, 0).toFixed(3) + '%' });

/** How wide the label of a tick may be, in pixels: what css/timeline.css gives it, and a gap. */
const tickWidth = 92;
/** How wide most labels of bars are, in pixels: a bar and a mark may leave just a third of a row. */
const labelWidth = 130;

/** title: what a picture of it is headed by. */
export function Timeline({ rec, deliveries, title }) {
	const [fold, setFold] = useState(true);
	const at = rec.status === 'processing' ? now.value : 0; // it goes on: running, or waiting for somebody
	const model = useMemo(() => {
		const lanes = lanesOf(rec, deliveries, at || t(rec.updated_at));
		const times = [t(rec.created_at)];
		for (const l of lanes) {
			times.push(l.start, l.end, l.waits, l.settled?.at);
			for (const e of l.effects) times.push(e.start, e.end);
			for (const m of l.marks.slice(-maxMarks)) times.push(m.at, m.from);
		}
		for (const m of rec.messages || []) times.push(t(m.created_at), t(m.settled_at));
		const c = rec.compensation;
		if (c) times.push(t(c.started_at), t(c.settled_at));
		const lease = lanes[lanes.length - 1].lease;
		if (lease) times.push(lease);
		return { lanes, s: scale(times, fold) };
	}, [rec, deliveries, fold, at]);
	const { lanes } = model;
	const axis = useRef(null);
	const box = useRef(null);
	const [width, setWidth] = useState(0); // of the track
	const s = { ...model.s, enough: Math.min((100 * labelWidth) / (width || 1), 33) };
	useEffect(() => {
		const watch = new ResizeObserver(([box]) => setWidth(box.contentRect.width));
		watch.observe(axis.current);
		return () => watch.disconnect();
	}, []);
	return html`<section class="timeline" aria-label="Timeline" ref=${box}>
		<div class="timeline-head">
			<p class="legend"><span><i class="blue"></i>executing</span><span><i class="cyan"></i>waited and joined</span><span><i class="dot green"></i>replayed</span><span><i class="cross red"></i>refused</span><span><i class="violet"></i>effect</span><span><i class="diamond amber"></i>settled</span></p>
			<div class="tools"><${Choice} label="Scale of time" value=${fold} options=${[[true, 'Fold idle time'], [false, 'To scale']]} onChange=${setFold} />
				${title && html`<${Share} title=${title} of=${box} />`}</div>
		</div>
		<div class="lanes">
			<div class="axis" aria-hidden="true"><span class="lane-name"></span><div class="track" ref=${axis}>
				${ticks(s, (100 * tickWidth) / (width || 1)).map((k) => html`<span class=${'tick' + (k.end ? ' end' : '')} style=${k.end ? null : left(k.x)} title=${absolute(k.at, true)}>${k.at === s.first ? clockTime(k.at) : '+' + duration(k.at - s.first)}</span>`)}
				${s.folds.map((f) => html`<span class="fold" style=${{ '--at': middle(s, f).toFixed(3) }} title=${idle(f)}>… ${duration(f.gap)} …</span>`)}
			</div></div>
			${lanes.map((l) => html`<${Lane} key=${l.attempt.number} l=${l} s=${s} />`)}
			${rec.messages?.length > 0 && html`<div class="lane sub"><span class="lane-name">Messages</span><div class="track">
				<${Folds} s=${s} />
				${rec.messages.map((m) => html`<div class="row"><${Bar} s=${s} from=${t(m.created_at)} to=${t(m.settled_at) || s.last} tone=${m.state === 'delivered' ? 'green' : m.state === 'pending' ? 'blue open' : 'red'} text=${m.name + ' → ' + m.destination} title=${`message ${m.name} to ${m.destination}: ${m.state}`} thin /></div>`)}
			</div></div>`}
			${rec.compensation && html`<div class="lane sub"><span class="lane-name">Undone by</span><div class="track"><${Folds} s=${s} />
				<a href=${'#/record/' + encodeURIComponent(rec.compensation.record)}><${Bar} s=${s} from=${t(rec.compensation.started_at)} to=${t(rec.compensation.settled_at) || s.last} tone="violet" text=${rec.compensation.operation} title=${rec.compensation.state} thin /></a></div></div>`}
		</div>
	</section>`;
}

/** Gives the page's address, or the timeline as a picture, for a ticket. */
function Share({ title, of }) {
	const link = async () => {
		await copyText(location.href);
		say('The link to this call was copied. Who opens it signs in first.');
	};
	const picture = async () => {
		try {
			const { pictureOf } = await import('./share.js');
			const name = title.split(' · ')[0].replace(/[^\p{L}\p{N}._-]+/gu, '-').slice(0, 60);
			download(`semel-${name}.png`, 'image/png', await pictureOf(of.current, title, '.tools'));
			say('The picture was saved.');
		} catch (err) { say('There is no picture: ' + err.message, 'red'); }
	};
	return html`<div class="choice" role="group" aria-label="Share"><button type="button" onClick=${link}>Copy link</button><button type="button" onClick=${picture}>Save picture</button></div>`;
}

const middle = (s, f) => (s.place(f.from) + s.place(f.to)) / 2;
const idle = (f) => duration(f.gap) + ' in which nothing happened';
const Folds = ({ s }) => s.folds.map((f) => html`<span class="seam" style=${left(middle(s, f))} title=${idle(f)}></span>`);

/** mark: where else on the row something stands that the label must not cover. */
function Bar({ s, from, to, tone, text, title, thin, mark }) {
	const x0 = s.place(from), x1 = s.place(to);
	const room = labelSpan(x0, x1, mark, s.enough);
	return html`<span class=${'bar ' + tone + (thin ? ' thin' : '')} style=${stretch(x0, x1)} title=${title}><b class=${(room.end ? 'end' : '') + (room.out ? ' out' : '')} style=${{ '--from': (room.from - x0).toFixed(3), '--room': (room.to - room.from).toFixed(3) }}>${room.out ? html`<span>${text}</span>` : text}</b></span>`;
}

function Lane({ l, s }) {
	const a = l.attempt;
	const took = l.end - l.start;
	const shown = l.marks.slice(-maxMarks);
	const joins = shown.filter((m) => m.waited > 0).sort((a, b) => a.from - b.from);
	const points = shown.filter((m) => m.waited === 0);
	const tone = l.how === 'processing' ? 'blue open' : state(l.how).tone;
	return html`<div class="lane">
		<span class="lane-name" title=${'fencing token ' + a.fence}>Attempt ${a.number}${a.holder && html`<small>on ${a.holder}</small>`}</span>
		<div class="track">
			<${Folds} s=${s} />
			<div class="row main">
				${l.lease > 0 && html`<span class="bar lease" style=${stretch(s.place(l.end), s.place(l.lease))} title="The lease: until then its holder may be silent"></span>`}
				${l.waits > 0 && html`<span class="bar waiting" style=${stretch(s.place(l.end), s.place(l.waits))} title=${`held for ${duration(l.waits - l.end)}: it waits for somebody to settle it`}></span>`}
				<${Bar} s=${s} from=${l.start} to=${l.end} tone=${tone} text=${`${state(l.how).label} · ${l.running ? 'since ' : ''}${duration(took)}`} title=${`Attempt ${a.number} ${state(l.how).says} after ${duration(took)}`} mark=${l.settled && s.place(l.settled.at)} />
				${l.settled && html`<span class="mark diamond amber" style=${left(s.place(l.settled.at))} title=${'decided ' + settledBy(l.settled)}></span>`}
			</div>
			${l.effects.map((e) => html`<div class="row"><${Bar} s=${s} from=${e.start} to=${e.end} tone=${e.open ? 'violet open' : e.state === 'refuted' ? 'grey' : 'violet'} text=${e.name + (e.open ? ' – open' : e.state === 'refuted' ? ' – did not happen' : '')} title=${`effect ${e.name}: ${e.state}`} thin /></div>`)}
			${joins.length > 0 && html`<div class=${'row joins' + (joins.length > 12 ? ' many' : '')}>${joins.map((m, i) => html`<span class="bar cyan join" style=${{ ...stretch(s.place(m.from), s.place(m.at)), top: `${((i % 12) / Math.min(joins.length, 12)) * 100}%` }} title=${`waited ${duration(m.waited)}, then ${decision(m.decision).says}`}></span>`)}</div>`}
			${points.length > 0 && html`<div class="row points">${points.map((m) => html`<span class=${'mark ' + (m.decision === 'replay' ? 'dot ' : 'cross ') + decision(m.decision).tone} style=${left(s.place(m.at))} title=${`${absolute(m.at, true)}: a delivery ${decision(m.decision).says}`}></span>`)}</div>`}
		</div>
		${l.marks.length > 0 && html`<span class="lane-count">${l.marks.length}× again</span>`}
	</div>`;
}

/** The same in words, the oldest first, to read aloud and to paste into tickets. */
export function storyOf(rec, deliveries) {
	const all = [];
	const add = (at, tone, what, detail, again) => { const ms = typeof at === 'number' ? at : t(at); if (ms) all.push({ at: ms, tone, what, detail, again }); };
	const because = (e) => (e ? [e.code, e.message].filter(Boolean).join(': ') : '');
	const by = (s) => (s ? `, as the ${s.by} ${s.who || ''} said` : '');
	rec.attempts.forEach((a, i) => {
		add(a.started_at, 'blue', `Attempt ${a.number} began`, a.holder && 'on ' + a.holder);
		const running = i === rec.attempts.length - 1 && rec.status === 'processing';
		const s = a.settled;
		if (a.error?.code === 'confirmation_required') {
			add(a.ended_at, 'amber', 'A confirmation was asked for');
			if (s) add(s.at, 'green', 'It was confirmed' + by(s), s.reason);
		} else if (!running && a.ended_at) add(a.ended_at, state(a.disposition).tone, `Attempt ${a.number} ${state(a.disposition || 'completed').says}${by(s)}`, s?.reason || because(a.error));
	});
	for (const e of rec.effects) {
		add(e.started_at, 'violet', `Effect ${e.name} was begun`, 'idempotency key ' + e.key);
		add(e.settled_at, e.state === 'confirmed' ? 'violet' : 'grey', `Effect ${e.name} was ${e.state}${by(e.settled)}`, e.settled?.reason || because(e.error));
	}
	if (rec.held) add(heldSince(rec, deliveries), 'amber', 'Held', rec.held_reason);
	for (const m of rec.messages || []) {
		add(m.created_at, 'blue', `Message ${m.name} to ${m.destination} was made`);
		add(m.settled_at, m.state === 'delivered' ? 'green' : 'red', `Message ${m.name} was ${m.state}`, because(m.error));
	}
	const c = rec.compensation;
	if (c) add(c.settled_at || c.started_at, 'violet', `Compensation by ${c.operation}: ${c.state}`, c.reason);
	for (const ev of deliveries) {
		if (ev.kind === 'decided' && ev.data.decision !== 'execute') {
			add(ev.at, decision(ev.data.decision).tone, (ev.data.count ? `Each of ${ev.data.count} deliveries ` : 'A delivery ') + decision(ev.data.decision).says, ev.data.waited_ms ? 'after it had waited ' + duration(ev.data.waited_ms) : '', ev.data.waited_ms ? '' : ev.data.decision);
		} else if (ev.kind === 'lease_lost') add(ev.at, 'orange', 'The lease was lost', ev.data.reason);
	}
	return folded(all.sort((a, b) => a.at - b.at));
}

/** Deliveries in a row that got the same are one line, with the first and last time. */
function folded(story) {
	const lines = [];
	for (const e of story) {
		const last = lines[lines.length - 1];
		if (last?.again && e.again === last.again) {
			last.times++;
			last.until = e.at;
		} else lines.push({ ...e, times: 1 });
	}
	return lines;
}

