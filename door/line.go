package door

import (
	"context"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/seldom"
	"github.com/semelhq/semel/store"
)

// EventOf returns the event of an answer for Answered of [semel.Events], filled in from the
// engine's decision; empty if there is none. The door fills in the rest.
func EventOf(ans *semel.Answer) semel.Delivered {
	if ans == nil {
		return semel.Delivered{}
	}
	e := semel.Delivered{Decision: ans.Decision, Limit: ans.Limit}
	if rec := ans.Record; rec != nil { // a rolled-back transaction leaves none
		e.ID, e.Attempt, e.Executed = rec.ID, rec.Attempt, rec.Attributes[store.AttributeTrace]
	}
	return e
}

// Traced returns the header of a request as an upstream gets it for a delivery with this trace
// context; see [semel.Internal.Trace]. It doesn't change header itself.
func Traced(header http.Header, trace string) http.Header {
	if trace == "" {
		return header
	}
	out := maps.Clone(header)
	out["Traceparent"] = []string{trace}
	return out
}

// Delivered is the message of the line that [Log] writes about each delivery.
const Delivered = "delivery"

// Log observes the doors' events, and writes a line about each answered delivery, and one about
// each error that no caller gets. The lines of deliveries, whatever the door, have the message
// [Delivered] and the attributes
//
//	door operation decision record attempt tenant code limit status request_id trace_id
//	executed_trace_id took took_seconds error
//
// in this order, and after them the door's own. An unknown attribute is empty, or zero. There
// are no keys, principals and payloads: record has a digest of the identity, which you can
// search for.
//
// Outcomes are logged at the level given. A refusal is logged at INFO, even of a credential; at
// WARN if somebody should look at it, such as a conflict or a held call; and at ERROR only if
// this program is at fault.
//
// A client can make a conflict or meet a held call as often as it likes. So an operation gets
// one such line a minute at WARN: the first has that level, the others have the level of
// outcomes, and a line with the message [Refused] counts them.
func Log(log *slog.Logger, level slog.Level) *semel.Events {
	repeated := seldom.New(warnEvery, func(e refused, count int) {
		log.LogAttrs(context.Background(), slog.LevelWarn, Refused, slog.String("door", e.door), slog.String("operation", e.id.Operation), slog.String("decision", string(e.decision)),
			slog.Int("count", count), slog.String("record", e.id.String()), slog.String("tenant", e.id.Tenant))
	})
	return &semel.Events{
		Answered: func(e semel.Delivered) { logDelivery(log, level, &e, repeated) },
		Troubled: func(e semel.Troubled) {
			if e.Note != "" {
				log.LogAttrs(context.Background(), levelOf(&e.Line, slog.LevelInfo), e.Note, e.Attrs...)
			}
		},
	}
}

// Refused is the message of the line that counts further deliveries of an operation with the
// same refusal, after the one that had a line at WARN. It has the attributes
//
//	door operation decision count record tenant
//
// The last two are the newest delivery's.
const Refused = "more deliveries refused"

// warnEvery is how often there is a WARN about one operation's conflicts: alerts look at the
// metric, and people want to see that conflicts go on.
const warnEvery = time.Minute

// refused is the subject of a line about a delivery that was neither executed nor replayed.
type refused struct {
	door     string
	decision semel.Decision
	id       semel.ID
}

func logDelivery(log *slog.Logger, outcomes slog.Level, e *semel.Delivered, repeated *seldom.Teller[refused]) {
	ctx := e.Context
	if ctx == nil {
		ctx = context.Background()
	}
	level := LevelOf(e, outcomes)
	if e.Decision == semel.Conflict || e.Decision == semel.Held {
		if !repeated.First(strings.Join([]string{e.Door, e.ID.Operation, string(e.Decision)}, " "), refused{e.Door, e.Decision, e.ID}) {
			level = outcomes
		}
	}
	level = levelOf(&e.Line, level)
	if !log.Enabled(ctx, level) {
		return
	}
	var room [16]slog.Attr
	attrs := append(append(room[:0], DeliveryAttrs(e)...), e.Attrs...)
	if e.Note != "" {
		attrs = append(attrs, slog.String("note", e.Note))
	}
	log.LogAttrs(ctx, level, Delivered, attrs...)
}

