package dashboard_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/semelhq/semel/internal/rig/thorough"
)

// drawn is a record as the timeline draws it, with its times given: what a picture looks like
// must not depend on how fast the machine is.
type drawn struct {
	Name       string
	Record     map[string]any
	Deliveries []map[string]any
}

var seen = time.Date(2026, 1, 31, 23, 59, 58, 123_456_789, time.UTC)

func after(d time.Duration) string { return seen.Add(d).Format(time.RFC3339Nano) }

// record is one whose only attempt took so long, and ended so.
func record(took time.Duration, disposition string) map[string]any {
	return map[string]any{
		"id": "r", "status": "completed", "attempt": 1, "created_at": after(0), "updated_at": after(took), "ended_at": after(took),
		"attempts": []map[string]any{{"number": 1, "fence": 1, "holder": "node-1", "started_at": after(0), "ended_at": after(took), "disposition": disposition}},
		"effects":  []any{}, "messages": []any{},
	}
}

// took are the durations that a timeline has met, and how long each is to read differs.
var took = []time.Duration{0, 400 * time.Nanosecond, 443 * time.Microsecond, 65 * time.Millisecond, 1200 * time.Millisecond, 59 * time.Minute, 23 * time.Hour, 400 * 24 * time.Hour}

// extremes are a settlement, an effect and a message at the beginning, in the middle and at
// the end of a picture, with names that are short and as long as they may be.
func extremes() (all []drawn) {
	names := []string{"x", "parcel.ready", strings.Repeat("long-name-without-a-space.", 8), strings.Repeat("many short words ", 12), strings.Repeat("订单支付退款", 20), strings.Repeat("طلب الدفع ", 20)}
	for i, total := range took {
		for _, at := range []int64{0, 1, 60, 85, 99, 100} {
			r, name := record(total, []string{"completed", "abandoned", "rejected"}[i%3]), names[(i+int(at))%len(names)]
			from := total * time.Duration(at) / 100
			r["attempts"] = append(r["attempts"].([]map[string]any), map[string]any{
				"number": 2, "fence": 123456789012, "holder": name, "started_at": after(from), "ended_at": after(total), "disposition": "completed",
				"settled": map[string]any{"by": "operator", "who": name, "at": after(from), "reason": name},
			})
			r["attempt"] = 2
			r["effects"] = []map[string]any{{"name": name, "fence": 1, "state": "refuted", "started_at": after(from), "settled_at": after(total)}, {"name": "short", "fence": 123456789012, "state": "started", "started_at": after(from)}}
			r["messages"] = []map[string]any{{"name": name, "destination": name, "state": "delivered", "created_at": after(from), "settled_at": after(from)}}
			r["compensation"] = map[string]any{"operation": name, "record": "c", "state": "done", "started_at": after(from), "settled_at": after(total)}
			all = append(all, drawn{Name: fmt.Sprintf("%v at %d %%, %.12s", total, at, name), Record: r})
		}
	}
	return all
}

// strewn are records with anything anywhere.
func strewn(n int) (all []drawn) {
	rnd := rand.New(rand.NewPCG(thorough.Seed(), 0))
	for i := range n {
		total := took[rnd.IntN(len(took))]
		when := func() time.Duration { return time.Duration(float64(total) * rnd.Float64()) }
		text := func() string {
			return strings.Repeat("w", 1+rnd.IntN(60)) + strings.Repeat([]string{" w", "漢字", " عربي"}[rnd.IntN(3)], rnd.IntN(30))
		}
		r := record(total, "completed")
		for range rnd.IntN(3) {
			r["effects"] = append(r["effects"].([]any), map[string]any{"name": text(), "fence": 1, "state": "confirmed", "started_at": after(when()), "settled_at": after(when())})
			r["messages"] = append(r["messages"].([]any), map[string]any{"name": text(), "destination": text(), "state": "pending", "created_at": after(when())})
		}
		if rnd.IntN(2) == 0 {
			r["attempts"].([]map[string]any)[0]["settled"] = map[string]any{"by": "operator", "who": text(), "at": after(when())}
		}
		d := drawn{Name: fmt.Sprintf("strewn %d, %v", i, total), Record: r}
		for range rnd.IntN(40) {
			at := when()
			d.Deliveries = append(d.Deliveries, map[string]any{"kind": "decided", "at": float64(seen.Add(at).UnixMicro()) / 1000, "data": map[string]any{"decision": []string{"replay", "in_flight", "conflict"}[rnd.IntN(3)], "attempt": 1, "waited_ms": rnd.IntN(2) * int(at.Milliseconds())}})
		}
		all = append(all, d)
	}
	return all
}

