// The policies: what each operation does with a duplicate, a failure, a holder that is gone.
import { html } from './lib.js';
import { get } from './api.js';
import { Badge, Empty, Fact, Failed, Head, Loading, Word, useLoad } from './ui.js';
import { duration } from './time.js';
import { href } from './route.js';
import { ExplainRequest } from './explain.js';

const failure = { replay: 'a failure is an outcome: duplicates get it', retry: 'the next delivery runs again, as a new attempt' };
const abandoned = { hold: 'the call is held until somebody settles it', retry: 'the next delivery runs again, even if that repeats what was done' };
const flight = { refuse: 'a duplicate is told to come back', wait: 'a duplicate waits for the outcome' };
const share = { principal: 'each principal has keys of their own', tenant: 'all principals of a tenant share their keys' };
const evidence = { none: 'nothing is written to the evidence log', changes: 'every change of a record is an entry', decisions: 'every delivery is an entry, too', durable: 'every delivery is an entry, before it is answered' };

export function OperationsScreen({ id }) {
	const { data, error, reload } = useLoad((signal) => get('v1/operations', signal), []);
	const own = data?.operations.filter((o) => !o.name.startsWith('semel.')); // without what Semel does for itself
	if (error) return html`<${Head} title="Operations" /><${Failed} error=${error} retry=${reload} />`;
	if (!data) return html`<${Head} title="Operations" /><${Loading} what="operations" />`;
	if (id) {
		const op = data.operations.find((o) => o.name === id);
		return op ? html`<${Operation} op=${op} />` : html`<${Head} title=${id} /><${Empty} title="This service does not have the operation"><p>Its records are kept, and left alone: another program has it, or it was renamed. <a href=${href('records', '', { q: 'operation:' + id })}>Its records</a>, or <a href=${href('operations')}>all operations</a>.</p><//>`;
	}
	return html`<${Head} title="Operations" />
		${own.length ? html`<section class="card"><div class="scroll"><table class="hover stack"><thead><tr><th>Operation</th><th>Class</th><th>After a failure</th><th>Holder gone</th><th>In flight</th><th class="n"><${Word} name="window">Window<//></th><th class="n"><${Word} name="lease">Lease<//></th><th>Evidence</th></tr></thead><tbody>
		${own.map((o) => html`<tr key=${o.name}><td class="k"><a href=${href('operations', o.name)}>${o.name}</a> ${o.financial && html`<${Badge} tone="violet">financial<//>`}</td><td data-name="class">${o.class}</td><td data-name="after a failure">${o.on_failure}</td><td data-name="holder gone">${o.on_abandoned}</td><td data-name="in flight">${o.in_flight}</td><td class="n num" data-name="window">${duration(o.window_ms)}</td><td class="n num" data-name="lease">${duration(o.lease_ms)}</td><td data-name="evidence">${o.evidence}</td></tr>`)}</tbody></table></div></section>`
		: html`<${Empty} title="No operation is declared"><p>Each route, command and webhook of the configuration declares one; a program declares its own with <code>engine.Declare</code>.</p><//>`}
		<${ExplainRequest} />`;
}

const Operation = ({ op: o }) => html`<${Head} title=${html`${o.name} ${o.financial ? html`<${Badge} tone="violet">financial<//>` : ''}`}><a class="button" href=${href('records', '', { q: 'operation:' + o.name })}>Its records</a><//>
	<section class="card"><dl class="facts wide">
	<${Fact} name="Class"><b>${o.class}</b><//>
	<${Fact} name="After a failure"><b>${o.on_failure}</b>: ${failure[o.on_failure]}<//>
	<${Fact} name="When the holder is gone"><b>${o.on_abandoned}</b>: ${abandoned[o.on_abandoned]}, if an effect is possible<//>
	<${Fact} name="While an attempt runs"><b>${o.in_flight}</b>: ${flight[o.in_flight]}${o.in_flight === 'wait' ? `, up to ${duration(o.max_wait_ms)}` : ''}<//>
	<${Fact} name=${html`<${Word} name="window">Window<//>`}><b>${duration(o.window_ms)}</b>: so long is an outcome kept${o.archive ? ', and then archived' : ''}${o.refuse_late ? '; a retry after that is refused' : '; a retry after that is a new call'}<//>
	<${Fact} name=${html`<${Word} name="lease">Lease<//>`}><b>${duration(o.lease_ms)}</b>: so long may a holder be silent<//>
	<${Fact} name="Keys"><b>${o.share}</b>: ${share[o.share]}${o.sequenced ? `; calls of a key are numbered${o.gapless ? ', without gaps' : ''}` : ''}<//>
	<${Fact} name=${html`<${Word} name="effect">Effects<//>`}>${o.effects ? o.effects.join(', ') || 'declared: none' : 'not declared: any may be used'}<//>
	<${Fact} name="Reconciler">${o.reconciles ? `asks the provider every ${duration(o.reconcile_every_ms)}` : 'none: held calls wait for a person'}<//>
	<${Fact} name="Evidence"><b>${o.evidence}</b>: ${evidence[o.evidence]}<//>
	<${Fact} name="Largest result"><span class="num">${o.max_result}</span> bytes<//>
	${o.compensation && html`<${Fact} name="Undone by"><a href=${href('operations', o.compensation)}>${o.compensation}</a><//>`}
	${o.confirms && html`<${Fact} name="Confirmation">a call must be confirmed before it runs<//>`}
	${o.shields.length > 0 && html`<${Fact} name="Shields">${o.shields.join(', ')}<//>`}
	${o.per_record && html`<${Fact} name="Duplicates of a record"><span class="num">${o.per_record.per_second}</span> a second, <span class="num">${o.per_record.burst}</span> at once<//>`}
	${o.per_principal && html`<${Fact} name="Duplicates of a principal"><span class="num">${o.per_principal.per_second}</span> a second, <span class="num">${o.per_principal.burst}</span> at once<//>`}
	</dl></section>`;
