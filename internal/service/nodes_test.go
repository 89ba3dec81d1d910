package service_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/semelhq/semel/internal/rig/clause"
	"github.com/semelhq/semel/internal/rig/pgtest"
	"github.com/semelhq/semel/internal/rig/stage"
	"github.com/semelhq/semel/internal/service"
	"github.com/semelhq/semel/internal/service/auth"
	"github.com/semelhq/semel/internal/service/config"
)

// nodeFile names the configuration of a node that this test binary is to be.
const nodeFile = "SEMEL_TEST_NODE"

func TestMain(m *testing.M) {
	file, isNode := os.LookupEnv(nodeFile)
	if !isNode {
		os.Exit(pgtest.Main(m))
	}
	if err := serveNode(file); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// serveNode serves until standard input ends.
func serveNode(file string) error {
	cfg, _, err := config.Load(config.Source{
		Path: file, Env: func(string) (string, bool) { return "", false },
		Flags: map[string]string{"listen": "127.0.0.1:0", "admin": "127.0.0.1:0"},
	})
	if err != nil {
		return err
	}
	ctx := context.Background()
	s, err := service.New(ctx, service.Options{Config: cfg, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	at := stage.Address{URL: "http://" + s.DataAddr().String(), AdminURL: "http://" + s.AdminAddr().String()}
	return stage.Announce(ctx, os.Stdin, os.Stdout, at, s.Run)
}

func startNode(t *testing.T, file string) *stage.Process {
	t.Helper()
	cmd, err := stage.Self()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Env = append(os.Environ(), nodeFile+"="+file)
	p, err := stage.Start(t.Context(), cmd)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Kill)
	return p
}

// callers count what they get from nodes, by operation and decision.
type callers struct {
	t    *testing.T
	mu   sync.Mutex
	got  map[[2]string]int64
	sent map[string]int64 // by operation, answered or not
}

// send delivers a call, and reports whether it was answered.
func (c *callers) send(n *stage.Process, operation, key, body string) bool {
	r, err := http.NewRequestWithContext(c.t.Context(), http.MethodPost, n.URL+"/"+operation, strings.NewReader(body))
	if err != nil {
		c.t.Error(err)
		return false
	}
	r.Header.Set("Authorization", "Bearer shop")
	r.Header.Set("Idempotency-Key", key)
	c.mu.Lock()
	c.sent[operation]++
	c.mu.Unlock()
	resp, err := stage.Direct.Do(r)
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return false
	}
	decision := map[int]string{http.StatusCreated: "execute", http.StatusConflict: "in_flight", http.StatusUnprocessableEntity: "conflict"}[resp.StatusCode]
	if resp.Header.Get("Idempotency-Replayed") == "true" {
		decision = "replay"
	}
	if decision == "" {
		c.t.Errorf("%s answered %d", operation, resp.StatusCode)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.got[[2]string{operation, decision}]++
	return true
}

// sum is how many answers there were, to the calls of an operation or to all.
func (c *callers) sum(operation string) (n int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for what, times := range c.got {
		if operation == "" || what[0] == operation {
			n += times
		}
	}
	return n
}

// shownFigures are the parts of GET /v1/figures that must not depend on who is asked, and when.
type shownFigures struct {
	Nodes int
	Alone bool
	Total struct {
		Deliveries   int64
		Stopped      int64
		StoppedShare float64 `json:"stopped_share"`
	}
	Operations []struct {
		Operation    string
		StoppedShare float64 `json:"stopped_share"`
	}
	Series []struct {
		Operation, What string
		Count           int64
	}
	Repeated []struct {
		Record  string
		Repeats int64
	}
}

func figuresAt(t *testing.T, n *stage.Process) (f shownFigures) {
	t.Helper()
	status, _, text := do(t, http.MethodGet, n.AdminURL+"/v1/figures?minutes=180", "")
	if err := json.Unmarshal([]byte(text), &f); status != http.StatusOK || err != nil {
		t.Fatal(status, err, text)
	}
	return f
}

// decisions are the counts by operation and decision.
func (f *shownFigures) decisions(of func(operation string) bool) map[[2]string]int64 {
	counts := map[[2]string]int64{}
	for _, s := range f.Series {
		if s.What != "simultaneous" && s.What != "failed_attempt" && of(s.Operation) {
			counts[[2]string{s.Operation, s.What}] = s.Count
		}
	}
	return counts
}

func (f *shownFigures) sum(operation string) (n int64) {
	for _, count := range f.decisions(func(name string) bool { return name == operation }) {
		n += count
	}
	return n
}

// kept is what a restart may not change.
func (f *shownFigures) kept() string {
	return fmt.Sprint(f.Total, f.Operations, f.Series, f.Repeated)
}

// TestFiguresOfNodesThatAreKilledAndRestarted runs three processes on PostgreSQL, and holds the
// figures that each of them shows against what callers got. One is killed under load: what it
// has counted since its last write is lost, and nothing that was shown before.
func TestFiguresOfNodesThatAreKilledAndRestarted(t *testing.T) {
	clause.Proves(t, "MAP-MON.1", "MAP-MON.5")
	if testing.Short() {
		t.Skip("with -short no processes are started")
	}
	t.Parallel()
	pg := pgtest.Shared(t)
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		stage.Pause(r.Context(), 3*time.Millisecond)
		w.WriteHeader(http.StatusCreated)
	}))
	defer upstream.Close()
	file := write(t, strings.NewReplacer("STORE", pg.URL(pg.Database(t)), "UPSTREAM", upstream.URL).Replace(`
store: {url: 'STORE', migrate: true}
limits: {shutdown_delay: 0s}
operations: [{name: a, in_flight: refuse}, {name: b, in_flight: refuse}, {name: c, in_flight: refuse}]
routes:
  - {match: POST /a, upstream: 'UPSTREAM', operation: a}
  - {match: POST /b, upstream: 'UPSTREAM', operation: b}
  - {match: POST /c, upstream: 'UPSTREAM', operation: c}
`))
	nodes := []*stage.Process{startNode(t, file), startNode(t, file), startNode(t, file)}
	c := &callers{t: t, got: map[[2]string]int64{}, sent: map[string]int64{}}

	// Calls of a and b are delivered to the first two nodes, those of c to the third.
	var work sync.WaitGroup
	for sender := range 6 {
		rng := rand.New(rand.NewPCG(uint64(sender), 25))
		work.Go(func() {
			for range 60 {
				operation, n := string(rune('a'+rng.IntN(3))), nodes[rng.IntN(2)]
				if operation == "c" {
					n = nodes[2]
				}
				body := "a lamp"
				if rng.IntN(10) == 0 {
					body = "two lamps"
				}
				if !c.send(n, operation, fmt.Sprint("order-", rng.IntN(12)), body) {
					t.Errorf("%s was not answered", operation)
				}
			}
		})
	}
	work.Wait()
	all := func(string) bool { return true }
	agree := func(n *stage.Process, of func(string) bool, want map[[2]string]int64) shownFigures {
		t.Helper()
		var f shownFigures
		err := stage.Until(t.Context(), func() bool {
			f = figuresAt(t, n)
			got := f.decisions(of)
			for what, count := range got {
				if count > want[what] {
					t.Fatalf("the figures have %d of %v, and callers got %d", count, what, want[what])
				}
			}
			return maps.Equal(got, want)
		})
		if err != nil {
			t.Fatalf("%v: the figures have %v, want %v", err, f.decisions(of), want)
		}
		return f
	}
	for _, n := range nodes {
		f := agree(n, all, c.got)
		if f.Nodes != 3 || f.Total.Deliveries != 360 {
			t.Errorf("of %d nodes %+v", f.Nodes, f.Total)
		}
	}

	// The third is killed while it answers.
	before := c.sum("c")
	for sender := range 3 {
		work.Go(func() {
			for i := 0; c.send(nodes[2], "c", fmt.Sprint("killed-", sender, "-", i/2), "a lamp"); i++ {
			}
		})
	}
	var shown int64
	if err := stage.Until(t.Context(), func() bool {
		f := figuresAt(t, nodes[0])
		shown = f.sum("c")
		return shown >= before+50
	}); err != nil {
		t.Fatal(err)
	}
	nodes[2].Kill()
	work.Wait()
	nodes[2] = startNode(t, file)
	f := figuresAt(t, nodes[2]) // it has read nothing before
	counted, answered := f.sum("c"), c.sum("c")
	t.Logf("the killed node has answered %d deliveries; %d are counted, and %d were when it was killed", answered, counted, shown)
	if counted < shown || counted > c.sent["c"] {
		t.Errorf("%d are counted, of which %d were shown, and %d were sent", counted, shown, c.sent["c"])
	}
	rest := maps.Clone(c.got)
	maps.DeleteFunc(rest, func(what [2]string, _ int64) bool { return what[0] == "c" })
	ofOthers := func(operation string) bool { return operation != "c" }
	for _, n := range nodes {
		agree(n, ofOthers, rest)
	}

	// All three end and are started again.
	want := figuresAt(t, nodes[2])
	for _, n := range nodes {
		if err := n.Stop(); err != nil {
			t.Error(err)
		}
	}
	for i := range nodes {
		nodes[i] = startNode(t, file)
	}
	for i, n := range nodes {
		got := figuresAt(t, n)
		if got.kept() != want.kept() || got.Alone {
			t.Errorf("after a restart node %d shows\n%s\nand before it was\n%s", i, got.kept(), want.kept())
		}
	}
	if want.Total.StoppedShare < 0.3 || want.Repeated[0].Repeats < 5 {
		t.Errorf("there were too few duplicates to tell: %+v, %+v", want.Total, want.Repeated)
	}
	t.Logf("the share of stopped duplicates is %.4f before and after", want.Total.StoppedShare)
}

