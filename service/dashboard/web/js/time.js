// Times for people: relative or absolute, local or UTC, as the user has it.
import { signal, effect } from './lib.js';

const read = (name, other) => { try { return localStorage.getItem(name) || other; } catch { return other; } };

/** 'relative', 'local' or 'utc'. */
export const timeStyle = signal(read('semel.times', 'relative'));
/** Advances once a second, for ages and countdowns. */
export const now = signal(Date.now());

effect(() => { try { localStorage.setItem('semel.times', timeStyle.value); } catch { /* then it's for this page only */ } });
setInterval(() => { if (!document.hidden) now.value = Date.now(); }, 1000);
document.addEventListener('visibilitychange', () => { now.value = Date.now(); });

/** A moment of the API in milliseconds, with the fractions that Date.parse leaves out. */
export function instant(text) {
	if (!text) return 0;
	const fraction = /\.\d{3}(\d+)/.exec(text);
	return Date.parse(text) + (fraction ? Number('0.' + fraction[1]) : 0);
}

export function duration(ms) {
	const sign = ms < 0 ? '−' : '';
	ms = Math.abs(ms);
	if (ms < 1) return sign + (ms === 0 ? '0 ms' : Math.max(1, Math.round(ms * 1000)) + ' µs');
	if (ms < 10) return sign + ms.toFixed(1) + ' ms';
	if (ms < 1000) return sign + Math.round(ms) + ' ms';
	const s = ms / 1000;
	if (s < 10) return sign + s.toFixed(1) + ' s';
	if (s < 90) return sign + Math.round(s) + ' s';
	if (s < 5400) return sign + Math.round(s / 60) + ' min';
	if (s < 129_600) return sign + Math.round(s / 3600) + ' h';
	return sign + Math.round(s / 86_400) + ' d';
}

export function relative(at, from = now.value) {
	const ago = from - at;
	if (Math.abs(ago) < 1500) return 'now';
	return ago > 0 ? duration(ago) + ' ago' : 'in ' + duration(-ago);
}

const pad = (n, w = 2) => String(n).padStart(w, '0');
export function absolute(at, utc) {
	const d = new Date(at);
	if (utc) return d.toISOString().replace('T', ' ').replace('Z', ' UTC');
	return `${d.getFullYear()}-${pad(d.getMonth() + 1)}-${pad(d.getDate())} ${pad(d.getHours())}:${pad(d.getMinutes())}:${pad(d.getSeconds())}.${pad(d.getMilliseconds(), 3)}`;
}
/** A moment in a sentence: the time of day, after the day if that is another one. */
export function moment(at) {
	const [[day, time], [today]] = [at, now.value].map((one) => absolute(one, timeStyle.value === 'utc').split(' '));
	return (day === today ? '' : day + ' ') + time.slice(0, 8);
}
export const clockTime = (at) => absolute(at, timeStyle.value === 'utc').slice(11).replace(' UTC', '');
