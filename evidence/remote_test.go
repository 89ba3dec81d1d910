package evidence_test

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/semelhq/semel/evidence"
)

// testWitness is a witness in the form of C2SP's tlog-witness, for one log.
type testWitness struct {
	*evidence.Cosigner
	trust *evidence.Trust
	last  evidence.Checkpoint
}

func (w *testWitness) ServeHTTP(rw http.ResponseWriter, req *http.Request) {
	text, err := io.ReadAll(req.Body)
	head, signed, found := strings.Cut(string(text), "\n\n")
	lines := strings.Split(head, "\n")
	var old uint64
	_, scanErr := fmt.Sscanf(lines[0], "old %d", &old)
	if err != nil || !found || scanErr != nil || req.URL.Path != "/w/add-checkpoint" || req.Method != http.MethodPost {
		http.Error(rw, "malformed", http.StatusBadRequest)
		return
	}
	c, err := w.trust.Open([]byte(signed))
	if err != nil {
		http.Error(rw, err.Error(), http.StatusForbidden)
		return
	}
	if old > c.Size {
		http.Error(rw, "old is larger", http.StatusBadRequest)
		return
	}
	if old != w.last.Size || old == c.Size && old != 0 && c.Root != w.last.Root {
		rw.Header().Set("Content-Type", "text/x.tlog.size")
		rw.WriteHeader(http.StatusConflict)
		fmt.Fprintf(rw, "%d\n", w.last.Size)
		return
	}
	var proof tlog.TreeProof
	for _, line := range lines[1:] {
		raw, err := base64.StdEncoding.DecodeString(line)
		if err != nil || len(raw) != tlog.HashSize {
			http.Error(rw, "malformed proof", http.StatusBadRequest)
			return
		}
		proof = append(proof, tlog.Hash(raw))
	}
	if old != 0 && old != c.Size {
		if err := tlog.CheckTree(proof, int64(c.Size), c.Root, int64(old), w.last.Root); err != nil {
			http.Error(rw, err.Error(), http.StatusUnprocessableEntity)
			return
		}
	}
	w.last = c
	body, _, _ := strings.Cut(signed, "\n\n")
	io.WriteString(rw, w.Sign(body+"\n", time.Now()))
}

func TestRemoteWitness(t *testing.T) {
	ctx := t.Context()
	r := newRig(t, nil)
	cosigner, err := evidence.GenerateCosigner("witness.example.com")
	if err != nil {
		t.Fatal(err)
	}
	witness := &testWitness{Cosigner: cosigner, trust: r.keys.Trust()}
	srv := httptest.NewServer(witness)
	defer srv.Close()
	key, err := evidence.ParseCosignerKey(cosigner.Public().String())
	if err != nil {
		t.Fatal(err)
	}
	keep := func(w *evidence.RemoteWitness) (string, error) {
		reader := r.reader(t)
		signed, _ := reader.Checkpoint()
		return w.Keep(ctx, signed, func(old uint64) (tlog.TreeProof, error) { return reader.ProveTree(ctx, old) })
	}
	remote, err := evidence.NewRemoteWitness(srv.URL+"/w/", key, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 4 {
		r.fill(t, 10*i, 10*i+10)
		r.integrate(t)
		if i == 2 { // a node that knows nothing of the witness yet
			if remote, err = evidence.NewRemoteWitness(srv.URL+"/w", key, nil); err != nil {
				t.Fatal(err)
			}
		}
		cosigned, err := keep(remote)
		if err != nil {
			t.Fatal(err)
		}
		if at, err := key.Verify(cosigned); err != nil || time.Since(at) > time.Minute {
			t.Error(at, err)
		}
		if c, err := r.keys.Trust().Open([]byte(cosigned)); err != nil || c.Size != uint64(20*i+20) || witness.last != c {
			t.Error(c, err)
		}
	}
	t.Run("what was signed may be asked for again", func(t *testing.T) {
		if _, err := keep(remote); err != nil {
			t.Error(err)
		}
	})
	t.Run("another history is refused", func(t *testing.T) {
		for name, last := range map[string]evidence.Checkpoint{
			"of the same size": {Size: 80, Root: tlog.Hash{1}}, "of a smaller size": {Size: 50, Root: tlog.Hash{1}}, "of a larger size": {Size: 90},
		} {
			witness.last = last
			if _, err := keep(remote); !errors.Is(err, evidence.ErrFork) {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
	t.Run("another key's signature is none", func(t *testing.T) {
		other, err := evidence.GenerateCosigner("witness.example.com")
		if err != nil {
			t.Fatal(err)
		}
		witness.last = evidence.Checkpoint{}
		w, err := evidence.NewRemoteWitness(srv.URL+"/w", other.Public(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := keep(w); err == nil || errors.Is(err, evidence.ErrFork) {
			t.Error(err)
		}
	})
}

func TestDirectory(t *testing.T) {
	ctx := t.Context()
	dir := filepath.Join(t.TempDir(), "kept")
	keeper, err := evidence.NewDirectory(dir)
	if err != nil {
		t.Fatal(err)
	}
	keep := func(r *rig) error {
		reader := r.reader(t)
		signed, _ := reader.Checkpoint()
		_, err := keeper.Keep(ctx, signed, func(old uint64) (tlog.TreeProof, error) { return reader.ProveTree(ctx, old) })
		return err
	}
	r := newRig(t, nil)
	for i := range 3 {
		r.fill(t, 10*i, 10*i+10)
		r.integrate(t)
		if err := keep(r); err != nil {
			t.Fatal(err)
		}
	}
	latest, err := os.ReadFile(filepath.Join(dir, "latest"))
	if signed, _ := r.reader(t).Checkpoint(); err != nil || string(latest) != signed {
		t.Errorf("the latest is %s, %v", latest, err)
	}
	days, err := filepath.Glob(filepath.Join(dir, "*.checkpoints"))
	if err != nil || len(days) == 0 {
		t.Fatal(days, err)
	}
	text, err := os.ReadFile(days[0])
	if kept := evidence.SplitCheckpoints(append(append(text, latest...), "part of a check"...)); err != nil || len(kept) != 2 || kept[1] != string(latest) {
		t.Errorf("%q, %v", kept, err)
	}
	t.Run("a log that does not contain what is kept is refused", func(t *testing.T) {
		for _, calls := range []int{5, 30, 50} {
			other := newRig(t, nil)
			other.fill(t, 100, 100+calls)
			other.integrate(t)
			if err := keep(other); !errors.Is(err, evidence.ErrFork) {
				t.Errorf("%d calls: %v", calls, err)
			}
		}
		if now, err := os.ReadFile(filepath.Join(dir, "latest")); err != nil || string(now) != string(latest) {
			t.Error("and takes its place")
		}
	})
}
