package api

import (
	"bytes"
	"encoding/json"
	"net/http"
	"reflect"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/wire"
)

type streamInput struct {
	LastEventID string `header:"Last-Event-ID" doc:"Goes on after this event." maxLength:"20" pattern:"^[0-9]+$"`
	Operation   string `query:"operation" maxLength:"256" doc:"Only events about this operation."`
	Tenant      string `query:"tenant" maxLength:"256" doc:"Only events about this tenant."`
}

type streamOutput struct {
	Type string `header:"Content-Type"`
	Node string `header:"Semel-Node" doc:"The node that answers, by the name that records have for it."`
	Body func(huma.Context)
}

func (b *builder) decisionStream() {
	schemas := b.huma.OpenAPI().Components.Schemas
	var kinds []*huma.Schema
	for _, kind := range []struct {
		name string
		data reflect.Type
	}{
		{"decided", reflect.TypeFor[wire.DecidedEvent]()}, {"ended", reflect.TypeFor[wire.EndedEvent]()}, {"purged", reflect.TypeFor[wire.PurgedEvent]()},
		{"lease_lost", reflect.TypeFor[wire.LeaseLostEvent]()}, {"gap", reflect.TypeFor[wire.GapEvent]()},
	} {
		kinds = append(kinds, &huma.Schema{
			Title: "Event " + kind.name, Type: huma.TypeObject, Required: []string{"event", "data"},
			Properties: map[string]*huma.Schema{
				"id":    {Type: huma.TypeInteger, Description: "The event's number. A gap has none."},
				"event": {Type: huma.TypeString, Enum: []any{kind.name}},
				"data":  schemas.Schema(kind.data, true, ""),
			},
		})
	}
	op := about("streamDecisions", "decisions", "GET /v1/decisions", "Follow what the answering node decides",
		"Server-sent events. Last-Event-ID goes on after an event; the last "+strconv.Itoa(ringSize)+" are kept, and the event gap says that some were lost. "+
			"A reader that is too slow is cut off.")
	op.Responses = map[string]*huma.Response{"200": {
		Description: "The stream, which does not end by itself.",
		Content: map[string]*huma.MediaType{"text/event-stream": {Schema: &huma.Schema{
			Type: huma.TypeArray, Description: "Each item is one event, written as the HTML standard says.", Items: &huma.Schema{OneOf: kinds},
		}}},
	}}
	route(b, op, Viewer, nil, openStream)
}

func openStream(x *exchange, in *streamInput) (*streamOutput, error) {
	tenant, err := x.tenantOf(in.Tenant, "events")
	if err != nil {
		return nil, err
	}
	s := &stream{x: x, operation: in.Operation}
	if tenant != "" || x.tenant() != nil {
		s.tenant = &tenant
	}
	if in.LastEventID != "" {
		last, err := strconv.ParseInt(in.LastEventID, 10, 64)
		if err != nil {
			return nil, x.api.invalid("header.Last-Event-ID", "there can't be an event with this number")
		}
		s.last, s.resumes = last, true
	}
	return &streamOutput{"text/event-stream", x.api.engine.Internal().Node(), func(huma.Context) { s.run() }}, nil
}

type stream struct {
	x         *exchange
	tenant    *string // nil: all
	operation string  // empty: all
	last      int64   // the last event that the reader had
	resumes   bool
}

// run writes events until the reader goes away or is too slow, or the API closes.
func (s *stream) run() {
	ring := &s.x.api.observer.ring
	wake, leave, newest := ring.join()
	defer leave()
	if !s.resumes {
		s.last = newest
	}
	s.x.w.WriteHeader(http.StatusOK)
	if !s.write([]byte(": the stream of decisions\n\n")) {
		return
	}
	heartbeat := time.NewTicker(s.x.api.opts.bounds.heartbeat)
	defer heartbeat.Stop()
	events := make([]event, 0, 256)
	for {
		var next int64
		var gap bool
		events, next, gap = ring.after(s.last, events[:0])
		if text := s.text(events, next, gap); len(text) > 0 && !s.write(text) {
			return
		}
		if len(events) == cap(events) {
			continue // there may be more
		}
		select {
		case <-wake:
		case <-heartbeat.C:
			if !s.write([]byte(": still here\n\n")) {
				return
			}
		case <-s.x.ctx().Done():
			return
		case <-s.x.api.closing:
			return
		}
	}
}

