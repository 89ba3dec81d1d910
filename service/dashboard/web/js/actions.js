// What an operator may do to a record, each with a reason and, before anything happens, with
// words for what it will do.
import { html, useState } from './lib.js';
import { post, recordPath, send } from './api.js';
import { Dialog, Failed, say } from './ui.js';
import { words } from './words.js';

/** The actions: when they fit a record, and what they do in words. */
export const actions = {
	settle: {
		title: 'Settle', fits: (r) => r.held,
		does: 'You say what happened. Every duplicate gets the answer that you give from then on, and the log keeps your name and reason.',
	},
	release: {
		title: 'Release', danger: true, fits: (r) => r.held && !r.effects.some((e) => e.state === 'started'),
		does: words.release + ' If the first attempt did the work, it is done twice.',
	},
	purge: {
		title: 'Purge', danger: true, fits: (r) => r.status !== 'processing',
		does: words.purge + ' If a client still retries, the work is done twice.',
	},
	compensate: {
		title: 'Undo', danger: true, fits: (r, policy) => r.status === 'completed' && !r.compensation && !!policy?.compensation,
		does: 'The compensation that the operation declares runs once, as a call of its own.',
	},
};

export const fitting = (rec, policy) => Object.keys(actions).filter((name) => actions[name].fits(rec, policy));

/** Whether duplicates of a record get an answer over HTTP. */
export const overHTTP = (rec) => rec.door === 'http';

/** The body of a settlement. */
export function settlement(form, rec) {
	const body = { reason: form.reason.trim() };
	if (form.outcome !== 'effects') body.outcome = form.outcome;
	if (form.force) body.force = true;
	const open = rec.effects.filter((e) => e.state === 'started');
	if (open.length && form.effects) body.effects = open.map((e) => ({ name: e.name, state: form.effects }));
	if (form.outcome === 'aborted' || form.outcome === 'effects') return body;
	if (overHTTP(rec)) {
		body.status = Number(form.status);
		if (form.text) {
			body.body = form.text;
			body.headers = { 'Content-Type': [form.type || 'application/json'] };
		}
	} else if (form.text) body.result = JSON.parse(form.text);
	if (form.outcome !== 'completed' && form.code) body.error = { code: form.code, message: '' };
	return body;
}

export const statuses = { completed: 200, rejected: 422, failed: 500 };

const Reason = ({ form, set }) => html`<label>Reason <small>for people; it is kept in the record and in the log</small>
	<textarea name="reason" rows="2" maxlength="1024" required autofocus value=${form.reason} onInput=${(ev) => set({ reason: ev.target.value })} placeholder="What did you see, and where?"></textarea></label>`;

function SettleForm({ rec, form, set }) {
	const open = rec.effects.filter((e) => e.state === 'started');
	const answers = form.outcome !== 'aborted' && form.outcome !== 'effects';
	return html`
		<fieldset><legend>What happened?</legend>
			${[['completed', 'It was done', 'duplicates get the answer below'], ['rejected', 'It was refused for good', 'duplicates get the refusal below'], ['failed', 'It failed', 'the policy of the operation says what comes next'], ['aborted', 'Nothing happened', 'the next delivery runs']].map(([v, label, hint]) => html`
				<label class="radio"><input type="radio" name="outcome" value=${v} checked=${form.outcome === v} onChange=${() => set({ outcome: v, status: statuses[v] || 0 })} /> <span><b>${label}</b> <small>${v}: ${hint}</small></span></label>`)}
		</fieldset>
		${open.length > 0 && html`<fieldset><legend>Effects left open: ${open.map((e) => e.name).join(', ')}</legend>
			${[['confirmed', 'They happened'], ['refuted', 'They did not happen']].map(([v, label]) => html`<label class="radio"><input type="radio" name="effects" value=${v} checked=${form.effects === v} onChange=${() => set({ effects: v })} /> <span>${label}</span></label>`)}
		</fieldset>`}
		${answers && overHTTP(rec) && html`<label class="short">Status that duplicates get <input name="status" type="number" min="200" max="599" value=${form.status} onInput=${(ev) => set({ status: ev.target.value })} /></label>`}
		${answers && html`<label>${overHTTP(rec) ? 'Body' : 'Result, as JSON'} <small>what the program would have answered; may be empty</small><textarea name="text" rows="3" class="mono" value=${form.text} onInput=${(ev) => set({ text: ev.target.value })} placeholder='{"charge": "ch_1"}'></textarea></label>`}`;
}