// DeliveryAttrs returns the attributes that the line of each delivery has, in order.
func DeliveryAttrs(e *semel.Delivered) []slog.Attr {
	var record, text string
	if e.ID.Key != "" {
		record = e.ID.String()
	}
	if e.Err != nil {
		text = e.Err.Error()
	}
	trace, request := e.Trace, e.Request
	if trace == "" {
		trace = header(e, "Traceparent")
	}
	for _, name := range []string{"X-Request-Id", "X-Correlation-Id"} {
		if request == "" {
			request = header(e, name)
		}
	}
	return []slog.Attr{
		slog.String("door", e.Door), slog.String("operation", e.ID.Operation), slog.String("decision", string(e.Decision)),
		slog.String("record", record), slog.Int("attempt", e.Attempt), slog.String("tenant", e.ID.Tenant),
		slog.String("code", string(e.Code)), slog.String("limit", string(e.Limit)), slog.Int("status", e.Status),
		slog.String("request_id", request[:min(len(request), maxRequestID)]), slog.String("trace_id", traceID(trace)), slog.String("executed_trace_id", traceID(e.Executed)),
		slog.String("took", e.Took.Round(time.Microsecond).String()), slog.Float64("took_seconds", e.Took.Seconds()), slog.String("error", text),
	}
}

// maxRequestID bounds what a caller can write into the log, in bytes.
const maxRequestID = 128

// header returns the first value of a header of the request.
func header(e *semel.Delivered, name string) string {
	if values := e.Header[name]; len(values) > 0 {
		return values[0]
	}
	return ""
}

// traceID returns the id in a W3C traceparent; empty if it has none.
func traceID(traceparent string) string {
	version, rest, _ := strings.Cut(traceparent, "-")
	id, _, _ := strings.Cut(rest, "-")
	if len(version) != 2 || len(id) != 32 || strings.Trim(id, "0123456789abcdef") != "" || strings.Trim(id, "0") == "" {
		return ""
	}
	return id
}

// LevelOf returns the level of the line about a delivery, given the level of outcomes.
func LevelOf(e *semel.Delivered, outcomes slog.Level) slog.Level {
	switch m, known := Lookup(e.Code); {
	case e.Decision == semel.Conflict, e.Decision == semel.Held:
		return slog.LevelWarn
	case e.Code == "" && e.Err == nil:
		return outcomes
	case e.Code == CodeInternal:
		return slog.LevelError
	case e.Code == "", e.Code == semel.CodeUnknown, known && m.Status >= 500:
		return slog.LevelWarn
	}
	return max(outcomes, slog.LevelInfo)
}

// levelOf returns the level of a line: its own, or else the usual one.
func levelOf(line *semel.Line, usual slog.Level) slog.Level {
	if line.Level == nil {
		return usual
	}
	return line.Level.Level()
}

// Trouble returns the event for an error that no caller of a door gets, for Troubled of
// [semel.Events]. Its log line has the message note and, after the attributes given, the error.
func Trouble(door string, err error, level slog.Level, note string, attrs ...slog.Attr) semel.Troubled {
	attrs = append(slices.Clip(attrs), slog.Any("error", err))
	return semel.Troubled{Door: door, Err: err, Line: semel.Line{Level: level, Note: note, Attrs: attrs}}
}

// NotRecorded is the [Trouble] of an outcome that isn't recorded yet, or of a call about which
// nothing could be decided or found out.
func NotRecorded(door string, err error) semel.Troubled {
	return Trouble(door, err, slog.LevelError, "not recorded")
}
