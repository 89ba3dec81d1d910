//go:build linux

package chaos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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
	"testing/synctest"
	"time"

	"github.com/semelhq/semel/internal/rig/history"
)

// A client of net/http would send this request a second time.
func TestARequestIsSentOnce(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var arrived atomic.Int64
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				buf := make([]byte, 64<<10)
				for n := 0; ; n++ {
					if _, err := c.Read(buf); err != nil {
						return
					}
					arrived.Add(1)
					if n > 0 {
						return // the first is answered, the second is not
					}
					_, _ = c.Write([]byte("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"))
				}
			}()
		}
	}()
	w := newWire()
	defer w.close()
	for n := range 2 {
		r, err := http.NewRequest(http.MethodPost, "http://semel/x", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Idempotency-Key", "k")
		rep, err := w.send(l.Addr().String(), r, []byte("{}"), 10*time.Second)
		if n == 0 && (err != nil || rep.status != 200 || string(rep.body) != "{}") || n == 1 && err == nil {
			t.Fatalf("request %d: %v, %v", n, rep, err)
		}
	}
	if n := arrived.Load(); n != 2 {
		t.Errorf("%d requests have arrived", n)
	}
}

// A server that went away leaves many idle connections that are dead.
func TestOneDeadConnectionIsMetAtMost(t *testing.T) {
	const many = 8
	var together sync.WaitGroup
	together.Add(many)
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/together" {
			together.Done()
			together.Wait()
		}
	}))
	defer s.Close()
	w := newWire()
	defer w.close()
	addr := s.Listener.Addr().String()
	get := func(path string) error {
		r, err := http.NewRequest(http.MethodGet, "http://semel"+path, nil)
		if err != nil {
			return err
		}
		_, err = w.send(addr, r, nil, 10*time.Second)
		return err
	}
	var all sync.WaitGroup
	for range many {
		all.Go(func() {
			if err := get("/together"); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	s.CloseClientConnections()
	_ = get("/") // by a dead one, perhaps
	if err := get("/"); err != nil {
		t.Error(err)
	}
}

func TestEveryFaultIsInjected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		hit, busy, most := map[string]int{}, map[string]bool{}, 0
		s := &injector{rng: rand.New(rand.NewPCG(1, 1)), tell: func(string, string) {}, busy: map[string]bool{}, fired: map[string]int{}}
		for n := range 10 {
			s.faults = append(s.faults, fault{fmt.Sprint("fault", n), []string{"a", "b"}[n%2:], func(sh *injection) (int, error) {
				mu.Lock()
				if busy[sh.target] {
					t.Errorf("two faults hit %s at once", sh.target)
				}
				busy[sh.target] = true
				hit[fmt.Sprint("fault", n)]++
				most = max(most, len(busy))
				mu.Unlock()
				sh.wait()
				mu.Lock()
				defer mu.Unlock()
				delete(busy, sh.target)
				return n, nil
			}})
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		s.run(ctx)
		if len(hit) != 10 || most != 2 {
			t.Errorf("%d of 10 faults were done, %d at once at most", len(hit), most)
		}
		counts := s.counts()
		for name, n := range hit {
			if want := map[bool]int{true: 0, false: n}[name == "fault0"]; counts[name] != want {
				t.Errorf("%s hit something %d times, want %d", name, counts[name], want)
			}
		}
	})
}

