// What happens at the moment, and whether somebody has to do something.
import { html, useMemo, useState } from './lib.js';
import { get, search, thisNode } from './api.js';
import { Choice, Empty, Failed, Head, later, Loading, Time, useLoad } from './ui.js';
import { caughtUp, events, ofNode, stream } from './live.js';
import { readChecks } from './health.js';
import { keyOf } from './id.js';
import { href } from './route.js';
import { absolute, clockTime, duration, timeStyle } from './time.js';
import { decision } from './words.js';

const Chart = later(() => import('./chart.js'), 'Chart', ({ height = 180 }) => html`<figure class="chart" style=${{ minHeight: height + 22 + 'px' }}></figure>`);
Chart.fetch(); // the figures are under way meanwhile

const ranges = [[60, '1 h'], [180, '3 h'], [1440, '24 h'], [10080, '7 d']];
const empty = () => ({ deliveries: 0, executed: 0, stopped: 0, polls: 0, conflicts: 0, turned_away: 0, simultaneous: 0, failed_attempts: 0, refused: 0 });

/** What a decision counts as; any other is turned away. */
const countsAs = { execute: 'executed', replay: 'stopped', in_flight: 'polls', conflict: 'conflicts' };

/** The figures as this node's last events give them, where the service keeps none, or not for this user. */
function figuresOf(all) {
	const total = empty(), operations = {}, records = {}, points = {}, series = {};
	for (const ev of all) {
		if (ev.kind !== 'decided' || ev.data.operation.startsWith('semel.')) continue;
		const minute = Math.floor(ev.at / 60_000) * 60_000;
		const again = ev.data.decision !== 'execute';
		const met = ev.data.decision === 'in_flight' || ev.data.waited_ms > 0;
		for (const s of [total, (operations[ev.data.operation] ??= { operation: ev.data.operation, ...empty() }), (points[minute] ??= { at: new Date(minute).toISOString(), ...empty() })]) {
			s.deliveries++;
			s[countsAs[ev.data.decision] || 'turned_away']++;
			if (met) s.simultaneous++;
		}
		const k = ev.data.operation + ' ' + ev.data.decision;
		(series[k] ??= { operation: ev.data.operation, what: ev.data.decision, count: 0 }).count++;
		if (!again) continue;
		const r = (records[ev.data.record] ??= { record: ev.data.record, operation: ev.data.operation, repeats: 0, simultaneous: 0, last: '' });
		r.repeats++;
		if (met) r.simultaneous++;
		r.last = ev.data.at;
	}
	const share = (s) => Object.assign(s, { stopped_share: s.stopped ? s.stopped / (s.executed + s.stopped) : 0 });
	const last = Math.floor(Date.now() / 60_000) * 60_000;
	for (let at = last - 29 * 60_000; at <= last; at += 60_000) points[at] ??= { at: new Date(at).toISOString(), ...empty() };
	const most = (list, by) => list.sort((a, b) => b[by] - a[by]).slice(0, 10);
	return { live: true, total: share(total), operations: most(Object.values(operations).map(share), 'stopped'), repeated: most(Object.values(records), 'repeats'), points: Object.values(points).sort((a, b) => (a.at < b.at ? -1 : 1)), series: Object.values(series), crowded: [], failing: [], step_seconds: 60 };
}

const units = [[1e12, ' T'], [1e9, ' G'], [1e6, ' M'], [1e3, ' k']];
export function many(n) {
	const [one, unit] = (n >= 1e4 && units.find(([from]) => n >= from)) || [];
	return unit ? (n / one).toFixed(1) + unit : String(n);
}
const percent = (x) => (x * 100 >= 10 || x === 0 ? Math.round(x * 100) : (x * 100).toFixed(1)) + ' %';
export const brief = (s) => duration(s * 1000);

