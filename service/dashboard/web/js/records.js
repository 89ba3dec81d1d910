// The search over records: a query in the words of the command line, kept in the address, and
// what you can do with everything that it selects.
import { html, signal, useEffect, useMemo, useRef, useState } from './lib.js';
import { get, mayChange, quote, search } from './api.js';
import { Empty, Failed, Head, Loading, StateBadge, useKeys } from './ui.js';
import { BulkDialog } from './bulk.js';
import { duration, now } from './time.js';
import { go, href, route } from './route.js';
import { columnsOf, inLine } from './subject.js';
import { settledBy } from './words.js';

const qualifiers = [
	['state:', 'processing, completed, failed or held'], ['operation:', 'of one operation'], ['key:', 'with this key'], ['call:', 'any name of a call'],
	['principal:', 'whose keys they are'], ['scope:', 'with principal:, in this scope'], ['tenant:', 'of one tenant'], ['attribute:', 'NAME=VALUE'], ['fingerprint:', 'with this payload'],
	['after:', 'created then or later, such as 2026-01-31'], ['before:', 'created before then'], ['created<1h', 'created less than an hour ago'], ['created>1d', 'created longer ago'],
];
const stateValues = ['held', 'processing', 'completed', 'failed'];
const pageSize = 200;

const operationNames = signal(null);
async function learnOperations() {
	if (operationNames.value) return;
	operationNames.value = [];
	operationNames.value = await get('v1/operations').then((list) => list.operations.map((o) => o.name), () => null);
}

/** What may follow the word before the cursor. */
function suggestionsFor(word) {
	const [name, value] = word.split(/:(.*)/s);
	if (value === undefined) return qualifiers.filter(([q]) => q.startsWith(word)).map(([q, hint]) => ({ text: q, hint }));
	if (name === 'state') return stateValues.filter((v) => v.startsWith(value)).map((v) => ({ text: 'state:' + v + ' ' }));
	if (name === 'operation') return (operationNames.value || []).filter((v) => v.startsWith(value)).map((v) => ({ text: 'operation:' + quote(v) + ' ' }));
	return [];
}

/** The line to search by, with suggestions for the word that is being written. */
export function QueryBox({ q, onSearch }) {
	const [text, setText] = useState(q);
	const [at, setAt] = useState(-1);
	const [open, setOpen] = useState(false);
	const box = useRef(null);
	useEffect(() => setText(q), [q]);
	useEffect(() => { learnOperations(); }, []);
	const word = () => { const upto = text.slice(0, box.current?.selectionStart ?? text.length); return upto.slice(upto.search(/\S*$/)); };
	const list = suggestionsFor(word()).filter((s) => s.text.trim() !== word());
	const take = (s) => {
		const caret = box.current.selectionStart;
		const start = caret - word().length;
		const next = text.slice(0, start) + s.text + text.slice(caret);
		setText(next);
		setAt(-1);
		box.current.focus();
		box.current.value = next; // now, so that the next letter goes to its end
		box.current.setSelectionRange(start + s.text.length, start + s.text.length);
	};
	const onKey = (ev) => {
		if (!open || !list.length) return;
		if (ev.key === 'ArrowDown') { setAt((at + 1) % list.length); ev.preventDefault(); }
		if (ev.key === 'ArrowUp') { setAt((at + list.length - 1) % list.length); ev.preventDefault(); }
		if (ev.key === 'Tab' && at < 0 && word()) { take(list[0]); ev.preventDefault(); }
		if ((ev.key === 'Enter' || ev.key === 'Tab') && at >= 0) { take(list[at]); ev.preventDefault(); }
		if (ev.key === 'Escape') { setOpen(false); ev.stopPropagation(); }
	};
	const submit = (ev) => { ev.preventDefault(); setOpen(false); onSearch(text.trim()); };
	const shown = open && list.length > 0;
	return html`<form class="query" role="search" onSubmit=${submit}>
		<input ref=${box} name="q" class="mono" value=${text} onInput=${(ev) => { setText(ev.target.value); setOpen(true); setAt(-1); }} onKeyDown=${onKey} onFocus=${() => setOpen(true)} onBlur=${() => setTimeout(() => setOpen(false), 150)}
			role="combobox" aria-label="Query" aria-expanded=${shown} aria-controls="suggestions" aria-autocomplete="list" aria-activedescendant=${at >= 0 ? 'suggestion-' + at : undefined} autocomplete="off" spellcheck="false" placeholder="operation:charge state:held" />
		<button>Search</button>
		${shown && html`<ul id="suggestions" role="listbox" aria-label="Suggestions">${list.slice(0, 10).map((s, i) => html`<li id=${'suggestion-' + i} role="option" aria-selected=${i === at} onMouseDown=${(ev) => { ev.preventDefault(); take(s); }}><code>${s.text}</code> <small>${s.hint}</small></li>`)}</ul>`}
	</form>`;
}

