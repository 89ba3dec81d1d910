// Package check judges any service that takes keys over HTTP by the answers that a caller gets: it
// sends one request of yours in the ways in which networks, clients and crashes send it, and says
// for each requirement of a contract whether the service keeps it, and on which clause or
// paragraph the verdict rests. It names what can't be observed from outside, which is no fault.
//
// Each probe makes its own keys. A group that only fails because a more basic one has failed isn't
// tried: a service without replays hears of that once, and not twelve times.
package check

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/url"
	"slices"
	"time"
)

// Options say what to check, and how.
type Options struct {
	// URL is the service, and Profile the contract to judge by, by default ietf.
	URL, Profile string
	// Requests is the text of a file with the request that has an effect, and [Sections].
	// Empty is a POST of a small JSON document.
	Requests string
	// Count is a URL that answers how many effects there were, by a number. Without it only the
	// answers can be compared.
	Count string
	// Window is how long the service says that it keeps answers. Zero leaves expiry out.
	Window time.Duration
	// Restart kills the service and starts it again. Nil leaves crashes out.
	Restart func(ctx context.Context) error
	// Seed chooses what the clients of the history send. Zero: any.
	Seed uint64
	// Patience is how long a retry may be refused until its key counts as stuck; by default
	// ten seconds.
	Patience time.Duration
	Remote   bool // allows a service that isn't on this machine

	// Began, if there is one, is told of each group before its first request.
	Began func(group string)

	// Flags have the values of a [Kit]'s flags by their names, and Header lines for its requests.
	Flags  map[string]*string
	Header []string
	// Listener is where a kit is called, in place of an address in a flag.
	Listener net.Listener
}

// UsageError says what is wrong with the options or the requests. Nothing was sent.
type UsageError string

// Error is the text.
func (e *UsageError) Error() string { return string(*e) }

func wrong(format string, args ...any) error { return new(UsageError(fmt.Sprintf(format, args...))) }

// Run checks a service. An error means that there is no verdict: the options are wrong, or the
// service doesn't execute the request even once.
func Run(ctx context.Context, opts Options) (*Report, error) {
	opts.Seed = cmp.Or(opts.Seed, rand.Uint64N(1_000_000))
	j, err := newJudge(ctx, opts)
	if err == nil {
		j.profile, err = profileByName(opts.Profile)
	}
	if err == nil {
		j.requests, err = parseRequests(opts.Requests, j.base)
	}
	if err == nil {
		err = j.begin(ctx)
	}
	if err != nil {
		return nil, err
	}
	return j.all(ctx, groups)
}

func newJudge(ctx context.Context, opts Options) (*judge, error) {
	base, err := service(ctx, opts.URL, opts.Remote)
	opts.Patience = cmp.Or(opts.Patience, 10*time.Second)
	return &judge{opts: opts, base: base, transport: transport(), began: time.Now(), verdicts: map[string]*Verdict{}}, err
}

// service reads the URL of a service that may be checked.
func service(ctx context.Context, text string, remote bool) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, wrong("%q isn't the URL of a service, such as http://127.0.0.1:8080", text)
	}
	if !remote && !local(ctx, u.Hostname()) {
		return nil, wrong("%s isn't this machine, and the check sends hundreds of requests that have real effects: use a test mode of the service, and say --i-know-it-has-effects", u.Host)
	}
	return u, nil
}

// local reports whether every address of a host is a loopback address.
func local(ctx context.Context, host string) bool {
	addrs, err := net.DefaultResolver.LookupIPAddr(ctx, host)
	return err == nil && len(addrs) > 0 && !slices.ContainsFunc(addrs, func(a net.IPAddr) bool { return !a.IP.IsLoopback() })
}

// begin finds out in which form the service takes keys, and whether its answers tell calls apart.
func (j *judge) begin(ctx context.Context) error {
	before, err := j.count(ctx)
	if j.counted = err == nil; err != nil && j.opts.Count != "" {
		return fmt.Errorf("%s doesn't say how many effects there were, by a number: %w", j.opts.Count, err)
	}
	first := j.settle(ctx, j.call(""))
	if !first.OK() && j.profile.Quoted {
		j.bare = true
		again := j.settle(ctx, j.call(""))
		if again.OK() {
			j.fail("keys.quoted", "a key in quotes gets %s, a bare one %s; all other keys were sent bare", first, again)
		}
		first = again
	}
	if !first.OK() {
		r := j.requests[""]
		return fmt.Errorf("%s %s isn't executed: it gets %s. Give a request that succeeds by --request", r.method, r.target, first)
	}
	if j.profile.Quoted && !j.bare {
		j.judge("keys.quoted", "")
	}
	j.distinct = first.differs(j.settle(ctx, j.call(""))) != ""
	j.effects(ctx, before+2)
	return ctx.Err()
}
