// What the user wants to see how. Kept in this browser only.
import { effect, html, signal, useState } from './lib.js';
import { me, signOut } from './api.js';
import { Choice, Fact, Head } from './ui.js';
import { stopLive } from './live.js';
import { timeStyle } from './time.js';

const read = (name, other) => { try { return localStorage.getItem(name) || other; } catch { return other; } };
const keep = (name, value) => { try { localStorage.setItem(name, value); } catch { /* then it's for this page only */ } };

/** 'system', 'light' or 'dark'. */
export const theme = signal(read('semel.theme', 'system'));
const dark = matchMedia('(prefers-color-scheme: dark)');
const systemDark = signal(dark.matches);
dark.addEventListener('change', () => { systemDark.value = dark.matches; });
/** The theme that is drawn. */
export const themeNow = signal('light');
effect(() => {
	keep('semel.theme', theme.value);
	const drawn = theme.value === 'system' ? (systemDark.value ? 'dark' : 'light') : theme.value;
	document.documentElement.dataset.theme = drawn;
	themeNow.value = drawn;
});
export const nextTheme = () => { theme.value = { system: 'light', light: 'dark', dark: 'system' }[theme.value]; };

export function SettingsScreen() {
	const [payloads, setPayloads] = useState(read('semel.payloads', 'hide'));
	const c = me.value.caller;
	return html`<${Head} title="Settings" />
		<section class="card"><h2>This browser</h2><dl class="facts wide settings">
			<${Fact} name="Theme"><${Choice} label="Theme" value=${theme.value} options=${[['system', 'System'], ['light', 'Light'], ['dark', 'Dark']]} onChange=${(v) => { theme.value = v; }} /><//>
			<${Fact} name="Times"><${Choice} label="Times" value=${timeStyle.value} options=${[['relative', 'Relative'], ['local', 'Local'], ['utc', 'UTC']]} onChange=${(v) => { timeStyle.value = v; }} /><//>
			<${Fact} name="Payloads"><${Choice} label="Payloads" value=${payloads} options=${[['hide', 'Hidden until asked for'], ['show', 'Shown']]} onChange=${(v) => { keep('semel.payloads', v); setPayloads(v); }} /><//>
		</dl></section>
		<section class="card"><h2>You</h2><dl class="facts wide">
			<${Fact} name="Name">${c.principal || 'nobody: this listener knows no callers'}<//>
			<${Fact} name="Role">${c.role}${me.value.read_only ? ', but this dashboard is read-only' : ''}<//>
			<${Fact} name="Tenant">${c.all_tenants ? 'all' : c.tenant || 'the empty one'}<//></dl>
			${me.value.signed_in && html`<p><button type="button" onClick=${() => { stopLive(); signOut(); }}>Sign out</button></p>`}</section>`;
}
