package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/semelhq/semel/internal/rig/stage"
)

// strangers send as fast as they can, each request under a credential that they made up. Half of
// the requests name the key that the owner is about to use, the others a key of their own.
type strangers struct {
	url   string
	owned atomic.Int64 // the number in the owner's key
	sent  atomic.Int64
}

// invoice is a key that anybody can guess.
func invoice(n int64) string { return fmt.Sprintf("invoice-2026-11-23-%06d", n) }

func (s *strangers) run(ctx context.Context, c *http.Client) {
	for ctx.Err() == nil {
		key := invoice(s.owned.Load())
		if rand.IntN(2) == 0 {
			key = invoice(rand.Int64N(1_000_000_000))
		}
		if _, err := postAs(ctx, c, s.url, key, fmt.Sprint("made-up-", rand.Int64())); err == nil {
			s.sent.Add(1)
		}
	}
}

// postAs sends an order, and returns the status of the answer.
func postAs(ctx context.Context, c *http.Client, url, key, who string) (int, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/orders", struct{ io.Reader }{strings.NewReader("{}")})
	if err != nil {
		return 0, err
	}
	r.ContentLength = 2
	r.Header.Set("Idempotency-Key", key)
	r.Header.Set("Authorization", "Bearer "+who)
	resp, err := c.Do(r)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, err
}

// TestStrangersAtFullSpeed: with quotas, what strangers send lengthens neither the store nor the
// evidence log nor the memory beyond what the quotas give them, and the owner of a key that they
// all try is served within two tries. By hand: SEMEL_THOROUGH=1 go test -v -run
// TestStrangersAtFullSpeed ./cmd/semel/internal/cli
func TestStrangersAtFullSpeed(t *testing.T) {
	exe := program(t)
	warm, length := time.Second, 4*time.Second
	if os.Getenv("SEMEL_THOROUGH") != "" {
		warm, length = 20*time.Second, 90*time.Second
	}
	var effects sync.Map // owner's keys that had their effect
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer owner" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		if _, again := effects.LoadOrStore(r.Header.Get("Idempotency-Key"), true); again {
			t.Error("a second effect of", r.Header.Get("Idempotency-Key"))
		}
		w.WriteHeader(http.StatusCreated)
	}))
	defer up.Close()
	dir := t.TempDir()
	if code, _, errs := semelWith(t, "", "evidence", "keygen", "--origin", "example.com/log", "--out", filepath.Join(dir, "evidence.key")); code != ExitOK {
		t.Fatal(errs)
	}
	file := filepath.Join(dir, "semel.yaml")
	write(t, file, fmt.Sprintf(`
listen: {address: 127.0.0.1:0}
admin: {address: 127.0.0.1:0}
store: {url: 'pebble:%[1]s/data'}
api: off
evidence: {key_file: '%[1]s/evidence.key'}
quotas: {principal_records: 300, tenant_records: 300, window: 1d}
operations: [{name: order, evidence: decisions}]
routes: [{match: POST /orders, upstream: '%[2]s', operation: order}]
log: {level: warn}
`, dir, up.URL))
	cmd := exec.Command(exe, "serve", "--config", file, "--json")
	var log bytes.Buffer
	cmd.Stderr = &log
	p, err := stage.Start(t.Context(), cmd)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Kill()

	s := &strangers{url: p.URL}
	from := func(addr string) *http.Client { // quotas of callers nobody vouches for count by address
		dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(addr)}}
		transport := &http.Transport{DialContext: dialer.DialContext, MaxIdleConnsPerHost: 64}
		t.Cleanup(transport.CloseIdleConnections)
		return &http.Client{Transport: transport}
	}
	theirs, client := from("127.0.0.1"), from("127.0.0.2")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var group sync.WaitGroup
	for range 16 {
		group.Go(func() { s.run(ctx, theirs) })
	}
	serves(t, s, client, warm)
	memory, sent := residentMB(t, p.PID()), s.sent.Load()
	serves(t, s, client, length)
	grown, during := residentMB(t, p.PID())-memory, s.sent.Load()-sent
	cancel()
	group.Wait()
	if err := p.Terminate(); err != nil {
		t.Fatal(err, log.String())
	}
	if log.Len() > 64<<10 {
		t.Errorf("it logged %d bytes", log.Len())
	}
	entries := logged(t, dir)
	disk := sizeMB(t, filepath.Join(dir, "data"))
	t.Logf("%d requests of strangers, %d a second: %d entries, %d MB on disk, %d MB of memory more than after %s",
		s.sent.Load(), during*int64(time.Second)/int64(length), entries, disk, grown, warm)
	// Each minute an address may begin 300 calls that come to nothing, of two entries each. What
	// more there is are the owner's calls and a count a minute for each record.
	if minutes := int((warm+length)/time.Minute) + 2; entries > minutes*1500 {
		t.Errorf("%d requests of strangers made %d entries", s.sent.Load(), entries)
	}
	if disk > 64 {
		t.Errorf("%d requests of strangers made the store %d MB", s.sent.Load(), disk)
	}
	if grown > 64 {
		t.Errorf("%d requests of strangers made it %d MB larger in memory", during, grown)
	}
}

// serves sends calls of the owner while strangers try each key, for some time.
func serves(t *testing.T, s *strangers, c *http.Client, length time.Duration) {
	t.Helper()
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for start := time.Now(); time.Since(start) < length; <-tick.C {
		key := invoice(s.owned.Load())
		var got []int
		for len(got) < 2 && (len(got) == 0 || got[len(got)-1] != http.StatusCreated) {
			status, err := postAs(t.Context(), c, s.url, key, "owner")
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, status)
		}
		if got[len(got)-1] != http.StatusCreated {
			t.Errorf("the owner of %s got %v", key, got)
		}
		s.owned.Add(1)
	}
}

// residentMB is how much memory a process has.
func residentMB(t *testing.T, pid int) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		t.Fatal(err)
	}
	pages, err := strconv.Atoi(strings.Fields(string(text))[1])
	if err != nil {
		t.Fatal(err)
	}
	return pages * os.Getpagesize() >> 20
}

// sizeMB is how much the files of a directory have.
func sizeMB(t *testing.T, dir string) int {
	t.Helper()
	var n int64
	err := filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			n += info.Size()
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return int(n >> 20)
}

// logged is how many entries the evidence log has.
func logged(t *testing.T, dir string) int {
	t.Helper()
	out := filepath.Join(dir, "log.jsonl")
	if code, text, errs := semelWith(t, "", "evidence", "export", "--store", "pebble:"+filepath.Join(dir, "data"), "--out", out); code != ExitOK {
		t.Fatal(text, errs)
	}
	lines, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Count(lines, []byte("\n"))
}
