// Messages that completed calls send: what is due, and what was parked.
import { html, useEffect, useRef, useState } from './lib.js';
import { mayChange, search } from './api.js';
import { Choice, Empty, Failed, Head, Loading, RecordLink, Time } from './ui.js';
import { MessageDialog } from './actions.js';
import { MessageState } from './record.js';

/** How many records are looked at before you are asked: there is no index of messages. */
const depth = 2000;

export function DispatchScreen() {
	const [box, setBox] = useState({ found: [], looked: 0, next: '', error: null, loading: true });
	const [wanted, setWanted] = useState('open');
	const [open, setOpen] = useState(null);
	const stop = useRef(null);
	const look = async (from) => {
		stop.current?.abort();
		const mine = (stop.current = new AbortController());
		setBox((b) => ({ ...(from ? b : { found: [], looked: 0 }), loading: true, error: null }));
		try {
			let cursor = from || '';
			for (let n = 0; n < depth; ) {
				const page = await search('', { cursor, limit: 500, signal: mine.signal });
				n += page.records.length;
				const found = page.records.flatMap((rec) => (rec.messages || []).map((m) => ({ rec, m })));
				cursor = page.next || '';
				setBox((b) => ({ ...b, found: b.found.concat(found), looked: b.looked + page.records.length, next: cursor }));
				if (!cursor) break;
			}
			setBox((b) => ({ ...b, loading: false }));
		} catch (error) { if (!mine.signal.aborted) setBox((b) => ({ ...b, loading: false, error })); }
	};
	useEffect(() => { look(''); return () => stop.current.abort(); }, []);
	const rows = box.found.filter(({ m }) => (wanted === 'all' ? true : wanted === 'open' ? m.state === 'pending' || m.state === 'parked' : m.state === wanted)).slice(0, 500);
	const count = (state) => (box.error ? '' : box.found.filter(({ m }) => m.state === state).length);
	return html`<${Head} title="Dispatch"><${Choice} label="Which messages" value=${wanted} options=${[['open', 'Open'], ['parked', `Parked ${count('parked')}`], ['pending', `Pending ${count('pending')}`], ['all', 'All']]} onChange=${setWanted} /><button type="button" onClick=${() => look('')}>Refresh</button><//>
		<p class="lead">A completed call can send messages. Each is delivered at least once, under an id by which its receiver knows it again. One that is refused, or tried too often, is parked as a dead letter and waits for you.</p>
		${box.error && html`<${Failed} error=${box.error} retry=${() => look('')} />`}
		${rows.length ? html`<section class="card"><div class="scroll"><table class="hover stack"><thead><tr><th>Made</th><th>Message</th><th>To</th><th>State</th><th class="n">Tries</th><th>Next</th><th>Call</th><th><span class="sr">Actions</span></th></tr></thead><tbody>
			${rows.map(({ rec, m }) => html`<tr key=${rec.id + m.id}><td><${Time} at=${m.created_at} /></td><td>${m.name}</td><td>${m.destination}</td><td><${MessageState} m=${m} /></td><td class="n num" data-name="tries">${m.tries}</td><td data-name="next"><${Time} at=${m.next_at} /></td><td class="k"><${RecordLink} rec=${rec} /></td>
			<td class="do">${m.state === 'parked' && mayChange() && html`<button type="button" onClick=${() => setOpen(['replay', rec, m])}>Deliver again</button> <button type="button" class="ghost danger" onClick=${() => setOpen(['discard', rec, m])}>Discard</button>`}</td></tr>`)}</tbody></table></div></section>`
		: box.loading ? html`<${Loading} what="messages" />`
		: !box.error && html`<${Empty} title=${box.next ? 'No such message so far' : !box.found.length ? 'There are no messages' : wanted === 'open' ? 'No message waits' : 'No such message'}><p>Messages are made when a call completes: by <code>Attempt.Send</code>, by <code>messages</code> of the API, or by a webhook or an inbox that is answered before it is handled.</p><//>`}
		<p class="faint">${box.looked} records were looked at${box.next && !box.loading ? html`. <button type="button" onClick=${() => look(box.next)}>Look further back</button>` : box.loading ? '…' : box.error ? '.' : ', which are all.'}</p>
		${open && html`<${MessageDialog} name=${open[0]} rec=${open[1]} message=${open[2]} close=${() => setOpen(null)} done=${() => look('')} />`}`;
}
