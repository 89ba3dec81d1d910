package check

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"sync"
	"time"
)

// ProviderFlag says where a kit counts effects.
var ProviderFlag = Flag{Name: "provider", Default: "127.0.0.1:7391", Usage: "`address` where the check counts effects"}

// named finds what an effect is on.
var named = regexp.MustCompile(`t-[A-Z2-7]{26}`)

// Name is a new name for something to have effects on.
func Name() string { return "t-" + rand.Text() }

// Provider answers the nth request about a name, as the outside system would that effects are on.
type Provider func(w http.ResponseWriter, name, body string, n int)

// provider doesn't deduplicate: each request with a name in its body is an effect.
type provider struct {
	answer Provider

	mu      sync.Mutex
	effects map[string]int
	held    map[string]gate
}

// gate holds the requests about a name until it is open, and says when the first has arrived.
type gate struct{ arrived, open chan struct{} }

// Provide becomes the provider until the context ends, where [ProviderFlag] says.
func (j *judge) Provide(ctx context.Context, answer Provider) (url string, err error) {
	j.provider = &provider{answer: answer, effects: map[string]int{}, held: map[string]gate{}}
	return j.Serve(ctx, ProviderFlag.Name, j.provider)
}

// Serve serves something else that is needed until the context ends, where a flag says.
func (j *judge) Serve(ctx context.Context, flag string, h http.Handler) (url string, err error) {
	l := j.opts.Listener
	if l == nil || flag != ProviderFlag.Name {
		if l, err = new(net.ListenConfig).Listen(ctx, "tcp", j.Flag(flag)); err != nil {
			return "", fmt.Errorf("listen where --%s says: %w", flag, err)
		}
	}
	srv := &http.Server{Handler: h}
	go func() { _ = srv.Serve(l) }() // until it is closed
	context.AfterFunc(ctx, func() { _ = srv.Close() })
	return "http://" + l.Addr().String(), nil
}

// ServeHTTP counts a request as an effect. It takes as long as a call over a network, so that
// deliveries at once overlap.
func (p *provider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(io.LimitReader(r.Body, 1<<20))
	name := named.FindString(string(body))
	if err != nil || name == "" {
		http.Error(w, "send what the check has sent, please", http.StatusBadRequest)
		return
	}
	p.mu.Lock()
	p.effects[name]++
	p.effects[""]++ // of all names
	n, g := p.effects[name], p.held[name]
	p.mu.Unlock()
	if g.open == nil {
		g.open = make(chan struct{})
		time.AfterFunc(lingering, func() { close(g.open) })
	} else if n == 1 {
		close(g.arrived)
	}
	select {
	case <-g.open:
	case <-r.Context().Done():
	}
	w.Header().Set("Content-Type", "application/json")
	p.answer(w, name, string(body), n)
}

// Effects is how many effects there were on a name, or with none on all.
func (j *judge) Effects(name string) int {
	j.provider.mu.Lock()
	defer j.provider.mu.Unlock()
	return j.provider.effects[name]
}

// Happened judges that there were so many effects on a name.
func (j *judge) Happened(id, name string, want int) {
	n := j.Effects(name)
	j.Holds(id, n == want, "%d effects on %s, and %d are right", n, name, want)
}

// Arrives waits for so many effects on a name, and reports whether they come.
func (j *judge) Arrives(ctx context.Context, name string, want int) bool {
	return Until(ctx, j, func() (bool, bool) { all := j.Effects(name) >= want; return all, all })
}

// Settled judges the effects on a name of work that may be behind the answers: it waits for the
// effect on another name, which is sent afterwards. If none ever came, none can be judged.
func (j *judge) Settled(ctx context.Context, id, name string, want int, another func() string) {
	if j.Effects("") == 0 {
		j.Unseen(id, "no effect comes to --provider")
		return
	}
	j.Arrives(ctx, another(), 1)
	j.Arrives(ctx, name, want)
	j.Happened(id, name, want)
}

// Meanwhile delivers something, and looks around while its effect on a name is held. It reports
// whether that came, and returns when the delivery is over.
func (j *judge) Meanwhile(ctx context.Context, name string, deliver func(), look func(ctx context.Context)) (came bool) {
	g := gate{make(chan struct{}), make(chan struct{})}
	j.provider.mu.Lock()
	j.provider.held[name] = g
	j.provider.mu.Unlock()
	var wg sync.WaitGroup
	wg.Go(deliver)
	select {
	case <-g.arrived:
		hurried, cancel := context.WithTimeout(ctx, j.opts.Patience) // a duplicate that waits would do so for ever
		look(hurried)
		cancel()
		came = true
	case <-time.After(j.opts.Patience):
	}
	close(g.open)
	wg.Wait()
	return came
}

// Together delivers something many times at once.
func Together[T any](n int, deliver func() T) []T {
	answers := make([]T, n)
	var wg sync.WaitGroup
	for i := range answers {
		wg.Go(func() { answers[i] = deliver() })
	}
	wg.Wait()
	return answers
}
