package semelproxy

import (
	"bytes"
	"cmp"
	"container/list"
	"context"
	"encoding/hex"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"sync"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door"
	"github.com/semelhq/semel/door/semelhttp"
)

// ShadowOptions configures [ModeShadow].
type ShadowOptions struct {
	// MaxCalls is how many calls it remembers; it forgets the oldest first. Each takes some 300
	// bytes. Defaults to 65536.
	MaxCalls int
	// MaxBody is the largest body to compare, in bytes; it stays in memory while the request is
	// handled. Defaults to 1 MiB.
	MaxBody int
}

// Defaults of [ShadowOptions].
const (
	DefaultShadowCalls = 1 << 16
	DefaultShadowBody  = 1 << 20
)

// Verdict says what the mode enforce would have done with one request. It is the attribute
// "verdict" of an event: the engine's Events get one in Answered for every request that would
// have been guarded, after its answer.
type Verdict string

// The verdicts.
const (
	WouldExecute  Verdict = "execute"   // the first delivery, or one after a failure
	WouldReplay   Verdict = "replay"    // a duplicate, which would have got the recorded answer
	WouldWait     Verdict = "in_flight" // a duplicate while the first was running
	WouldConflict Verdict = "conflict"  // another request under the same key
	// WouldOther: the key of a call that is bound to another credential.
	WouldOther  Verdict = "other_caller"
	WouldRefuse Verdict = "refuse"  // a request without a usable key or identity
	NotCompared Verdict = "unknown" // a duplicate with a body too large to compare
)

// shadowReport says what the mode enforce would have done with one request.
type shadowReport struct {
	verdict Verdict
	// call names the call without revealing its key: the first 16 bytes of the
	// digest of its identity, in hexadecimal. Empty if refused.
	call string
	// by is the selector that found the call's key.
	by string
	// code says why it would have been refused.
	code semel.Code
}

// event returns the report as an event for the engine's Events. Nothing was refused, so its
// code is one of the attributes.
func (r *shadowReport) event(operation string, status int) semel.Delivered {
	return semel.Delivered{ID: semel.ID{Operation: operation}, Status: status, Line: semel.Line{Attrs: []slog.Attr{
		slog.String("call", r.call), slog.String("verdict", string(r.verdict)), slog.String("key_by", r.by), slog.String("would_code", string(r.code)),
	}}}
}

// ShadowCounts counts the verdicts.
type ShadowCounts struct {
	Execute     int64 `json:"execute"`
	Replay      int64 `json:"replay"`
	InFlight    int64 `json:"in_flight"`
	Conflict    int64 `json:"conflict"`
	OtherCaller int64 `json:"other_caller"`
	Refuse      int64 `json:"refuse"`
	Unknown     int64 `json:"unknown"`
}

// shadow remembers calls in memory only, and never uses the store.
type shadow struct {
	opts      ShadowOptions
	tap       semel.Internal
	inspector *semelhttp.Inspector
	operation string
	window    time.Duration

	mu    sync.Mutex
	calls map[[32]byte]*list.Element // of *shadowCall
	order *list.List                 // oldest first
	found ShadowCounts
	keys  map[string]int64 // by the selector that found the key
	since time.Time        // when the last summary was written
}

// shadowCall is one call. shadow.mu guards all fields except digest and boundTo, which never
// change.
type shadowCall struct {
	digest   [32]byte
	boundTo  string // as [semel.Call].BoundTo
	print    semel.Fingerprint
	known    bool // print is the first delivery's
	large    bool // its body was too large to compare
	ended    time.Time
	inFlight bool
	refused  bool // the status shows that nothing happened
}

func newShadow(tap semel.Internal, i *semelhttp.Inspector, o ShadowOptions) *shadow {
	o.MaxCalls = cmp.Or(o.MaxCalls, DefaultShadowCalls)
	o.MaxBody = cmp.Or(o.MaxBody, DefaultShadowBody)
	return &shadow{
		opts: o, tap: tap, inspector: i, operation: i.Operation().Name, window: cmp.Or(i.Operation().Window, semel.DefaultWindow),
		calls: map[[32]byte]*list.Element{}, order: list.New(), keys: map[string]int64{}, since: time.Now(),
	}
}

func (s *shadow) counts() ShadowCounts {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.found
}

// serve passes every request, and reports afterwards.
func (s *shadow) serve(w http.ResponseWriter, r *http.Request, pass http.HandlerFunc) {
	if !s.inspector.Guards(r) {
		pass(w, r)
		return
	}
	ctx := s.tap.Arrived(r.Context(), Name, r.Header)
	if ctx != r.Context() {
		r = r.WithContext(ctx) // forwarding is part of the delivery
	}
	var report shadowReport
	sw := &statusWriter{ResponseWriter: w, inspector: s.inspector}
	whole, complete := s.early(r)
	if !complete {
		report.verdict = NotCompared
		defer func() { s.report(ctx, &report, sw) }()
		pass(sw, r)
		return
	}
	who, code := s.inspector.ID(r, whole)
	if code == door.CodeKeyMissing && s.inspector.KeyOptional() {
		pass(w, r)
		return
	}
	if code != "" {
		report.verdict, report.code = WouldRefuse, code
		defer func() { s.report(ctx, &report, sw) }()
		pass(sw, r)
		return
	}
	digest, boundTo := who.ID.Digest(), who.BoundTo
	report.call, report.by = hex.EncodeToString(digest[:16]), who.By
	call, first := s.begin(digest, boundTo)
	body := &copying{ReadCloser: r.Body, limit: s.opts.MaxBody}
	if r.Body != nil && r.Body != http.NoBody {
		r.Body = body
	}
	// Even if the answer breaks off, which is a panic.
	defer func() {
		var fp semel.Fingerprint
		if !body.over {
			fp = s.inspector.Fingerprint(r, body.data)
		}
		if first || call.boundTo == boundTo && !who.Unproved {
			report.verdict = s.end(call, first, fp, body.over, !sw.again)
		} else {
			report.verdict = s.other(call)
		}
		if first && sw.status >= 400 && sw.status < 500 {
			s.refuse(call)
		}
		s.report(ctx, &report, sw)
	}()
	pass(sw, r)
}

