package streams_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/answer"
	"github.com/semelhq/semel/internal/engine/segments"
	"github.com/semelhq/semel/internal/relay"
	"github.com/semelhq/semel/internal/streams"
	"github.com/semelhq/semel/store"
	"github.com/semelhq/semel/store/memstore"
)

var record = flag.Bool("record", false, "record a stream in testdata, where it isn't recorded yet")

// recordedDir has a stream as this program records it: its two cells, and the result of its call.
const recordedDir = "testdata/form-1"

// recordedText is that stream. Its first part fills a cell.
func recordedText() (parts []string) {
	var b strings.Builder
	for i := range 200 {
		fmt.Fprintf(&b, "id: %d\ndata: event number %d, %s\n\n", i, i, strings.Repeat("x", 80))
	}
	return []string{b.String(), "data: the end\n\n"}
}

// recordedCall is the record of the call, with a result.
func recordedCall(result []byte) *store.Record {
	rec := &store.Record{ID: store.ID{Operation: "op", Key: "k1", Principal: "alice"}, Fence: 7, State: store.Processing}
	if result != nil {
		rec.State, rec.Result = store.Completed, store.Result{Data: result}
	}
	return rec
}

// TestRecordedForm: streams that a program has recorded can be read for good, and a stream leaves the
// same bytes as ever.
func TestRecordedForm(t *testing.T) {
	ctx, st := t.Context(), memstore.New()
	defer st.Close()
	rec, parts := recordedCall(nil), recordedText()
	cell := func(n int) []byte {
		v, err := store.NewCell(st, segments.Cell(rec.ID, rec.Fence, n)).Load(ctx)
		must(t, err)
		return v.Data
	}
	head := answer.AppendHead(nil, http.StatusOK, answer.Headers{}.Add(http.Header{"Content-Type": {"text/event-stream"}}), nil, "", nil)
	w, _ := streams.Record(ctx, streams.Stream{Store: st, Record: rec, Max: 1 << 20, Charge: func(int64) bool { return true }}, head)
	for i, part := range parts {
		_, err := io.WriteString(w, part)
		must(t, err)
		for len(cell(i)) < len(part) { // until it is durable
			changed, stop := st.Watch(ctx, segments.Cell(rec.ID, rec.Fence, i))
			if len(cell(i)) < len(part) {
				<-changed
			}
			stop()
		}
	}
	mark, ok := w.Close()
	if !ok {
		t.Fatal("it isn't recorded whole")
	}
	files := map[string][]byte{"cell-0": cell(0), "cell-1": cell(1), "result": answer.Streamed(head, mark)}
	for name, now := range files {
		path := filepath.Join(recordedDir, name)
		was, err := os.ReadFile(path)
		if errors.Is(err, os.ErrNotExist) && *record {
			was, err = now, os.WriteFile(path, now, 0o644)
		}
		must(t, err)
		if !bytes.Equal(was, now) {
			t.Errorf("%s has %d bytes, and %d are written now", name, len(was), len(now))
		}
		files[name] = was
	}

	old := memstore.New()
	defer old.Close()
	for n := range parts {
		_, _, err := store.NewCell(old, segments.Cell(rec.ID, rec.Fence, n)).Swap(ctx, store.CellValue{}, store.CellValue{Data: files[fmt.Sprint("cell-", n)]})
		must(t, err)
	}
	got, err := readAll(ctx, old, recordedCall(files["result"]))
	if want := strings.Join(parts, ""); !errors.Is(err, io.EOF) || got != want {
		t.Errorf("%d bytes of %d, %v", len(got), len(want), err)
	}
	if a, err := answer.Parse(files["result"]); err != nil || a.Status != http.StatusOK || !a.Stream {
		t.Errorf("%+v, %v", a, err)
	}
	// What a later program has written in another form isn't read as if it were this one.
	later := bytes.Clone(files["cell-0"])
	later[0]++
	must(t, store.NewCell(old, segments.Cell(rec.ID, rec.Fence, 0)).Change(ctx, func(store.CellValue) (store.CellValue, error) { return store.CellValue{Data: later}, nil }))
	if got, err := readAll(ctx, old, recordedCall(files["result"])); !errors.Is(err, streams.ErrNone) || got != "" {
		t.Errorf("%q, %v", got, err)
	}
}

func readAll(ctx context.Context, st semel.Store, rec *store.Record) (text string, err error) {
	r, err := streams.Join(ctx, st, rec, relay.MarkOf)
	if err != nil {
		return "", err
	}
	defer r.Close()
	for {
		more, err := r.Next(ctx)
		if text += string(more); err != nil {
			return text, err
		}
	}
}