/** Loads page after page; what is there stays while more comes. */
function usePages(q) {
	const [box, setBox] = useState({ rows: [], next: '', error: null, loading: true, unreadable: [] });
	const [round, setRound] = useState(0);
	const stop = useRef(null);
	const busy = useRef(false);
	const load = async (cursor) => {
		const mine = stop.current;
		busy.current = true;
		setBox((b) => ({ ...b, loading: true, error: null }));
		try {
			const page = await search(q, { cursor, limit: pageSize, signal: mine.signal });
			setBox((b) => ({ rows: cursor ? b.rows.concat(page.records) : page.records, next: page.next || '', error: null, loading: false, unreadable: b.unreadable.concat(page.unreadable || []) }));
		} catch (error) {
			if (!mine.signal.aborted) setBox((b) => ({ ...b, error, loading: false }));
		} finally {
			if (mine === stop.current) busy.current = false;
		}
	};
	useEffect(() => {
		stop.current = new AbortController();
		setBox({ rows: [], next: '', error: null, loading: true, unreadable: [] });
		load('');
		return () => stop.current.abort();
	}, [q, round]);
	return { ...box, more: () => { if (!busy.current) load(box.next); }, reload: () => setRound((n) => n + 1) };
}

const phone = matchMedia('(max-width: 48rem)');
/** What css/app.css gives a row, and the head above all rows: two lines on a phone, without a head. */
const heights = () => (phone.matches ? { row: 60, head: 0 } : { row: 37, head: 38 });

/**
 * The rows that can be seen, and as much empty room as the others take: ten thousand rows
 * scroll as fifty do.
 */
