// One action, or an export, over everything that a query selects or over the records that
// were chosen. The set is looked up when you press the button; a dry run only looks.
import { html, useRef, useState } from './lib.js';
import { post, recordPath, search } from './api.js';
import { Dialog, Failed, download, say } from './ui.js';
import { actions, settlement, statuses } from './actions.js';
import { stateOf } from './words.js';

/** How many requests are under way at once: enough to be quick, too few to be a load. */
const atOnce = 4;
/** The most that one run changes, so that a slip of the pen has an end. */
const most = 10_000;

async function* everything(q, signal) {
	for (let cursor = ''; ;) {
		const page = await search(q, { cursor, limit: 500, signal });
		yield* page.records;
		if (!page.next) return;
		cursor = page.next;
	}
}

const columns = [
	['record', (r) => r.id], ['tenant', (r) => r.tenant], ['principal', (r) => r.principal], ['scope', (r) => r.scope], ['operation', (r) => r.operation], ['key', (r) => r.idempotency_key], ['state', stateOf],
	['attempt', (r) => r.attempt], ['fence', (r) => r.fence], ['door', (r) => r.door], ['created_at', (r) => r.created_at], ['ended_at', (r) => r.ended_at], ['held_reason', (r) => r.held_reason],
	['settled_by', (r) => r.settled?.who || r.settled?.by], ['reason', (r) => r.settled?.reason],
];
/** A cell of CSV. A spreadsheet must not take what a stranger chose for a formula, or for the end of the cell: some separate by semicolons, and know the wide signs of East Asia. */
export function cell(v) {
	if (typeof v === 'number') return String(v);
	let text = v === undefined || v === null ? '' : String(v);
	if (/^\s*[=+\-@\t\r\uFF1D\uFF0B\uFF0D\uFF20]/.test(text)) text = "'" + text;
	return '"' + text.replaceAll('"', '""') + '"';
}

export function BulkDialog({ name, q, chosen, close, done }) {
	const isExport = name === 'csv' || name === 'ndjson';
	const [form, setForm] = useState({ reason: '', outcome: 'completed', status: 200, text: '', effects: '', code: '' });
	const [run, setRun] = useState(null);
	const [error, setError] = useState(null);
	const stop = useRef(null);
	const set = (part) => setForm((f) => ({ ...f, ...part }));
	const action = actions[name];
	const what = chosen.length ? `the ${chosen.length} selected records` : q ? html`everything that matches <code>${q}</code>` : 'all records';

	const start = async (dry) => {
		stop.current = new AbortController();
		const { signal } = stop.current;
		const r = { dry, found: 0, fits: 0, ok: 0, failed: [], over: false, sample: [], limited: false };
		const show = () => setRun({ ...r });
		show();
		setError(null);
		try {
			const targets = [], lines = [];
			for await (const rec of chosen.length ? chosen : everything(q, signal)) {
				r.found++;
				if (isExport) lines.push(name === 'csv' ? columns.map(([, of]) => cell(of(rec))).join(',') : JSON.stringify(rec));
				else if (action.fits(rec)) {
					if (targets.length >= most) { r.limited = true; break; }
					targets.push(rec);
					r.fits = targets.length;
					if (r.sample.length < 5) r.sample.push(rec.idempotency_key);
				}
				if (r.found % 100 === 0) show();
			}
			if (isExport) {
				const head = name === 'csv' ? columns.map(([n]) => n).join(',') + '\r\n' : '';
				download(`records.${name}`, name === 'csv' ? 'text/csv' : 'application/x-ndjson', head + lines.join(name === 'csv' ? '\r\n' : '\n') + '\n');
				say(`${r.found} records were exported.`);
				close();
				return;
			}
			if (!dry) {
				const worker = async () => {
					for (let rec = targets.shift(); rec && !signal.aborted; rec = targets.shift()) {
						try {
							await post(recordPath(rec.id, name), name === 'settle' ? settlement(form, rec) : { reason: form.reason.trim() });
							r.ok++;
						} catch (err) { r.failed.push([rec.idempotency_key, err.message]); }
						show();
					}
				};
				await Promise.all(Array.from({ length: atOnce }, worker));
			}
			r.over = true;
			show();
		} catch (err) {
			if (!signal.aborted) setError(err);
		}
	};
	const end = () => { stop.current?.abort(); if (run && !run.dry) done(); close(); };
	const changing = run && !run.dry && !run.over;
	return html`<${Dialog} title=${isExport ? 'Export as ' + name.toUpperCase() : action.title + ' records'} close=${end}>
		<form onSubmit=${(ev) => { ev.preventDefault(); start(false); }}>
			<p class="does">${isExport ? html`A file with ${what}. Results are in NDJSON only.` : html`${action.title} ${what}. ${action.does}`}</p>
			${name === 'settle' && html`<fieldset><legend>What happened to all of them?</legend>${[['completed', 'They were done'], ['rejected', 'They were refused for good'], ['failed', 'They failed'], ['aborted', 'Nothing happened: the next delivery runs']].map(([v, label]) => html`
				<label class="radio"><input type="radio" name="outcome" value=${v} checked=${form.outcome === v} onChange=${() => set({ outcome: v, status: statuses[v] || 0 })} /> <span>${label}</span></label>`)}</fieldset>
				${form.outcome !== 'aborted' && html`<label class="short">Status that duplicates of HTTP calls get <input type="number" min="200" max="599" value=${form.status} onInput=${(ev) => set({ status: ev.target.value })} /></label>`}`}
			${!isExport && html`<label>Reason <small>the same in every record and in the log</small><textarea name="reason" rows="2" maxlength="1024" value=${form.reason} onInput=${(ev) => set({ reason: ev.target.value })}></textarea></label>`}
			${run && html`<div class="progress" role="status">
				${!run.dry && !isExport && html`<progress max=${Math.max(run.fits, 1)} value=${run.ok + run.failed.length} aria-label="Progress"></progress>`}
				<p>${run.found} looked at${isExport ? '' : html`, <b>${run.fits}</b> fit${run.sample.length ? `: ${run.sample.join(', ')}${run.fits > run.sample.length ? ', …' : ''}` : ''}`}${run.dry ? (run.over ? '. Nothing was changed.' : '…') : ''}${!run.dry && !isExport ? html`. <b>${run.ok}</b> done${run.failed.length ? html`, <b class="late">${run.failed.length}</b> refused` : ''}.` : ''}${run.limited ? ` One run changes at most ${most}.` : ''}</p>
				${run.failed.length > 0 && html`<ul>${run.failed.slice(0, 10).map(([key, why]) => html`<li><b>${key}</b>: ${why}</li>`)}</ul>`}</div>`}
			${error && html`<${Failed} error=${error} />`}
			<footer><button type="button" class="ghost" onClick=${end}>${run?.over && !run.dry ? 'Done' : changing ? 'Stop' : 'Cancel'}</button>
				${!isExport && html`<button type="button" onClick=${() => start(true)} disabled=${changing}>Dry run</button>`}
				<button class=${action?.danger ? 'danger' : 'primary'} disabled=${changing || (!isExport && !form.reason.trim()) || (run?.over && !run.dry)}>${isExport ? 'Export' : action.title}</button></footer>
		</form><//>`;
}
