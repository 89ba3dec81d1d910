package mcp

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"hash/maphash"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door"
	"github.com/semelhq/semel/door/semelhttp"
	"github.com/semelhq/semel/door/semelproxy"
	"github.com/semelhq/semel/internal/canon"
	"github.com/semelhq/semel/store"
)

// grace is how long a call waits beside an equal one that is being answered, for news that the
// other's client is gone: its reset and its next request travel on two connections.
const grace = 500 * time.Millisecond

// mostEqual is how many equal calls without a key may lack a known delivery. Each of them rewrites
// the list, so without a bound a caller could make its calls ever more expensive. The list has
// about 100 bytes for each.
const mostEqual = 100

// echoOperation is the operation of the cells that have the calls without a known delivery.
const echoOperation = store.ReservedPrefix + "mcp.echo"

// echoes recognise the repetition of a call that has neither a key nor declared fields: the same
// caller, tool and arguments, while the first call has lost its client, or its answer didn't
// arrive. Two equal calls beside each other, or after an answer that arrived, are two calls.
//
// A cell of the store, one for each caller, tool and arguments, lists the calls that aren't known
// to be delivered, so that all gateways agree. What this process knows of its own streams is
// newer, and in memory.
type echoes struct {
	engine  *semel.Engine
	window  time.Duration
	process string
	count   atomic.Int64 // of the streams of this process

	seed  maphash.Seed
	turns [256]sync.Mutex // by cell: calls of this process change it one after another

	mu      sync.Mutex
	streams map[string]*stream // by the key of the call
}

// undelivered is the recorded form of a cell.
type undelivered struct {
	Form  int        `json:"mcp"`
	Calls []echoCall `json:"calls"`
}

// echoCall is a call that isn't known to be delivered.
type echoCall struct {
	Key  string        `json:"key"`            // the engine's
	By   string        `json:"by"`             // the stream that answers it, which begins with its process
	Lost store.Instant `json:"lost,omitempty"` // when it was found that the answer didn't arrive
}

// stream is the answer to a call, as far as this process knows.
type stream struct {
	*echoes
	id    store.ID      // of the cell
	keep  time.Duration // how long the cell stays after a write
	key   string
	name  string
	paid  bool      // for a new entry in the cell
	lost  time.Time // when its client was gone
	sent  time.Time // when its last byte was
	ended time.Time // when the call was over; zero: it may be running

	delivery *semelproxy.Delivery // since it was sent
}

func newEchoes(engine *semel.Engine, window time.Duration) *echoes {
	return &echoes{engine: engine, window: window, process: rand.Text(), seed: maphash.MakeSeed(), streams: map[string]*stream{}}
}

// callerOf tells callers apart, and by their networks if they show nothing at all. One mustn't get
// the answer of another because they happened to ask for the same.
func callerOf(who *semelhttp.Caller) []string {
	if who.Principal == "" && who.Credential == "" {
		return []string{"", "", who.Network.String()}
	}
	return []string{who.Principal, who.Credential, ""}
}

// cellOf is the cell of a call.
func cellOf(call *semel.Call, who *semelhttp.Caller) store.ID {
	b := canon.FrameList(nil, slices.Concat([]string{call.Operation}, callerOf(who), []string{call.Scope}))
	b, _ = call.Fingerprint.AppendBinary(b) // doesn't fail
	sum := sha256.Sum256(b)
	return store.ID{Tenant: call.Tenant, Operation: echoOperation, Key: hex.EncodeToString(sum[:])}
}

// errUnclear means that it isn't known yet whether a call is a repetition.
var errUnclear = errors.New("mcp: an equal call is being answered")

// admit gives a call its key: that of the call that it repeats, or its own, which is new. Whoever may
// begin no new call by the quotas leaves no entry: the engine would refuse the call. Only one that a
// person has confirmed may be older, and goes on without an entry, because its token has its key: the
// stream is nil then.
//
// A crash before the cell is written leaves nothing. A crash after it leaves an entry without a
// record: the next equal call takes it, and runs.
func (e *echoes) admit(ctx context.Context, call semel.Call, op *semel.Operation, who *semelhttp.Caller, longest time.Duration) (s *stream, repeats bool, err error) {
	came := time.Now()
	now, err := e.engine.Internal().Store().Now(ctx)
	if err != nil {
		return nil, false, &semel.Error{Code: semel.CodeStoreUnavailable, Err: err}
	}
	s = &stream{echoes: e, id: cellOf(&call, who), keep: longest + op.Window, name: e.process + "-" + strconv.FormatInt(e.count.Add(1), 10)}
	turn := &e.turns[maphash.String(e.seed, s.id.Key)%uint64(len(e.turns))]
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, grace/2) {
		look := looking{s, ctx, call, op.Share, came, now, time.Since(came) >= grace}
		turn.Lock()
		repeats, err = look.take()
		turn.Unlock()
		if call.Confirm != "" && errors.Is(err, &semel.Error{Code: semel.CodeThrottled}) {
			return nil, false, nil
		}
		if !errors.Is(err, errUnclear) {
			return s, repeats, err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil, false, &semel.Error{Code: semel.CodeStoreUnavailable, Err: ctx.Err()}
		}
	}
}

