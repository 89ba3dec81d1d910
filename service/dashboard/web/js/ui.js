// What all screens are made of.
import { html, signal, useEffect, useLayoutEffect, useRef, useState } from './lib.js';
import { now, timeStyle, relative, absolute, duration } from './time.js';
import { decision, state, stateOf, words } from './words.js';
import { arrived, href } from './route.js';

export const Badge = ({ tone, title, children }) => html`<span class=${'badge ' + tone} title=${title}>${children}</span>`;

export function StateBadge({ rec }) {
	const s = stateOf(rec);
	return html`<${Badge} tone=${state(s).tone} title=${words[s]}>${state(s).label}<//>`;
}
export const DecisionBadge = ({ d }) => html`<${Badge} tone=${decision(d).tone} title=${words[d]}>${decision(d).label}<//>`;

/** A moment. The other form of it is in the tooltip. */
export function Time({ at }) {
	if (!at) return html`<span class="faint">–</span>`;
	const ms = typeof at === 'number' ? at : Date.parse(at);
	const utc = absolute(ms, true);
	const text = timeStyle.value === 'relative' ? relative(ms, now.value) : absolute(ms, timeStyle.value === 'utc');
	return html`<time datetime=${new Date(ms).toISOString()} title=${timeStyle.value === 'relative' ? utc : relative(ms, now.value)}>${text}</time>`;
}

/** Counts down to a moment, and up after it. */
export function Countdown({ to, over }) {
	const left = Date.parse(to) - now.value;
	return left > 0 ? html`<span class="num" title=${absolute(Date.parse(to), true)}>${duration(left)}</span>`
		: html`<span class="num late" title=${absolute(Date.parse(to), true)}>${over || 'over'} ${duration(-left)} ago</span>`;
}

export async function copyText(text) {
	try {
		await navigator.clipboard.writeText(text);
	} catch { // there is no clipboard on plain HTTP
		const area = document.createElement('textarea');
		area.value = text;
		document.body.append(area);
		area.select();
		document.execCommand('copy');
		area.remove();
	}
}

export function Copy({ text, label }) {
	const [done, setDone] = useState(false);
	const copy = async (ev) => {
		ev.stopPropagation();
		ev.preventDefault();
		await copyText(text);
		setDone(true);
		setTimeout(() => setDone(false), 1200);
	};
	return html`<button class="copy" type="button" onClick=${copy} aria-label=${'Copy ' + (label || text)} title="Copy"><svg viewBox="0 0 16 16" width="14" height="14" aria-hidden="true">${done ? html`<path d="M3 8.500l3.200 3.200L13 5" />` : html`<rect x="5.500" y="5.500" width="8" height="8" rx="1.500" /><path d="M10.500 3.500v-.500a1.500 1.500 0 0 0-1.500-1.500H4A1.500 1.500 0 0 0 2.500 3v5A1.500 1.500 0 0 0 4 9.500" />`}</svg></button>`;
}

export const Word = ({ name, children }) => html`<abbr title=${words[name]}>${children}</abbr>`;

/** A record's key, as a link to its page. */
export const RecordLink = ({ rec, children }) => html`<a class="key" href=${href('record', rec.id)}>${children || rec.idempotency_key}</a>`;

/** What a screen reader is to say; there from the start, since a region that comes with its text isn't always read. */
const heard = signal('');
export const Heard = () => html`<p class="sr" role="status">${heard.value}</p>`;
function useHeard(text) {
	useEffect(() => {
		heard.value = text;
		return () => { if (heard.value === text) heard.value = ''; };
	}, [text]);
}

export function Loading({ what }) {
	const text = `Loading ${what || ''}…`;
	useHeard(text);
	return html`<div class="loading"><span class="spinner" aria-hidden="true"></span> ${text}</div>`;
}

export function Empty({ title, children }) {
	useHeard(title);
	return html`<div class="empty"><h2>${title}</h2><div>${children}</div></div>`;
}

export function Failed({ error, retry }) {
	return html`<div class="failed" role="alert">
		<strong>${error.title || 'That did not work'}</strong>
		<p>${error.message}</p>
		${error.errors?.map((e) => html`<p class="mono">${e.location}: ${e.message}</p>`)}
		<p>${error.code && html`<a href=${'problems/' + error.code} target="_blank" rel="noopener">What does ${error.code} mean?</a> `}
		${retry && html`<button type="button" onClick=${retry}>Try again</button>`}</p>
	</div>`;
}

/**
 * A part of the page that is fetched when it's first drawn, or before that by its fetch(), so
 * that the first screen doesn't wait for it. load imports its module, where it has a name;
 * waiting is drawn meanwhile.
 */