// early reads the body before the request is passed on, if the key may be in it. A larger body
// is incomplete here, but all of it is passed on in any case.
func (s *shadow) early(r *http.Request) (body []byte, complete bool) {
	if !s.inspector.KeyInBody() || r.Body == nil || r.Body == http.NoBody {
		return nil, true
	}
	rest := r.Body
	body, err := io.ReadAll(io.LimitReader(rest, int64(s.opts.MaxBody)+1))
	r.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(body), rest), rest}
	return body, err == nil && len(body) <= s.opts.MaxBody
}

// begin finds the call or remembers it as running.
func (s *shadow) begin(digest [32]byte, boundTo string) (c *shadowCall, first bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e, ok := s.calls[digest]; ok {
		c = e.Value.(*shadowCall)
		free := c.refused && c.boundTo != boundTo // nothing happened: another caller starts afresh
		if c.inFlight || time.Since(c.ended) < s.window && !free {
			return c, false
		}
		s.forget(e)
	}
	for len(s.calls) >= s.opts.MaxCalls {
		s.forget(s.order.Front())
	}
	c = &shadowCall{digest: digest, boundTo: boundTo, inFlight: true}
	s.calls[digest] = s.order.PushBack(c)
	return c, true
}

func (s *shadow) forget(e *list.Element) {
	s.order.Remove(e)
	delete(s.calls, e.Value.(*shadowCall).digest)
}

// end judges a delivery after its answer.
func (s *shadow) end(c *shadowCall, first bool, fp semel.Fingerprint, large, kept bool) Verdict {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case first:
		c.print, c.known, c.large = fp, !large, large
		c.inFlight, c.ended = false, time.Now()
		if e, ok := s.calls[c.digest]; ok && e.Value == c && !kept {
			s.forget(e) // the next delivery would run
		}
		return WouldExecute
	case large || c.large:
		return NotCompared
	case c.known && c.print != fp:
		return WouldConflict
	case c.inFlight:
		return WouldWait
	}
	return WouldReplay
}

// other judges a delivery with another credential than the call's.
func (s *shadow) other(c *shadowCall) Verdict {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.inFlight {
		return WouldWait
	}
	return WouldOther
}

func (s *shadow) refuse(c *shadowCall) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c.refused = true
}

func (s *shadow) report(ctx context.Context, report *shadowReport, w *statusWriter) {
	s.mu.Lock()
	switch report.verdict {
	case WouldExecute:
		s.found.Execute++
	case WouldReplay:
		s.found.Replay++
	case WouldWait:
		s.found.InFlight++
	case WouldConflict:
		s.found.Conflict++
	case WouldOther:
		s.found.OtherCaller++
	case WouldRefuse:
		s.found.Refuse++
	default:
		s.found.Unknown++
	}
	if report.by != "" {
		s.keys[report.by]++
	}
	found, keys, due := s.found, maps.Clone(s.keys), time.Since(s.since) >= summaryEvery
	if due {
		s.since = time.Now()
	}
	s.mu.Unlock()
	if !s.tap.Listens() {
		return
	}
	e := report.event(s.operation, w.status)
	if due {
		e.Attrs = append(e.Attrs, slog.Any("would", found), slog.Any("keys", keys))
	}
	s.tap.Answered(ctx, e)
}

// summaryEvery is how often an event sums up the findings since the start: with the first
// request after that time.
const summaryEvery = 24 * time.Hour

// copying keeps a copy of whatever part of a body was read.
type copying struct {
	io.ReadCloser
	data  []byte
	limit int
	over  bool
}

func (c *copying) Read(p []byte) (int, error) {
	n, err := c.ReadCloser.Read(p)
	switch {
	case c.over:
	case len(c.data)+n > c.limit:
		c.over, c.data = true, nil
	default:
		c.data = append(c.data, p[:n]...)
	}
	return n, err
}

// statusWriter records the status, and whether the next delivery would run.
type statusWriter struct {
	http.ResponseWriter
	inspector *semelhttp.Inspector
	status    int
	again     bool
}

func (w *statusWriter) WriteHeader(status int) {
	if status >= 200 && w.status == 0 {
		w.status, w.again = status, w.inspector.RunsAgain(status, w.Header())
	}
	w.ResponseWriter.WriteHeader(status)
}

// Unwrap lets [http.ResponseController] do the rest.
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
