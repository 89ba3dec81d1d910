package webhook

import (
	"bytes"
	"compress/gzip"
	"net/http"
	"strings"
	"testing"
	"time"
)

// packed compresses a delivery that is signed already, as it is done at a time.
func packed(d *Delivery, sec int64, coding string) *Delivery {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	z.ModTime = time.Unix(sec, 0)
	_, _ = z.Write(d.Body)
	_ = z.Close()
	header := d.Header.Clone()
	header.Set("Content-Encoding", coding)
	return &Delivery{Header: header, Body: b.Bytes()}
}

func decoding(o *Options) {
	source := *o.Source
	source.Decode = "gzip"
	o.Source = &source
}

// TestDeliveriesThatAreCompressedAfterSigning are taken if the source says so, each event once
// however it came.
func TestDeliveriesThatAreCompressedAfterSigning(t *testing.T) {
	r := newRig(t, "github", decoding)
	_, d := vectorOf(t, "github")
	for _, one := range []*Delivery{packed(d, 1, "gzip"), packed(d, 2, "x-gzip"), d} {
		r.want(one, http.StatusOK)
	}
	r.work()
	if len(r.handled) != 1 || r.handled[only(r.handled)] != 1 {
		t.Errorf("handled %v", r.handled)
	}
	other := packed(d, 1, "gzip")
	other.Body = append(other.Body, other.Body...)
	r.want(other, http.StatusBadRequest)
	r.want(&Delivery{Header: packed(d, 1, "gzip").Header, Body: d.Body}, http.StatusBadRequest)
	forged := &Delivery{Header: d.Header, Body: append(bytes.Clone(d.Body), ' ')}
	r.want(packed(forged, 1, "gzip"), http.StatusUnauthorized)
	small := newRig(t, "github", decoding, func(o *Options) { o.MaxBody = int64(len(d.Body)) - 1 })
	small.want(packed(d, 1, "gzip"), http.StatusRequestEntityTooLarge)

	asks := newRig(t, "slack", decoding)
	ask := resign(t, "slack", `{"type":"url_verification","challenge":"3eZbrw1aB10FEMAGAZd4FyFQ"}`)
	if w := asks.post(packed(ask, 1, "gzip")); w.Code != http.StatusOK || w.Body.String() != "3eZbrw1aB10FEMAGAZd4FyFQ" {
		t.Errorf("the handshake: %d %s", w.Code, w.Body)
	}
}

func only(m map[string]int) (key string) {
	for key = range m {
	}
	return key
}

// TestARefusalNamesTheEncoding, and the diagnosis what to write.
func TestARefusalNamesTheEncoding(t *testing.T) {
	r := newRig(t, "github")
	_, d := vectorOf(t, "github")
	for coding, want := range map[string]string{"gzip": "write decode: gzip into the source", "br": "has a Content-Encoding"} {
		w := r.post(packed(d, 1, coding))
		if w.Code != http.StatusUnauthorized || !strings.Contains(w.Body.String(), want) || !strings.Contains(w.Body.String(), string(CodeSignatureWrong)) {
			t.Errorf("%s: %d %s", coding, w.Code, w.Body)
		}
	}
	// One that is signed as it is sent is from the sender, and can't be read.
	r = newRig(t, "slack")
	signed := packed(resign(t, "slack", `{"type":"event_callback"}`), 1, "gzip")
	signed.Header = resign(t, "slack", string(signed.Body)).Header.Clone()
	signed.Header.Set("Content-Encoding", "gzip")
	if w := r.post(signed); w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), "Content-Encoding: gzip") {
		t.Errorf("signed as it is sent: %d %s", w.Code, w.Body)
	}
	v, _ := vectorOf(t, "github")
	hints := v.verifier(t).Diagnose(packed(d, 1, "gzip"), []string{v.secret}).Hints
	if text := strings.Join(hints, "\n"); !strings.Contains(text, "before it was compressed: write decode: gzip into the source") {
		t.Errorf("hints: %q", hints)
	}
	if _, err := Load("a.yaml", []byte("name: a\nsignature: {in: '{header:S}', encoding: hex}\ndecode: br\nevents: [{id: '{body:id}'}]\nhorizon: 1d\n")); err == nil || !strings.Contains(err.Error(), "decode") {
		t.Errorf("decode: br: %v", err)
	}
}
