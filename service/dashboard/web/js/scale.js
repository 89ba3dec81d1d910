// Where the parts of a timeline go. Places are per cent of its track, and no label's place
// depends on how long its text is, so none can leave its card.

/**
 * Maps times to places, from 0 to 100. Where nothing happens for long, time is folded, so
 * that twenty milliseconds of work and the settlement of the next day fit one picture.
 */
export function scale(times, fold) {
	const all = [...new Set(times.filter(Boolean))].sort((a, b) => a - b);
	const first = all[0], last = all[all.length - 1];
	const span = Math.max(last - first, 1e-3);
	const grain = Math.max(span / 1e6, 0.02); // below it, differences aren't worth a pixel
	const steps = [];
	for (let i = 1; i < all.length; i++) {
		const gap = all[i] - all[i - 1];
		steps.push({ from: all[i - 1], to: all[i], gap, width: fold ? Math.log2(1 + gap / grain) + 0.4 : gap });
	}
	const total = steps.reduce((n, s) => n + s.width, 0) || 1;
	let x = 0;
	for (const s of steps) {
		s.x0 = x;
		x += (s.width / total) * 100;
		s.x1 = x;
	}
	const place = (time) => {
		if (time <= first) return 0;
		if (time >= last || !steps.length) return 100;
		const s = steps.find((s) => time <= s.to);
		return s.x0 + ((time - s.from) / Math.max(s.gap, 1e-6)) * (s.x1 - s.x0);
	};
	const folds = fold && steps.length > 1 ? steps.filter((s) => s.gap > 0.5 * span && s.gap > 10_000) : []; // one at most
	return { place, all, first, last, span, folds };
}

/** The times with a tick: the first, the last, and those between them that have room; room: of a label, in per cent. */
export function ticks({ place, all, first, last }, room) {
	const shown = [{ at: first, x: 0 }];
	if (last === first || room > 50) return shown;
	for (const at of all) {
		const x = place(at);
		if (x - shown[shown.length - 1].x >= room && x + room <= 100 - room) shown.push({ at, x });
	}
	return [...shown, { at: last, x: 100, end: true }];
}

/**
 * Where the label of a bar from x0 to x1 goes: into it, after it or before it, wherever there
 * is enough room first, or the most. A mark on the row bounds that room. out: it isn't in the
 * bar; end: it ends where its room does.
 */
export function labelSpan(x0, x1, mark, enough) {
	const spans = [];
	for (const [from, to, more] of [[x0, x1], [x1, 100, { out: true }], [0, x0, { out: true, end: true }]]) {
		const cut = mark > from && mark < to ? [[from, mark], [mark, to]] : [[from, to]];
		for (const [a, b] of more?.end ? cut.reverse() : cut) spans.push({ from: a, to: b, ...more });
	}
	const width = (s) => s.to - s.from;
	return spans.find((s) => width(s) >= enough) || spans.reduce((a, b) => (width(b) > width(a) ? b : a));
}
