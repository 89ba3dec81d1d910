package agents

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/semelhq/semel/internal/rig/faultnet"
	"github.com/semelhq/semel/internal/rig/thorough"
)

const (
	workers  = 8
	patience = 1500 * time.Millisecond // of a client that waits for an answer
)

// told is what a client was told of a call.
type told struct {
	Tool    string `json:"tool"`
	Order   string `json:"order"`
	Text    string `json:"text"`
	Tries   int    `json:"tries"`
	Unknown int    `json:"unknown"` // how often the answer was that nobody knows
}

// stock are the clients, by name. Each sends no key, and asks until each call is answered.
var stock = map[string]func(t *testing.T, url string, calls []told, answered func(told)){
	"TypeScript 2.4.0, 2026-07-28":  client{"modern", workers, patience}.each,
	"TypeScript 1.32.2, 2025-11-25": client{"legacy", workers, patience}.each,
	"Go 1.8.0, 2026-07-28":          golang,
}

// TestStorm has stock clients call tools over a network that cuts their connections at random
// bytes, while the gateway is killed again and again: each call has one effect, and each client
// gets its answer, under the id that it asked under or it wouldn't have it. Half of the calls are
// known by a declared field, and half by the echo window. The same load without the gateway has
// several effects.
func TestStorm(t *testing.T) {
	thorough.Only(t, "storms of calls by stock clients of MCP")
	t.Parallel()
	n, every := 1000, 50 // calls are answered between two deaths of the gateway
	if *smoke {
		n, every = 40, 15
	}
	for name, client := range stock {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			stateless := !strings.Contains(name, "2025")
			s := newShop(t, 5*time.Millisecond, stateless)
			front := start(t, s.url+"/mcp")
			answered := 0
			r := storm(t, front.URL, client, n, func() {
				if answered++; answered%every == 0 {
					if err := front.Crash(context.WithoutCancel(t.Context())); err != nil {
						t.Error(err)
					}
				}
			})
			orders, effects, twice := s.count()
			if orders != n || effects != n || r.answers != n || len(r.wrong) > 0 {
				t.Errorf("%d calls: %d of them had an effect, %d effects, %d answers; more than once: %v; wrong: %v", n, orders, effects, r.answers, twice, r.wrong)
			}
			bare := newShop(t, 5*time.Millisecond, stateless)
			direct := storm(t, func() string { return bare.url }, client, n, func() {})
			_, repeated, more := bare.count()
			t.Logf("%d calls, %d kills, cuts %v: %d effects, %d answers, %d tries, %d times unknown first\nwithout the gateway, cuts %v: %d effects, %d calls more than once, %d answers that aren't the first's, %d tries",
				n, n/every, r.cuts, effects, r.answers, r.tries, r.unknown, direct.cuts, repeated, len(more), len(direct.wrong), direct.tries)
			if len(more) == 0 || r.tries < n*5/4 {
				t.Error("that was no test")
			}
		})
	}
}

// result is what came of a storm.
type result struct {
	answers, tries, unknown, cuts int
	wrong                         []string // answers that aren't those of the first effect
}

// storm plays a storm against a server.
func storm(t *testing.T, server func() string, client func(*testing.T, string, []told, func(told)), n int, after func()) (r result) {
	network, err := faultnet.Listen(func() (net.Conn, error) {
		u, err := url.Parse(server())
		if err != nil {
			return nil, err
		}
		return net.Dial("tcp", u.Host)
	})
	if err != nil {
		t.Fatal(err)
	}
	defer network.Close()
	random := rand.New(rand.NewPCG(*seed, 1))
	places := []faultnet.Place{faultnet.Uncut, faultnet.Uncut, faultnet.Uncut, faultnet.Uncut, faultnet.InRequest, faultnet.AfterRequest, faultnet.BeforeAnswer, faultnet.InAnswer}
	network.CutEach(func() faultnet.Cut { return faultnet.Cut{Place: places[random.IntN(len(places))]} })
	var calls []told
	for i := range n {
		tool := []string{"refund", "pay"}[i%2]
		calls = append(calls, told{Tool: tool, Order: tool + "-" + strconv.Itoa(i)})
	}
	var mu sync.Mutex
	seen := map[string]bool{}
	client(t, "http://"+network.Addr()+"/mcp", calls, func(c told) {
		mu.Lock()
		defer mu.Unlock()
		seen[c.Order] = true
		r.tries, r.unknown = r.tries+c.Tries, r.unknown+c.Unknown
		if c.Text != receipt(c.Order, 1) {
			r.wrong = append(r.wrong, c.Order+": "+c.Text)
		}
		after()
	})
	r.answers = len(seen)
	for _, n := range network.Cuts() {
		r.cuts += n
	}
	return r
}

// client is one of npm, of the modern or the legacy package.
type client struct {
	how      string
	workers  int           // how many sessions it has
	patience time.Duration // how long it waits for an answer
}

// each makes calls, and says what it was told of each.
func (c client) each(t *testing.T, url string, calls []told, answered func(told)) {
	cmd := node(t, "client.mjs", c.how, url, strconv.Itoa(c.workers), strconv.FormatInt(c.patience.Milliseconds(), 10))
	var in strings.Builder
	for _, call := range calls {
		fmt.Fprintf(&in, "{\"tool\":%q,\"order\":%q}\n", call.Tool, call.Order)
	}
	cmd.Stdin, cmd.Stderr = strings.NewReader(in.String()), os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	for lines := bufio.NewScanner(out); lines.Scan(); {
		var got told
		if err := json.Unmarshal(lines.Bytes(), &got); err != nil {
			t.Errorf("%v: %s", err, lines.Text())
		}
		answered(got)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

// golang is the client of the SDK for Go.
func golang(t *testing.T, url string, calls []told, answered func(told)) {
	work := make(chan told)
	var all sync.WaitGroup
	for range workers {
		all.Go(func() {
			session := connect(t, url)
			for c := range work {
				for failed := 0; c.Text == "" && t.Context().Err() == nil; {
					c.Tries++
					got, err := call(t, session, c.Tool, order{c.Order}, patience)
					switch {
					case err != nil:
						if failed++; failed%10 == 0 {
							session = connect(t, url)
						}
					case got.Meta["io.github.semelhq/refusal"] != nil:
						c.Unknown++
						<-time.After(200 * time.Millisecond)
					default:
						c.Text = got.Content[0].(*mcp.TextContent).Text
					}
				}
				answered(c)
			}
		})
	}
	for _, c := range calls {
		work <- c
	}
	close(work)
	all.Wait()
}

func connect(t *testing.T, url string) *mcp.ClientSession {
	for t.Context().Err() == nil {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		client := mcp.NewClient(&mcp.Implementation{Name: "agent", Version: "1"}, nil)
		// The context of a session is that of its stream.
		session, err := client.Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: url, MaxRetries: -1}, nil)
		if err == nil {
			_, err = session.ListTools(ctx, nil)
		}
		cancel()
		if err == nil {
			return session
		}
	}
	return nil
}

// call calls a tool once.
func call(t *testing.T, session *mcp.ClientSession, tool string, arguments any, patience time.Duration) (*mcp.CallToolResult, error) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	return session.CallTool(ctx, &mcp.CallToolParams{Name: tool, Arguments: arguments})
}
