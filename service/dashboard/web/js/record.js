// One record: what happened to one call, and what you can do about it.
import { html, useEffect, useMemo, useState } from './lib.js';
import { find, get, mayChange, me, outcomeOf, pretty, quote, recordPath, search } from './api.js';
import { Badge, Copy, Countdown, DecisionBadge, Empty, Fact, Failed, Head, Loading, StateBadge, Time, Word, useKeys, useLoad } from './ui.js';
import { ActionDialog, AskNow, MessageDialog, actions, fitting } from './actions.js';
import { Timeline, storyOf } from './timeline.js';
import { events, stream } from './live.js';
import { duration, instant } from './time.js';
import { href, go } from './route.js';
import { decision, settledBy, state, stateOf } from './words.js';
import { deliveriesIn, EntryList, loadEntries, Pages } from './evidence.js';
import { Compare } from './compare.js';

/** By which name a call was found, for people. */
const foundBy = (by) => by.map((name) => name.replace(/^(attribute|value):/, 'attribute ').replace('delivery', 'a later delivery').replaceAll('_', ' ')).join(', ');

/** Any name of a call: its record is shown, or a choice if there are several, or if the name is a guess. */
export function FindScreen({ id }) {
	const [from, goOn] = useState({ id, cursor: '' });
	const cursor = from.id === id ? from.cursor : '';
	const { data, error, reload } = useLoad((signal) => find(id, cursor, signal), [id, cursor]);
	const only = data?.found.length === 1 && !cursor && (data.complete || data.found[0].by.some((name) => !name.startsWith('value:'))) ? data.found[0].record.id : '';
	useEffect(() => { if (only) go('record', only, null, true); }, [only]);
	if (error || !data || only) return html`<${Head} title=${id} />${error ? html`<${Failed} error=${error} retry=${reload} />` : html`<${Loading} what=${id} />`}`;
	const searched = html`${data.records} records were compared by every name${data.back && html`, back to <${Time} at=${data.back} />`}`;
	const further = data.next && html`<p class="note">${searched}; older ones may have it, too. <button type="button" onClick=${() => goOn({ id, cursor: data.next })}>Look further back</button></p>`;
	const gone = data.gone.length > 0 && html`<p class="note">The evidence log knows ${data.gone.map((g) => g.operation + ', key ' + g.idempotency_key).join('; ')}: the record was purged or has expired. <a href=${href('evidence')}>Look in the log</a>.</p>`;
	if (!data.found.length) {
		const title = data.gone.length ? 'Its record is gone' : data.complete ? 'No such call' : 'Nothing so far';
		return html`<${Head} title=${title} />${gone}${further}
			${!data.next && html`<${Empty} title=${(data.complete ? 'Nothing is named ' : 'Nothing was found that is named ') + id}>
			<p>${data.complete ? html`${cursor ? 'No record' : searched}${cursor ? ' has it' : ', and none has it'}: as key, reference, id of a delivery, a trace, a message or an effect, or as the value of an attribute. It may have been purged after its window, or it never came here.` : 'Some records, or the evidence log, couldn’t be read. They may have it.'}</p>
			<p><a href=${href('records')}>Search all records</a>${me.value.evidence ? html`, or look in the <a href=${href('evidence')}>evidence log</a>, which keeps more` : ''}.</p><//>`}`;
	}
	return html`<${Head} title=${data.found.length > 1 ? 'Which one is ' + id + '?' : id} /><p class="verdict">${data.verdict}.</p>
		<ul class="cards">${data.found.map(({ record: r, by }) => html`<li><a href=${href('record', r.id)}><b class="mono">${r.idempotency_key}</b> ${r.operation} <${StateBadge} rec=${r} /><small>found by ${foundBy(by)} · ${[...Object.entries(r.attributes || {}).map(([n, v]) => n + '=' + v), r.tenant || 'no tenant', r.principal || 'shared'].join(' · ')} · <${Time} at=${r.created_at} /></small></a></li>`)}</ul>
		${gone}${further}`;
}

