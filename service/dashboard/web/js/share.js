// A picture of a part of the page, for tickets and chats: its boxes and its texts, painted where
// the browser has laid them out.
const margin = 16, most = 16_000;
const words = new Intl.Segmenter(undefined, { granularity: 'word' }), letters = new Intl.Segmenter(undefined, { granularity: 'grapheme' });

/** A picture of an element as a PNG, below a title. skip: a selector of what isn't to be in it. */
export async function pictureOf(root, title, skip) {
	const frame = root.getBoundingClientRect();
	const page = getComputedStyle(document.documentElement);
	const canvas = document.createElement('canvas'), c = canvas.getContext('2d');
	c.font = `600 15px ${page.fontFamily}`;
	const lines = wrapped(c, title, frame.width);
	const head = margin + lines.length * 21;
	const ratio = Math.min(2, most / (frame.height + head + margin), most / frame.width);
	canvas.width = Math.ceil((frame.width + 2 * margin) * ratio);
	canvas.height = Math.ceil((frame.height + head + 2 * margin) * ratio);
	c.scale(ratio, ratio);
	c.fillStyle = page.backgroundColor;
	c.fillRect(0, 0, canvas.width, canvas.height);
	c.font = `600 15px ${page.fontFamily}`;
	c.fillStyle = page.color;
	c.textBaseline = 'middle';
	lines.forEach((line, i) => c.fillText(line, margin, margin + i * 21 + 10));
	c.translate(margin - frame.left, head + margin / 2 - frame.top);
	paint(c, root, skip);
	return new Promise((done, fail) => { canvas.toBlob((blob) => (blob ? done(blob) : fail(new Error('The browser made no picture.'))), 'image/png'); });
}

function wrapped(c, text, width) {
	const lines = [''];
	for (const { segment } of [...words.segment(text)].flatMap((w) => (c.measureText(w.segment).width > width ? [...letters.segment(w.segment)] : [w]))) {
		if (lines.at(-1) && c.measureText(lines.at(-1) + segment).width > width) lines.push('');
		lines[lines.length - 1] += lines.at(-1) ? segment : segment.trimStart();
	}
	return lines;
}

function paint(c, e, skip) {
	const css = getComputedStyle(e), box = e.getBoundingClientRect();
	if (e.matches(skip) || css.display === 'none' || css.visibility === 'hidden') return;
	c.save();
	c.globalAlpha *= Number(css.opacity);
	shape(c, e, css, box);
	if (css.overflowX !== 'visible' && css.display !== 'inline') {
		c.beginPath();
		c.rect(box.left, box.top, box.width, box.height);
		c.clip();
	}
	const cross = getComputedStyle(e, '::before');
	if (cross.content === '"✕"') write(c, cross, '✕', box.left + box.width / 2 - parseFloat(cross.fontSize) / 2, box.top + box.height / 2);
	const layered = [...e.childNodes].sort((a, b) => layer(a) - layer(b)); // as z-index has it
	for (const node of layered) {
		if (node.nodeType === Node.TEXT_NODE) texts(c, node, css, box);
		else if (node.nodeType === Node.ELEMENT_NODE) paint(c, node, skip);
	}
	c.restore();
}
const layer = (node) => (node.nodeType === Node.ELEMENT_NODE && Number(getComputedStyle(node).zIndex)) || 0;

/** The background and the borders of a box; stripes where it has such, and a square on its corner where it is turned. */
function shape(c, e, css, box) {
	const side = parseFloat(css.width), turned = /^matrix\(0\.7/.test(css.transform);
	const radius = Math.min(turned ? 1 : parseFloat(css.borderTopLeftRadius) || 0, box.height / 2);
	c.save();
	if (turned) {
		c.translate(box.left + box.width / 2, box.top + box.height / 2);
		c.rotate(Math.PI / 4);
	}
	c.beginPath();
	if (turned) c.roundRect(-side / 2, -side / 2, side, side, radius);
	else c.roundRect(box.left, box.top, box.width, box.height, css.borderTopLeftRadius.endsWith('%') ? box.height / 2 : radius);
	c.fillStyle = css.backgroundColor;
	c.fill();
	if (css.backgroundImage !== 'none') {
		c.save();
		c.clip();
		c.strokeStyle = css.borderTopColor;
		c.globalAlpha *= 0.5;
		for (let x = box.left - box.height; x < box.right; x += 9) c.stroke(new Path2D(`M${x} ${box.bottom}L${x + box.height} ${box.top}`));
		c.restore();
	}
	const sides = ['Top', 'Right', 'Bottom', 'Left'].map((n) => ({ wide: parseFloat(css[`border${n}Width`]), colour: css[`border${n}Color`], dashed: css[`border${n}Style`] === 'dashed' }));
	const { left: l, top: t, right: r, bottom: b } = box;
	const paths = [`M${l} ${t}H${r}`, `M${r} ${t}V${b}`, `M${l} ${b}H${r}`, `M${l} ${t}V${b}`];
	const draw = ({ wide, colour, dashed }, path) => {
		c.lineWidth = wide;
		c.strokeStyle = colour;
		c.setLineDash(dashed ? [4, 3] : []);
		if (path) c.stroke(new Path2D(path)); else c.stroke();
	};
	if (turned || sides.every((side) => !side.wide)) { /* it has none, or none that is seen */ }
	else if (sides.every((side) => JSON.stringify(side) === JSON.stringify(sides[0]))) draw(sides[0]);
	else sides.forEach((side, i) => { if (side.wide) draw(side, paths[i]); });
	c.restore();
}

function write(c, css, text, x, y) {
	c.font = `${css.fontWeight} ${css.fontSize} ${css.fontFamily}`;
	c.fillStyle = css.color;
	c.fillText(text, x, y);
}

/** Each word where it is; the last one that an ellipsis leaves is cut as the browser does. */
function texts(c, node, css, box) {
	const range = document.createRange();
	const ends = css.textOverflow === 'ellipsis' && css.overflowX !== 'visible';
	const edge = ends ? box.right - parseFloat(css.paddingRight) : Infinity;
	const room = ends && node.parentElement.scrollWidth > node.parentElement.clientWidth ? edge - 10 : edge; // for the ellipsis
	let cut = false;
	const put = ({ segment, index }, from) => {
		range.setStart(node, from + index);
		range.setEnd(node, from + index + segment.length);
		const [at, ...more] = range.getClientRects();
		if (!at || !segment.trim()) return;
		const parts = more.length || at.right > room ? [...letters.segment(segment)] : [];
		if (parts.length > 1) for (const part of parts) put(part, from + index);
		else if (at.right <= room) write(c, css, segment, at.left, at.top + at.height / 2);
		else if (!cut) {
			cut = true;
			write(c, css, '…', Math.min(at.left, edge - 10), at.top + at.height / 2);
		}
	};
	for (const word of words.segment(node.data)) put(word, 0);
}