// labels draws timelines in cards of some widths, and returns what is wrong with their labels:
// each must stay within its card, and none may be under another or under a mark.
const labels = `(async (all, widths) => {
	const load = (name) => import(new URL('ui/js/' + name, location.href));
	const [{ html, render }, { Timeline }] = await Promise.all([load('lib.js'), load('timeline.js')]);
	const box = document.body.appendChild(document.createElement('div')), wrong = [];
	const frame = () => new Promise((done) => requestAnimationFrame(done));
	const textOf = (e) => { const r = document.createRange(); if (e.matches('.lane-name') && e.firstChild) r.selectNode(e.firstChild); else r.selectNodeContents(e); return r.getBoundingClientRect(); };
	for (const width of widths) {
		box.style.width = width + 'px';
		render(all.map((one) => html` + "`<${Timeline} rec=${one.Record} deliveries=${one.Deliveries || []} />`" + `), box);
		await frame(); await frame(); await frame(); // the observers tell how wide the tracks are, and they are drawn again
		[...box.querySelectorAll('.timeline')].forEach((card, i) => {
			const edge = card.getBoundingClientRect();
			const found = [...card.querySelectorAll('.bar b, .tick, .fold, .lane-name, .lane-name small, .lane-count, .legend span')].map((e) => {
				const own = e.getBoundingClientRect(), text = textOf(e), css = getComputedStyle(e);
				const seen = css.overflowX === 'visible' ? text : { left: Math.max(own.left + parseFloat(css.paddingLeft), text.left), right: Math.min(own.right - parseFloat(css.paddingRight), text.right), top: own.top, bottom: own.bottom };
				return { e, text: e.className + ' ' + e.textContent.slice(0, 20), ...Object.fromEntries(['left', 'right', 'top', 'bottom'].map((k) => [k, seen[k]])) };
			}).filter((l) => l.right > l.left);
			const say = (what) => wrong.push(width + ' px, ' + all[i].Name + ': ' + what);
			for (const l of found) if (l.left < edge.left || l.right > edge.right || l.bottom > edge.bottom) say(l.text + ' leaves the card: ' + [l.left - edge.left, edge.right - l.right].map(Math.round));
			const marks = [...card.querySelectorAll('.mark.diamond')].map((e) => ({ e, text: 'the settlement', ...e.getBoundingClientRect().toJSON() }));
			const meets = (a, b) => a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 1 && b.top < a.bottom - 1;
			for (const [n, a] of found.entries()) for (const b of [...found.slice(n + 1), ...marks]) if (!a.e.contains(b.e) && meets(a, b)) say(a.text + ' and ' + b.text + ' are on each other');
			if (card.scrollWidth > card.clientWidth) say('the card scrolls');
			if (!card.querySelector('.tick') || !found.some((l) => l.e.matches('.bar b'))) say('a picture without labels');
		});
		render(null, box);
	}
	box.remove();
	return [...new Set(wrong)];
})`

// TestLabels draws timelines of given durations in cards of given widths, on a page as wide as
// a laptop's and as a phone's: no label leaves its card or covers another.
func TestLabels(t *testing.T) {
	tb := open(t, newWorld(t, false).page())
	tb.shows("Overview")
	all, err := json.Marshal(append(extremes(), strewn(thorough.Scaled(200))...))
	if err != nil {
		t.Fatal(err)
	}
	for width, cards := range map[int64]string{1280: "[1000, 560, 500]", 360: "[337, 240, 180]"} {
		tb.do(chromedp.EmulateViewport(width, 800))
		wrong := eval[[]string](tb, fmt.Sprintf("(%s)(%s, %s)", labels, all, cards))
		for i, w := range wrong {
			if i == 10 {
				t.Errorf("and %d more", len(wrong)-i)
				break
			}
			t.Error(w)
		}
	}
}
