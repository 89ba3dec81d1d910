package evidence_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/evidence"
	"github.com/semelhq/semel/store"
	"github.com/semelhq/semel/store/memstore"
)

// rig is an engine with evidence on a memory store.
type rig struct {
	*semel.Engine
	store *memstore.Store
	keys  *evidence.Keys
	log   *evidence.Log
}

func newKeys(t testing.TB) *evidence.Keys {
	t.Helper()
	keys, err := evidence.GenerateKeys("example.com/log")
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

func newRig(t testing.TB, opts *evidence.Options, ops ...semel.Operation) *rig {
	t.Helper()
	r := &rig{store: memstore.New(), keys: newKeys(t)}
	r.log = r.node(t, opts)
	var err error
	if len(ops) == 0 {
		ops = []semel.Operation{{Name: "op", Evidence: semel.EvidenceDurable}}
	}
	if r.Engine, err = semel.New(r.store, &semel.Options{Witness: r.log, Operations: ops}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx := context.Background()
		if err := errors.Join(r.log.Close(ctx), r.Close(ctx), r.store.Close()); err != nil {
			t.Error(err)
		}
	})
	return r
}

// node is another log on the same store, as another process would have it.
func (r *rig) node(t testing.TB, opts *evidence.Options) *evidence.Log {
	t.Helper()
	l, err := evidence.New(r.store, r.keys, opts)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// call is a delivery of a command.
func call(tenant, key, payload string) semel.Call {
	return semel.Call{
		Tenant: tenant, Principal: "alice", Operation: "op", Key: key, Fingerprint: semel.FingerprintOf(semel.SchemeRaw, []byte(payload)),
		Attributes: store.Attributes{semel.AttributeCommandID: "cmd-" + key, "correlation_id": "corr-" + key},
	}
}

func (r *rig) do(t testing.TB, c semel.Call, result string) semel.Answer {
	t.Helper()
	ans, err := r.Do(context.Background(), c, func(context.Context, semel.Execution) (semel.Result, error) {
		return semel.Result{Data: []byte(result)}, nil
	})
	if err != nil && ans.Decision == "" {
		t.Fatal(err)
	}
	return ans
}

// fill makes calls, two entries each.
func (r *rig) fill(t testing.TB, from, to int) {
	t.Helper()
	for i := from; i < to; i++ {
		r.do(t, call(fmt.Sprintf("tenant-%d", i%3), fmt.Sprintf("key-%d", i), "payload"), fmt.Sprintf("result %d", i))
	}
}

func (r *rig) integrate(t testing.TB) {
	t.Helper()
	if err := r.log.Integrate(context.Background()); err != nil {
		t.Fatal(err)
	}
}

func (r *rig) reader(t testing.TB) *evidence.Reader {
	t.Helper()
	reader, err := r.log.Reader(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return reader
}

func (r *rig) export(t testing.TB, opts *evidence.ExportOptions) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := r.reader(t).Export(context.Background(), &b, opts); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func verify(t testing.TB, export []byte, trust *evidence.Trust, kept ...string) evidence.Report {
	t.Helper()
	report, err := evidence.Verify(bytes.NewReader(export), trust, &evidence.VerifyOptions{Kept: kept})
	if err != nil {
		t.Fatal(err)
	}
	return report
}

// told is an entry, read.
type told struct {
	evidence.Artifact
	opening evidence.Opening
}

// entries are all that the store has numbered.
func (r *rig) entries(t testing.TB) []told {
	t.Helper()
	entries, err := r.store.ReadEvidence(context.Background(), 0, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	var all []told
	for _, en := range entries {
		a, err := evidence.ParseArtifact(en.Leaf)
		if err != nil {
			t.Fatalf("%v in %s", err, en.Leaf)
		}
		one := told{Artifact: a}
		if en.Opening != nil {
			if one.opening, err = evidence.ParseOpening(a, en.Opening); err != nil {
				t.Fatalf("%v in %s", err, en.Opening)
			}
		}
		all = append(all, one)
	}
	return all
}
