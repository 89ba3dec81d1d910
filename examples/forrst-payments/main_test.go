package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/semelhq/semel/internal/rig/clause"
	"github.com/semelhq/semel/internal/rig/stage"
)

// answer is what a client reads of an answer.
type answer struct {
	Result     map[string]string
	Errors     []struct{ Code string }
	Extensions []struct{ Data struct{ Status string } }
}

func (a *answer) code() string {
	if len(a.Errors) == 0 {
		return ""
	}
	return a.Errors[0].Code
}

func (a *answer) status() string {
	if len(a.Extensions) == 0 {
		return ""
	}
	return a.Extensions[0].Data.Status
}

// client sends requests. The keys are in the body, where no transport sees them, so none
// repeats a request by itself.
type client struct {
	t    *testing.T
	url  string
	http http.Transport
	ids  atomic.Int64
}

// start runs the example on a directory until end is called.
func start(t *testing.T, dir string, b *bank) (c *client, end func()) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- serve(ctx, l, dir, b) }()
	c = &client{t: t, url: "http://" + l.Addr().String() + "/forrst"}
	return c, func() {
		c.http.CloseIdleConnections() // or the server waits for those on which nothing was sent
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

// post sends a request, and returns nil if it got no answer.
func (c *client) post(ctx context.Context, body string) *answer {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, strings.NewReader(body))
	if err != nil {
		c.t.Error(err)
		return nil
	}
	r.Header.Set("Content-Type", "application/json")
	resp, err := c.http.RoundTrip(r)
	if err != nil {
		return nil
	}
	defer resp.Body.Close()
	a := &answer{}
	if json.NewDecoder(resp.Body).Decode(a) != nil {
		return nil
	}
	return a
}

// charge requests a payment: another id for each attempt, one key for all of them.
func (c *client) charge(ctx context.Context, order string, amount int) *answer {
	return c.post(ctx, fmt.Sprintf(`{"protocol":{"name":"forrst","version":"0.1.0"},"id":"req_%d",`+
		`"call":{"function":"payments.charge","version":"1.0.0","arguments":{"order":%q,"amount":%d}},`+
		`"extensions":[{"urn":"urn:forrst:ext:idempotency","options":{"key":"charge_%s"}}]}`, c.ids.Add(1), order, amount, order))
}

// TestStorm requests every payment five times, in random order and by 32 clients, some of
// which hang up. Then it counts what the bank was asked for.
func TestStorm(t *testing.T) {
	clause.Proves(t, "FOR-FIRST.1", "FOR-DUP.1", "FOR-CONF.1", "FOR-ID.1")
	const orders = 100
	b := &bank{}
	c, end := start(t, t.TempDir(), b)
	defer end()
	var answers stage.Counts
	load := stage.Load{
		Calls: stage.Shuffled(orders, 5), Senders: 32, HangUp: 2 * time.Millisecond, Pause: 10 * time.Millisecond,
		Try: func(ctx context.Context, n int) (bool, error) {
			order := fmt.Sprint("order", n)
			a := c.charge(ctx, order, 100)
			if a == nil || a.code() == "IDEMPOTENCY_PROCESSING" {
				return false, nil
			}
			answers.Add(order, a.code()+a.Result["charge_id"])
			return true, nil
		},
	}
	if err := load.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	for order, n := range b.charges {
		if all := answers.Of(order); n != 1 || len(all) != 5 || all[0] != "ch_"+order+"_1" {
			t.Errorf("%s was charged %d times, and its clients got %q", order, n, all)
		}
	}
	if differing := answers.Differing(); len(b.charges) != orders || len(differing) > 0 {
		t.Errorf("%d orders were charged; the answers to %q differ", len(b.charges), differing)
	}
	if a := c.charge(t.Context(), "order0", 999); a == nil || a.code() != "IDEMPOTENCY_CONFLICT" {
		t.Errorf("another amount gets %+v", a)
	}
}

// TestRestart: another process on the same store gives the same answer.
func TestRestart(t *testing.T) {
	clause.Proves(t, "FOR-DUP.1", "FOR-STORE.1")
	dir, b := t.TempDir(), &bank{}
	for _, status := range []string{"processed", "cached"} {
		c, end := start(t, dir, b)
		if a := c.charge(t.Context(), "lamp", 100); a == nil || a.status() != status || a.Result["charge_id"] != "ch_lamp_1" {
			t.Errorf("%+v", a)
		}
		if a := c.charge(t.Context(), "refused", 0); a == nil || a.code() != "INVALID_ARGUMENTS" {
			t.Errorf("%+v", a)
		}
		end()
	}
}

// TestREADME sends the request that the README shows, twice.
func TestREADME(t *testing.T) {
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	shown := regexp.MustCompile(`curl --json '(.*)' `).FindSubmatch(text)
	if shown == nil {
		t.Fatal("it shows no request")
	}
	c, end := start(t, t.TempDir(), &bank{})
	defer end()
	for _, status := range []string{"processed", "cached"} {
		if a := c.post(t.Context(), string(shown[1])); a == nil || a.status() != status {
			t.Errorf("%+v, want %s", a, status)
		}
	}
}
