// What does not wait for the modules: a classic script, which runs before them.
(() => {
	const read = (name) => { try { return localStorage.getItem(name) || ''; } catch { return ''; } }; // storage may be forbidden
	// The theme, so that a dark page never flashes white.
	const theme = read('semel.theme');
	document.documentElement.dataset.theme = theme && theme !== 'system' ? theme : matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light';
	// Who the user is: the answer is here when the modules are.
	const half = read('semel.session');
	globalThis.semelEarly = fetch('ui/session', { headers: half ? { 'Semel-Session': half } : {}, credentials: 'same-origin' }).catch(() => null);
})();
