package stage_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel/internal/rig/stage"
)

// TestMain lets this test binary be a node, which answers every request with its process's
// number and its arguments.
func TestMain(m *testing.M) {
	isNode, err := stage.Child(context.Background(), func(ctx context.Context, l net.Listener, args []string) error {
		server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, os.Getpid(), args)
		})}
		defer context.AfterFunc(ctx, func() { _ = server.Close() })()
		if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
	if isNode {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func get(t *testing.T, url string) (string, error) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return string(text), err
}

func TestNode(t *testing.T) {
	n, err := stage.StartSelf(t.Context(), "one", "two")
	if err != nil {
		t.Fatal(err)
	}
	first, err := get(t, n.URL())
	if err != nil || !strings.HasSuffix(first, "[one two]") {
		t.Errorf("%q, %v", first, err)
	}
	if err := n.Crash(t.Context()); err != nil {
		t.Fatal(err)
	}
	second, err := get(t, n.URL())
	if err != nil || second == first {
		t.Errorf("after the crash: %q, %v", second, err)
	}
	if err := n.Stop(); err != nil {
		t.Errorf("it ends with %v", err)
	}
	if text, err := get(t, n.URL()); err == nil {
		t.Errorf("after its end it says %q", text)
	}
	n.Kill() // again, which is nothing
}

func TestStart(t *testing.T) {
	for name, c := range map[string]struct{ script, want string }{
		"a program that ends says why":        {"echo broken >&2; exit 3", "EOF\nbroken"},
		"one that prints something else":      {"echo hello; cat", "invalid character"},
		"one that prints nothing is too slow": {"cat", context.Canceled.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			if c.script == "cat" {
				cancel()
			}
			defer cancel()
			_, err := stage.Start(ctx, exec.Command("sh", "-c", c.script))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error = %v", err)
			}
		})
	}
	t.Run("a program that isn't there", func(t *testing.T) {
		if _, err := stage.Start(t.Context(), exec.Command("/no/such/program")); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("error = %v", err)
		}
	})
	t.Run("how it ends", func(t *testing.T) {
		p, err := stage.Start(t.Context(), exec.Command("sh", "-c", `echo '{"url":"u"}'; cat; exit 4`))
		if err != nil || p.URL != "u" || p.State() != nil {
			t.Fatal(err)
		}
		if err := p.Stop(); err == nil || p.State().ExitCode() != 4 {
			t.Errorf("error = %v, state %v", err, p.State())
		}
	})
}

func TestLoad(t *testing.T) {
	t.Run("each call is answered, and the disturbances come at even distances", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var mu sync.Mutex
			tries, at := map[int]int{}, []int{}
			var answered atomic.Int64
			l := stage.Load{
				Calls: stage.Shuffled(20, 3), Senders: 1, Pause: time.Second, HangUp: time.Second,
				Try: func(ctx context.Context, call int) (bool, error) {
					stage.Pause(ctx, time.Millisecond)
					mu.Lock()
					defer mu.Unlock()
					if tries[call]++; tries[call]%2 == 0 {
						answered.Add(1)
						return true, nil
					}
					return false, nil
				},
				Disturb: func(context.Context) error {
					at = append(at, int(answered.Load()))
					return nil
				},
				Times: 2,
			}
			if err := l.Run(t.Context()); err != nil {
				t.Fatal(err)
			}
			for call := range 20 {
				if tries[call] != 6 {
					t.Errorf("call %d was tried %d times", call, tries[call])
				}
			}
			if !slices.Equal(at, []int{20, 40}) {
				t.Errorf("disturbed after %d", at)
			}
		})
	})
	t.Run("an error ends it", func(t *testing.T) {
		wrong := errors.New("wrong")
		fails := func(context.Context, int) (bool, error) { return false, wrong }
		hangs := func(ctx context.Context, _ int) (bool, error) { <-ctx.Done(); return false, nil }
		for _, l := range []stage.Load{
			{Calls: stage.Shuffled(9, 1), Senders: 2, Try: fails},
			{Calls: stage.Shuffled(9, 1), Senders: 9, Try: func(ctx context.Context, call int) (bool, error) {
				if call == 3 {
					return true, nil
				}
				return hangs(ctx, call)
			}, Times: 8, Disturb: func(context.Context) error { return wrong }},
		} {
			if err := l.Run(t.Context()); !errors.Is(err, wrong) {
				t.Errorf("error = %v", err)
			}
		}
	})
}

func TestCounts(t *testing.T) {
	var c stage.Counts
	for _, seen := range []string{"a1", "b1", "b1", "c1", "c2"} {
		c.Add(seen[:1], seen[1:])
	}
	repeated, differing := c.Repeated(), c.Differing()
	slices.Sort(repeated)
	if c.Len() != 3 || c.Sum() != 5 || !slices.Equal(repeated, []string{"b", "c"}) || !slices.Equal(differing, []string{"c"}) || len(c.Of("d")) != 0 {
		t.Errorf("%d, %d, %q, %q", c.Len(), c.Sum(), repeated, differing)
	}
}
