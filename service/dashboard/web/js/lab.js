// The Lab: many copies of one request at once, and one of them runs.
import { html, useEffect, useState } from './lib.js';
import { get, me, post, recordPath, send } from './api.js';
import { Badge, Empty, Failed, Head, useLoad } from './ui.js';
import { decision } from './words.js';
import { duration } from './time.js';
import { href } from './route.js';

const newKey = () => 'lab-' + [...crypto.getRandomValues(new Uint8Array(6))].map((b) => (b % 36).toString(36)).join('');

/** What a copy got, as a lane shows it: a replay that was asked for while the call ran has joined it. */
export function kind(copy, runs) {
	if (copy.decision === 'execute') return { label: copy.status >= 400 || copy.status === 0 ? 'executed, and failed' : 'executed', tone: 'blue' };
	if (copy.decision === 'replay') return runs.some((r) => copy.at_ms < r.at_ms + r.took_ms) ? { label: 'joined', tone: 'cyan' } : { label: 'replayed', tone: 'green' };
	if (copy.decision === 'passed') return { label: 'not guarded', tone: 'amber' };
	if (copy.decision === 'refused') return { label: 'refused', tone: 'red' };
	return decision(copy.decision);
}

/** Where a request can go: the routes, and the operations over the execution API. */
async function targets(signal) {
	const [rules, operations] = await Promise.all([post('v1/explain', { request: 'GET /' }).then((x) => x.rules, () => []), get('v1/operations', signal)]);
	const routes = rules.filter((r) => r.rule.startsWith('routes[')).map((r) => r.match.includes(' ') ? r.match.split(/\s+/) : ['POST', r.match]);
	return { routes, operations: operations.operations.filter((o) => !o.name.startsWith('semel.')).map((o) => ['POST', `/v1/operations/${encodeURIComponent(o.name)}/executions`, o.name]) };
}

export function LabScreen() {
	const to = useLoad(targets, []);
	const [form, setForm] = useState({ method: 'POST', path: '', key: newKey(), body: '{"amount": 4200}', copies: 10, work: 300, tenant: '' });
	const [run, setRun] = useState(null);
	const set = (more) => setForm((f) => ({ ...f, ...more }));
	const choose = (pair) => pair && set({ method: pair[0], path: pair[1].slice(pair[1].indexOf('/')).replace(/\{\$\}$/, '').replace(/\{\w+(\.\.\.)?\}/g, '1') });
	useEffect(() => { if (to.data && !form.path) choose(to.data.routes[0] || to.data.operations[0]); }, [to.data]);
	const api = /^\/v1\/operations\/[^/]+\/executions$/.test(form.path);
	const start = async (ev) => {
		ev.preventDefault();
		const copies = Number(form.copies);
		setRun({ copies, got: [], busy: true, key: form.key });
		try {
			const experiment = { method: form.method, path: form.path, key: form.key, body: form.body, copies, tenant: form.tenant, work_ms: api ? Number(form.work) : 0 };
			const answer = await send('POST', 'ui/lab', { headers: { 'Content-Type': 'application/json' }, body: JSON.stringify(experiment) });
			let rest = '';
			for (const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader(); ;) {
				const { done, value } = await reader.read();
				if (done) break;
				const lines = (rest + value).split('\n');
				rest = lines.pop();
				const got = lines.map((l) => JSON.parse(l));
				const end = got.find((g) => g.record !== undefined);
				setRun((r) => ({ ...r, got: r.got.concat(got.filter((g) => g.copy)), id: end ? end.record : r.id }));
				if (end?.record) {
					const rec = await get(recordPath(end.record)).then((b) => b.record, () => null);
					setRun((r) => ({ ...r, rec }));
				}
			}
			setRun((r) => ({ ...r, busy: false }));
		} catch (error) { setRun((r) => ({ ...r, busy: false, error })); }
	};
	return html`<${Head} title="Lab" />
		<p class="lead">Send copies of one request at once, and watch: one of them runs, and the others get its outcome. Each copy is a real delivery, so the one that runs does what it does: the upstream is called. They come from the principal <code>semel.lab</code>, whose keys are its own.</p>
		<form class="card lab" onSubmit=${start}>
			<label>To <select aria-label="To" onChange=${(ev) => choose(JSON.parse(ev.target.value))}>${to.data && html`<optgroup label="Routes">${to.data.routes.map((t) => html`<option value=${JSON.stringify(t)}>${t[0]} ${t[1]}</option>`)}</optgroup>
				<optgroup label="Operations, over the execution API">${to.data.operations.map((t) => html`<option value=${JSON.stringify(t)}>${t[2]}</option>`)}</optgroup>`}</select></label>
			<div class="lab-line"><label class="method-field">Method <input name="method" class="mono" required pattern="[A-Z]+" value=${form.method} onInput=${(ev) => set({ method: ev.target.value.toUpperCase() })} /></label>
				<label class="grow">Path <input name="path" class="mono" required pattern="/.*" value=${form.path} onInput=${(ev) => set({ path: ev.target.value })} /></label></div>
			<div class="lab-line"><label class="grow">Key <input name="key" class="mono" maxlength="256" value=${form.key} onInput=${(ev) => set({ key: ev.target.value })} /></label><button type="button" onClick=${() => set({ key: newKey() })}>New key</button>
				<label class="short">Copies <input name="copies" type="number" min="1" max="50" required value=${form.copies} onInput=${(ev) => set({ copies: ev.target.value })} /></label>
				${api && html`<label class="short">Work, ms <input name="work" type="number" min="0" max="5000" required value=${form.work} onInput=${(ev) => set({ work: ev.target.value })} /></label>`}
				${me.value.caller.all_tenants && html`<label class="short">Tenant <input name="tenant" value=${form.tenant} onInput=${(ev) => set({ tenant: ev.target.value })} /></label>`}</div>
			<label>Body <textarea class="mono" name="body" rows="3" maxlength="32768" spellcheck="false" value=${form.body} onInput=${(ev) => set({ body: ev.target.value })}></textarea></label>
			<button class="primary" disabled=${run?.busy || !form.path}>${run?.busy ? 'Sending…' : `Send ${form.copies} ${Number(form.copies) === 1 ? 'copy' : 'copies'}`}</button>
		</form>
		${run ? html`<${Run} run=${run} />` : html`<${Empty} title="Nothing was sent yet"><p>Send it a second time with the same key, and nothing runs: every copy gets the outcome that exists. Change the body, and all of them are refused as conflicts.</p><//>`}`;
}