export function later(load, name, waiting = Loading) {
	const part = signal(null);
	let asked = false;
	const fetch = () => {
		if (asked) return;
		asked = true;
		load().then((m) => { part.value = { show: m[name] }; }, () => { part.value = { error: new Error('It is not here. The server may have another version of the page by now.') }; });
	};
	const Later = (props) => {
		useEffect(fetch, []);
		if (!part.value) return html`<${waiting} ...${props} />`;
		return part.value.error ? html`<${Failed} error=${part.value.error} retry=${() => location.reload()} />` : html`<${part.value.show} ...${props} />`;
	};
	return Object.assign(Later, { fetch });
}

/**
 * Loads something and follows it: load(signal) again whenever deps change, and every so many
 * milliseconds while the page is looked at. What is shown stays until the next answer.
 */
export function useLoad(load, deps, every) {
	const [box, setBox] = useState({ data: null, error: null, loading: true });
	const [round, setRound] = useState(0);
	const first = useRef('');
	useEffect(() => {
		const stop = new AbortController();
		const fresh = JSON.stringify(deps) !== first.current;
		first.current = JSON.stringify(deps);
		if (fresh) setBox({ data: null, error: null, loading: true });
		let timer = 0;
		const once = async () => {
			try {
				if (document.hidden && timer) return;
				const data = await load(stop.signal);
				setBox({ data, error: null, loading: false });
			} catch (error) {
				if (error.name === 'AbortError') return;
				setBox((b) => ({ ...b, error, loading: false }));
			} finally {
				if (every && !stop.signal.aborted) timer = setTimeout(once, every);
			}
		};
		once();
		return () => { stop.abort(); clearTimeout(timer); };
	}, [...deps, round, every]);
	return { ...box, reload: () => setRound((n) => n + 1) };
}

/**
 * What the keys do on a screen, by the names that the frame gives them. The newest functions
 * are used at once, also by who types faster than the page is drawn.
 */
export function useKeys(does) {
	const newest = useRef(does);
	newest.current = does;
	useEffect(() => {
		const onKey = (ev) => newest.current[ev.detail]?.();
		addEventListener('semel-key', onKey);
		return () => removeEventListener('semel-key', onKey);
	}, []);
}

/** The head of a screen; of: what it is about, such as one node. Whoever followed a link goes on from here, also with a screen reader. */
export function Head({ title, of, children }) {
	const h1 = useRef(null);
	useLayoutEffect(() => { if (arrived.yes) h1.current.focus({ preventScroll: true }); }, []);
	return html`<header class="head"><h1 ref=${h1} tabindex="-1">${title}${of && html` <small>${of}</small>`}</h1><div class="tools">${children}</div></header>`;
}

export const toast = signal(null);
let toastTimer;
export function say(text, tone = 'green') {
	toast.value = { text, tone };
	clearTimeout(toastTimer);
	toastTimer = setTimeout(() => { toast.value = null; }, 6000);
}
export const Toast = () => html`<div class="toasts" role="status" aria-live="polite">${toast.value && html`<div class=${'toast ' + toast.value.tone}>${toast.value.text}</div>`}</div>`;

/** A dialog over the page; the browser keeps the focus inside and closes it by Escape. */
export function Dialog({ title, close, children }) {
	const box = useRef(null);
	useLayoutEffect(() => { // an effect would give the focus back after the next key
		const back = document.activeElement;
		box.current.showModal();
		return () => back?.focus?.();
	}, []);
	return html`<dialog ref=${box} onClose=${close} onCancel=${close} aria-labelledby="dialog-title" onClick=${(ev) => { if (ev.target === box.current) close(); }}>
		<div class="dialog"><header><h2 id="dialog-title">${title}</h2><button type="button" class="ghost" onClick=${close} aria-label="Close">✕</button></header>${children}</div>
	</dialog>`;
}

/** A choice of a few, as a row of buttons. */
export const Choice = ({ label, value, options, onChange }) => html`<div class="choice" role="group" aria-label=${label}>
	${options.map(([v, text]) => html`<button type="button" aria-pressed=${v === value} onClick=${() => onChange(v)}>${text}</button>`)}</div>`;

export const Fact = ({ name, children }) => html`<div class="fact"><dt>${name}</dt><dd>${children}</dd></div>`;

/** Offers text as a file. */
export function download(name, type, text) {
	const a = document.createElement('a');
	a.href = URL.createObjectURL(new Blob([text], { type }));
	a.download = name;
	a.click();
	setTimeout(() => URL.revokeObjectURL(a.href), 1000);
}
