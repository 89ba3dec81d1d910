package cli

import (
	"bytes"
	"crypto/rand"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/semelhq/semel/internal/rig/stage"
)

// smallDisk is a disk of so many bytes for one test, which root only can make.
func smallDisk(t *testing.T, size string) (dir string, grow func(size string)) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("a small disk is made by root only: run this test as root")
	}
	dir = t.TempDir()
	mount := func(flags uintptr, size string) error {
		return syscall.Mount("tmpfs", dir, "tmpfs", flags, "size="+size)
	}
	if err := mount(0, size); err != nil {
		if os.Getenv("SEMEL_REQUIRE_SERVICES") == "1" {
			t.Fatalf("no small disk: %v", err)
		}
		t.Skipf("no small disk: %v; this needs the capability to mount", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir, func(size string) {
		t.Helper()
		if err := mount(syscall.MS_REMOUNT, size); err != nil {
			t.Fatal(err)
		}
	}
}

// TestAFullDisk fills the disk of a store, has the process die, fills the disk to the
// last byte, and makes it larger: what was acknowledged is replayed, and nothing is
// executed twice.
func TestAFullDisk(t *testing.T) {
	t.Parallel()
	disk, grow := smallDisk(t, "12m")
	exe := program(t)
	store := "pebble:" + filepath.Join(disk, "store")
	var mu sync.Mutex
	hits := map[string]int{}
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		hits[r.Header.Get("Idempotency-Key")]++
		mu.Unlock()
		answer := make([]byte, 150<<10)
		_, _ = rand.Read(answer)
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write(answer)
	}))
	defer upstream.Close()
	post := func(p *stage.Process, key string) (status int, answer []byte) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, p.URL+"/orders", strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Idempotency-Key", key)
		resp, err := stage.Direct.Transport.RoundTrip(r)
		if err != nil {
			t.Fatalf("%v\n%s", err, p.Quote())
		}
		defer resp.Body.Close()
		if answer, err = io.ReadAll(resp.Body); err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, answer
	}

	acknowledged := map[string][]byte{}
	p := startProxy(t, exe, upstream.URL, "--store", store)
	for n := 0; ; n++ {
		key := "order-" + strconv.Itoa(n)
		status, answer := post(p, key)
		if status == http.StatusServiceUnavailable {
			if !strings.Contains(string(answer), "store_unavailable") {
				t.Errorf("on a full disk: %s", answer)
			}
			break
		}
		if status != http.StatusCreated || n == 1000 {
			t.Fatalf("%s: %d %.200s", key, status, answer)
		}
		acknowledged[key] = answer
	}
	if status, answer := post(p, "order-0"); status != http.StatusCreated || !bytes.Equal(answer, acknowledged["order-0"]) {
		t.Errorf("on a full disk what is there is not replayed: %d %.200s", status, answer)
	}
	p.Kill()

	fillUp(t, filepath.Join(disk, "filler"))
	run := func(args ...string) (string, error) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), exe, args...)
		cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
		cmd.WaitDelay = time.Minute
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	out, err := run("serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--store", store)
	if _, exited := errors.AsType[*exec.ExitError](err); !exited || !strings.Contains(out, "the disk is full: ") || !strings.Contains(out, " bytes are free, and opening may take ") {
		t.Errorf("on a full disk serve ends with %v: %s", err, out)
	}
	if out, err := run("store", "status", "--store", store); err != nil {
		t.Errorf("store status: %v: %s", err, out)
	}
	if out, err := run("records", "list", "--store", store); err != nil || !strings.Contains(out, "order-0") {
		t.Errorf("records list: %v: %s", err, out)
	}

	grow("64m")
	p = startProxy(t, exe, upstream.URL, "--store", store)
	for key, want := range acknowledged {
		if status, answer := post(p, key); status != http.StatusCreated || !bytes.Equal(answer, want) {
			t.Errorf("%s: %d and another answer than was acknowledged", key, status)
		}
	}
	if status, _ := post(p, "new"); status != http.StatusCreated {
		t.Errorf("with room again a new call gets %d", status)
	}
	mu.Lock()
	defer mu.Unlock()
	for key, n := range hits {
		if n != 1 {
			t.Errorf("%s was executed %d times", key, n)
		}
	}
	if len(hits) != len(acknowledged)+1 {
		t.Errorf("%d calls were executed, and %d acknowledged", len(hits), len(acknowledged)+1)
	}
}

// fillUp takes what is left of a disk.
func fillUp(t *testing.T, name string) {
	t.Helper()
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	for chunk := make([]byte, 64<<10); len(chunk) > 0; {
		if _, err = f.Write(chunk); err != nil {
			chunk = chunk[:len(chunk)/2]
		}
	}
	if err := f.Close(); err != nil && !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
}