export function RecordScreen({ id }) {
	const { data, error, reload } = useLoad(async (signal) => (await get(recordPath(id), signal)).record, [id], 2000);
	const [action, setAction] = useState('');
	useKeys({ settle: () => { if (data?.held && mayChange()) setAction('settle'); } });
	if (error?.status === 404) {
		return html`<${Head} title="No such record" /><${Empty} title="This record isn't here">
			<p>It was purged after its window, or by somebody, or the address isn't whole. A retry of the call runs again.</p><p><a href=${href('records')}>Search records</a></p><//>`;
	}
	if (!data) return html`<${Head} title="Record" />${error ? html`<${Failed} error=${error} retry=${reload} />` : html`<${Loading} what="the record" />`}`;
	return html`${error && html`<${Failed} error=${error} retry=${reload} />`}
		<${Record} rec=${data} reload=${reload} act=${setAction} />
		${action && html`<${ActionDialog} name=${action} rec=${data} close=${() => setAction('')} done=${reload} />`}`;
}

/** What the service says about the call, and what the deliveries after the first add to it. */
function verdict(rec, counts) {
	const again = counts.reduce((n, [, c]) => n + c, 0);
	const more = again === 0 ? 'No duplicate is known.' : again === 1 ? 'One more delivery came.' : `${again} more deliveries came.`;
	const says = rec.verdict?.says || 'The service could not say how it stands'; // its store gave no time
	const next = (rec.held ? ' Look at the provider, then settle it with what you saw.' : '') + (rec.verdict?.retry ? ` A retry ${rec.verdict.retry}.` : '');
	return { tone: tones[rec.verdict?.state] || state(stateOf(rec)).tone, text: says[0].toUpperCase() + says.slice(1) + '.', next: more + next };
}
/** Where the verdict is more than the state: an event that was accepted isn't done. */
const tones = { released: 'orange', queued: 'blue', parked: 'amber', discarded: 'red', silent: 'amber', undoing: 'violet', undone: 'violet', undo_failed: 'red' };

function Record({ rec, reload, act }) {
	const all = events.value;
	const log = useLog(rec);
	const deliveries = useMemo(() => together(all.filter((ev) => ev.data.record === rec.id), log?.data), [all, rec.id, log?.data]);
	const story = useMemo(() => storyOf(rec, deliveries), [rec, deliveries]);
	const counts = countsOf(rec, deliveries);
	const v = verdict(rec, counts);
	const policy = useLoad((signal) => get('v1/operations/' + encodeURIComponent(rec.operation), signal).catch(() => null), [rec.operation]).data;
	const twins = useTwins(rec);
	const twin = twins.others?.[0];
	const can = mayChange() ? fitting(rec, policy) : [];
	return html`
		<${Head} title=${html`<span class="title-key">${rec.idempotency_key}</span> <${Copy} text=${rec.idempotency_key} label="the key" /> <${StateBadge} rec=${rec} />`}>
			${can.map((name) => html`<button type="button" class=${name === 'settle' ? 'primary' : actions[name].danger ? 'danger ghost' : ''} onClick=${() => act(name)}>${actions[name].title}</button>`)}
		<//>
		<p class=${'verdict ' + v.tone}>${v.text} <span>${v.next}</span>
			${twin && html` <span>The same payload came under another key, as a call of its own: <a class="key" href=${href('record', twin.id)}>${twin.idempotency_key}</a>${twins.others.length > 1 && ', and others'}.</span>`}</p>
		${rec.held && mayChange() && html`<${AskNow} rec=${rec} />`}
		<${Timeline} rec=${rec} deliveries=${deliveries} title=${`${rec.idempotency_key} · ${v.text}`} />
		<div class="columns">
			<div>
				<${Deliveries} rec=${rec} counts=${counts} seen=${deliveries} />
				${rec.decisions?.conflict > 0 && html`<section class="card"><h2>Refused payloads <small>the same key, asked for something else</small></h2><${Compare} id=${rec.id} /></section>`}
				<${Answer} rec=${rec} />
				<section class="card"><h2>Story</h2><ol class="story">${story.map((e) => html`<li><i class=${'dot ' + e.tone}></i><${Time} at=${e.at} /><span>${e.what}${e.times > 1 && html` <b class="num">${e.times} times</b>`}${e.times > 1 ? html`<small>within ${duration(e.until - e.at)}</small>` : e.detail && html`<small>${e.detail}</small>`}</span></li>`)}</ol></section>
				${rec.effects.length > 0 && html`<${Effects} rec=${rec} />`}
				${rec.messages?.length > 0 && html`<${Messages} rec=${rec} reload=${reload} />`}
				${log && html`<${Evidence} log=${log} />`}
			</div>
			<div>
				<${Identity} rec=${rec} />
				<${SamePayload} rec=${rec} of=${twins} />
			</div>
		</div>`;
}

