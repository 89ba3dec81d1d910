package service

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/service/auth"
	"github.com/semelhq/semel/internal/service/config"
	"github.com/semelhq/semel/store"
	"github.com/semelhq/semel/store/memstore"
	"github.com/semelhq/semel/store/pebblestore"
)

// ofStore is a server that has nothing but a store, to ask it for its readiness.
func ofStore(t *testing.T, st semel.Store) *Server {
	t.Helper()
	e, err := semel.New(st, &semel.Options{Operations: []semel.Operation{{Name: "op"}, {Name: "other"}}})
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{store: st, engine: e, gen: &generation{cfg: &config.Config{Admin: config.Admin{Address: "127.0.0.1:0"}}, auth: &auth.Authenticator{}, adminToken: &auth.Authenticator{}}}
	s.reading.Store(&durabilityReading{})
	return s
}

func (s *Server) wantReady(t *testing.T, want int, says string) {
	t.Helper()
	w := httptest.NewRecorder()
	s.ready(w, httptest.NewRequestWithContext(t.Context(), "GET", "/readyz?verbose", nil))
	if w.Code != want || !strings.Contains(w.Body.String(), says) {
		t.Errorf("%d %s, want %d with %q", w.Code, w.Body, want, says)
	}
}

// A disk that hangs lets everything be read and nothing be written. The node gets no calls as
// soon as callers have waited in vain, also when none comes any more, and until a write is
// answered. A restart would not help.
func TestANodeWhoseDiskHangsIsNotReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var gate atomic.Pointer[chan struct{}] // where syncs of the log hang
		disk := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
			switch op.Kind {
			case errorfs.OpFileSync, errorfs.OpFileSyncData, errorfs.OpFileSyncTo:
				if shut := gate.Load(); shut != nil && strings.HasSuffix(op.Path, ".log") {
					<-*shut
				}
			default:
			}
			return nil
		}))
		st, err := pebblestore.Open("store", &pebblestore.Options{FS: disk})
		if err != nil {
			t.Fatal(err)
		}
		defer st.Close()
		s := ofStore(t, st)
		defer s.engine.Close(context.Background())
		s.wantReady(t, http.StatusOK, "[+] writes ok")
		hangs := make(chan struct{})
		gate.Store(&hangs)
		if _, err := s.engine.Begin(t.Context(), semel.Call{Operation: "op", Key: "k"}); err == nil {
			t.Error("a call begins on a disk that hangs")
		}
		<-time.After(time.Second)
		s.wantReady(t, http.StatusServiceUnavailable, "[-] writes: the store has answered no write for 6s")
		<-time.After(time.Hour)
		s.wantReady(t, http.StatusServiceUnavailable, "[-] writes")
		if !s.Healthy() {
			t.Error("the watchdog would restart the node")
		}
		gate.Store(nil)
		close(hangs)
		synctest.Wait()
		s.wantReady(t, http.StatusOK, "[+] writes ok")
	})
}

// crowded is a store whose probes get no turn.
type crowded struct {
	semel.Store
	answering bool // others are answered
}

func (c *crowded) Extras() store.Extras { return store.Extras{Queues: c, Writes: c} }

func (c *crowded) Queues() []store.QueueState {
	q := store.QueueState{Name: "writes"}
	if c.answering {
		q.Answered = time.Now()
	}
	return []store.QueueState{{Name: "reads", Answered: q.Answered}, q}
}

func (c *crowded) Get(ctx context.Context, _ semel.ID) (*semel.Record, error) {
	return nil, c.CheckWrites(ctx)
}

func (c *crowded) CheckWrites(ctx context.Context) error {
	<-ctx.Done()
	return fmt.Errorf("asked: %w", ctx.Err())
}

// Under load a probe is one of many, and may not get its turn in time. The node is ready as
// long as others do.
func TestANodeUnderLoadIsReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := &crowded{Store: memstore.New(), answering: true}
		s := ofStore(t, st)
		defer s.engine.Close(context.Background())
		began := time.Now()
		s.wantReady(t, http.StatusOK, "[!] store: ; busy")
		if took := time.Since(began); took != probeTime {
			t.Errorf("to ask took %v", took)
		}
		st.answering = false
		s.wantReady(t, http.StatusServiceUnavailable, "[-] store")
		s.wantReady(t, http.StatusServiceUnavailable, "[-] writes")
	})
}
