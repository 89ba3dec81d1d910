// Sets the theme before anything is drawn, so that a dark page never flashes white. A
// classic script, because modules run later.
(() => {
	let theme = 'system';
	try { theme = localStorage.getItem('semel.theme') || 'system'; } catch { /* storage may be forbidden: then it's the system's theme */ }
	if (theme !== 'system') document.documentElement.dataset.theme = theme;
})();
