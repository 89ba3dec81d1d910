package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/wire"
)

// EvidenceEntry is one entry of the evidence log. Leaf and Opening are the bytes that the
// service says it has stored; package evidence parses them. Opening is nil if it was erased.
// Nothing proves them: use an export for that.
type EvidenceEntry struct {
	N             uint64
	Leaf, Opening []byte
}

// EvidenceName names calls: the one with ID or, if that is zero, all with Name in Tenant. Name
// is the key, or the id of a delivery, which may be a duplicate.
type EvidenceName struct {
	ID           semel.ID
	Tenant, Name string
}

// Evidence returns the evidence log's entries about calls, in its order. It needs the role
// viewer and the admin listener.
func (c *Client) Evidence(ctx context.Context, about EvidenceName) (all []EvidenceEntry, err error) {
	params := url.Values{}
	if about.ID != (semel.ID{}) {
		params.Set("record", about.ID.Encode())
	} else {
		params.Set("name", about.Name)
		if about.Tenant != "" {
			params.Set("tenant", about.Tenant)
		}
	}
	for next := uint64(0); ; {
		params.Set("from", strconv.FormatUint(next, 10))
		page, r, err := call[wire.Evidence](ctx, c, reading(c.records, "/v1/evidence/entries?"+params.Encode()))
		if err != nil {
			return nil, err
		}
		for i := range page.Entries {
			e := EvidenceEntry{page.Entries[i].N, page.Entries[i].Leaf, page.Entries[i].Opening}
			if string(e.Opening) == "null" {
				e.Opening = nil
			}
			all = append(all, e)
		}
		switch {
		case page.Next == 0:
			return all, nil
		case page.Next <= next:
			return nil, r.invalid("its pages go round in a circle")
		}
		next = page.Next
	}
}

// EvidenceExport says what [Client.ExportEvidence] writes. The zero value means everything that
// the caller may see.
type EvidenceExport struct {
	// Tenant writes only one tenant's entries, each with a proof. Nil: all tenants, or the only
	// one that the caller may see.
	Tenant *string
	// Entries are the numbers of the entries to write, each with a proof; at most 1000. Nil:
	// all.
	Entries []uint64
	// NoOpenings leaves out the plain text about entries.
	NoOpenings bool
}

// ExportEvidence writes an export of the evidence log to w, as it arrives. It doesn't verify
// it: use [github.com/semelhq/semel/evidence.Verify], with public keys that don't come from the
// service. After an error, w has part of an export. It needs the role viewer and the admin
// listener.
func (c *Client) ExportEvidence(ctx context.Context, w io.Writer, what EvidenceExport) error {
	params := url.Values{}
	if what.Tenant != nil {
		params.Set("tenant", *what.Tenant)
	}
	if what.Entries != nil {
		var numbers []string
		for _, n := range what.Entries {
			numbers = append(numbers, strconv.FormatUint(n, 10))
		}
		params.Set("entries", strings.Join(numbers, ","))
	}
	if what.NoOpenings {
		params.Set("no_openings", "true")
	}
	q := &request{method: http.MethodGet, to: c.records, path: "/v1/evidence/export?" + params.Encode(), header: http.Header{"Accept": {exportMedia + ", application/problem+json"}}}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// The whole export may take long, but each piece has a limit, without the time that w takes.
	limit := c.opts.Timeout + c.opts.MaxWait
	silence := time.AfterFunc(limit, cancel)
	defer silence.Stop()
	resp, err := c.roundTrip(ctx, q, nil)
	if err != nil {
		return lostAnswer(asFailed(err), semel.CodeStoreUnavailable)
	}
	defer func() { _ = resp.Body.Close() }()
	if media, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); resp.StatusCode != http.StatusOK || media != exportMedia {
		err := c.refusedStream(resp)
		if f, ok := errors.AsType[*failed](err); ok {
			return lostAnswer(f, semel.CodeStoreUnavailable)
		}
		return err
	}
	end := &lastLine{w: w}
	switch _, err := io.Copy(end, &timedReader{resp.Body, silence, limit}); {
	case err != nil && end.err != nil:
		return end.err
	case err != nil:
		return lostAnswer(&failed{err: fmt.Errorf("the export broke off: %w", plain(err))}, semel.CodeStoreUnavailable)
	case !end.whole():
		return lostAnswer(&failed{err: errors.New("the export broke off: its last line is missing")}, semel.CodeStoreUnavailable)
	}
	return nil
}

// exportMedia is the media type of an export.
const exportMedia = "application/x-ndjson"

// timedReader lets a timer run while it reads.
type timedReader struct {
	io.Reader
	timer *time.Timer
	limit time.Duration
}

// Read implements [io.Reader].
func (r *timedReader) Read(p []byte) (int, error) {
	r.timer.Reset(r.limit)
	defer r.timer.Stop()
	return r.Reader.Read(p)
}

// lastLine writes to w, and remembers the end of what it wrote.
type lastLine struct {
	w    io.Writer
	tail []byte
	err  error // of w
}

// maxEnd is longer than an export's last line, in bytes.
const maxEnd = 64

// Write implements [io.Writer].
func (l *lastLine) Write(p []byte) (n int, err error) {
	n, l.err = l.w.Write(p)
	l.tail = append(l.tail[max(0, len(l.tail)-maxEnd):], p[max(0, len(p)-maxEnd):]...)
	return n, l.err
}

// whole reports whether the last line is that of a complete export.
func (l *lastLine) whole() bool {
	text, ended := bytes.CutSuffix(l.tail, []byte("}\n"))
	i := bytes.LastIndex(text, []byte(`{"end":`))
	return ended && i >= 0 && (i == 0 || text[i-1] == '\n')
}