/** A page of what the evidence log says about a record, at first the newest; followed until all of it is signed. Null where there is no log. */
function useLog(rec) {
	const [signed, setSigned] = useState(false);
	const [before, go] = useState(0);
	const log = useLoad((signal) => (me.value.evidence ? loadEntries({ record: rec.id, ...(before && { before }) }, signal) : null), [rec.id, rec.updated_at, before], signed || !me.value.evidence ? 0 : 1500);
	useEffect(() => setSigned(!!log.data && !log.data.entries.some((e) => e.status === 'pending')), [log.data]);
	return me.value.evidence ? { ...log, before, go } : null;
}

/** The deliveries that this node remembers, and those that only the log does: other nodes' and from before a restart. */
function together(seen, log) {
	const left = [...seen];
	const logged = deliveriesIn(log?.entries || []).filter((d) => {
		const i = left.findIndex((ev) => ev.kind === d.kind && ev.data.decision === d.data.decision && Math.abs(ev.at - d.at) < 1000);
		if (i >= 0) left.splice(i, 1);
		return i < 0;
	});
	return logged.length ? seen.concat(logged).sort((a, b) => a.at - b.at) : seen;
}

/** How many deliveries got what: as the nodes count it, or the log if that knows more, as after a restart. */
function countsOf(rec, deliveries) {
	const counts = {};
	for (const ev of deliveries) if (ev.kind === 'decided') counts[ev.data.decision] = (counts[ev.data.decision] || 0) + (ev.data.count || 1);
	for (const [d, n] of Object.entries(rec.decisions || {})) counts[d] = Math.max(n, counts[d] || 0);
	delete counts.execute;
	return Object.entries(counts).sort((a, b) => b[1] - a[1]);
}

function Deliveries({ rec, counts: rows, seen }) {
	const drawn = seen.filter((ev) => ev.kind === 'decided' && ev.data.decision !== 'execute').length;
	const again = rows.reduce((n, [, c]) => n + c, 0);
	const total = again + rec.attempt;
	return html`<section class="card"><h2>Deliveries</h2>
		<div class="split-bar" role="img" aria-label=${`${rec.attempt} begun, ${rows.map(([d, c]) => c + ' ' + d).join(', ')}`}>
			<span class="blue" style=${{ flexGrow: rec.attempt }}></span>${rows.map(([d, c]) => html`<${Segment} d=${d} n=${c} />`)}</div>
		<p class="chips"><span><b class="num">${rec.attempt}</b> <${Badge} tone="blue">begun<//></span>${rows.map(([d, c]) => html`<span><b class="num">${c}</b> <${DecisionBadge} d=${d} /></span>`)}<span class="faint">of ${total}, those of other nodes up to five seconds late</span></p>
		${again > drawn && html`<p class="faint">The timeline has ${drawn} of the ${again} repeated deliveries: times of single deliveries are known to the node that answered them, for a while, and to the evidence log if the operation says <code>evidence: decisions</code>${stream.value === 'absent' ? '; this installation has no live events' : ''}.</p>`}
	</section>`;
}
const Segment = ({ d, n }) => html`<span class=${decision(d).tone} style=${{ flexGrow: n }}></span>`;