// text encodes the events that the reader wants, and advances the reader.
func (s *stream) text(events []event, next int64, gap bool) []byte {
	var b bytes.Buffer
	if gap {
		put(&b, 0, "gap", wire.GapEvent{After: s.last, Next: next})
		s.last = next - 1
	}
	for i := range events {
		ev := &events[i]
		s.last = ev.seq
		if s.wants(ev) {
			put(&b, ev.seq, ev.kind, ev.data())
		}
	}
	return b.Bytes()
}

// wants reports whether the event is for this reader. Only readers who see all tenants
// get a purge of many records.
func (s *stream) wants(ev *event) bool {
	if ev.kind == erasedKind || s.operation != "" && ev.id.Operation != s.operation {
		return false
	}
	if ev.id == (semel.ID{}) {
		return s.tenant == nil
	}
	return s.tenant == nil || *s.tenant == ev.id.Tenant
}

func (s *stream) write(text []byte) bool {
	c := http.NewResponseController(s.x.w)
	_ = c.SetWriteDeadline(time.Now().Add(s.x.api.opts.bounds.streamTime)) // a writer without deadlines has no connection
	_, err := s.x.w.Write(text)
	return err == nil && c.Flush() == nil
}

func put(b *bytes.Buffer, seq int64, kind string, data any) {
	text, err := json.Marshal(data)
	if err != nil {
		panic(err) // strings, numbers and times always have a JSON form
	}
	if seq > 0 {
		b.WriteString("id: " + strconv.FormatInt(seq, 10) + "\n")
	}
	b.WriteString("event: " + kind + "\ndata: ")
	b.Write(text)
	b.WriteString("\n\n")
}

func (ev *event) data() any {
	record, tenant, operation := "", ev.id.Tenant, ev.id.Operation
	if ev.id != (semel.ID{}) {
		record = ev.id.Encode()
	}
	of := func(attempt int, fence int64) wire.OfAttempt {
		return wire.OfAttempt{Record: record, Tenant: tenant, Operation: operation, Attempt: attempt, Fence: fence}
	}
	switch ev.kind {
	case "decided":
		e := &ev.decided
		return wire.DecidedEvent{
			OfAttempt: of(e.Attempt, e.Fence), Decision: string(e.Decision), Status: e.State.String(), RetryAfter: e.RetryAfter.Milliseconds(),
			Limit: string(e.Limit), Waited: e.Waited.Milliseconds(), At: e.At,
		}
	case "ended":
		e := &ev.ended
		return wire.EndedEvent{
			OfAttempt: of(e.Attempt, e.Fence), Disposition: e.Disposition.String(), Held: e.Held, HeldReason: e.HeldReason,
			Took: e.Took.Milliseconds(), By: e.By, Reason: e.Reason, At: e.At,
		}
	case "lease_lost":
		reason := "the lease was lost"
		if e, ok := ev.lost.Err.(*semel.Error); ok && e.Message != "" {
			reason = e.Message
		}
		return wire.LeaseLostEvent{OfAttempt: of(ev.lost.Attempt, ev.lost.Fence), Reason: reason, At: ev.at.UTC()}
	case "purged":
		e := ev.purged
		return wire.PurgedEvent{Count: e.Count, Record: record, Tenant: tenant, Operation: operation, By: e.By, Reason: e.Reason, At: ev.at.UTC()}
	}
	panic("api: an event of an unknown kind")
}