function Rows({ rows, selected, toggle, at, setAt, canSelect, nearEnd }) {
	const box = useRef(null);
	const [{ row: rowHeight, head }, setHeights] = useState(heights());
	const [range, setRange] = useState([0, 60]);
	useEffect(() => {
		const turned = () => setHeights(heights());
		phone.addEventListener('change', turned);
		return () => phone.removeEventListener('change', turned);
	}, []);
	const measure = () => {
		const el = box.current;
		if (!el) return;
		const from = Math.max(0, Math.floor(el.scrollTop / rowHeight) - 15);
		const to = Math.ceil((el.scrollTop + el.clientHeight) / rowHeight) + 15;
		setRange(([a, b]) => (a === from && b === to ? [a, b] : [from, to]));
		if (to > rows.length - 10) nearEnd();
	};
	useEffect(measure, [rows, rowHeight]);
	useEffect(() => {
		const el = box.current;
		if (at < 0 || !el) return;
		const top = at * rowHeight, seen = el.clientHeight - head;
		if (top < el.scrollTop) el.scrollTop = top;
		else if (top + rowHeight > el.scrollTop + seen) el.scrollTop = top + rowHeight - seen;
	}, [at]);
	const [from, to] = [range[0], Math.min(range[1], rows.length)];
	const many = useMemo(() => new Set(rows.map((r) => r.tenant)).size > 1, [rows]);
	const names = useMemo(() => columnsOf(rows), [rows]);
	return html`<div class="rows" ref=${box} onScroll=${measure} tabindex="0" role="region" aria-label="Records">
		<table aria-rowcount=${rows.length}>
			<thead><tr>${canSelect && html`<th class="check"><span class="sr">Select</span></th>`}<th class="age">Age</th><th class="st">State</th><th>Key</th>${names.map((n) => html`<th class="wide-only"><bdi>${n}</bdi></th>`)}<th class="op">Operation</th>${many && html`<th class="wide-only">Tenant</th>`}<th class="wide-only n">Attempt</th><th class="why">Why</th></tr></thead>
			<tbody>
			<tr class="pad" style=${{ height: from * rowHeight + 'px' }}></tr>
			${rows.slice(from, to).map((r, i) => html`<tr key=${r.id} aria-rowindex=${from + i + 1} class=${(from + i === at ? 'at ' : '') + (selected.has(r.id) ? 'chosen' : '')} onClick=${(ev) => { if (!ev.target.closest('a,input')) go('record', r.id); }}>
				${canSelect && html`<td class="check"><input type="checkbox" aria-label=${'Select ' + r.idempotency_key} checked=${selected.has(r.id)} onClick=${(ev) => toggle(from + i, ev.shiftKey)} /></td>`}
				<td class="age num" title=${r.created_at}>${duration(Math.max(0, now.value - Date.parse(r.created_at)))}</td>
				<td class="st"><${StateBadge} rec=${r} /></td>
				<td class="k"><a class="key" href=${href('record', r.id)} onFocus=${() => setAt(from + i)}>${r.idempotency_key}</a></td>${names.map((n) => html`<td class="wide-only" title=${r.attributes?.[n]}><bdi>${r.attributes?.[n]}</bdi></td>`)}
				<td class="op">${r.operation}${names.length > 0 && html`<span class="narrow-only"> <bdi>${inLine(r)}</bdi></span>`}</td>${many && html`<td class="wide-only">${r.tenant}</td>`}<td class="wide-only n num">${r.attempt}</td>
				<td class="why" title=${whyOf(r)}>${whyOf(r)}</td></tr>`)}
			<tr class="pad" style=${{ height: (rows.length - to) * rowHeight + 'px' }}></tr>
			</tbody>
		</table></div>`;
}

const whyOf = (r) => r.held_reason || (r.settled ? 'decided ' + settledBy(r.settled) : r.error ? [r.error.code, r.error.message].filter(Boolean).join(': ') : '');

const presets = [['', 'All'], ['state:held', 'Held'], ['state:processing', 'In flight'], ['state:failed', 'Failed'], ['state:completed', 'Completed']];

const views = () => { try { return JSON.parse(localStorage.getItem('semel.views')) || []; } catch { return []; } };