// looking is one look at the calls that are equal to one that came.
type looking struct {
	*stream // of that one
	ctx     context.Context
	call    semel.Call
	share   semel.Share
	came    time.Time
	now     store.Instant // at the same time
	patient bool          // it has waited as long as it should
}

// take takes the first call that wasn't delivered, or adds one, in one step.
func (l *looking) take() (repeats bool, err error) {
	// A client that leaves doesn't end the write: nobody would know of a stream that was written.
	err = store.NewCell(l.engine.Internal().Store(), l.id).Change(context.WithoutCancel(l.ctx), func(old store.CellValue) (store.CellValue, error) {
		before, err := readUndelivered(old.Data)
		if err != nil {
			return store.CellValue{}, err
		}
		v := undelivered{Form: form}
		best, at := beside, -1
		for _, c := range before.Calls {
			how := l.judge(&c)
			if how == over {
				continue
			}
			if how > best {
				best, at = how, len(v.Calls)
			}
			v.Calls = append(v.Calls, c)
		}
		switch best {
		case doubtful:
			return store.CellValue{}, errUnclear
		case beside:
			if at = len(v.Calls); at == mostEqual {
				return store.CellValue{}, &semel.Error{Code: door.CodeOverloaded, Message: "too many equal calls without a key are waiting for their answers"}
			}
			if err := l.pay(); err != nil {
				return store.CellValue{}, err
			}
			v.Calls = append(v.Calls, echoCall{Key: l.call.Key})
		}
		c := &v.Calls[at]
		l.key, c.By, c.Lost = c.Key, l.name, 0
		return v.cell(l.keep), nil
	})
	if err != nil {
		return false, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.streams[l.key] = l.stream
	return l.key != l.call.Key, nil
}

// pay pays for a new entry, once, however often the cell changes meanwhile.
func (l *looking) pay() (err error) {
	if !l.paid {
		err = l.engine.Internal().Afford(l.ctx, &l.call, l.share, int64(len(l.call.Key)+len(l.name)))
		l.paid = err == nil
	}
	return err
}

// heard takes note of whether the answer arrived. Entry and memory go if it did.
//
// A crash before the cell is written, or an engine that is closed by then, leaves an entry of a
// process that is gone: the record says when the call ended, and within the window the next equal
// call repeats it.
func (s *stream) heard(arrived bool) {
	s.mu.Lock()
	current := s.streams[s.key] == s && s.lost.IsZero()
	if current && arrived {
		delete(s.streams, s.key)
	} else if current {
		s.lost = time.Now()
	}
	s.mu.Unlock()
	if !current {
		return // another delivery has taken the call
	}
	// News may come after a reload has closed the gateway: the client goes on by its connection.
	s.engine.Internal().Background(func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.window)
		defer cancel()
		st := s.engine.Internal().Store()
		now, err := st.Now(ctx)
		if err == nil {
			err = store.NewCell(st, s.id).Change(ctx, func(old store.CellValue) (store.CellValue, error) {
				v, err := readUndelivered(old.Data)
				i := slices.IndexFunc(v.Calls, func(c echoCall) bool { return c.By == s.name })
				switch {
				case err != nil:
					return store.CellValue{}, err
				case i < 0 || !arrived && v.Calls[i].Lost != 0:
					return store.CellValue{}, errUnclear // nothing is left to say
				case arrived:
					v.Calls = slices.Delete(v.Calls, i, i+1)
				default:
					v.Calls[i].Lost = now
				}
				return v.cell(s.keep), nil
			})
		}
		if err != nil && !errors.Is(err, errUnclear) {
			s.engine.Internal().Troubled(door.Trouble(Name, err, slog.LevelWarn, "delivery not recorded"))
		}
	})
}

// finished says that the call is over, and, if it has an outcome, that the last byte of that was
// sent. One without counts as lost: a refusal isn't the answer. Memory has the call as long as it
// may be repeated.
func (s *stream) finished(outcome bool, d *semelproxy.Delivery) {
	if !outcome {
		s.heard(false)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended = time.Now(); outcome {
		s.sent, s.delivery = s.ended, d
	}
	time.AfterFunc(s.window, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.streams[s.key] == s {
			delete(s.streams, s.key)
		}
	})
}

// readUndelivered reads a cell. A form of a later version is refused, and never written over.
func readUndelivered(data []byte) (v undelivered, err error) {
	if data == nil {
		return undelivered{Form: form}, nil
	}
	if json.Unmarshal(data, &v) != nil || v.Form != form {
		return v, &semel.Error{Code: semel.CodeUnsupported, Message: "the calls without a known delivery have a form that this version doesn't read"}
	}
	return v, nil
}

// cell is the value for a cell; an empty list removes it.
func (v *undelivered) cell(keep time.Duration) store.CellValue {
	if len(v.Calls) == 0 {
		return store.CellValue{}
	}
	data, _ := json.Marshal(v) // strings and numbers
	return store.CellValue{Data: data, KeepFor: keep}
}
