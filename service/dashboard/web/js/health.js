// Whether this node can do its work, and what somebody should look at.
import { html } from './lib.js';
import { me, thisNode } from './api.js';
import { Badge, Empty, Fact, Failed, Head, Loading, useLoad } from './ui.js';
import { stream } from './live.js';
import { href } from './route.js';

/** The checks of readiness; null where the program has none. An unready node answers 503, with the checks. */
export async function readChecks(signal) {
	const half = localStorage.getItem('semel.session');
	const answer = await fetch('readyz?verbose', { signal, headers: half ? { 'Semel-Session': half } : {} });
	if (answer.status === 404) return null;
	const text = await answer.text();
	const checks = text.split('\n').map((line) => line.match(/^\[([+!-])\] (\S+?):?(?: (.*))?$/)).filter(Boolean).map(([, mark, name, detail]) => ({ mark, name, detail: detail === 'ok' ? '' : (detail || '').replace(/^ok: /, '') }));
	for (const c of checks) if (c.mark === '+' && c.detail.includes('unsafe:')) c.mark = '!'; // it works, and promises little
	return { ready: answer.ok, checks };
}

const marks = { '+': ['green', 'ok'], '!': ['amber', 'look at it'], '-': ['red', 'not ready'] };
const says = {
	serving: 'The process accepts requests.', store: 'The store answers and has a clock.', durability: 'What the settings of the store promise about written records.', held: 'Calls that wait for somebody to decide.', sweeps: 'Expired records are purged, and held ones are looked after.',
	issuers: 'The keys of token issuers are fetched.', clock: 'The clock of the store has not leaped.', writes: 'The store takes writes.', disk: 'There is room on the disk of the store.', room: 'There is room on the disk of the store.', evidence: 'The evidence log is signed and intact.',
};

export function HealthScreen() {
	const { data, error, loading, reload } = useLoad(readChecks, [], 2000);
	return html`<${Head} title="Health" of=${me.value.node && 'of ' + thisNode()} />
		${error && html`<${Failed} error=${Object.assign(error, { title: 'The server does not answer' })} retry=${reload} />`}
		${data ? html`<p class=${'banner ' + (data.ready ? 'green' : 'red')}><b>${data.ready ? 'This node is ready.' : 'This node is not ready'}</b>${data.ready ? '' : ': it should get no traffic.'}</p>
		<ul class="checks">${data.checks.map((c) => html`<li key=${c.name}><${Badge} tone=${marks[c.mark][0]}>${marks[c.mark][1]}<//><div><b>${c.name}</b> <span class="faint">${says[c.name] || ''}</span>${c.detail && html`<p class="mono">${c.detail}</p>`}</div></li>`)}</ul>`
		: loading ? html`<${Loading} what="the checks" />` : !error && html`<${Empty} title="This program has no readiness checks here"><p>The dashboard of <code>semel serve</code> has them; your program answers for its own.</p><//>`}
		<section class="card"><h2>This installation</h2><dl class="facts wide"><${Fact} name="This node">${me.value.node}<//><${Fact} name="Version">${me.value.version}<//><${Fact} name="Live events">${{ open: 'connected', lost: 'lost: connecting again', connecting: 'connecting', absent: 'none' }[stream.value]}<//><${Fact} name="Evidence">${me.value.evidence ? 'is kept' : 'is not set up'}<//></dl>
		<p class="faint">The others that share the store are under <a href=${href('nodes')}>Nodes</a>. For probes: <code>/livez</code>, <code>/readyz</code>, and <code>semel healthcheck</code>.</p></section>`;
}