function Answer({ rec }) {
	const [shown, setShown] = useState(localStorage.getItem('semel.payloads') === 'show');
	const [outcome, setOutcome] = useState(null);
	const [error, setError] = useState(null);
	useEffect(() => {
		let gone = false;
		setError(null);
		outcomeOf(rec).then((o) => { if (!gone) setOutcome(o); }, (err) => { if (!gone) setError(err); });
		return () => { gone = true; };
	}, [rec.result, rec.result_base64, rec.status]);
	if (error) return html`<section class="card"><h2>Answer</h2><${Failed} error=${error} /></section>`;
	if (!outcome) return rec.error ? html`<section class="card"><h2>Answer</h2><p><span class="mono">${rec.error.code}</span> ${rec.error.message}</p></section>` : null;
	if (outcome.kind === 'gone') return html`<section class="card"><h2>Answer</h2><p>It ran, and its result was too large to be kept whole. Duplicates are told so.</p></section>`;
	let text = outcome.kind === 'http' ? outcome.body : outcome.text;
	if (outcome.kind === 'http' && !outcome.binary) text = pretty(text);
	return html`<section class="card"><h2>Answer <small>what every duplicate gets</small></h2>
		${outcome.kind === 'http' && html`<p><${Badge} tone=${outcome.status < 400 ? 'green' : 'red'}>${outcome.status}<//> ${Object.entries(outcome.headers || {}).map(([n, v]) => html`<span class="header mono">${n}: ${shown || n === 'Content-Type' ? v.join(', ') : '…'}</span>`)}</p>`}
		${text ? shown ? html`<pre class="payload" tabindex="0">${text}</pre><${Copy} text=${text} label="the answer" />` : html`<button type="button" onClick=${() => setShown(true)}>Show the ${outcome.kind === 'http' ? 'body' : 'result'} (${text.length} characters)</button>` : html`<p class="faint">It has no body.</p>`}
	</section>`;
}

const Effects = ({ rec }) => html`<section class="card"><h2><${Word} name="effect">Effects<//></h2><div class="scroll"><table class="stack"><thead><tr><th>Effect</th><th>State</th><th>Begun</th><th>Settled</th><th>Key at the provider</th></tr></thead><tbody>
	${rec.effects.map((e) => html`<tr><td class="k">${e.name}</td><td><${Badge} tone=${e.state === 'confirmed' ? 'violet' : e.state === 'started' ? 'amber' : 'grey'}>${e.state === 'started' ? 'open' : e.state}<//>${e.settled && html`<small> ${settledBy(e.settled)}</small>`}</td><td data-name="begun"><${Time} at=${e.started_at} /></td><td data-name="settled"><${Time} at=${e.settled_at} /></td><td class="mono cut" data-name="key">${e.key} <${Copy} text=${e.key} label="the key" /></td></tr>`)}</tbody></table></div></section>`;

function Messages({ rec, reload }) {
	const [open, setOpen] = useState(null);
	return html`<section class="card"><h2>Messages</h2><div class="scroll"><table class="stack"><thead><tr><th>Message</th><th>To</th><th>State</th><th>Tries</th><th>Next</th><th></th></tr></thead><tbody>
		${rec.messages.map((m) => html`<tr><td class="k">${m.name}</td><td data-name="to">${m.destination}</td><td><${MessageState} m=${m} /></td><td class="num" data-name="tries">${m.tries}</td><td data-name="next"><${Time} at=${m.next_at} /></td>
		<td class="do">${m.state === 'parked' && mayChange() && html`<button type="button" onClick=${() => setOpen(['replay', m])}>Deliver again</button> <button type="button" class="ghost danger" onClick=${() => setOpen(['discard', m])}>Discard</button>`}</td></tr>`)}</tbody></table></div>
		${open && html`<${MessageDialog} name=${open[0]} rec=${rec} message=${open[1]} close=${() => setOpen(null)} done=${reload} />`}</section>`;
}
export const MessageState = ({ m }) => html`<${Badge} tone=${{ delivered: 'green', pending: 'blue', parked: 'red' }[m.state] || 'grey'} title=${m.error?.message}>${m.state}<//>${m.error && html`<small> ${m.error.message}</small>`}`;

function Evidence({ log: { data, error, before, go } }) {
	return html`<section class="card"><h2>Evidence <small>what the log says, each entry proved against the signed checkpoint by this page</small></h2>
		${error ? html`<${Failed} error=${error} />` : !data ? html`<${Loading} /> ` : data.entries.length ? html`<${EntryList} list=${{ ...data, entries: data.entries.toReversed() }} /><${Pages} next=${data.next} before=${before} go=${go} />` : html`<p class="faint">The log has no entry about it: its operation keeps no evidence.</p>`}</section>`;
}

const Identity = ({ rec }) => html`<section class="card"><h2>Record</h2><dl class="facts">
	<${Fact} name="Operation"><a href=${href('operations', rec.operation)}>${rec.operation}</a><//>
	${Object.entries(rec.attributes || {}).map(([n, v]) => html`<${Fact} name=${n}>${n === 'compensates' ? html`<a href=${href('record', v)}>the call that it undoes</a>` : html`<span class="mono">${v}</span> <${Copy} text=${v} label=${n} />`}<//>`)}
	<${Fact} name="Tenant">${rec.tenant || html`<span class="faint">none</span>`}<//>
	<${Fact} name="Principal"><span class="mono cut" title=${rec.principal}>${rec.principal || 'shared in the tenant'}</span><//>
	${rec.scope && html`<${Fact} name="Scope"><span class="mono cut" title=${rec.scope}>${rec.scope}</span><//>`}
	<${Fact} name="Door">${rec.door || '–'}<//>
	<${Fact} name=${html`<${Word} name="attempt">Attempt<//>`}><span class="num">${rec.attempt}</span><//>
	${rec.holder && html`<${Fact} name="Node">${rec.holder}<//>`}
	<${Fact} name="Created"><${Time} at=${rec.created_at} /><//>
	<${Fact} name="Ended"><${Time} at=${rec.ended_at} />${rec.ended_at && html` <small>after ${duration(instant(rec.ended_at) - instant(rec.started_at))}</small>`}<//>
	${rec.status === 'processing' && rec.lease_until && html`<${Fact} name=${html`<${Word} name="lease">Lease<//>`}><${Countdown} to=${rec.lease_until} over="over since" /><//>`}
	${rec.expires_at && html`<${Fact} name=${html`<${Word} name="window">Kept<//>`}>until <${Time} at=${rec.expires_at} /><//>`}
	${rec.settled && html`<${Fact} name="Decided"><${Time} at=${rec.settled.at} /> ${settledBy(rec.settled)}<//>`}
	${rec.payload_hash && html`<${Fact} name=${html`<${Word} name="fingerprint">Fingerprint<//>`}><span class="mono cut" title=${rec.payload_hash}>${rec.payload_hash}</span> <${Copy} text=${rec.payload_hash} label="the fingerprint" /><//>`}
	<${Fact} name=${html`<${Word} name="fence">Fence<//>`}><span class="num">${rec.fence}</span><//>
	<${Fact} name="Record id"><span class="mono cut" title=${rec.id}>${rec.id}</span> <${Copy} text=${rec.id} label="the record id" /><//>
	</dl><p class="command"><code>semel why ${rec.idempotency_key}</code> <${Copy} text=${'semel why ' + rec.idempotency_key} label="the command" /></p></section>`;

/** The other calls with the payload of a record, such as of a client with a new key for each try: {others, error}. */
function useTwins(rec) {
	const q = `tenant:${JSON.stringify(rec.tenant)} operation:${quote(rec.operation)} fingerprint:${rec.payload_hash}`;
	const { data, error } = useLoad((signal) => (rec.payload_hash ? search(q, { limit: 11, signal }) : null), [rec.id]);
	return { others: rec.payload_hash ? data?.records.filter((r) => r.id !== rec.id) : [], error };
}

function SamePayload({ rec, of: { others, error } }) {
	if (!rec.payload_hash) return html`<section class="card"><h2>Same payload</h2><p class="faint">Payloads of this operation are not compared.</p></section>`;
	return html`<section class=${'card' + (others?.length ? ' warn' : '')}><h2>Same payload under another key</h2>
		${error ? html`<${Failed} error=${error} />` : !others ? html`<${Loading} />` : !others.length ? html`<p class="faint">No other call of this operation and tenant that is still kept has its fingerprint.</p>` : html`<p>Each of these was a call of its own. A client that makes a new key for a retry is charged twice.</p>
		<ul class="cards">${others.slice(0, 10).map((r) => html`<li><a href=${href('record', r.id)}><b>${r.idempotency_key}</b> <${StateBadge} rec=${r} /> <small><${Time} at=${r.created_at} /></small></a></li>`)}</ul>`}</section>`;
}
