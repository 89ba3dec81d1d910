package auth

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/semelhq/semel/internal/strictclient"
)

const (
	// refreshEvery is the age at which keys are fetched again, so that those which
	// the issuer has withdrawn stop counting.
	refreshEvery = 15 * time.Minute
	// retryEvery is the least time between two fetches from one address, whoever
	// asks for them: callers with tokens of made-up keys must not make the service
	// ask the issuer for each.
	retryEvery = 30 * time.Second
	// keepKeys is how long keys are used that can't be fetched again. An issuer may
	// be away for a night; whoever cuts the service off from it must not keep
	// withdrawn keys good for ever.
	keepKeys = 24 * time.Hour
	// fetchTime bounds one fetch, and so how long a request with a token of a new
	// key can take to be refused.
	fetchTime = 5 * time.Second
	// maxKeySet bounds the answer, in bytes.
	maxKeySet = 512 << 10
)

// keySet is what one fetch brought.
type keySet struct {
	keys []publicKey
	at   time.Time
}

// remoteKeys are the keys of an issuer that are fetched from where it publishes
// them. They may be read concurrently, and while they are fetched.
type remoteKeys struct {
	url    string
	client strictclient.Client
	have   atomic.Pointer[keySet] // nil: none were ever fetched

	fetching chan struct{} // has room for the one fetch at a time
	mu       sync.Mutex
	tried    time.Time // when the last fetch began
	failed   error     // how it ended
}

// newRemoteKeys checks the address. Nothing is fetched yet.
func newRemoteKeys(address string) (*remoteKeys, error) {
	if err := CheckKeysURL(address); err != nil {
		return nil, err
	}
	return &remoteKeys{
		url: address, fetching: make(chan struct{}, 1),
		client: strictclient.Client{Timeout: fetchTime, MaxAnswer: maxKeySet},
	}, nil
}

// CheckKeysURL says what is wrong with a URL as [JWT].JWKSURL, if anything.
func CheckKeysURL(address string) error {
	u, err := url.Parse(address)
	switch {
	case err != nil || u.Opaque != "" || u.Hostname() == "":
		return errors.New("is not a URL with a host")
	case u.User != nil:
		return errors.New("has a password, which would be written to logs")
	case u.Fragment != "":
		return errors.New("has a fragment, which is never sent")
	case u.Scheme == "https", u.Scheme == "http" && loopbackHost(u.Hostname()):
		return nil
	case u.Scheme == "http":
		return errors.New("is not https, so anybody on the way could give keys of their own; http is for loopback addresses")
	}
	return errors.New("is not https")
}

func loopbackHost(host string) bool {
	addr, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && addr.Unmap().IsLoopback()
}

// current are the keys that may be used now: nil where there are none.
func (k *remoteKeys) current() []publicKey {
	set := k.have.Load()
	if set == nil || time.Since(set.at) > keepKeys {
		return nil
	}
	return set.keys
}

// fetch fetches the keys unless that was tried less than a time ago. After a failure
// the keys stay as they were.
func (k *remoteKeys) fetch(ctx context.Context, atMostEvery time.Duration) {
	k.fetching <- struct{}{} // whoever waits here for another's fetch finds it done
	defer func() { <-k.fetching }()
	if tried, _ := k.state(); !tried.IsZero() && time.Since(tried) < atMostEvery {
		return
	}
	began := time.Now()
	keys, err := k.ask(ctx)
	if err == nil {
		k.have.Store(&keySet{keys, began})
	}
	k.mu.Lock()
	k.tried, k.failed = began, err
	k.mu.Unlock()
}

func (k *remoteKeys) state() (tried time.Time, failed error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.tried, k.failed
}

// ask makes one request. Its errors have nothing that the other side wrote.
func (k *remoteKeys) ask(ctx context.Context) ([]publicKey, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, k.url, nil)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Accept", "application/jwk-set+json, application/json")
	r.Header.Set("User-Agent", "semel")
	// What the issuer's address says, it says itself: neither a redirect nor the
	// environment's proxy may put another in its place.
	answer, err := k.client.Do(r)
	if err != nil {
		return nil, err
	}
	if answer.Status != http.StatusOK {
		return nil, fmt.Errorf("the status is %d", answer.Status)
	}
	return checkKeys(parseJWKS(answer.Body))
}

// KeyState is how the keys of an issuer stand that are fetched from a URL.
type KeyState struct {
	// Issuer is the one of the tokens.
	Issuer string
	// Keys is how many there are that may be used now. With none, tokens of this
	// issuer are refused as ErrUnavailable.
	Keys int
	// Fetched is when they were, and zero if never.
	Fetched time.Time
	// Err is how the last fetch failed, nil if it did not. Until is for how long
	// the keys count if none succeeds.
	Err   error
	Until time.Time
}

// String says it in a few words, without anything secret.
func (s KeyState) String() string {
	switch {
	case s.Fetched.IsZero() && s.Err == nil:
		return fmt.Sprintf("%s: not fetched yet", s.Issuer)
	case s.Keys == 0:
		return fmt.Sprintf("%s: no keys, its tokens are refused: %v", s.Issuer, s.Err)
	case s.Err != nil:
		return fmt.Sprintf("%s: %d keys of %s count until %s, since the last fetch failed: %v", s.Issuer, s.Keys,
			s.Fetched.UTC().Format(time.RFC3339), s.Until.UTC().Format(time.RFC3339), s.Err)
	}
	return fmt.Sprintf("%s: %d keys of %s", s.Issuer, s.Keys, s.Fetched.UTC().Format(time.RFC3339))
}

// KeyStates tells how the keys stand that are fetched from URLs, by issuer.
func (a *Authenticator) KeyStates() []KeyState {
	var list []KeyState
	for name, is := range a.issuers {
		if is.remote == nil {
			continue
		}
		s := KeyState{Issuer: name, Keys: len(is.remote.current())}
		if set := is.remote.have.Load(); set != nil {
			s.Fetched, s.Until = set.at, set.at.Add(keepKeys)
		}
		_, s.Err = is.remote.state()
		list = append(list, s)
	}
	slices.SortFunc(list, func(a, b KeyState) int {
		if a.Issuer < b.Issuer {
			return -1
		}
		return 1
	})
	return list
}

// RefreshEvery is how often [Authenticator.Refresh] wants to be called.
const RefreshEvery = retryEvery

// Refresh fetches the keys that are due to be: those of URLs that were never asked,
// failed last, or were asked 15 minutes ago. Call it when the service begins and then
// every [RefreshEvery]; it takes a few seconds at most. What fails is told by
// [Authenticator.KeyStates]. Without Refresh keys are fetched as tokens need them.
func (a *Authenticator) Refresh(ctx context.Context) {
	var all sync.WaitGroup
	for _, is := range a.issuers {
		if is.remote == nil {
			continue
		}
		every := refreshEvery
		if _, failed := is.remote.state(); failed != nil {
			every = retryEvery
		}
		all.Go(func() { is.remote.fetch(ctx, every) })
	}
	all.Wait()
}

// Inherit takes over the keys that another authenticator has fetched from the same
// URLs, so that a change of settings needs no issuer that answers. Call it before
// the first use.
func (a *Authenticator) Inherit(from *Authenticator) {
	for _, is := range a.issuers {
		for _, old := range from.issuers {
			if is.remote != nil && old.remote != nil && is.remote.url == old.remote.url {
				is.remote = old.remote
			}
		}
	}
}