// The files of the standard library must be as the patches expect.
func TestThePatchesFit(t *testing.T) {
	file, err := writeOverlay(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var overlay struct{ Replace map[string]string }
	if err := json.Unmarshal(text, &overlay); err != nil || len(overlay.Replace) != len(patches)+2 {
		t.Errorf("the overlay has %d files, %v", len(overlay.Replace), err)
	}
}

func TestCrashesAreFound(t *testing.T) {
	log := `{"msg":"serving"}
panic: runtime error: index out of range

goroutine 1 [running]:
{"msg":"serving"}
panic: syscall.Errno(30)
	fatal error: sync: unlock of unlocked mutex
semel: store: open the store
panic: (*withstack.withStack) 0xc000012345
	fatal error: sync: unlock of unlocked mutex
github.com/cockroachdb/pebble/v2.(*DB).rotateWAL(0xc000012345)
{"msg":"a panic: in the midst of a line"}
fatal error: all goroutines are asleep - deadlock!
`
	for disksFail, want := range map[bool]int{false: 4, true: 2} {
		if found := crashes(log, disksFail); len(found) != want {
			t.Errorf("where disks fail (%v): found %q", disksFail, found)
		}
	}
}

func TestTheClockOfAServerCanBeMoved(t *testing.T) {
	parts := &rig{TB: t, dir: t.TempDir()}
	env, file, why := serverClocks(parts)
	if why != "" {
		t.Skip(why)
	}
	if err := writeClock(file, time.Hour); err != nil {
		t.Fatal(err)
	}
	date := exec.CommandContext(t.Context(), "date", "+%s")
	date.Env = append(os.Environ(), env...)
	before := time.Now()
	out, err := date.Output()
	if err != nil {
		t.Fatal(err)
	}
	sec, err := strconv.ParseInt(strings.TrimSpace(string(out)), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	if ahead := time.Unix(sec, 0).Sub(before); ahead < time.Hour-2*time.Second || ahead > time.Hour+time.Minute {
		t.Errorf("the clock is ahead by %v", ahead)
	}
}

// TestWhatAKilledWorkerLeavesIsDeliveredAgain kills workers in the midst of deliveries.
func TestWhatAKilledWorkerLeavesIsDeliveredAgain(t *testing.T) {
	if testing.Short() {
		t.Skip("workers are not started with -short")
	}
	log := history.NewLog(rules, fakeLease)
	_, here, _ := startFake(t, "", log)
	r := &run{opts: Options{Seed: 1, Brief: true}, log: log, here: here}
	c := newCrew(r, "w1", here.nodes)
	r.crews = []*crew{c}
	if err := c.start(); err != nil {
		t.Fatal(err)
	}
	defer c.stop(0)
	rng := rand.New(rand.NewPCG(1, 1))
	for n := range 60 {
		j := newJob(rng, opOnce, fmt.Sprint("k", n))
		j.Before, j.After, j.Named = 0, time.Duration(n%2)*fakeLease, true
		r.pending.Add(1)
		r.deliver(j)
		if n%20 == 10 {
			await(t, func() bool { return log.Requests() > n/2 })
			if err := errors.Join(c.kill(), c.process.await(time.Minute)); err != nil {
				t.Fatal(err)
			}
		}
	}
	await(t, func() bool { return r.pending.Load() == 0 })
	r.settle(t.Context(), briefly)
	for _, v := range log.Check() {
		t.Errorf("%s: %s: %s\n%s", v.Rule, v.Key, v.Text, log.Print(v.Key, 0))
	}
	if c.starts != 4 || log.Summary().Keys != 60 {
		t.Errorf("%d starts, %d keys", c.starts, log.Summary().Keys)
	}
}

func await(t *testing.T, is func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	end := time.NewTimer(time.Minute)
	defer end.Stop()
	for !is() {
		select {
		case <-tick.C:
		case <-end.C:
			t.Fatal("it did not come true")
		}
	}
}

func TestADiskFails(t *testing.T) {
	d, err := newDisk(t.TempDir())
	if err != nil {
		t.Skipf("no disk can be made here: %v", err)
	}
	defer func() {
		if err := d.close(); err != nil {
			t.Error(err)
		}
	}()
	write := func() error {
		f, err := os.OpenFile(filepath.Join(d.dir, "f"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
		if err != nil {
			return err
		}
		defer f.Close()
		if _, err := f.Write(make([]byte, 100<<10)); err != nil {
			return err
		}
		return f.Sync()
	}
	if err := write(); err != nil {
		t.Fatal(err)
	}
	for name, during := range map[string]func(s *injection) (int, error){
		"full":     d.fill,
		"readonly": func(s *injection) (int, error) { return d.refuse(s, idle(t)) },
	} {
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			_, err := during(&injection{ctx: ctx, lasts: time.Hour})
			ended <- err
		}()
		await(t, func() bool { return write() != nil })
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := write(); err != nil {
			t.Errorf("after %s: %v", name, err)
		}
	}
	var longest time.Duration
	for n := 0; n < 10 && longest < stalled/2; n++ { // a busy machine may miss one
		ended := make(chan error, 1)
		go func() {
			_, err := d.stall(&injection{ctx: t.Context(), lasts: stalled})
			ended <- err
		}()
		for over := false; !over; {
			began := time.Now()
			if err := write(); err != nil {
				t.Fatal(err)
			}
			longest = max(longest, time.Since(began))
			select {
			case err := <-ended:
				if over = true; err != nil {
					t.Error(err)
				}
			default:
			}
		}
	}
	if longest < stalled/2 {
		t.Errorf("no write took longer than %v", longest)
	}
}

// stalled is how long the disk of a test is.
const stalled = time.Second

// idle is a process that does nothing.
func idle(t *testing.T) *process {
	t.Helper()
	p := &process{name: "idle", tell: func(string) {}, program: func(int) (program, error) {
		return program{Cmd: exec.Command("sleep", "600"), read: func(out io.Reader, ready func()) {
			ready()
			_, _ = io.Copy(io.Discard, out)
		}}, nil
	}}
	if err := p.start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.stop(0) })
	return p
}

// The upstream refuses nothing that an earlier program would forget, until it hears that there is
// none any more.
func TestTheUpstreamHearsOfTheUpgrade(t *testing.T) {
	in, config := io.Pipe()
	lines, out := io.Pipe()
	defer lines.Close()
	go func() { _ = upstreamProcess(in, out) }()
	defer config.Close()
	hear := func(earlier bool) {
		if err := json.NewEncoder(config).Encode(upstreamConfig{Seed: 1, Brief: true, Earlier: earlier}); err != nil {
			t.Fatal(err)
		}
	}
	hear(true)
	addr := make(chan string)
	go scan(lines, func(l line) {
		if l.Addr != "" {
			addr <- l.Addr
		}
	})
	url := "http://" + <-addr + "/" + opPayNumbers
	refused := func() (n int64) {
		var count atomic.Int64
		var all sync.WaitGroup
		for range 100 {
			all.Go(func() {
				resp, err := http.Post(url, "application/json", strings.NewReader(`{"order":"k#1","amount":1}`))
				if err != nil {
					t.Error(err)
					return
				}
				defer resp.Body.Close()
				if resp.StatusCode == http.StatusUnprocessableEntity {
					count.Add(1)
				}
			})
		}
		all.Wait()
		return count.Load()
	}
	if n := refused(); n != 0 {
		t.Errorf("%d of 100 were refused beside an earlier program", n)
	}
	hear(false)
	hear(false) // which it takes only when it has heard the first
	if n := refused(); n == 0 {
		t.Error("none of 100 was refused after the upgrade")
	}
}
