package notify

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
)

// manager is the service manager's end of a socket.
type manager struct {
	t    *testing.T
	conn *net.UnixConn
	name string
}

func newManager(t *testing.T, name string) *manager {
	t.Helper()
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: name, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	t.Setenv("NOTIFY_SOCKET", name)
	return &manager{t: t, conn: conn, name: name}
}

// socketPath is short enough for a socket's address, which test names may not be.
func socketPath(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "semel")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return filepath.Join(dir, "notify")
}

// received is everything that was sent before the call. A message of its own, which
// arrives last, marks the end.
func (m *manager) received() []string {
	m.t.Helper()
	if err := (&Notifier{socket: m.name}).send("END"); err != nil {
		m.t.Fatal(err)
	}
	var got []string
	for {
		buf := make([]byte, 4096)
		n, err := m.conn.Read(buf)
		if err != nil {
			m.t.Fatal(err)
		}
		if string(buf[:n]) == "END" {
			return got
		}
		got = append(got, string(buf[:n]))
	}
}

func fromEnv(t *testing.T) *Notifier {
	t.Helper()
	n, err := FromEnv()
	if err != nil || n == nil {
		t.Fatal(n, err)
	}
	return n
}

func TestMessages(t *testing.T) {
	names := map[string]string{"a path": socketPath(t)}
	if runtime.GOOS == "linux" {
		names["an abstract name"] = "@semel-notify-test-" + strconv.Itoa(os.Getpid())
	}
	for kind, name := range names {
		t.Run("messages reach a socket that has "+kind, func(t *testing.T) {
			m := newManager(t, name)
			n := fromEnv(t)
			for _, err := range []error{n.Ready(), n.Stopping()} {
				if err != nil {
					t.Fatal(err)
				}
			}
			if got, want := m.received(), []string{"READY=1", "STOPPING=1"}; !slices.Equal(got, want) {
				t.Fatalf("got %q, want %q", got, want)
			}
		})
	}
	t.Run("a reload comes with the time of the monotonic clock", func(t *testing.T) {
		if runtime.GOOS != "linux" {
			t.Skip("only Linux has systemd")
		}
		m := newManager(t, socketPath(t))
		now := func() int64 {
			usec, err := strconv.ParseInt(strings.TrimPrefix(strings.TrimSpace(daemon.SdNotifyMonotonicUsec()), "MONOTONIC_USEC="), 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return usec
		}
		before := now()
		if err := fromEnv(t).Reloading(); err != nil {
			t.Fatal(err)
		}
		after := now()
		got := m.received()
		if len(got) != 1 {
			t.Fatalf("%q", got)
		}
		text, ok := strings.CutPrefix(got[0], "RELOADING=1\nMONOTONIC_USEC=")
		usec, err := strconv.ParseInt(text, 10, 64)
		if !ok || err != nil || usec < before || usec > after {
			t.Fatalf("%q is not between %d and %d", got[0], before, after)
		}
		// The kernel's other account of the time since it started, which also
		// counts the time asleep.
		uptime, err := os.ReadFile("/proc/uptime")
		if err != nil {
			t.Fatal(err)
		}
		seconds, err := strconv.ParseFloat(strings.Fields(string(uptime))[0], 64)
		if err != nil || usec <= 0 || float64(usec)/1e6 > seconds+1 {
			t.Fatalf("%d µs, but the machine is up for %v s (%v)", usec, seconds, err)
		}
	})
	t.Run("a manager that is gone is an error", func(t *testing.T) {
		m := newManager(t, socketPath(t))
		n := fromEnv(t)
		if err := m.conn.Close(); err != nil {
			t.Fatal(err)
		}
		if n.Ready() == nil {
			t.Fatal("nobody heard it")
		}
	})
}

func TestFromEnv(t *testing.T) {
	t.Run("without the variable nothing is sent and nothing fails", func(t *testing.T) {
		t.Setenv("NOTIFY_SOCKET", "")
		t.Setenv("WATCHDOG_USEC", "1000")
		n, err := FromEnv()
		if n != nil || err != nil {
			t.Fatal(n, err)
		}
		asked := func() bool { t.Error("health was asked for"); return true }
		for _, err := range []error{n.Ready(), n.Reloading(), n.Stopping(), n.Watch(t.Context(), asked)} {
			if err != nil {
				t.Error(err)
			}
		}
	})
	t.Run("values that nothing can be done with are errors", func(t *testing.T) {
		for _, c := range [][2]string{{"relative", ""}, {"/run/x", "soon"}, {"/run/x", "0"}, {"/run/x", "-1"}, {"/run/x", "9223372036854775807"}} {
			t.Setenv("NOTIFY_SOCKET", c[0])
			t.Setenv("WATCHDOG_USEC", c[1])
			if n, err := FromEnv(); err == nil {
				t.Errorf("%q: %+v", c, n)
			}
		}
	})
	t.Run("a watchdog for another process is not ours", func(t *testing.T) {
		t.Setenv("NOTIFY_SOCKET", "/run/x")
		t.Setenv("WATCHDOG_USEC", "1000")
		for pid, want := range map[int]time.Duration{os.Getpid(): time.Millisecond, os.Getpid() + 1: 0} {
			t.Setenv("WATCHDOG_PID", strconv.Itoa(pid))
			if n := fromEnv(t); n.watchdog != want {
				t.Errorf("%v", n.watchdog)
			}
		}
	})
}

func TestWatch(t *testing.T) {
	m := newManager(t, socketPath(t))
	t.Setenv("WATCHDOG_USEC", "20000000")
	t.Setenv("WATCHDOG_PID", "")
	n := fromEnv(t)
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var healthy atomic.Bool
		healthy.Store(true)
		done := make(chan error, 1)
		go func() { done <- n.Watch(ctx, healthy.Load) }()
		pass := func(d time.Duration) {
			<-time.After(d)
			synctest.Wait()
		}
		expect := func(count int, when string) {
			t.Helper()
			if got := m.received(); len(got) != count || slices.ContainsFunc(got, func(s string) bool { return s != "WATCHDOG=1" }) {
				t.Errorf("%s: %q, want %d", when, got, count)
			}
		}
		synctest.Wait()
		expect(1, "at once")
		pass(9 * time.Second)
		expect(0, "before half of the interval")
		pass(time.Second)
		expect(1, "at half of the interval")
		pass(30 * time.Second)
		expect(3, "three halves later")
		healthy.Store(false)
		pass(30 * time.Second)
		expect(0, "not healthy")
		healthy.Store(true)
		pass(10 * time.Second)
		expect(1, "healthy again")
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		expect(0, "after the end")
	})
}
