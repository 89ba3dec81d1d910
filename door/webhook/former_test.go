package webhook

import (
	"net/http"
	"slices"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store"
)

// An event that an earlier version accepted is known again: its record is compared by the
// scheme that it was made by.
func TestRecordsOfEarlierVersionsAreCompared(t *testing.T) {
	for name, made := range map[string]func(content, now semel.Fingerprint) semel.Fingerprint{
		"by the content alone": func(content, _ semel.Fingerprint) semel.Fingerprint { return content },
		"by content and kind, under the scheme of the content": func(_, now semel.Fingerprint) semel.Fingerprint {
			b, _ := now.AppendBinary(nil)
			return store.NewFingerprint(semel.SchemeJSON, [32]byte(b[1:]))
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, d := vectorOf(t, "github")
			r := newRig(t, "github")
			r.want(d, http.StatusOK)
			page, err := r.engine.Search(t.Context(), store.Query{Operation: r.receiver.Destination()})
			if err != nil || len(page.Records) != 1 {
				t.Fatal(page, err)
			}
			rec := page.Records[0]
			content, err := semel.FingerprintJSON(d.Body)
			if err != nil {
				t.Fatal(err)
			}
			former := rec
			former.Fingerprint = made(content, rec.Fingerprint)
			former.Revision[0]++
			if _, ok, err := r.engine.Internal().Store().Apply(t.Context(), store.Write{Record: &former, Expect: rec.Revision}); !ok || err != nil {
				t.Fatal(ok, err)
			}
			r.want(d, http.StatusOK)
			r.want(resign(t, "github", `{"another":"content"}`), http.StatusOK)
			if got := r.decisions(); !slices.Equal(got, []semel.Decision{semel.Conflict, semel.Execute, semel.Replay}) {
				t.Errorf("the deliveries got %v", got)
			}
		})
	}
}
