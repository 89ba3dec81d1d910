package api

import (
	"encoding/base64"
	"strings"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/semelhttp"
)

func TestSettleWithAnHTTPAnswer(t *testing.T) {
	t.Parallel()
	held := func(w *world) string {
		x := w.begin("shop", "charge", "k")
		w.on(x, "shop", "hold", `{"reason":"the upstream broke off"}`).want(200)
		return "/v1/records/" + x.str("record.id") + "/settle"
	}
	t.Run("its members make the answer that duplicates get", func(t *testing.T) {
		w := newWorld(t)
		w.api.opts.Answers = func(*semel.Record) bool { return true }
		path := held(w)
		g := w.send("operator", "POST", path, `{"outcome":"completed","status":201,"headers":{"content-type":["application/json"],"Link":["a","b"]},"body":"{\"refund\":\"re_1\"}","reason":"r"}`).want(200)
		data, err := base64.StdEncoding.DecodeString(g.str("record.result_base64"))
		a, ok := semelhttp.ParseAnswer(semel.Result{Data: data})
		if err != nil || !ok || a.Status != 201 || string(a.Body) != `{"refund":"re_1"}` || a.Header.Get("Content-Type") != "application/json" || len(a.Header["Link"]) != 2 {
			t.Errorf("kept is %+v, %v", a, err)
		}
	})
	t.Run("a bare result is refused for a call that came as a request, with the names of what it takes", func(t *testing.T) {
		w := newWorld(t)
		w.api.opts.Answers = func(*semel.Record) bool { return true }
		path := held(w)
		g := w.send("operator", "POST", path, `{"outcome":"completed","result":{"refund":"re_1"},"reason":"r"}`).refused(400, "invalid_call")
		if text := g.str("detail"); !strings.Contains(text, "status, headers and body") || !strings.Contains(text, "--status") {
			t.Error(text)
		}
		w.send("operator", "POST", path, `{"outcome":"rejected","error":{"code":"c","message":"m"},"reason":"r"}`).want(200)
	})
	t.Run("a bare result is what a call of the API is settled with, and what is forced", func(t *testing.T) {
		w := newWorld(t)
		w.send("operator", "POST", held(w), `{"outcome":"completed","result":1,"reason":"r"}`).want(200)
		w = newWorld(t)
		w.api.opts.Answers = func(*semel.Record) bool { return true }
		w.send("operator", "POST", held(w), `{"outcome":"completed","result":1,"force":true,"reason":"r"}`).want(200)
	})
	w := newWorld(t)
	path := held(w)
	for name, body := range map[string]string{
		"an answer without a status":        `{"outcome":"completed","body":"x","reason":"r"}`,
		"an answer and a result":            `{"outcome":"completed","status":200,"result":1,"reason":"r"}`,
		"a refusal that is completed":       `{"outcome":"completed","status":402,"reason":"r"}`,
		"a success that is rejected":        `{"outcome":"rejected","status":200,"reason":"r"}`,
		"an answer of what did not happen":  `{"outcome":"aborted","status":500,"reason":"r"}`,
		"a header that is not replayed":     `{"outcome":"completed","status":200,"headers":{"Set-Cookie":["a"]},"reason":"r"}`,
		"a header of two lines":             `{"outcome":"completed","status":200,"headers":{"Etag":["a\r\nb"]},"reason":"r"}`,
		"a body in two forms":               `{"outcome":"completed","status":200,"body":"x","body_base64":"eA==","reason":"r"}`,
		"a body that is no base64":          `{"outcome":"completed","status":200,"body_base64":"?","reason":"r"}`,
		"a body where there is none":        `{"outcome":"completed","status":204,"body":"x","reason":"r"}`,
		"a result that would not be kept":   `{"outcome":"completed","status":200,"body":"` + strings.Repeat("x", 1<<20-200) + `","reason":"r"}`,
		"a status that no final answer has": `{"outcome":"completed","status":101,"reason":"r"}`,
	} {
		t.Run(name+" is refused", func(t *testing.T) {
			w.t = t
			w.send("operator", "POST", path, body).refused(400, "invalid_call")
		})
	}
}
