// The frame around the screens: who you are, where you can go, and the keys.
import { html, render, signal, useEffect, useRef, useState } from './lib.js';
import { hadSession, loadMe, me, signIn } from './api.js';
import { keyOf } from './id.js';
import { events, startLive, stream } from './live.js';
import { go, href, route } from './route.js';
import { nextTheme, SettingsScreen, theme } from './settings.js';
import { Dialog, Empty, Failed, Head, Heard, later, Loading, Toast } from './ui.js';
import { HealthScreen } from './health.js';
import { OverviewScreen } from './overview.js';

/** The screens, in the order of the menu; key: what g leads there by. The first one comes with the page, others later. */
const screens = [
	{ name: 'overview', label: 'Overview', key: 'o', show: OverviewScreen },
	{ name: 'records', label: 'Records', key: 'r', show: later(() => import('./records.js'), 'RecordsScreen') },
	{ name: 'held', label: 'Held & in flight', key: 'h', show: later(() => import('./held.js'), 'HeldScreen') },
	{ name: 'conflicts', label: 'Conflicts', key: 'c', show: later(() => import('./conflicts.js'), 'ConflictsScreen') },
	{ name: 'tail', label: 'Live tail', key: 'l', show: later(() => import('./tail.js'), 'TailScreen') },
	{ name: 'dispatch', label: 'Dispatch', key: 'd', show: later(() => import('./dispatch.js'), 'DispatchScreen') },
	{ name: 'operations', label: 'Operations', key: 'p', show: later(() => import('./operations.js'), 'OperationsScreen') },
	{ name: 'evidence', label: 'Evidence', key: 'e', show: later(() => import('./evidence.js'), 'EvidenceScreen'), has: () => me.value.evidence },
	{ name: 'health', label: 'Health', key: 'i', show: HealthScreen, apart: true },
	{ name: 'nodes', label: 'Nodes', key: 'n', show: later(() => import('./nodes.js'), 'NodesScreen') },
	{ name: 'reference', label: 'API reference', key: 'a', show: later(() => import('./docs.js'), 'ReferenceScreen') },
	{ name: 'docs', label: 'Docs', key: 'w', show: later(() => import('./docs.js'), 'DocsScreen') },
	{ name: 'settings', label: 'Settings', key: 's', show: SettingsScreen },
	{ name: 'record', show: later(() => import('./record.js'), 'RecordScreen'), under: 'records' },
	{ name: 'find', show: later(() => import('./record.js'), 'FindScreen'), under: 'records' },
];

const help = signal(false);
const menu = signal(false);

/** What single keys do on the screens; they get them as an event. */
const keys = { j: 'down', k: 'up', ArrowDown: '', Enter: 'open', x: 'select', s: 'settle', p: 'pause' };
let leader = 0;

document.addEventListener('keydown', (ev) => {
	if (ev.ctrlKey || ev.metaKey || ev.altKey || document.querySelector('dialog[open]')) return;
	const writing = ev.target.closest('input:not([type=checkbox]):not([type=radio]), textarea, select');
	if (ev.key === 'Escape') {
		if (writing) writing.blur();
		else if (menu.value) menu.value = false;
		else if (['record', 'find'].includes(route.value.screen)) history.back();
		return;
	}
	if (writing || !me.value?.caller) return;
	if (ev.key === 'Enter' && ev.target.closest('a, button, summary, input')) return;
	if (Date.now() - leader < 1500) {
		leader = 0;
		const to = screens.find((s) => s.key === ev.key);
		if (to) go(to.name);
		return;
	}
	if (ev.key === '/') {
		document.querySelector('#find')?.focus();
		ev.preventDefault();
	} else if (ev.key === '?') help.value = true;
	else if (ev.key === 'g') leader = Date.now();
	else if (ev.key === 't') nextTheme();
	else if (keys[ev.key]) dispatchEvent(new CustomEvent('semel-key', { detail: keys[ev.key] }));
});

/** The newest keys on this node that have a text in them, ten at most. */
function suggested(text) {
	const keys = new Set();
	const all = events.peek();
	for (let i = all.length - 1; text.length > 1 && i >= 0 && keys.size < 10; i--) {
		const key = keyOf(all[i].data.record || '');
		if (key.includes(text)) keys.add(key);
	}
	return [...keys];
}

function Find() {
	const [text, setText] = useState('');
	const submit = (ev) => {
		ev.preventDefault();
		if (!text.trim()) return;
		go('find', text.trim());
		setText('');
		document.activeElement?.blur();
	};
	return html`<form class="find" role="search" aria-label="Find a call" onSubmit=${submit}><input id="find" value=${text} onInput=${(ev) => setText(ev.target.value)} placeholder="Find a call: key, order id, reference…" aria-label="Find a call by its key or any of its ids" autocomplete="off" spellcheck="false" list="keys" /><datalist id="keys">${suggested(text).map((key) => html`<option value=${key}></option>`)}</datalist><kbd aria-hidden="true">/</kbd></form>`;
}