// shownNodes are the parts of GET /v1/nodes that a test looks at.
type shownNodes struct {
	Nodes []shownNode
	Total struct{ Deliveries int64 }
}

type shownNode struct {
	Node, Version   string
	Silent, Answers bool
	Total           struct{ Deliveries int64 }
}

// TestNodesOfOneStore runs two processes on PostgreSQL. Each of them lists both, with what each has
// counted for whom the asker may see, and knows itself. One that is stopped leaves the list.
func TestNodesOfOneStore(t *testing.T) {
	clause.Proves(t, "MAP-MON.5")
	if testing.Short() {
		t.Skip("with -short no processes are started")
	}
	t.Parallel()
	pg := pgtest.Shared(t)
	file := write(t, fmt.Sprintf(`
store: {url: '%s', migrate: true}
limits: {shutdown_delay: 0s}
auth:
  tokens:
    - {name: shop, tenant: acme, sha256: %s}
    - {name: zoe, tenant: zeta, sha256: %s}
    - {name: eye, tenant: acme, roles: [viewer], sha256: %s}
    - {name: root, roles: [admin], sha256: %s}
`, pg.URL(pg.Database(t)), auth.HashToken("shop"), auth.HashToken("zoe"), auth.HashToken("eye"), auth.HashToken("root")))
	a, b := startNode(t, file), startNode(t, file)
	call := func(n *stage.Process, who, key string) {
		t.Helper()
		if status, _, text := do(t, "POST", n.URL+"/v1/operations/default/executions", `{"key":"`+key+`"}`, "Authorization", "Bearer "+who); status != http.StatusCreated {
			t.Fatal(status, text)
		}
	}
	call(a, "shop", "lamp")
	call(a, "zoe", "chair")
	call(b, "shop", "table")
	read := func(n *stage.Process, who, path string, into any) {
		t.Helper()
		status, _, text := do(t, "GET", n.AdminURL+path, "", "Authorization", "Bearer "+who)
		if err := json.Unmarshal([]byte(text), into); status != http.StatusOK || err != nil {
			t.Fatal(status, err, text)
		}
	}
	list := func(n *stage.Process, who string) (l shownNodes) {
		t.Helper()
		read(n, who, "/v1/nodes", &l)
		return l
	}
	// until waits for what nodes write behind deliveries.
	until := func(what string, is func() bool) {
		t.Helper()
		if err := stage.Until(t.Context(), is); err != nil {
			t.Fatal(what, err, list(b, "root"))
		}
	}
	for _, n := range []*stage.Process{a, b} {
		until("all", func() bool { // a node writes what it has counted for each tenant by itself
			l := list(n, "root")
			return len(l.Nodes) == 2 && l.Total.Deliveries == 3 && list(n, "eye").Total.Deliveries == 2
		})
		for who, want := range map[string]int64{"root": 3, "eye": 2} {
			l, sum := list(n, who), int64(0)
			for _, node := range l.Nodes {
				sum += node.Total.Deliveries
				own := int64(1) // b has one call, and a one of each tenant
				if who == "root" && node.Answers == (n == a) {
					own = 2
				}
				if node.Version == "" || node.Silent || node.Total.Deliveries != own {
					t.Errorf("%s sees %+v, and it has counted %d", who, node, own)
				}
			}
			if sum != want || l.Total.Deliveries != want {
				t.Errorf("%s sees %+v, want %d deliveries", who, l, want)
			}
			var f shownFigures
			if read(n, who, "/v1/figures", &f); f.Total.Deliveries != want || f.Nodes != 2 {
				t.Errorf("%s sees the figures %+v, want %d deliveries", who, f.Total, want)
			}
		}
	}
	l := list(a, "root")
	self := slices.IndexFunc(l.Nodes, func(n shownNode) bool { return n.Answers })
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	r, err := http.NewRequestWithContext(ctx, "GET", a.AdminURL+"/v1/decisions", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer eye")
	stream, err := stage.Direct.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Body.Close()
	if got := stream.Header.Get("Semel-Node"); got != l.Nodes[self].Node || l.Nodes[0].Node == l.Nodes[1].Node {
		t.Errorf("the stream is of %q, and the list has %+v", got, l.Nodes)
	}
	stop()
	if err := a.Stop(); err != nil {
		t.Fatal(err)
	}
	until("one has stopped", func() bool { return len(list(b, "root").Nodes) == 1 })
	if l := list(b, "root"); !l.Nodes[0].Answers || l.Total.Deliveries != 3 {
		t.Errorf("the one that is left sees %+v", l)
	}
}
