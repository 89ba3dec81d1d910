// One action, or an export, over everything that a query selects or over the records that
// were chosen. The set is looked up when you press the button; a dry run only looks.
import { html, useRef, useState } from './lib.js';
import { post, recordPath, search } from './api.js';
import { Dialog, Failed, download, say } from './ui.js';
import { actions, Lacks, lacks, overHTTP, Reason, SettleForm, settlement, undecided, useChoices } from './actions.js';
import { columnsOf, inLine } from './subject.js';
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
/** How many calls are listed by name. */
const shown = 200;

/** A cell of CSV. A spreadsheet must not take what a stranger chose for a formula, or for its end: some separate by semicolons, and know wide signs. */
export function cell(v) {
	if (typeof v === 'number') return String(v);
	let text = v === undefined || v === null ? '' : String(v);
	if (/^\s*[=+\-@\t\r\uFF1D\uFF0B\uFF0D\uFF20]/.test(text)) text = "'" + text;
	return '"' + text.replaceAll('"', '""') + '"';
}

export function BulkDialog({ name, q, chosen: given, close, done }) {
	const [chosen] = useState(given);
	const isExport = name === 'csv' || name === 'ndjson';
	const [form, setForm] = useState(undecided);
	const [run, setRun] = useState(null);
	const [error, setError] = useState(null);
	const stop = useRef(null);
	const tried = useRef(new Map()); // the fences of the dry run
	const set = (part) => setForm((f) => ({ ...f, ...part }));
	const action = actions[name];
	const operations = new Set(chosen.map((r) => r.operation));
	const choices = useChoices(operations.size === 1 ? chosen[0].operation : '');
	const http = !chosen.length || chosen.some(overHTTP);
	const open = chosen.flatMap((r) => r.effects.filter((e) => e.state === 'started'));
	const missing = isExport ? '' : lacks(name, form, { http, open: open.length > 0 });
	const what = chosen.length ? `the ${chosen.length} selected records` : q ? html`everything that matches <code>${q}</code>` : 'all records';

	const start = async (dry) => {
		stop.current = new AbortController();
		const { signal } = stop.current;
		const r = { dry, found: 0, fits: 0, ok: 0, failed: 0, calls: [], over: false, limited: false };
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
					if (dry) tried.current.set(rec.id, rec.fence);
					targets.push(rec);
					r.fits = targets.length;
					if (r.calls.length < shown) r.calls.push(rec);
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
			r.results = new Map();
			if (!dry) {
				const worker = async () => {
					for (let rec = targets.shift(); rec && !signal.aborted; rec = targets.shift()) {
						try {
							const fence = tried.current.get(rec.id) ?? rec.fence;
							await post(recordPath(rec.id, name), name === 'settle' ? settlement(form, { ...rec, fence }) : { reason: form.reason.trim(), fence });
							r.ok++;
							r.results.set(rec.id, 'done');
						} catch (err) {
							r.failed++;
							r.results.set(rec.id, err.message);
							if (!r.calls.includes(rec)) r.calls.push(rec);
						}
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
			${!isExport && (run ? html`<${Calls} list=${run.calls} all=${run.fits} run=${run} />` : chosen.length > 0 && html`<${Calls} list=${chosen.slice(0, shown)} all=${chosen.length} />`)}
			${name === 'settle' && html`<${SettleForm} choices=${choices} open=${open} form=${form} set=${set} http=${http} many />`}
			${name === 'release' && html`<p><b>What retries get:</b> ${choices.data?.choices.find((c) => c.outcome === 'abandoned')?.retries}</p>`}
			${!isExport && html`<${Reason} form=${form} set=${set} first=${name !== 'settle'} /><${Lacks} what=${missing} />`}
			${run && html`<div class="progress" role="status">
				${!run.dry && !isExport && html`<progress max=${Math.max(run.fits, 1)} value=${run.ok + run.failed} aria-label="Progress"></progress>`}
				<p>${run.found} looked at${isExport ? '' : html`, <b>${run.fits}</b> fit`}${run.dry ? (run.over ? '. Nothing was changed.' : '…') : ''}${!run.dry && !isExport ? html`. <b>${run.ok}</b> done${run.failed ? html`, <b class="late">${run.failed}</b> refused` : ''}.` : ''}${run.limited ? ` One run changes at most ${most}.` : ''}</p></div>`}
			${error && html`<${Failed} error=${error} />`}
			<footer><button type="button" class="ghost" onClick=${end}>${run?.over && !run.dry ? 'Done' : changing ? 'Stop' : 'Cancel'}</button>
				${!isExport && html`<button type="button" onClick=${() => start(true)} disabled=${changing}>Dry run</button>`}
				<button class=${action?.danger ? 'danger' : 'primary'} disabled=${changing || !!missing || (run?.over && !run.dry)}>${isExport ? 'Export' : action.title}</button></footer>
		</form><//>`;
}

/** The calls that one decision is about, and what became of each: those that were refused are first. */
function Calls({ list, all, run }) {
	const names = columnsOf(list);
	const result = (r) => run?.results?.get(r.id);
	const bad = (r) => Number(!!result(r) && result(r) !== 'done');
	return html`<div class="calls scroll" tabindex="0" role="group" aria-label="The calls"><table><thead><tr><th>Key</th>${names.map((n) => html`<th><bdi>${n}</bdi></th>`)}${run?.results && !run.dry && html`<th>Result</th>`}</tr></thead><tbody>
		${list.toSorted((a, b) => bad(b) - bad(a)).map((r) => html`<tr key=${r.id} title=${inLine(r)}><td class="k mono">${r.idempotency_key}</td>${names.map((n) => html`<td><bdi>${r.attributes?.[n]}</bdi></td>`)}${run?.results && !run.dry && html`<td class=${bad(r) ? 'late' : ''}>${result(r) || '…'}</td>`}</tr>`)}</tbody></table>
		${all > list.length && html`<p class="faint">And ${all - list.length} more.</p>`}</div>`;
}
