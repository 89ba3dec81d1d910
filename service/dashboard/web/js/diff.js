// Where two payloads differ.
import { parseExact } from './api.js';

/** How many differences are listed. */
export const most = 200;

/** The parts of a payload with their paths: those of JSON, the fields of a form, or its whole text. */
function parts(text) {
	try { return { kind: 'json', value: parseExact(text) }; } catch { /* not JSON */ }
	if (/^[^=&\s]+=[^\s]*$/.test(text)) {
		const value = Object.create(null); // a field may have any name, __proto__ too
		for (const [name, v] of new URLSearchParams(text)) (value[name] ??= []).push(v);
		for (const name of Object.keys(value)) if (value[name].length === 1) [value[name]] = value[name];
		return { kind: 'form', value };
	}
	return { kind: 'text', value: text };
}

const step = (name) => (/^[A-Za-z_][\w-]*$/.test(name) ? '.' + name : `[${JSON.stringify(name)}]`);
const shown = (v) => (typeof v === 'string' ? JSON.stringify(v) : JSON.stringify(v, null, 1).replace(/\s+/g, ' '));
const inside = (v) => v !== null && typeof v === 'object' && !(JSON.isRawJSON?.(v));
const has = (o, k) => Object.prototype.hasOwnProperty.call(o, k);

/** [{path, was, is}]: was is undefined for what was added, and is for what was left out. */
export function differences(first, second) {
	const a = parts(first), b = parts(second);
	if (a.kind !== b.kind || a.kind === 'text') return { list: first === second ? [] : [{ path: 'the whole body', was: first, is: second }], more: false };
	const list = [];
	const walk = (x, y, path) => {
		if (list.length > most) return;
		if (inside(x) && inside(y) && Array.isArray(x) === Array.isArray(y)) {
			for (const k of new Set([...Object.keys(x), ...Object.keys(y)])) {
				const at = path + (Array.isArray(x) ? `[${k}]` : step(k));
				if (!has(x, k)) list.push({ path: at, is: shown(y[k]) });
				else if (!has(y, k)) list.push({ path: at, was: shown(x[k]) });
				else walk(x[k], y[k], at);
			}
		} else if (shown(x) !== shown(y)) list.push({ path, was: shown(x), is: shown(y) });
	};
	walk(a.value, b.value, a.kind === 'json' ? '$' : 'form');
	return { list: list.slice(0, most), more: list.length > most };
}