export function RecordsScreen() {
	const q = route.value.params.get('q') || '';
	const { rows, next, error, loading, unreadable, more, reload } = usePages(q);
	const [selected, setSelected] = useState(new Set());
	const [last, setLast] = useState(0);
	const [at, setAt] = useState(-1);
	const [bulk, setBulk] = useState('');
	const [saved, setSaved] = useState(views());
	useEffect(() => { setSelected(new Set()); setAt(-1); }, [q]);
	const toggle = (i, range) => {
		const chosen = new Set(selected);
		const on = !chosen.has(rows[i].id);
		const [from, to] = range ? [Math.min(last, i), Math.max(last, i)] : [i, i];
		for (let n = from; n <= to; n++) if (on) chosen.add(rows[n].id); else chosen.delete(rows[n].id);
		setLast(i);
		setSelected(chosen);
	};
	useKeys({
		down: () => setAt((i) => Math.min(i + 1, rows.length - 1)), up: () => setAt((i) => Math.max(i - 1, 0)),
		open: () => { if (rows[at]) go('record', rows[at].id); }, select: () => { if (rows[at]) toggle(at, false); },
	});
	const chosen = useMemo(() => rows.filter((r) => selected.has(r.id)), [rows, selected]);
	const canSelect = mayChange();
	const keep = (list) => { localStorage.setItem('semel.views', JSON.stringify(list)); setSaved(list); };
	const isSaved = saved.includes(q);
	return html`<${Head} title="Records">
			<button type="button" onClick=${() => setBulk('csv')} disabled=${!rows.length}>CSV</button>
			<button type="button" onClick=${() => setBulk('ndjson')} disabled=${!rows.length}>NDJSON</button>
			<button type="button" onClick=${reload}>Refresh</button>
		<//>
		<${QueryBox} q=${q} onSearch=${(text) => go('records', '', { q: text })} />
		<nav class="presets" aria-label="Views">${presets.map(([p, label]) => html`<a href=${href('records', '', { q: p })} aria-current=${p === q ? 'page' : undefined}>${label}</a>`)}
			${saved.map((v) => html`<a href=${href('records', '', { q: v })} aria-current=${v === q ? 'page' : undefined} class="mono">${v}</a>`)}
			${q && !presets.some(([p]) => p === q) && html`<button type="button" class="ghost" onClick=${() => keep(isSaved ? saved.filter((v) => v !== q) : [...saved, q])}>${isSaved ? '★ forget this view' : '☆ keep this view'}</button>`}</nav>
		${unreadable.length > 0 && html`<p class="note red">${unreadable.length} records here can't be read: ${unreadable[0]}</p>`}
		${canSelect && rows.length > 0 && html`<div class="bulk" role="group" aria-label="With the records">
			<span>${selected.size ? html`<b class="num">${selected.size}</b> selected:` : q ? 'Everything that matches:' : 'Select records, or search, to change many at once.'}</span>
			${(selected.size || q) && ['settle', 'release', 'purge'].map((name) => html`<button type="button" class=${name === 'settle' ? '' : 'ghost danger'} onClick=${() => setBulk(name)}>${name[0].toUpperCase() + name.slice(1)}…</button>`)}
			${selected.size > 0 && html`<button type="button" class="ghost" onClick=${() => setSelected(new Set())}>Clear</button>`}</div>`}
		${error ? html`<${Failed} error=${error} retry=${reload} />`
		: rows.length ? html`<${Rows} rows=${rows} selected=${selected} toggle=${toggle} at=${at} setAt=${setAt} canSelect=${canSelect} nearEnd=${() => { if (next && !loading) more(); }} />
			<p class="count faint" role="status">${rows.length} ${next ? 'so far' : rows.length === 1 ? 'record' : 'records'}${next ? html` <button type="button" disabled=${loading} onClick=${more}>${loading ? 'Loading…' : 'Load more'}</button>` : ''}</p>`
		: loading ? html`<${Loading} what="records" />`
		: next ? html`<p><button type="button" onClick=${more}>Nothing so far. Look further back</button></p>`
		: html`<${Nothing} q=${q} />`}
		${bulk && html`<${BulkDialog} name=${bulk} q=${q} chosen=${chosen} close=${() => setBulk('')} done=${() => { setSelected(new Set()); reload(); }} />`}`;
}

const Nothing = ({ q }) => (q ? html`<${Empty} title="No record matches"><p>All qualifiers must apply. ${q.startsWith('state:held') ? 'Nothing is held: every call that was executed has an outcome.' : html`Try fewer of them, ${!/[\s:<>()"]/.test(q) ? html`<a href=${href('find', q)}>look for ${q} as any name of a call</a>, ` : ''} or ${html`<a href=${href('records')}>look at all records</a>`}.`}</p><//>`
	: html`<${Empty} title="No call has come yet"><p>A record appears when a request with an <code>Idempotency-Key</code> comes through a route, a webhook arrives, or a program begins an execution. Send one, twice:</p>
		<pre class="payload" tabindex="0">curl -H 'Idempotency-Key: order-1' -d '{"amount": 100}' http://…/your/route</pre><p>The second gets the first one's answer.</p><//>`);

