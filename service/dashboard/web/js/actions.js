// What an operator may do to a record, each with a reason and, before anything happens, with
// words for what it will do.
import { html, useState } from './lib.js';
import { get, post, recordPath } from './api.js';
import { Subject } from './subject.js';
import { clockTime, duration } from './time.js';
import { Dialog, Fact, Failed, Loading, say, useLoad } from './ui.js';
import { settledBy, state, stateOf, words } from './words.js';

/** The actions: when they fit a record, and what they do in words. */
export const actions = {
	settle: {
		title: 'Settle', fits: (r) => r.held,
		does: 'You say what happened. Every duplicate gets the answer that you give from then on, and the log keeps your name and reason.',
	},
	release: {
		title: 'Release', danger: true, fits: (r) => r.held && !r.effects.some((e) => e.state === 'started'),
		does: words.release,
	},
	confirm: {
		title: 'Confirm', fits: (r) => r.verdict?.advice?.includes('confirm'),
		does: 'The call runs once, if its caller sends it again in time.',
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

/** The body of a settlement of the attempt that was shown. */
export function settlement(form, rec) {
	const body = { reason: form.reason.trim(), fence: rec.fence, outcome: form.choice.outcome };
	if (form.force) body.force = true;
	const open = rec.effects.filter((e) => e.state === 'started');
	if (open.length && form.effects) body.effects = open.map((e) => ({ name: e.name, state: form.effects }));
	if (!form.choice.answer) return body;
	if (overHTTP(rec)) {
		body.status = Number(form.status);
		if (form.text) {
			body.body = form.text;
			body.headers = { 'Content-Type': ['application/json'] };
		}
	} else if (form.text) body.result = JSON.parse(form.text);
	return body;
}

/** What nobody has decided yet. */
export const undecided = { reason: '', choice: null, status: 200, text: '', effects: '', force: false };
const statuses = { completed: 200, rejected: 422, failed: 500 };
const bodiless = (form, http) => http && [204, 205, 304].includes(Number(form.status));

/** What a form still lacks, in words; empty if it can be sent. open: effects whose outcome has to be said. */
export function lacks(name, form, { http, open }) {
	const all = [];
	if (name === 'settle') {
		if (!form.choice) all.push('what happened');
		else if (form.choice.answer && form.choice.outcome === 'completed' && !form.text.trim() && !bodiless(form, http)) all.push('the answer');
		if (open && form.choice && form.choice.outcome !== 'aborted' && !form.effects) all.push('what became of the effects');
	}
	if (!form.reason.trim()) all.push('a reason');
	return all.join(', ');
}
export const Lacks = ({ what }) => html`<p class="lacks faint" role="status">${what && `Still to say: ${what}.`}</p>`;

/** What an operator can say of an operation's held calls, in the service's words. */
export const useChoices = (operation) => useLoad((signal) => get(`v1/operations/${encodeURIComponent(operation || '-')}/choices`, signal), [operation]);

export const Reason = ({ form, set, first }) => html`<label>Reason <small>for people; it is kept in the record and in the log</small>
	<textarea name="reason" rows="2" maxlength="1024" required autofocus=${first} value=${form.reason} onInput=${(ev) => set({ reason: ev.target.value })} placeholder="What did you see, and where?"></textarea></label>`;

/** The question what happened, with what retries get after each answer. */
export function SettleForm({ choices: { data, error, reload }, open, form, set, http, many }) {
	const answers = form.choice?.answer;
	return html`
		<fieldset><legend>What happened${many ? ' to all of them' : ''}?</legend>
			${error ? html`<${Failed} error=${error} retry=${reload} />` : !data ? html`<${Loading} />` : data.choices.filter((c) => c.outcome !== 'abandoned').map((c, i) => html`
				<label class="radio" key=${c.says}><input type="radio" name="outcome" value=${c.outcome} autofocus=${i === 0} checked=${form.choice?.says === c.says} onChange=${() => set({ choice: c, status: statuses[c.outcome] || 0 })} /> <span><b>${c.says}</b> <small>${c.retries}</small></span></label>`)}
		</fieldset>
		${open.length > 0 && html`<fieldset><legend>Effects left open: <bdi>${open.map((e) => e.name).join(', ')}</bdi></legend>
			${[['confirmed', 'They happened'], ['refuted', 'They did not happen']].map(([v, label]) => html`<label class="radio"><input type="radio" name="effects" value=${v} checked=${form.effects === v} onChange=${() => set({ effects: v })} /> <span>${label}</span></label>`)}
		</fieldset>`}
		${answers && http && html`<label class="short">Status that retries get <input name="status" type="number" min="200" max="599" value=${form.status} onInput=${(ev) => set({ status: ev.target.value })} /></label>`}
		${answers && html`<label>${http ? 'Body that they get' : 'Result that they get, as JSON'} <small>what the program would have answered${form.choice.outcome !== 'completed' && '; may be empty'}</small><textarea name="text" rows="3" class="mono" value=${form.text} onInput=${(ev) => set({ text: ev.target.value })} placeholder='{"charge": "ch_1"}'></textarea></label>`}`;
}

/** Asks the reconciler of a held call now, where its operation has one. */
export function AskNow({ rec }) {
	const [box, setBox] = useState({});
	const policy = useLoad((signal) => get('v1/operations/' + encodeURIComponent(rec.operation), signal).catch(() => null), [rec.operation]).data;
	if (!policy?.reconciles) return null;
	const ask = async () => {
		setBox({ busy: true });
		try {
			await post(recordPath(rec.id, 'reconcile'));
			setBox({ at: Date.now() });
		} catch (error) { setBox({ error }); }
	};
	return html`<div class="ask"><button type="button" onClick=${ask} disabled=${box.busy}>Ask the reconciler now</button>
		<small role="status">${box.at ? html`Asked at ${clockTime(box.at).slice(0, 8)}. If it knows, the call is settled within seconds; until then it stays held.` : `It asks the provider every ${duration(policy.reconcile_every_ms)} by itself.`}</small>
		${box.error && html`<${Failed} error=${box.error} />`}</div>`;
}

/** A dialog for one action on one record, as it was when the dialog was opened. */
export function ActionDialog({ name, rec: given, close, done }) {
	const [rec] = useState(given);
	const action = actions[name];
	const [form, setForm] = useState(undecided);
	const [error, setError] = useState(null);
	const [busy, setBusy] = useState(false);
	const choices = useChoices(rec.operation);
	const follow = useLoad((signal) => (rec.held ? get(recordPath(rec.id), signal) : null), [rec.id], 1500);
	const latest = follow.data?.record || given;
	const later = latest.fence !== rec.fence;
	const over = later || (rec.held && !latest.held);
	const set = (part) => setForm((f) => ({ ...f, ...part }));
	const open = rec.effects.filter((e) => e.state === 'started');
	const missing = lacks(name, form, { http: overHTTP(rec), open: open.length > 0 });
	const run = async (ev) => {
		ev.preventDefault();
		setBusy(true);
		setError(null);
		try {
			const body = name === 'settle' ? settlement(form, rec) : { reason: form.reason.trim(), ...(name !== 'compensate' && { fence: rec.fence }), ...(form.force && { force: true }) };
			await post(recordPath(rec.id, name), body);
			say(`${rec.idempotency_key}: ${{ settle: 'settled', release: 'released', confirm: 'confirmed', purge: 'purged', compensate: 'undone' }[name]}.`);
			done();
			close();
		} catch (err) {
			setError(err instanceof SyntaxError ? Object.assign(new Error('The result is not JSON: ' + err.message), { title: 'Check the result' }) : err);
		} finally {
			setBusy(false);
		}
	};
	const leave = () => { if (over) done(); close(); };
	return html`<${Dialog} title=${html`${action.title} <bdi>${rec.idempotency_key}</bdi>`} close=${leave}>
		<form onSubmit=${run}>
			<p class="does">${action.does}</p>
			${rec.held_reason && html`<p class="note amber">Held: ${rec.held_reason}</p>`}
			<${Subject} rec=${rec} />
			${over ? html`<p class="note" role="status"><b>${later ? 'The call has a later attempt than the one you saw' : 'Somebody has settled it meanwhile'}: it is ${state(stateOf(latest)).label}.</b> ${latest.settled && 'Settled ' + settledBy(latest.settled) + '.'}</p>` : html`
			${rec.held && html`<${AskNow} rec=${rec} />`}
			${name === 'settle' && html`<${SettleForm} choices=${choices} open=${open} form=${form} set=${set} http=${overHTTP(rec)} />`}
			${name === 'release' && html`<p><b>What retries get:</b> ${choices.data?.choices.find((c) => c.outcome === 'abandoned')?.retries}</p>`}
			<${Reason} form=${form} set=${set} first=${name !== 'settle'} />
			${error && html`<${Failed} error=${error} />`}
			${error?.code === 'unknown_operation' && html`<label class="radio"><input type="checkbox" checked=${form.force} onChange=${(ev) => set({ force: ev.target.checked })} /> <span>Do it although this service does not have the operation</span></label>`}
			<${Lacks} what=${missing} />`}
			<footer><button type="button" class="ghost" onClick=${leave}>${over ? 'Close' : 'Cancel'}</button>
			${!over && html`<button class=${action.danger ? 'danger' : 'primary'} disabled=${busy || !!missing}>${busy ? 'Working…' : action.title}</button>`}</footer>
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
			await post(recordPath(rec.id, 'messages/' + encodeURIComponent(message.id) + '/' + name), { reason: form.reason.trim() });
			say(name === 'replay' ? 'The message is due again.' : 'The message was discarded.');
			done();
			close();
		} catch (err) { setError(err); }
	};
	return html`<${Dialog} title=${html`${name === 'replay' ? 'Deliver again: ' : 'Discard: '}<bdi>${message.name}</bdi>`} close=${close}>
		<form onSubmit=${run}>
			<p class="does">${name === 'replay' ? 'The message is delivered under its old id, as if it had not been tried. Its receiver recognises it by that id.' : 'The message is given up for good. Its receiver never gets it.'}</p>
			<dl class="facts subject"><${Fact} name="To"><bdi>${message.destination}</bdi><//><${Fact} name="Call"><bdi class="mono">${rec.idempotency_key}</bdi><//></dl>
			<${Subject} rec=${rec} />
			<${Reason} first form=${form} set=${(p) => setForm((f) => ({ ...f, ...p }))} />
			${error && html`<${Failed} error=${error} />`}
			<footer><button type="button" class="ghost" onClick=${close}>Cancel</button><button class=${name === 'replay' ? 'primary' : 'danger'} disabled=${!form.reason.trim()}>${name === 'replay' ? 'Deliver again' : 'Discard'}</button></footer>
		</form><//>`;
}