export function OverviewScreen() {
	const [minutes, setMinutes] = useState(60);
	const figures = useLoad((signal) => get('v1/figures?minutes=' + minutes, signal).catch((err) => { if (err.status === 404 || err.status === 403) return null; throw err; }), [minutes], 750); // other nodes' are a second old already
	const waiting = useLoad(async (signal) => ({ ...await search('state:held -unverified', { limit: 100, signal }), at: Date.now() }), [], 2000);
	const checks = useLoad(readChecks, [], 2000);
	const all = events.value;
	const local = useMemo(() => (figures.loading || figures.data || !caughtUp.value ? null : figuresOf(all)), [all, figures.loading, figures.data, caughtUp.value]);
	const f = figures.data || local;
	const held = waiting.data?.records.length;
	const away = checks.data?.checks.some((c) => c.name === 'store' && c.mark === '-');
	return html`<${Head} title="Overview" of=${f && whose(f)}>${figures.data && html`<${Choice} label="How far back" value=${minutes} options=${ranges} onChange=${setMinutes} />`}<//>
		<${Banner} checks=${checks} f=${f} held=${held} more=${waiting.data?.next} />
		${figures.error && !f && !away && html`<${Failed} error=${figures.error} retry=${figures.reload} />`}
		${f?.live && stream.value === 'absent' ? html`<${Empty} title="This program gives its dashboard no figures"><p>It has them if it gives <code>dashboard.ForEngine</code> an <code>Observer</code>, for those of this node, or <code>Figures</code>, for those of all nodes. Or your role may not see them. <a href=${href('records')}>Records</a> are here either way.</p><//>` : !f ? (away ? html`<p class="faint">The figures come back when the store answers.</p>` : !figures.error && html`<${Loading} what="figures" />`) : html`
		<div class=${'tiles' + (away || f.alone || figures.error ? ' old' : '')}>
			<${Tile} name="Held" value=${held === undefined ? '…' : held + (waiting.data.next ? '+' : '')} tone=${held ? 'amber' : ''} hint=${held === undefined ? 'not known yet' : waiting.error ? 'as it was at ' + clockTime(waiting.data.at).slice(0, 8) : held === 1 ? 'waits for somebody to decide' : held ? 'wait for somebody to decide' : 'nothing waits for you'} link=${href('held')} />
			<${Tile} name="Deliveries" value=${many(f.total.deliveries)} hint=${f.live ? "among this node's last events" : f.alone ? 'of this node, and of others as they were' : 'with a key, over all nodes'} />
			<${Tile} name="Duplicates stopped" value=${many(f.total.stopped)} tone="green" hint=${percent(f.total.stopped_share) + ' of all answers'} />
			<${Tile} name="At the same time" value=${many(f.total.simultaneous)} hint=${`met a running attempt: ${many(Math.max(f.total.simultaneous - f.total.polls, 0))} waited, ${many(f.total.polls)} polled`} />
			${f.total.failed_attempts !== undefined && !f.live && html`<${Tile} name="Failed attempts" value=${many(f.total.failed_attempts)} hint="failed, aborted or abandoned" />`}
		</div>
		${!f.total.deliveries && !f.total.refused ? html`<${Empty} title="No delivery yet"><p>Send a request with an <code>Idempotency-Key</code> through a route, twice. It is executed once, and both are counted here${f.live ? '' : ' within two seconds'}.</p><//>` : html`
		<div class="columns even">
			<div>
				<section class="card"><h2>Deliveries <small>for each ${f.step_seconds === 60 ? 'minute' : 'hour'}</small></h2><${DeliveriesChart} f=${f} /></section>
				<section class="card"><h2>Operations <small>which repeats most?</small></h2><${Operations} list=${f.operations} /></section>
				<section class="card"><h2>What deliveries got</h2><${Outcomes} list=${f.series} /></section>
				${f.failing.length > 0 && html`<section class="card"><h2>Calls that keep failing</h2><${Records} list=${f.failing} what="failed_attempts" /></section>`}
			</div>
			<div>
				${!f.live && html`<section class="card"><h2>Added latency <small>what Semel adds to a delivery</small></h2><${LatencyChart} f=${f} /></section>`}
				<section class="card"><h2>Repeated keys</h2><${Records} list=${f.repeated} what="repeats" none="No key came twice." /></section>
				${f.crowded.length > 0 && html`<section class="card"><h2>Keys that come at the same time <small>${f.crowd} or more within a minute</small></h2><${Records} list=${f.crowded} what="peak" /></section>`}
			</div>
		</div>`}
		${f.partial && html`<p class="faint">A node had more tenants than it counts one by one, so these counts may be too low.</p>`}
		${f.live && html`<p class="faint">These are the last ${all.length} events of ${thisNode()}. This program gives its dashboard no figures over all nodes.</p>`}`}`;
}

