// The address after # says which screen is shown with what, so that every view can be kept
// as a bookmark and sent to somebody.
import { signal } from './lib.js';

function parse() {
	const [path, query = ''] = location.hash.replace(/^#\/?/, '').split('?');
	const [screen, ...rest] = path.split('/');
	return { screen: screen || 'overview', id: decode(rest.join('/')), params: new URLSearchParams(query) };
}
function decode(text) { try { return decodeURIComponent(text); } catch { return text; } }

export const route = signal(parse());
addEventListener('hashchange', () => move(parse()));

/** Whether the user has done nothing yet on a screen: then its heading takes the focus, however late it is drawn. */
export const arrived = { yes: false };
for (const kind of ['keydown', 'pointerdown']) addEventListener(kind, () => { arrived.yes = false; }, true);

function move(to) {
	if (to.screen !== route.value.screen || to.id !== route.value.id) arrived.yes = true;
	route.value = to;
}

export function href(screen, id, params) {
	const q = new URLSearchParams(Object.entries(params || {}).filter(([, v]) => v));
	return '#/' + screen + (id ? '/' + encodeURIComponent(id) : '') + (String(q) ? '?' + q : '');
}
export function go(screen, id, params, replace) {
	const to = href(screen, id, params);
	if (!replace) { location.hash = to; return; }
	history.replaceState(null, '', to);
	move(parse());
}
