package benchinbox

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"runtime"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door"
	"github.com/semelhq/semel/protocol/activitypub"
	"github.com/semelhq/semel/store"
	"github.com/semelhq/semel/store/memstore"
)

const (
	path      = "/actors/alice/inbox/"
	mediaType = "application/activity+json"
)

// logging has the lines of an inbox written, to nowhere, because an answer waits for its
// line.
func logging() *semel.Options {
	write := door.Log(slog.New(slog.NewJSONHandler(io.Discard, nil)))
	return &semel.Options{Events: &semel.Events{Answered: write, Troubled: write}}
}

// newInbox makes the inbox of one actor.
func newInbox(engine *semel.Engine, budget time.Duration) (*activitypub.Inbox, error) {
	return activitypub.New(engine, activitypub.Options{
		Tenant: "bench", Actors: "https://here.example/actors/{actor}", Budget: budget,
		Exists:   func(_ context.Context, actor string) (bool, error) { return actor == "alice", nil },
		Policies: activitypub.Policies{{Host: "*", Unsigned: true}},
		Handle:   func(context.Context, *activitypub.Activity) error { return nil },
	})
}

// drafts make the records that an inbox leaves, by having one take the activities on a
// memory store.
type drafts struct {
	body func(b []byte, i int) []byte // appends the i-th activity
	free chan *draft                  // nil for one that isn't made yet
}

// draft is such an inbox, used by one goroutine at a time.
type draft struct {
	store  *memstore.Store
	engine *semel.Engine
	inbox  *activitypub.Inbox
	made   int
	taken  *semel.Record
	buf    []byte
}

// draftSize is how many records a draft makes, so that its memory stays small.
const draftSize = 1000

// draftBudget never matters, unless the machine is very busy.
const draftBudget = time.Minute

func newDrafts(body func(b []byte, i int) []byte) *drafts {
	n := runtime.GOMAXPROCS(0)
	d := &drafts{body: body, free: make(chan *draft, n)}
	for range n {
		d.free <- nil
	}
	return d
}

// record is that of the i-th activity after it was taken and handled: completed, with an
// outbox message that is delivered.
func (ds *drafts) record(ctx context.Context, i int) (rec semel.Record, err error) {
	d := <-ds.free
	defer func() { ds.free <- d }()
	if d == nil || d.made >= draftSize {
		if err := d.close(); err != nil {
			return rec, err
		}
		if d, err = newDraft(); err != nil {
			return rec, err
		}
	}
	d.made++
	d.buf = ds.body(d.buf[:0], i)
	return d.record(ctx)
}

// close ends the drafts. None is in use.
func (ds *drafts) close() (err error) {
	for range cap(ds.free) {
		if d := <-ds.free; err == nil {
			err = d.close()
		}
	}
	return err
}

func newDraft() (d *draft, err error) {
	d = &draft{store: memstore.New()}
	if d.engine, err = semel.New(d.store, logging()); err != nil {
		return nil, err
	}
	d.engine.Door().SetDispatcher(func(rec *semel.Record) { d.taken = rec })
	d.inbox, err = newInbox(d.engine, draftBudget)
	return d, err
}

func (d *draft) record(ctx context.Context) (rec semel.Record, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, path, bytes.NewReader(d.buf))
	if err != nil {
		return rec, err
	}
	r.Header.Set("Content-Type", mediaType)
	d.taken = nil
	w := &discard{header: http.Header{}}
	d.inbox.ServeHTTP(w, r)
	if w.status != http.StatusAccepted || d.taken == nil || len(d.taken.Outbox) != 1 {
		return rec, fmt.Errorf("an activity to fill the store with got %d", w.status)
	}
	return d.engine.Door().SettleMessage(ctx, d.taken.ID, d.taken.Outbox[0].ID, store.MessageFinding{State: store.MessageDelivered})
}

func (d *draft) close() error {
	if d == nil {
		return nil
	}
	if err := d.engine.Close(context.Background()); err != nil {
		return err
	}
	return d.store.Close()
}

// discard keeps only the status of an answer.
type discard struct {
	header http.Header
	status int
}

func (w *discard) Header() http.Header         { return w.header }
func (w *discard) Write(p []byte) (int, error) { return len(p), nil }
func (w *discard) WriteHeader(status int)      { w.status = status }