/** Whose figures these are. */
const whose = (f) => (f.live ? ofNode() : f.alone ? `of ${thisNode()}, and of others as they were` : 'over all nodes') + (f.tenant === undefined ? '' : f.tenant ? ', of tenant ' + f.tenant : ', of the empty tenant');

/** What somebody has to do, the worst first, and only then what is well. */
function Banner({ checks, f, held, more }) {
	const found = (mark) => checks.data?.checks.filter((c) => c.mark === mark && c.name !== 'held') || [];
	const bad = found('-'), amiss = found('!');
	const open = f?.total.failed_open || 0;
	const counted = checks.data?.checks.find((c) => c.name === 'held' && c.mark === '!')?.detail; // of all tenants
	const waits = counted || (held ? `${held}${more ? ' or more' : ''} ${held === 1 ? 'call waits' : 'calls wait'} for a decision` : '');
	return html`${open > 0 && html`<p class="banner red" role="alert"><b>Failing open.</b> ${open} deliveries were passed on unguarded, because a route says <code>store_down: fail_open</code>. They may have happened twice.</p>`}
		${checks.error && html`<p class="banner red" role="alert"><b>The server does not answer.</b> What is shown may be old.</p>`}
		${!checks.error && bad.map((c) => html`<p class="banner red" role="alert"><b>This node can't take calls.</b> ${c.name === 'store' ? '' : c.name + ': '}${c.detail}. ${c.name === 'store' ? 'What is shown below is from before. ' : ''}<a href=${href('health')}>Health</a></p>`)}
		${waits && html`<p class="banner amber" role="alert"><b>${waits}.</b> Retries are refused until then. <a href=${href('held')}>Decide</a></p>`}
		${!checks.error && amiss.map((c) => html`<p class="banner amber"><b>Look at ${c.name}.</b> ${c.detail} <a href=${href('health')}>Health</a></p>`)}
		${checks.data && !checks.error && !bad.length && !amiss.length && html`<p class="banner green"><b>${waits ? 'Otherwise all is well' : 'All is well'} on ${thisNode()}.</b> ${checks.data.checks.filter((c) => ['store', 'durability'].includes(c.name) && c.detail).map((c) => html`<span>${c.name} <span class="mono">${c.detail.split(/[ ;]/)[0]}</span> </span>`)}<a href=${href('health')}>Health</a></p>`}`;
}

const Tile = ({ name, value, hint, tone, link }) => html`<${link ? 'a' : 'div'} class=${'tile ' + (tone || '')} href=${link}><h2>${name}</h2><p class="big num">${value}</p><small>${hint}</small><//>`;

/** The points from the first delivery on, and some before: a service that is new has no empty hour. */
function since(points) {
	const first = points.findIndex((p) => p.deliveries || p.refused);
	return points.slice(Math.max(0, Math.min(first, points.length - 15)));
}
function DeliveriesChart({ f }) {
	const points = since(f.points);
	const xs = points.map((p) => Date.parse(p.at) / 1000);
	const of = (name) => points.map((p) => p[name]);
	const refused = points.map((p) => p.conflicts + p.turned_away + p.refused);
	const series = [{ label: 'executed', tone: 'blue', values: of('executed') }, { label: 'stopped', tone: 'green', values: of('stopped') }, { label: 'polls', tone: 'grey', values: of('polls') }, { label: 'conflicts and refusals', tone: 'orange', values: refused }];
	return html`${points.length < f.points.length && html`<p class="faint">In this time, nothing came before ${absolute(xs[0] * 1000, timeStyle.value === 'utc').slice(f.step_seconds === 60 ? 11 : 0, 16)}.</p>`}
		<${Chart} xs=${xs} series=${series} stacked format=${(v) => many(Math.round(v * 10) / 10)} label=${`${f.total.executed} executed, ${f.total.stopped} stopped duplicates, ${f.total.polls} polls, ${f.total.conflicts} conflicts and ${f.total.turned_away + f.total.refused} refusals`} />`;
}
function LatencyChart({ f }) {
	const points = since(f.points);
	const xs = points.map((p) => Date.parse(p.at) / 1000);
	const of = (name) => points.map((p) => p[name] || null);
	const last = f.points.findLast((p) => p.added_p99_seconds > 0);
	return html`${last && html`<p class="chips"><span>p50 <b class="num">${brief(last.added_p50_seconds)}</b></span><span>p99 <b class="num">${brief(last.added_p99_seconds)}</b></span></p>`}
		<${Chart} xs=${xs} series=${[{ label: 'p50', tone: 'cyan', values: of('added_p50_seconds') }, { label: 'p99', tone: 'violet', values: of('added_p99_seconds') }]} powers format=${brief} height=${150} label="Added latency, p50 and p99" />`;
}

const Meter = ({ share, tone }) => html`<span class="meter"><i class=${tone} style=${{ width: (share * 100).toFixed(1) + '%' }}></i></span>`;

const Operations = ({ list }) => html`<div class="scroll"><table class="stack"><thead><tr><th>Operation</th><th class="n">Deliveries</th><th class="n">Stopped</th><th>Share</th></tr></thead><tbody>${list.slice(0, 10).map((o) => html`<tr><td class="k"><a href=${href('records', '', { q: 'operation:' + o.operation })}>${o.operation}</a></td><td class="n num" data-name="deliveries">${o.deliveries}</td><td class="n num" data-name="stopped">${o.stopped}</td><td><${Meter} share=${o.stopped_share} tone="green" /> <span class="num">${percent(o.stopped_share)}</span></td></tr>`)}</tbody></table></div>`;

const counted = { peak: 'In a minute', repeats: 'Repeats', failed_attempts: 'Attempts' };
const Records = ({ list, what, none }) => (list.length ? html`<div class="scroll"><table class="stack"><thead><tr><th>Key</th><th>Operation</th><th class="n">${counted[what]}</th><th>Last</th></tr></thead><tbody>${list.slice(0, 10).map((r) => html`<tr><td class="k"><a class="key" href=${href('record', r.record)}>${keyOf(r.record)}</a></td><td>${r.operation}</td><td class="n num" data-name=${counted[what].toLowerCase()}>${r[what]}</td><td><${Time} at=${r.last} /></td></tr>`)}</tbody></table></div>` : html`<p class="faint">${none}</p>`);

const got = { replay: 'replayed: stopped', in_flight: 'in flight: polls', refused: 'refused by a door' };

function Outcomes({ list }) {
	const sums = {};
	for (const s of list) if (s.what !== 'simultaneous' && s.what !== 'failed_attempt') sums[s.what] = (sums[s.what] || 0) + s.count;
	const rows = Object.entries(sums).sort((a, b) => b[1] - a[1]);
	const top = Math.max(1, ...rows.map(([, n]) => n));
	return html`<table><thead class="sr"><tr><th>Decision</th><th>Share</th><th>Count</th></tr></thead><tbody>${rows.map(([what, n]) => html`<tr><td>${got[what] || decision(what).label}</td><td class="grow"><${Meter} share=${n / top} tone=${what === 'refused' ? 'orange' : decision(what).tone} /></td><td class="n num">${n}</td></tr>`)}</tbody></table>`;
}
