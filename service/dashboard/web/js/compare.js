// What a record was made for, beside what came under its key later and was refused.
import { html, useState } from './lib.js';
import { bytesOf, get, mayChange, recordPath } from './api.js';
import { Badge, Failed, Loading, Time, useLoad } from './ui.js';
import { differences, most } from './diff.js';

/** Bytes of the API as text; null if they aren't. */
export function textOf(base64) {
	try { return new TextDecoder('utf-8', { fatal: true }).decode(bytesOf(base64)); } catch { return null; }
}

/** The comparison of a record's payloads: where they differ at once, the values when somebody asks. */
export function Compare({ id }) {
	const { data, error, reload } = useLoad((signal) => (mayChange() ? get(recordPath(id, 'payloads'), signal) : null), [id]);
	const [open, setOpen] = useState(localStorage.getItem('semel.payloads') === 'show');
	if (!mayChange()) return html`<p class="faint">Comparing payloads needs the role operator.</p>`;
	if (error) return html`<${Failed} error=${error} retry=${reload} />`;
	if (!data) return html`<${Loading} what="payloads" />`;
	const first = data.first.payload_base64 === undefined ? null : textOf(data.first.payload_base64);
	const kept = first !== null && data.presented.some((p) => p.payload_base64 !== undefined);
	return html`<div class="compare">
		${!data.presented.length ? html`<p class="faint">What came with another payload isn't known any more: it belonged to an earlier record of the key, or came before conflicts were kept.</p>`
		: data.presented.toReversed().map((p) => html`<${Refused} key=${p.payload_hash} first=${first} data=${data} p=${p} open=${open} />`)}
		${data.presented.length > 0 && data.first.payload_base64 === undefined && html`<p class="faint">${data.keeps ? 'What the record was made for isn\'t kept: its window is over, the record is older than the setting, or the payload is larger than the operation keeps. So digests say that they differ, and not where.'
		: html`This operation doesn't keep payloads, so their digests say that they differ, and not where. Set <code>keep_payload</code> for it to compare the next ones, or ask the client for both requests, by the key.`}</p>`}
		${kept && html`<p class="show"><button type="button" aria-pressed=${open} onClick=${() => setOpen(!open)}>${open ? 'Hide the values' : 'Show the values'}</button></p>`}</div>`;
}

function Refused({ first, data, p, open }) {
	const second = p.payload_base64 === undefined ? null : textOf(p.payload_base64);
	const head = html`<p><b class="num">${p.count}</b> ${p.count === 1 ? 'delivery' : 'deliveries'} from <span class="mono">${p.principal || 'a caller without a name'}</span>, <${Time} at=${p.last} />${' '}
		<small class="mono" title=${'fingerprint ' + p.payload_hash}>${(p.payload_hash || '').slice(0, 10)}… is not ${(data.first.payload_hash || '').slice(0, 10)}…</small></p>`;
	if (data.first.payload_base64 === undefined) return head;
	if (p.payload_base64 === undefined) return html`${head}<p class="faint">This payload was not kept: it is larger than 64 KiB, it came before the operation kept payloads, or too many came at once.</p>`;
	if (first === null || second === null) return html`${head}<p class="faint">The payloads aren't text. Their digests differ.</p>`;
	const { list, more } = differences(first, second);
	if (!list.length) return html`${head}<p>The bodies mean the same. The requests differ in the method, the path, the query or a header that the route compares.</p>`;
	const value = (v) => (v === undefined ? html`<span class="faint">not there</span>` : open ? html`<span class="mono">${v.length > 400 ? v.slice(0, 400) + '…' : v}</span>` : html`<span class="faint" aria-label="hidden">•••</span>`);
	return html`${head}<div class="scroll"><table class="diff"><thead><tr><th>Field</th><th>Was executed with</th><th>Was refused with</th></tr></thead><tbody>
		${list.map((d) => html`<tr key=${d.path}><td><span class="mono">${d.path}</span> <${Badge} tone=${d.was === undefined ? 'green' : d.is === undefined ? 'red' : 'amber'}>${d.was === undefined ? 'added' : d.is === undefined ? 'missing' : 'changed'}<//></td><td>${value(d.was)}</td><td>${value(d.is)}</td></tr>`)}</tbody></table></div>
		${more && html`<p class="faint">There are more than ${most} differences.</p>`}`;
}
