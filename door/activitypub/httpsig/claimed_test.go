package httpsig_test

import (
	"net/http"
	"slices"
	"testing"

	"github.com/semelhq/semel/door/activitypub/httpsig"
)

func TestClaimed(t *testing.T) {
	for _, test := range []struct {
		name   string
		header http.Header
		form   string
		ids    []string
	}{
		{"no signature", http.Header{"Date": {"now"}}, "", nil},
		{"the draft's form", http.Header{"Signature": {`keyId="https://a.example/b#k",headers="date",signature="AA=="`}}, "cavage", []string{"https://a.example/b#k"}},
		{"several of the RFC's", http.Header{"Signature-Input": {`x=("@method");keyid="k1", y=("@method");keyid="k2"`}, "Signature": {"x=:AA==:, y=:AA==:"}}, "rfc9421", []string{"k1", "k2"}},
		{"one without a key", http.Header{"Signature-Input": {`x=("@method"), y=1, z=("@path");keyid="k3"`}}, "rfc9421", []string{"k3"}},
		{"what can't be read", http.Header{"Signature-Input": {`x=(`}}, "rfc9421", nil},
		{"nor this", http.Header{"Signature": {`keyId=`}}, "cavage", nil},
	} {
		if form, ids := httpsig.Claimed(test.header); form != test.form || !slices.Equal(ids, test.ids) {
			t.Errorf("%s: %q, %q", test.name, form, ids)
		}
	}
}
