package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/semelhq/semel/internal/rig/pgtest"
	"github.com/semelhq/semel/internal/rig/stage"
)

// TestMain makes the test's own program a service that dies when a request asks for
// it: when its answer is about to leave.
func TestMain(m *testing.M) {
	isNode, err := stage.Child(context.Background(), func(ctx context.Context, l net.Listener, args []string) error {
		return serve(ctx, args[0], l, crashing)
	})
	if isNode {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(pgtest.Main(m))
}

// crashing kills the process when the answer to a request with X-Crash begins.
func crashing(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Crash") != "" {
			w = crashWriter{w}
		}
		next.ServeHTTP(w, r)
	})
}

type crashWriter struct{ http.ResponseWriter }

func (w crashWriter) WriteHeader(int) {
	self, err := os.FindProcess(os.Getpid())
	if err == nil {
		err = self.Kill() // as kill -9 does
	}
	panic(err)
}

// start runs the service in a process of its own and returns its address.
func start(t *testing.T, database string) string {
	t.Helper()
	n, err := stage.StartSelf(t.Context(), database)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.Kill)
	return n.URL()
}

// post sends an order; the error is that of a connection that broke.
func post(t *testing.T, url, key, body string, crash bool) (status int, answer string, err error) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/orders", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.GetBody = nil // or the client would send it again by itself
	r.Header.Set("Idempotency-Key", key)
	if crash {
		r.Header.Set("X-Crash", "1")
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if resp.Header.Get("Idempotency-Replayed") != "" {
		answer = "again: "
	}
	return resp.StatusCode, answer + strings.TrimSpace(string(text)), err
}

// TestOrders loses the answer to an order between its commit and the client, sends it
// again, and looks at what is in the database.
func TestOrders(t *testing.T) {
	server := pgtest.Shared(t)
	database := server.URL(server.Database(t))
	lamp := `{"item":"lamp"}`

	url := start(t, database)
	if status, answer, err := post(t, url, "cart-1", lamp, true); err == nil {
		t.Fatalf("the service did not crash: %d, %s", status, answer)
	}
	url = start(t, database) // as whatever looks after it would
	for _, want := range []struct {
		key, body string
		status    int
		answer    string
	}{
		{"cart-1", lamp, 201, `again: {"id":1,"item":"lamp"}`}, // it had committed
		{"cart-2", lamp, 201, `{"id":2,"item":"lamp"}`},
		{"cart-2", `{"item":"chair"}`, 422, ""},
		{"cart-3", lamp, 409, "sold out"},
		{"cart-3", lamp, 409, "again: sold out"},
	} {
		status, answer, err := post(t, url, want.key, want.body, false)
		if err != nil || status != want.status || want.answer != "" && answer != want.answer {
			t.Errorf("%s: %d, %s, %v; want %d, %s", want.key, status, answer, err, want.status, want.answer)
		}
	}
	conn, err := pgx.Connect(t.Context(), database)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	var orders, left int
	if err := conn.QueryRow(t.Context(), "SELECT (SELECT count(*) FROM orders), (SELECT left_over FROM stock)").Scan(&orders, &left); err != nil || orders != 2 || left != 0 {
		t.Errorf("%d orders, and %d lamps are left, %v", orders, left, err)
	}
}
