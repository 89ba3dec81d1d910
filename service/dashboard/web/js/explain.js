// Which rule takes a request, and why: the server's own rules say it, and nothing is done.
import { html, useState } from './lib.js';
import { post } from './api.js';
import { Badge, Fact, Failed } from './ui.js';
import { href } from './route.js';

const outcomes = {
	guarded: { tone: 'green', says: 'It is guarded: the call is executed once.' },
	passed: { tone: 'amber', says: 'It is passed on without a guard: it runs as often as it comes.' },
	refused: { tone: 'red', says: 'It is refused, and nothing is executed.' },
	door: { tone: 'blue', says: 'A door of this service has its path.' },
	api: { tone: 'blue', says: 'It is for the execution API.' },
	nothing: { tone: 'red', says: 'There is nothing at its address.' },
};
const example = "POST /charges HTTP/1.1\nHost: localhost:8480\nIdempotency-Key: order-1042\nAuthorization: Bearer …\nContent-Type: application/json\n\n{\"amount\": 4200}";

export function ExplainRequest() {
	const [text, setText] = useState('');
	const [box, setBox] = useState({});
	const ask = async (ev) => {
		ev.preventDefault();
		setBox({ busy: true });
		try { setBox({ found: await post('v1/explain', { request: text }) }); } catch (error) { setBox({ error }); }
	};
	return html`<section class="card"><h2>Which rule takes a request?</h2>
		<p class="faint">Paste one as it goes over the wire: the first line, the header, an empty line and the body. <code>curl -v</code> shows the first two behind <code>&gt;</code>, and browsers copy them as raw request headers. The rules by which this service serves say which of them takes it. Nothing is executed, and nothing of it is kept.</p>
		<form onSubmit=${ask}><label>Request <textarea class="mono" name="request" rows="5" required spellcheck="false" value=${text} placeholder=${example} onInput=${(ev) => setText(ev.target.value)}></textarea></label>
		<button class="primary" disabled=${!text.trim() || box.busy}>Explain</button></form>
		${box.error && html`<${Failed} error=${box.error} />`}${box.found && html`<${Explained} x=${box.found} />`}</section>`;
}

const meets = (r) => (!r.same_payload ? 'The key has a call with another payload, so this is a conflict.' : r.held ? 'The call is held, so this is refused until somebody settles it.' : r.status === 'processing' ? 'The call is running, so this waits for its outcome or is told to come back.' : r.status === 'completed' ? 'The call has completed, so this gets its outcome.' : 'The call has failed, so the policy of the operation says what this gets.');

function Explained({ x }) {
	const o = outcomes[x.outcome] || { tone: 'grey', says: '' };
	return html`<div class="explained" role="status"><p class=${'verdict ' + o.tone}>${o.says} <span>${x.why}</span></p>
		<dl class="facts wide"><${Fact} name="Request"><span class="mono">${x.method} ${x.target}</span><//>
		${x.rule && html`<${Fact} name="Rule"><b>${x.rule}</b>${x.upstream && html` to <span class="mono">${x.upstream}</span>`}<//>`}
		${x.operation && html`<${Fact} name="Operation"><a href=${href('operations', x.operation)}>${x.operation}</a><//>`}
		${x.idempotency_key && html`<${Fact} name="Key"><span class="mono">${x.idempotency_key}</span>${x.key_from && html` <small>from ${x.key_from}</small>`}<//>`}
		${x.code && html`<${Fact} name="Code"><a href=${'problems/' + x.code} target="_blank" rel="noopener">${x.code}</a><//>`}
		${x.record ? html`<${Fact} name="It meets"><a href=${href('record', x.record.id)}>a record</a> that is ${x.record.held ? 'held' : x.record.status}. ${meets(x.record)}<//>` : x.outcome === 'guarded' && html`<${Fact} name="It meets">no record that you may see: the key is new, and the call runs<//>`}</dl>
		<div class="scroll"><table class="rules"><thead><tr><th><span class="sr">Result</span></th><th>Rule</th><th>Matches</th><th>Why</th></tr></thead><tbody>
		${x.rules.map((r) => html`<tr class=${r.matches ? 'at' : ''}><td>${r.matches ? html`<${Badge} tone="green">takes it<//>` : html`<span class="faint">no</span>`}</td><td>${r.rule}</td><td class="mono">${r.match}</td><td>${r.why}</td></tr>`)}</tbody></table></div></div>`;
}
