package dashboard_test

import (
	"fmt"
	"testing"

	"github.com/chromedp/chromedp"
)

// axes draws charts of small and large values, over an hour and over a week, in cards of some
// widths, and returns what is wrong with the labels of their axes: each must be whole, and none
// on another.
const axes = `(async (widths) => {
	const load = (name) => import(new URL('ui/js/' + name, location.href));
	const [{ html, render }, { Chart }, { brief, many }] = await Promise.all(['lib.js', 'chart.js', 'overview.js'].map(load));
	const box = document.body.appendChild(document.createElement('div')), wrong = [];
	const draw = CanvasRenderingContext2D.prototype.fillText;
	let labels = [];
	CanvasRenderingContext2D.prototype.fillText = function (text, x, y, ...rest) {
		const m = this.measureText(text), at = this.getTransform().transformPoint({ x, y }), ratio = devicePixelRatio;
		labels.push({ text, left: (at.x - m.actualBoundingBoxLeft) / ratio, right: (at.x + m.actualBoundingBoxRight) / ratio, top: (at.y - m.actualBoundingBoxAscent) / ratio, bottom: (at.y + m.actualBoundingBoxDescent) / ratio, width: this.canvas.width / ratio, height: this.canvas.height / ratio });
		return draw.call(this, text, x, y, ...rest);
	};
	const meets = (a, b) => a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;
	for (const width of widths) for (const minutes of [1, 180]) for (const points of [1, 15, 168]) for (const [format, values] of [[many, [0, 999, 999900, 98765432, 2e14]], [brief, [4e-7, 0.0123, 5000, 345600, 1e9]]]) for (const top of values) {
		box.style.width = width + 'px';
		labels = [];
		const xs = Array.from({ length: points }, (_, i) => 1769900000 + i * 60 * minutes);
		for (const how of ['stacked', 'plain', 'powers']) {
			render(html` + "`<${Chart} key=${how} xs=${xs} series=${[{ label: 'one', tone: 'blue', values: xs.map((_, i) => (top * (i + 1)) / points) }]} stacked=${how === 'stacked'} powers=${how === 'powers'} format=${format} label=\"A chart\" />`" + `, box);
			for (let n = 0; n < 50 && !labels.length; n++) await new Promise((done) => setTimeout(done, 5));
			const say = (what) => wrong.push([width + ' px', points + ' points', minutes + ' min each', 'up to ' + top, what].join(', '));
			if (!labels.length) say('it has no labels');
			for (const [n, l] of labels.entries()) {
				if (l.left < 0 || l.right > l.width || l.top < 0 || l.bottom > l.height) say(l.text + ' is cut off');
				for (const other of labels.slice(n + 1)) if (l.text !== other.text && meets(l, other)) say(l.text + ' is on ' + other.text);
			}
			render(null, box);
			labels = [];
		}
	}
	CanvasRenderingContext2D.prototype.fillText = draw;
	box.remove();
	return [...new Set(wrong)];
})`

// TestAxes: the labels of a chart have room in it, however large its values are.
func TestAxes(t *testing.T) {
	tb := open(t, newWorld(t, false).page())
	tb.shows("Overview")
	tb.do(chromedp.EmulateViewport(1280, 800))
	for i, w := range eval[[]string](tb, fmt.Sprintf("(%s)([520, 180])", axes)) {
		if i == 10 {
			break
		}
		t.Error(w)
	}
}