function Run({ run }) {
	const runs = run.got.filter((c) => c.decision === 'execute' || c.decision === 'passed');
	const by = Object.groupBy(run.got, (c) => kind(c, runs).label);
	const end = Math.max(...run.got.map((c) => c.at_ms + c.took_ms), 1);
	// What ran is on top, then the others as they were answered, and what still waits.
	const lanes = [...runs, ...run.got.filter((c) => !runs.includes(c))];
	for (let n = 1; n <= run.copies; n++) if (!run.got.some((c) => c.copy === n)) lanes.push({ copy: n, waits: true });
	const effects = run.rec?.effects?.length || 0;
	const good = runs.length <= 1 && !by['not guarded'];
	return html`<section class="card" aria-busy=${!!run.busy}><h2>What happened <small>${run.got.length} of ${run.copies} answered</small></h2>
		${run.error && html`<${Failed} error=${run.error} />`}
		${!run.busy && !run.error && html`<p class=${'verdict ' + (good ? 'green' : 'amber')} role="status">${run.copies} sent, <b>${runs.length} ran</b>.
			<span> ${Object.entries(by).map(([label, list]) => `${list.length} ${label}`).join(', ')}. ${!good && by['not guarded'] ? 'The route does not guard this request, so each copy did what it does.' : `Effects: ${runs.length === 0 ? 'none, nothing ran' : api(run) ? `${effects} in the ledger` : `the upstream was called ${runs.length === 1 ? 'once' : runs.length + ' times'}`}.`}</span>
			${run.rec && html` <a href=${href('record', run.rec.id)}>Its record</a> <span>has ${run.rec.attempt} ${run.rec.attempt === 1 ? 'attempt' : 'attempts'}${effects && !api(run) ? ` and ${effects} effects in its ledger` : ''}.</span>`}</p>`}
		<ol class="copies">${lanes.map((c) => html`<${Copy} key=${c.copy} c=${c} runs=${runs} end=${end} />`)}</ol></section>`;
}
const api = (run) => run.rec?.door === 'api';

function Copy({ c, runs, end }) {
	if (c.waits) return html`<li><span class="num faint">${c.copy}</span><div class="track"><div class="bar lease" style=${{ left: 0, width: '100%' }}></div></div><span class="faint">waits</span></li>`;
	const k = kind(c, runs);
	return html`<li><span class="num faint">${c.copy}</span><div class="track"><div class=${'bar ' + k.tone} style=${{ left: (100 * c.at_ms) / end + '%', width: (100 * c.took_ms) / end + '%' }}></div></div>
		<details><summary><${Badge} tone=${k.tone}>${k.label}<//> <span class="num">${c.status || 'broken off'}</span> <small class="num">${duration(c.took_ms)}</small></summary>${c.code && html`<p><a href=${'problems/' + c.code} target="_blank" rel="noopener">${c.code}</a></p>`}${c.body ? html`<pre class="payload" tabindex="0">${c.body}</pre>` : html`<p class="faint">It has no body, or one that isn't text.</p>`}</details></li>`;
}