/** A dialog for one action on one record. */
export function ActionDialog({ name, rec, close, done }) {
	const action = actions[name];
	const [form, setForm] = useState({ reason: '', outcome: 'completed', status: 200, text: '', effects: 'confirmed', force: false });
	const [error, setError] = useState(null);
	const [busy, setBusy] = useState(false);
	const set = (part) => setForm((f) => ({ ...f, ...part }));
	const run = async (ev) => {
		ev.preventDefault();
		setBusy(true);
		setError(null);
		try {
			const body = name === 'settle' ? settlement(form, rec) : { reason: form.reason.trim(), ...(form.force ? { force: true } : {}) };
			await post(recordPath(rec.id, name), body);
			say(`${rec.idempotency_key}: ${{ settle: 'settled', release: 'released: the next delivery runs', purge: 'purged', compensate: 'undone' }[name]}.`);
			done();
			close();
		} catch (err) {
			setError(err instanceof SyntaxError ? Object.assign(new Error('The result is not JSON: ' + err.message), { title: 'Check the result' }) : err);
		} finally {
			setBusy(false);
		}
	};
	return html`<${Dialog} title=${action.title + ' ' + rec.idempotency_key} close=${close}>
		<form onSubmit=${run}>
			<p class="does">${action.does}</p>
			${rec.held_reason && html`<p class="note amber">Held: ${rec.held_reason}</p>`}
			${name === 'settle' && html`<${SettleForm} rec=${rec} form=${form} set=${set} />`}
			<${Reason} form=${form} set=${set} />
			${error && html`<${Failed} error=${error} />`}
			${error?.code === 'unknown_operation' && html`<label class="radio"><input type="checkbox" checked=${form.force} onChange=${(ev) => set({ force: ev.target.checked })} /> <span>Do it although this service does not have the operation</span></label>`}
			<footer><button type="button" class="ghost" onClick=${close}>Cancel</button>
			<button class=${action.danger ? 'danger' : 'primary'} disabled=${busy || !form.reason.trim()}>${busy ? 'Working…' : action.title}</button></footer>
		</form>
	<//>`;
}

/** Replays or discards a parked message. */
export function MessageDialog({ name, rec, message, close, done }) {
	const [form, setForm] = useState({ reason: '' });
	const [error, setError] = useState(null);
	const run = async (ev) => {
		ev.preventDefault();
		try {
			await send('POST', recordPath(rec.id, 'messages/' + encodeURIComponent(message.id) + '/' + name), { headers: { 'Content-Type': 'application/json' }, body: JSON.stringify({ reason: form.reason.trim() }) });
			say(name === 'replay' ? 'The message is due again.' : 'The message was discarded.');
			done();
			close();
		} catch (err) { setError(err); }
	};
	return html`<${Dialog} title=${(name === 'replay' ? 'Deliver again: ' : 'Discard: ') + message.name} close=${close}>
		<form onSubmit=${run}>
			<p class="does">${name === 'replay' ? 'The message is delivered under its old id, as if it had not been tried. Its receiver recognises it by that id.' : 'The message is given up for good. Its receiver never gets it.'}</p>
			<${Reason} form=${form} set=${(p) => setForm((f) => ({ ...f, ...p }))} />
			${error && html`<${Failed} error=${error} />`}
			<footer><button type="button" class="ghost" onClick=${close}>Cancel</button><button class=${name === 'replay' ? 'primary' : 'danger'} disabled=${!form.reason.trim()}>${name === 'replay' ? 'Deliver again' : 'Discard'}</button></footer>
		</form><//>`;
}