const Help = () => html`<${Dialog} title="Keys" close=${() => { help.value = false; }}>
	<dl class="keys">${[['/', 'find a call by its key or any of its ids'], ['j  k', 'next and previous row'], ['Enter', 'open the row'], ['x', 'select the row'], ['s', 'settle the row, or the record'], ['p', 'pause the live tail'], ['Esc', 'back, or close'], ['t', 'light, dark, as the system'], ['?', 'this list']].map(([k, what]) => html`<dt>${k.split('  ').map((one) => html`<kbd>${one}</kbd> `)}</dt><dd>${what}</dd>`)}
	${screens.filter((s) => s.key && (!s.has || s.has())).map((s) => html`<dt><kbd>g</kbd> <kbd>${s.key}</kbd></dt><dd>${s.label}</dd>`)}</dl><//>`;

function SignIn() {
	const [token, setToken] = useState('');
	const [error, setError] = useState(null);
	const submit = async (ev) => {
		ev.preventDefault();
		setError(null);
		try { await signIn(token); } catch (err) { setError(err); }
	};
	return html`<main class="sign-in"><div class="card"><h1><img src="ui/icon.svg" alt="" width="28" height="28" /> Semel</h1>
		${me.value.sign_in ? html`${hadSession() && html`<p>Your session is over: the node was restarted, another node answers, or 12 hours have passed.</p>`}<form onSubmit=${submit}><label>Token <input type="password" name="token" autocomplete="current-password" required autofocus value=${token} onInput=${(ev) => setToken(ev.target.value)} /></label>
			${error && html`<${Failed} error=${error} />`}<button class="primary" disabled=${!token.trim()}>Sign in</button></form>
			<p class="faint">The token of an operator: the one in <code>admin.token_file</code>, or one whose caller has a role in <code>auth</code>. It stays in the server's memory, and leaves this page at once.</p>`
		: html`<p>${me.value.why}</p><p class="faint">Sign in where you sign in to this program, and come back.</p>`}</div></main>`;
}

function App() {
	const failed = useRef(null);
	const [, again] = useState(0);
	useEffect(() => { loadMe().then(() => { failed.current = null; }, (err) => { failed.current = err; again((n) => n + 1); }); }, []);
	const user = me.value?.caller;
	useEffect(() => {
		if (!user) return;
		startLive();
		setTimeout(() => { for (const s of screens) s.show.fetch?.(); }, 1000); // when the first one has its data
	}, [!!user]);
	const { screen, id } = route.value;
	const shown = screens.find((s) => s.name === screen);
	const current = shown?.under || screen;
	useEffect(() => {
		menu.value = false;
		document.title = `${shown?.label || id || 'Semel'} · Semel${me.value?.name ? ' ' + me.value.name : ''}`;
		scrollTo(0, 0);
	}, [screen, id]);
	if (!me.value) return failed.current ? html`<main class="sign-in"><${Failed} error=${failed.current} retry=${() => location.reload()} /></main>` : html`<${Loading} />`;
	if (!user) return html`<${SignIn} />`;
	return html`<a class="skip" href="#main" onClick=${(ev) => { ev.preventDefault(); document.querySelector('main').focus(); }}>Skip to the content</a>
	<div class=${'frame' + (menu.value ? ' menu-open' : '')}>
		<header class="top"><button type="button" class="ghost burger" aria-label="Menu" aria-expanded=${menu.value} onClick=${() => { menu.value = !menu.value; }}>☰</button>
			<a class="brand" href=${href('overview')} aria-label="Semel"><img src="ui/icon.svg" alt="" width="24" height="24" /><b>Semel</b>${me.value.name && html`<span class="name">${me.value.name}</span>`}</a><${Find} />
			<span class=${'stream ' + stream.value} title=${'Live events: ' + stream.value}><span class="sr">Live events: ${stream.value}</span></span>
			${me.value.read_only && html`<span class="badge grey">read-only</span>`}
			<button type="button" class="ghost" onClick=${nextTheme} aria-label=${`Theme: ${theme.value}. Change it`} title=${'Theme: ' + theme.value}>${{ system: '◐', light: '☀', dark: '☾' }[theme.value]}</button>
			<button type="button" class="ghost" onClick=${() => { help.value = true; }} aria-label="Keys" title="Keys (?)">?</button></header>
		<nav class="side" aria-label="Screens">${screens.filter((s) => s.label && (!s.has || s.has())).map((s) => html`<a class=${s.apart ? 'apart' : ''} href=${href(s.name)} aria-current=${s.name === current ? 'page' : undefined}>${s.label}</a>`)}
			<p class="who faint">${user.principal || 'local'}<br />${user.role}${user.all_tenants ? ', all tenants' : user.tenant ? ', ' + user.tenant : ''}</p></nav>
		<main id="main" tabindex="-1">${shown ? html`<${shown.show} key=${shown.name + id} id=${id} />` : html`<${Head} title="There is no such screen" /><${Empty} title="Nothing is at this address"><p><a href=${href('overview')}>Overview</a></p><//>`}</main>
	</div>${help.value && html`<${Help} />`}<${Heard} /><${Toast} />`;
}

screens.find((s) => s.name === route.value.screen)?.show.fetch?.(); // while it's asked who the user is
render(html`<${App} />`, document.querySelector('#app'));
