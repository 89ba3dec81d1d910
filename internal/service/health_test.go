package service

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store"
	"github.com/semelhq/semel/store/memstore"
	"github.com/semelhq/semel/store/pebblestore"
)

// clockless is a store whose clock fails.
type clockless struct{ semel.Store }

func (clockless) Now(context.Context) (store.Instant, error) {
	return 0, errors.New("the clock has stopped")
}

// A process that can't begin calls gets no traffic, and says why.
func TestAStoreWithoutAClockIsNotReady(t *testing.T) {
	for _, st := range []semel.Store{struct{ semel.Store }{memstore.New()}, clockless{memstore.New()}} {
		s := ofStore(t, st)
		var text strings.Builder
		for _, c := range s.checks(t.Context()) {
			if c.Err != nil {
				text.WriteString(c.Name + ": " + c.Err.Error())
			}
		}
		if _, stopped := st.(clockless); stopped != strings.Contains(text.String(), "store: the clock has stopped") || s.Healthy() == stopped {
			t.Errorf("%T is ready but for %q", st, text.String())
		}
		_ = s.engine.Close(t.Context())
	}
}

// disk is an in-memory file system of a given size.
type disk struct {
	vfs.FS
	free atomic.Uint64
}

func (d *disk) GetDiskUsage(string) (vfs.DiskUsage, error) {
	free := d.free.Load()
	return vfs.DiskUsage{AvailBytes: free, TotalBytes: 1 << 40, UsedBytes: 1<<40 - free}, nil
}

// A node with a full disk takes no new calls, so it gets no traffic until there is space.
// It isn't restarted, because that would not free any.
func TestANodeWithoutRoomIsNotReady(t *testing.T) {
	d := &disk{FS: vfs.NewMem()}
	d.free.Store(1 << 39)
	st, err := pebblestore.Open("store", &pebblestore.Options{FS: d})
	if err != nil {
		t.Fatal(err)
	}
	s := ofStore(t, st)
	e := s.engine
	ready := func(want int, says string) {
		t.Helper()
		w := httptest.NewRecorder()
		r := httptest.NewRequest("GET", "/readyz?verbose", nil)
		s.ready(w, r)
		if w.Code != want || !strings.Contains(w.Body.String(), says) || !s.Healthy() {
			t.Errorf("%d %s, want %d with %q; healthy: %v", w.Code, w.Body, want, says, s.Healthy())
		}
	}
	begun := func(key string) bool {
		ans, err := e.Begin(t.Context(), semel.Call{Operation: "op", Key: key})
		if err == nil {
			err = ans.Attempt.Complete(t.Context(), semel.Result{})
		}
		return err == nil
	}
	ready(http.StatusOK, "[+] disk ok: 512 GiB of 1.0 TiB are free")
	d.free.Store(1)
	ready(http.StatusServiceUnavailable, "[-] disk: FULL: no new call is accepted until there is more space; 1 B of ")
	if begun("full") {
		t.Error("a node that is not ready takes a call")
	}
	d.free.Store(1 << 30)
	ready(http.StatusOK, "[!] disk: filling up")
	if !begun("room") {
		t.Error("a node that is ready takes no call")
	}
	if err := errors.Join(e.Close(t.Context()), st.Close()); err != nil {
		t.Error(err)
	}
}
