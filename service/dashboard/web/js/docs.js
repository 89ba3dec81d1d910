// What there is to read in the program itself: the API and the meaning of every code.
import { html, useState } from './lib.js';
import { get, send } from './api.js';
import { Badge, Copy, Empty, Failed, Head, Loading, useLoad } from './ui.js';
import { words, states, decisions } from './words.js';

export function ReferenceScreen() {
	const { data, error, reload } = useLoad((signal) => get('openapi.json', signal), []);
	const [text, setText] = useState('');
	if (error) return html`<${Head} title="API reference" /><${Failed} error=${error} retry=${reload} />`;
	if (!data) return html`<${Head} title="API reference" /><${Loading} what="the description" />`;
	const all = Object.entries(data.paths).flatMap(([path, methods]) => Object.entries(methods).map(([method, op]) => ({ path, method: method.toUpperCase(), op })));
	const found = all.filter(({ path, method, op }) => (path + method + op.summary).toLowerCase().includes(text.toLowerCase()));
	const groups = Object.groupBy ? Object.groupBy(found, ({ op }) => op.tags?.[0] || 'other') : { all: found };
	return html`<${Head} title="API reference"><a class="button" href="openapi.json" download>OpenAPI ${data.openapi}</a><a class="button" href="docs/api.html">As a page</a><//>
		<form class="query" role="search" onSubmit=${(ev) => ev.preventDefault()}><input aria-label="Filter" value=${text} placeholder="settle" onInput=${(ev) => setText(ev.target.value)} /></form>
		${!found.length && html`<${Empty} title="No such endpoint"><p>Try another word.</p><//>`}
		${Object.entries(groups).map(([tag, list]) => html`<section class="card"><h2>${tag}</h2><ul class="endpoints">${list.map((e) => html`<${Endpoint} key=${e.method + e.path} e=${e} doc=${data} />`)}</ul></section>`)}`;
}

function Endpoint({ e: { path, method, op }, doc }) {
	const ref = op.requestBody?.content?.['application/json']?.schema?.$ref;
	const schema = ref && doc.components.schemas[ref.split('/').pop()];
	const here = new URL(path.slice(1), location.href.split('#')[0]).href;
	const curl = `curl ${method === 'GET' ? '' : '-X ' + method + ' '}${schema ? "-H 'Content-Type: application/json' -d '{…}' " : ''}'${here}'`;
	return html`<li><details><summary><span class=${'method ' + method}>${method}</span> <code>${path}</code> <span>${op.summary}</span></summary>
		${op.description?.trim() && html`<p class="pre">${op.description.trim()}</p>`}
		${op.parameters?.length > 0 && html`<table><thead><tr><th>Parameter</th><th>In</th><th>What it is</th></tr></thead><tbody>${op.parameters.map((p) => html`<tr><td class="mono">${p.name}${p.required ? '' : '?'}</td><td>${p.in}</td><td>${p.description || p.schema?.description}</td></tr>`)}</tbody></table>`}
		${schema && html`<table><thead><tr><th>Member of the body</th><th>Type</th><th>What it is</th></tr></thead><tbody>${Object.entries(schema.properties || {}).filter(([n]) => n !== '$schema').map(([n, p]) => html`<tr><td class="mono">${n}${schema.required?.includes(n) ? '' : '?'}</td><td>${[p.type].flat().filter(Boolean).join(' or ') || (p.$ref || '').split('/').pop()}</td><td>${p.description}${p.enum ? ' ' + p.enum.join(', ') : ''}</td></tr>`)}</tbody></table>`}
		<table><thead><tr><th>Answer</th><th>What it is</th></tr></thead><tbody>${Object.entries(op.responses || {}).map(([s, r]) => html`<tr><td class="num">${s}</td><td>${r.description}</td></tr>`)}</tbody></table>
		<p class="command"><code>${curl}</code> <${Copy} text=${curl} label="the command" /></p></details></li>`;
}

export function DocsScreen() {
	const codes = useLoad(async (signal) => (await (await send('GET', 'problems/', { headers: { Accept: 'text/plain' }, signal })).text()).trim().split(/\n\n(?=[^\n]+ \([a-z_]+, status \d+\))/).map((block) => {
		const [, title, code, status] = block.match(/^(.*) \(([a-z_]+), status (\d+)\)/) || [];
		const [, ...rest] = block.split('\n\n');
		return { title, code, status, text: rest };
	}), []);
	const [text, setText] = useState('');
	const found = codes.data?.filter((c) => (c.title + c.code + c.text.join()).toLowerCase().includes(text.toLowerCase()));
	return html`<${Head} title="Docs"><a href="docs/">Pages</a><//>
		<section class="card"><h2>Words</h2><dl class="facts wide">${Object.entries(words).map(([w, what]) => html`<div class="fact"><dt>${w.replace('_', ' ')}</dt><dd>${what}</dd></div>`)}</dl></section>
		<section class="card"><h2>What a record is</h2><dl class="facts wide">${Object.values(states).map((s) => html`<div class="fact"><dt><${Badge} tone=${s.tone}>${s.label}<//></dt><dd>It ${s.says}.</dd></div>`)}</dl></section>
		<section class="card"><h2>What a delivery gets</h2><dl class="facts wide">${Object.values(decisions).map((s) => html`<div class="fact"><dt><${Badge} tone=${s.tone}>${s.label}<//></dt><dd>It ${s.says}.</dd></div>`)}</dl></section>
		<section class="card"><h2>Codes</h2>
			<form class="query" role="search" onSubmit=${(ev) => ev.preventDefault()}><input aria-label="Filter codes" value=${text} placeholder="conflict" onInput=${(ev) => setText(ev.target.value)} /></form>
			${codes.error ? html`<${Failed} error=${codes.error} retry=${codes.reload} />` : !found ? html`<${Loading} what="codes" />` : !found.length ? html`<${Empty} title="No such code"><p>Try another word.</p><//>`
			: found.map((c) => html`<details><summary><code>${c.code}</code> <span class="num">${c.status}</span> ${c.title}</summary>${c.text.map((p) => html`<p>${p}</p>`)}</details>`)}
		</section>
		<p class="faint">At the command line: <code>semel explain CODE</code>, <code>semel help</code>.</p>`;
}
