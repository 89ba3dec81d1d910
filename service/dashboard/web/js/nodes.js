// The nodes that share the store, and which of them this page is of.
import { html } from './lib.js';
import { get, thisNode } from './api.js';
import { Badge, Empty, Failed, Head, Loading, Time, useLoad } from './ui.js';
import { href } from './route.js';
import { many } from './overview.js';

export function NodesScreen() {
	const { data, error, loading, reload } = useLoad((signal) => get('v1/nodes?minutes=60', signal).catch((err) => { if (err.status === 404) return { absent: true }; throw err; }), [], 2000);
	const nodes = data?.nodes || [];
	const versions = new Set(nodes.map((n) => n.version));
	return html`<${Head} title="Nodes" of=${nodes.length > 0 && 'that share the store'} />
		${error && html`<${Failed} error=${error} retry=${reload} />`}
		${!data ? loading && html`<${Loading} what="nodes" />` : data.absent ? html`<${Empty} title="This program keeps no list of its nodes"><p>It does if it gives <code>dashboard.ForEngine</code> its <code>Figures</code>.</p><//>`
		: !nodes.length ? html`<${Empty} title="No node is listed yet"><p>A node is, some seconds after its start.</p><//>` : html`
		${nodes.some((n) => n.silent) && html`<p class="banner amber"><b>${nodes.filter((n) => n.silent).map((n) => n.node).join(', ')}: nothing heard for minutes.</b> It ended without a stop, as a process does that is killed, or can't reach the store. An hour after its last word it leaves the list.</p>`}
		${versions.size > 1 && html`<p class="banner amber"><b>${versions.size} versions run side by side.</b> That is normal while you upgrade, node by node.</p>`}
		<section class="card"><div class="scroll"><table class="stack"><thead><tr><th>Node</th><th>Version</th><th>Started</th><th>Last seen</th><th class="n">Deliveries</th><th class="n">Stopped</th><th class="n">Failed attempts</th></tr></thead><tbody>
			${nodes.map((n) => html`<tr key=${n.node + n.started}><td class="k"><b>${n.node}</b> ${n.answers && html`<${Badge} tone="blue">this page<//>`}${n.silent && html`<${Badge} tone="amber">silent<//>`}</td><td data-name="version">${n.version}</td><td data-name="started"><${Time} at=${n.started} /></td><td data-name="last seen"><${Time} at=${n.last_seen} /></td><td class="n num" data-name="deliveries">${many(n.total.deliveries)}</td><td class="n num" data-name="stopped">${many(n.total.stopped)}</td><td class="n num" data-name="failed attempts">${many(n.total.failed_attempts)}</td></tr>`)}
			<tr><td class="k" colspan="4">All, with those that have ended</td><td class="n num" data-name="deliveries">${many(data.total.deliveries)}</td><td class="n num" data-name="stopped">${many(data.total.stopped)}</td><td class="n num" data-name="failed attempts">${many(data.total.failed_attempts)}</td></tr></tbody></table></div></section>
		<p class="faint">Counts are of the last hour. <a href=${href('tail')}>Live tail</a>, <a href=${href('held')}>takeovers</a>, <a href=${href('health')}>Health</a> and <a href=${href('operations')}>Operations</a> are of ${thisNode()}. Calls, conflicts, messages and figures are in the store, and the same on all nodes.</p>`}`;
}
