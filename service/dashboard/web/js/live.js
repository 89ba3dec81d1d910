// What the answering node decides, as it happens: one connection for the whole page. The
// node keeps its last events, so what came before the page was opened is there, too.
import { signal } from './lib.js';
import { me, send, thisNode } from './api.js';
import { instant, moment } from './time.js';

/** How many events the page keeps: as many as the node does. */
const kept = 4096;

/** The events, the oldest first: {seq, kind, data}. Read events.value to follow them. */
export const events = signal([]);
/** 'connecting', 'open', 'absent' (this installation has none), or 'lost'. */
export const stream = signal('connecting');
/** Whether what the node kept is here. */
export const caughtUp = signal(false);

/** Whose events these are, and from when on: all that this node has decided since are here. */
export const ofNode = (all = events.value) => `of ${thisNode()}` + (all.length ? `, since ${moment(all[0].at)}` : '');

let last = 0;
let running = null;

export function startLive() {
	if (running) return;
	running = new AbortController();
	follow(running.signal);
}

export function stopLive() {
	running?.abort();
	running = null;
	last = 0;
	events.value = [];
	stream.value = 'connecting';
	caughtUp.value = false;
}

async function follow(aborted) {
	for (let pause = 500; !aborted.aborted; pause = Math.min(pause * 2, 10_000)) {
		try {
			const answer = await send('GET', 'v1/decisions', { headers: { 'Last-Event-ID': String(last) }, signal: aborted });
			if (otherNode(answer.headers.get('Semel-Node'))) {
				await answer.body.cancel();
				continue;
			}
			stream.value = 'open';
			setTimeout(() => { caughtUp.value = true; }, 400); // an idle node sends nothing
			pause = 500;
			await read(answer.body.pipeThrough(new TextDecoderStream()).getReader());
		} catch (err) {
			if (aborted.aborted) return;
			if (err.status === 404 || err.status === 403 || err.status === 401) {
				stream.value = 'absent';
				caughtUp.value = true;
				return;
			}
		}
		stream.value = 'lost';
		await new Promise((again) => setTimeout(again, pause));
	}
}

/** Whether the stream is another node's or process's than before: it begins anew then, since these don't mix. */
function otherNode(name) {
	if (!name || name === me.value.node) return false;
	me.value = { ...me.value, node: name };
	const had = last > 0;
	last = 0;
	fresh = [];
	events.value = [];
	return had;
}

/** Events come in bursts: the page is drawn once for each frame, not for each event. */
let fresh = [];
function take(ev) {
	if (fresh.length === 0) setTimeout(flush, 100);
	fresh.push(ev);
}
function flush() {
	const all = events.value.concat(fresh);
	fresh = [];
	caughtUp.value = true;
	events.value = all.length > kept ? all.slice(all.length - kept) : all;
}

async function read(reader) {
	let text = '';
	for (;;) {
		const { done, value } = await reader.read();
		if (done) return;
		text += value;
		for (let end = text.indexOf('\n\n'); end >= 0; end = text.indexOf('\n\n')) {
			parse(text.slice(0, end));
			text = text.slice(end + 2);
		}
	}
}

function parse(block) {
	const ev = { seq: 0, kind: '', data: null };
	for (const line of block.split('\n')) {
		if (line.startsWith('id: ')) ev.seq = Number(line.slice(4));
		else if (line.startsWith('event: ')) ev.kind = line.slice(7);
		else if (line.startsWith('data: ')) ev.data = JSON.parse(line.slice(6));
	}
	if (!ev.kind || !ev.data) return;
	if (ev.kind === 'gap') {
		if (last !== 0) take({ ...ev, at: Date.now() }); // the first page load has missed nothing that it could have had
		return;
	}
	last = ev.seq;
	ev.at = ev.data.at ? instant(ev.data.at) : Math.floor(ev.seq / 1000);
	take(ev);
}
