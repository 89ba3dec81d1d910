package client_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/client"
	"github.com/semelhq/semel/evidence"
	"github.com/semelhq/semel/internal/peer"
	"github.com/semelhq/semel/internal/service/api"
	"github.com/semelhq/semel/store/memstore"
)

// evidenceService is a service that keeps evidence of a call and a duplicate.
func evidenceService(t *testing.T) (*client.Client, *evidence.Trust) {
	t.Helper()
	keys, err := evidence.GenerateKeys("example.com/log")
	must(t, err)
	st := memstore.New()
	log, err := evidence.New(st, keys, nil)
	must(t, err)
	e, err := semel.New(st, &semel.Options{Operations: []semel.Operation{{Name: "op", Evidence: semel.EvidenceDurable}}, Witness: log})
	must(t, err)
	t.Cleanup(func() { must(t, errors.Join(log.Close(context.Background()), e.Close(context.Background()))) })
	a, err := api.New(api.Options{Engine: e, Evidence: log, Identify: func(*http.Request) (api.Caller, error) {
		return api.Caller{Role: api.Admin, AllTenants: true}, nil
	}})
	must(t, err)
	srv := httptest.NewServer(a.Admin())
	t.Cleanup(srv.Close)
	c, err := client.New(srv.URL, nil)
	must(t, err)
	err = c.ExportEvidence(t.Context(), &bytes.Buffer{}, client.EvidenceExport{})
	wantCode(t, err, semel.CodeNotFound)
	for range 2 {
		of := call("order-1")
		of.Tenant, of.Principal = "acme", "shop"
		_, err = e.Do(t.Context(), of, func(context.Context, semel.Execution) (semel.Result, error) {
			return semel.Result{Data: []byte("<ok>")}, nil
		})
		must(t, err)
	}
	must(t, log.Integrate(t.Context()))
	return c, log.Trust()
}

func TestEvidence(t *testing.T) {
	c, trust := evidenceService(t)
	for _, about := range []client.EvidenceName{{ID: id("order-1")}, {Tenant: "acme", Name: "order-1"}} {
		list, err := c.Evidence(t.Context(), about)
		must(t, err)
		for _, e := range list {
			leaf, err := evidence.ParseArtifact(e.Leaf)
			must(t, err)
			_, err = evidence.ParseOpening(leaf, e.Opening)
			must(t, err)
		}
		if len(list) != 3 {
			t.Errorf("%+v has %d entries", about, len(list))
		}
	}
	if list, err := c.Evidence(t.Context(), client.EvidenceName{Name: "order-1"}); err != nil || len(list) != 0 {
		t.Errorf("another tenant has %d entries, %v", len(list), err)
	}
	acme := "acme"
	for _, what := range []client.EvidenceExport{{}, {Tenant: &acme}, {Entries: []uint64{1, 2}}, {NoOpenings: true}} {
		var text bytes.Buffer
		must(t, c.ExportEvidence(t.Context(), &text, what))
		report, err := evidence.Verify(&text, trust, nil)
		if err != nil || report.Finding != nil {
			t.Errorf("%+v: %+v, %v", what, report, err)
		}
	}
	err := c.ExportEvidence(t.Context(), &bytes.Buffer{}, client.EvidenceExport{Entries: []uint64{99}})
	wantCode(t, err, semel.CodeNotFound)
	full := errors.New("the disk is full")
	if err := c.ExportEvidence(t.Context(), failingWriter{full}, client.EvidenceExport{}); !errors.Is(err, full) {
		t.Errorf("got %v", err)
	}
}

type failingWriter struct{ err error }

func (w failingWriter) Write([]byte) (int, error) { return 0, w.err }

// TestASlowWriterOfAnExport may take its time: the service isn't silent meanwhile.
func TestASlowWriterOfAnExport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := client.New("http://service.test", &client.Options{Transport: pieces{"{\"n\":1}\n", "{\"end\":1}\n"}})
		must(t, err)
		var got bytes.Buffer
		slow := writerFunc(func(p []byte) (int, error) {
			<-time.After(time.Hour)
			return got.Write(p)
		})
		must(t, c.ExportEvidence(t.Context(), slow, client.EvidenceExport{}))
		if got.String() != "{\"n\":1}\n{\"end\":1}\n" {
			t.Errorf("got %q", &got)
		}
	})
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// pieces are an export that comes in pieces, as long as the request goes on.
type pieces []string

func (p pieces) RoundTrip(r *http.Request) (*http.Response, error) {
	h := http.Header{"Content-Type": {"application/x-ndjson"}}
	peer.Mark(h, peer.Admin)
	left := p
	return &http.Response{StatusCode: http.StatusOK, Header: h, Request: r, Body: io.NopCloser(readerFunc(func(b []byte) (int, error) {
		if err := r.Context().Err(); err != nil {
			return 0, err
		}
		if len(left) == 0 {
			return 0, io.EOF
		}
		n := copy(b, left[0])
		left = left[1:]
		return n, nil
	}))}, nil
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// TestAPartOfAnExportIsAnError: whatever cut it off, and however the answer ended.
func TestAPartOfAnExportIsAnError(t *testing.T) {
	for text, whole := range map[string]bool{
		"{\"end\":0}\n":                 true,
		"{\"n\":1}\n{\"end\":12}\n":     true,
		"{\"n\":1}\n{\"end\":12}":       false,
		"{\"n\":1}\n":                   false,
		"":                              false,
		"{\"x\":{\"end\":1}\n":          false,
		strings.Repeat("x", 100) + "\n": false,
		strings.Repeat("x", 100) + "\n{\"end\":1}\n": true,
	} {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			peer.Mark(w.Header(), peer.Admin)
			w.Header().Set("Content-Type", "application/x-ndjson")
			fmt.Fprint(w, text)
		}))
		c, err := client.New(srv.URL, nil)
		must(t, err)
		var got bytes.Buffer
		if err := c.ExportEvidence(t.Context(), &got, client.EvidenceExport{}); (err == nil) != whole || got.String() != text {
			t.Errorf("%q: %v, %q", text, err, &got)
		}
		srv.Close()
	}
	html := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html>") }))
	defer html.Close()
	c, err := client.New(html.URL, nil)
	must(t, err)
	err = c.ExportEvidence(t.Context(), &bytes.Buffer{}, client.EvidenceExport{})
	if _, ok := errors.AsType[*client.AnswerError](err); !ok {
		t.Errorf("got %v", err)
	}
}
