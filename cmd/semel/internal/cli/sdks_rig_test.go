package cli

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/semelhq/semel/internal/rig/faultnet"
)

// sdkTimeout is how long the clients wait for an answer; their programs set it.
const sdkTimeout = 2 * time.Second

// provider is an upstream that keeps no keys, and counts what it does.
type provider struct {
	sdk sdk

	mu      sync.Mutex
	effects map[string]int    // by order
	keys    map[string]int    // effects by key
	ids     map[string]string // of answers, by order
	wrong   []string          // requests that should not have come
}

// orderName is what names has made.
var orderName = regexp.MustCompile(`[A-Z2-7]{26}`)

func (p *provider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // nothing was done
	}
	order, key := string(orderName.Find(body)), r.Header.Get("Idempotency-Key")
	p.mu.Lock()
	if r.Method != http.MethodPost || r.URL.Path != p.sdk.path || order == "" || key == "" || r.Header.Get("Upgrade") != "" {
		p.wrong = append(p.wrong, fmt.Sprintf("%s %s %v %q", r.Method, r.URL, r.Header, body))
	}
	p.effects[order]++
	p.keys[key]++
	n := len(p.effects)
	slow := n%25 == 0 && p.effects[order] == 1
	id := fmt.Sprintf("done_%d", n)
	p.ids[order] = id
	p.mu.Unlock()
	work := time.Duration(rand.IntN(20)) * time.Millisecond
	if slow {
		work = sdkTimeout * 3 / 2 // the client asks again meanwhile
	}
	<-time.After(work) // also for a caller that has gone
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(p.sdk.answer(id, order)) // the caller may have gone
}

// count is how many effects there were.
func (p *provider) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.effects)
}

// sdkRig is a client, the proxy, and the provider, with a network between each two.
type sdkRig struct {
	*testing.T
	sdk      sdk
	provider *provider
	near     *faultnet.Net // between the client and the proxy
	far      *faultnet.Net // between the proxy and the provider
	url      string        // for the client
	certs    string        // a file, where the client speaks TLS
	begun    atomic.Int64  // exchanges between the client and the proxy
	upgrades atomic.Int64  // offers of h2c in those
}

func newSDKRig(t *testing.T, exe string, s sdk) *sdkRig {
	t.Helper()
	r := &sdkRig{T: t, sdk: s, provider: &provider{sdk: s, effects: map[string]int{}, keys: map[string]int{}, ids: map[string]string{}}}
	upstream := httptest.NewServer(r.provider)
	t.Cleanup(upstream.Close)
	r.far = r.network(upstream.URL, nil, new(atomic.Int64))
	var flags []string
	if s.profile != "" {
		flags = []string{"--profile", s.profile}
	}
	p := startProxyIn(t, t.TempDir(), exe, "http://"+r.far.Addr(), flags...)
	if !s.tls {
		r.near = r.network(p.URL, nil, &r.upgrades)
		r.url = "http://" + r.near.Addr()
		return r
	}
	certified := httptest.NewTLSServer(nil)
	certified.Close()
	r.near = r.network(p.URL, &tls.Config{Certificates: certified.TLS.Certificates}, &r.upgrades)
	r.url, r.certs = "https://"+r.near.Addr(), filepath.Join(t.TempDir(), "certs.pem")
	if err := os.WriteFile(r.certs, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certified.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	return r
}

// network leads to a server, and counts offers of h2c.
func (r *sdkRig) network(target string, config *tls.Config, upgrades *atomic.Int64) *faultnet.Net {
	r.Helper()
	u, err := url.Parse(target)
	if err != nil {
		r.Fatal(err)
	}
	n, err := faultnet.ListenTLS(func() (net.Conn, error) {
		c, err := net.Dial("tcp", u.Host)
		return &overheard{c, upgrades}, err
	}, config)
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(n.Close)
	return n
}

// overheard is a connection on which offers of h2c are counted.
type overheard struct {
	net.Conn
	upgrades *atomic.Int64
}

func (o *overheard) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte("\r\nUpgrade: h2c\r\n")) {
		o.upgrades.Add(1)
	}
	return o.Conn.Write(b)
}

// fail has the networks cut a third of the exchanges of the client, and one in 16 of
// those that reach the provider. Of the client's, one in ten goes mute, which it has to
// notice by its own timeout.
func (r *sdkRig) fail() {
	places := []faultnet.Place{faultnet.InRequest, faultnet.AfterRequest, faultnet.BeforeAnswer, faultnet.InAnswer}
	cutting := func(rate float64, mute float64, seed uint64) func() faultnet.Cut {
		chance := rand.New(rand.NewPCG(seed, 0))
		return func() faultnet.Cut {
			if chance.Float64() >= rate {
				return faultnet.Cut{}
			}
			return faultnet.Cut{Place: places[chance.IntN(len(places))], Mute: chance.Float64() < mute}
		}
	}
	near := cutting(0.35, 0.1, 1)
	r.near.CutEach(func() faultnet.Cut { r.begun.Add(1); return near() })
	r.far.CutEach(cutting(0.06, 0, 2))
}

func (r *sdkRig) heal() {
	r.near.CutEach(nil)
	r.far.CutEach(nil)
}

// run has the client make a call for each key, and returns what became of each: the id
// in its answer, or "held".
func (r *sdkRig) run(keys []string, args ...string) map[string]string {
	r.Helper()
	ctx, cancel := context.WithTimeout(r.Context(), 5*time.Minute)
	defer cancel()
	args = slices.Concat(r.sdk.program[1:], []string{r.url}, args)
	cmd := exec.CommandContext(ctx, r.sdk.program[0], args...)
	cmd.Dir = sdkDir
	cmd.Env = append(os.Environ(), "NODE_EXTRA_CA_CERTS="+r.certs)
	cmd.Stdin = strings.NewReader(strings.Join(keys, "\n") + "\n")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		r.Fatalf("%v after %d of %d calls\n%s", err, bytes.Count(out, []byte("\n")), len(keys), stderr.Bytes())
	}
	ends := map[string]string{}
	for line := range strings.Lines(string(out)) {
		key, end, _ := strings.Cut(strings.TrimSpace(line), "\t")
		ends[key] = end
	}
	if len(ends) != len(keys) {
		r.Fatalf("%d of %d calls have an end\n%s", len(ends), len(keys), stderr.Bytes())
	}
	return ends
}

// judge holds the ends of calls against what the provider did.
func (r *sdkRig) judge(runs ...map[string]string) {
	r.Helper()
	p := r.provider
	p.mu.Lock()
	defer p.mu.Unlock()
	for key, n := range p.keys {
		if n > 1 {
			r.Errorf("%s has %d effects", key, n)
		}
	}
	for order, n := range p.effects {
		if n > 1 {
			r.Errorf("order %s has %d effects", order, n)
		}
	}
	for _, ends := range runs {
		for order, end := range ends {
			if end != "held" && end != "given up" && (p.effects[order] != 1 || end != p.ids[order]) {
				r.Errorf("%s was answered %q; it has %d effects and the answer %q", order, end, p.effects[order], p.ids[order])
			}
		}
	}
	for _, request := range p.wrong {
		r.Errorf("the provider got %s", request)
	}
}
