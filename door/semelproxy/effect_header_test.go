package semelproxy_test

import (
	"io"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"strings"
	"testing"

	"github.com/semelhq/semel/door/semelhttp"
	"github.com/semelhq/semel/door/semelproxy"
	"github.com/semelhq/semel/internal/rig/clause"
)

// TestWhatUpstreamsSayOfEffectsIsForSemel: neither a caller nor an upstream hears from the
// other whether something was done, guarded or not, wherever in a message it stands.
func TestWhatUpstreamsSayOfEffectsIsForSemel(t *testing.T) {
	clause.Proves(t, "IDS-V.2")
	const name = "Semel-Effect"
	up := newUpstream(t, nil, func(w http.ResponseWriter, r *http.Request, _ int) {
		if v, ok := r.Header[name]; ok {
			t.Errorf("%s: the upstream was told %q by the caller", r.URL.Path, v)
		}
		w.Header().Set(name, "none")
		w.WriteHeader(http.StatusEarlyHints)
		w.Header().Set("Trailer", r.URL.Query().Get("announced"))
		w.WriteHeader(http.StatusOK)
		_, _ = io.WriteString(w, "said")
		w.Header().Set("X-Sum", "42")
		w.Header().Set(name, "none")
		if r.URL.Query().Get("announced") == "X-Sum" {
			w.Header().Set(http.TrailerPrefix+name, "none")
		}
	})
	keyless := func(o *semelproxy.Options) { o.Route.Key = semelhttp.KeyOptional }
	for mode, c := range map[string]struct {
		key    string
		header []string
		change func(*semelproxy.Options)
	}{
		"guarded":                {"k", nil, func(*semelproxy.Options) {}},
		"guarded with a ledger":  {"k", nil, func(o *semelproxy.Options) { o.EffectHeader = "X-Effect-Key" }},
		"without a key":          {"", nil, keyless},
		"a stream without a key": {"", []string{"Accept: text/event-stream"}, keyless},
		"off":                    {"k", nil, func(o *semelproxy.Options) { o.Mode = semelproxy.ModeOff }},
		"shadow":                 {"k", nil, func(o *semelproxy.Options) { o.Mode = semelproxy.ModeShadow }},
	} {
		for _, announced := range []string{"X-Sum,Semel-Effect", "X-Sum"} {
			t.Run(mode+", and the trailers "+announced, func(t *testing.T) {
				w := newWorld(t, up.URL, func(_ *world, o *semelproxy.Options) { c.change(o) })
				r, err := http.NewRequestWithContext(httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
					Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
						if v, ok := h[name]; ok {
							t.Errorf("a %d says %q", code, v)
						}
						return nil
					},
				}), http.MethodPost, w.url+"/"+strings.ReplaceAll(mode, " ", "-")+"?announced="+announced, strings.NewReader("{}"))
				if err != nil {
					t.Fatal(err)
				}
				r.Header.Set(name, "none")
				if c.key != "" {
					r.Header.Set("Idempotency-Key", c.key)
				}
				for _, h := range c.header {
					name, value, _ := strings.Cut(h, ": ")
					r.Header.Set(name, value)
				}
				resp, err := w.client.Do(r)
				if err != nil {
					t.Fatal(err)
				}
				body, err := io.ReadAll(resp.Body)
				if err := resp.Body.Close(); err != nil {
					t.Error(err)
				}
				if err != nil || string(body) != "said" || resp.Trailer.Get("X-Sum") != "42" {
					t.Fatalf("got %d %q with trailers %v, %v", resp.StatusCode, body, resp.Trailer, err)
				}
				for where, h := range map[string]http.Header{"header": resp.Header, "trailers": resp.Trailer} {
					if v, ok := h[name]; ok && len(v) > 0 {
						t.Errorf("the %s says %q", where, v)
					}
				}
			})
		}
	}
}
