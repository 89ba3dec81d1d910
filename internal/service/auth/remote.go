package auth

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/semelhq/semel/internal/network"
	"github.com/semelhq/semel/safehttp"
)

const (
	// refreshEvery is the age at which keys are fetched again, so that withdrawn keys
	// stop working.
	refreshEvery = 15 * time.Minute
	// retryEvery is the shortest time between two fetches from one address. Otherwise
	// callers with tokens of made-up keys could make the service ask the issuer for each.
	retryEvery = 30 * time.Second
	// keepKeys is how long keys stay valid if they can't be fetched again. An issuer may
	// be down for a night, but cutting the service off from it must not keep withdrawn
	// keys valid for ever.
	keepKeys = 24 * time.Hour
	// fetchTime bounds one fetch, and so how long it takes to refuse a token with a new
	// key.
	fetchTime = 5 * time.Second
	// maxKeySet bounds the answer, in bytes.
	maxKeySet = 512 << 10
)

type keySet struct {
	keys   []publicKey
	at     time.Time // when they were fetched; zero: never
	tried  time.Time // when the last fetch began
	failed error     // its error
}

// remoteKeys are the keys that an issuer publishes. They may be read during a fetch.
type remoteKeys struct {
	url      string
	client   safehttp.Client
	set      atomic.Pointer[keySet]
	fetching chan struct{} // a semaphore for one fetch at a time
}

// checkKeysURL returns why a URL can't be a [JWT].JWKSURL, or nil.
func checkKeysURL(address string) error {
	u, err := url.Parse(address)
	switch {
	case err != nil || u.Opaque != "" || u.Hostname() == "":
		return errors.New("is not a URL with a host")
	case u.User != nil:
		return errors.New("has a password, which would be written to logs")
	case u.Fragment != "":
		return errors.New("has a fragment, which is never sent")
	case u.Scheme == "https", u.Scheme == "http" && network.Loopback(u.Hostname()):
		return nil
	case u.Scheme == "http":
		return errors.New("is not https, so anybody on the way could replace the keys; http is for loopback addresses")
	}
	return errors.New("is not https")
}

// current are the keys that may be used now; nil if there are none.
func (k *remoteKeys) current() []publicKey {
	set := k.set.Load()
	if time.Since(set.at) > keepKeys {
		return nil
	}
	return set.keys
}

// fetch fetches the keys, but not twice within atMostEvery. After a failure they stay as they were.
func (k *remoteKeys) fetch(ctx context.Context, atMostEvery time.Duration) {
	k.fetching <- struct{}{} // after waiting for another fetch, the check below finds it done
	defer func() { <-k.fetching }()
	set := *k.set.Load()
	if time.Since(set.tried) < atMostEvery {
		return
	}
	set.tried = time.Now()
	keys, err := k.ask(ctx)
	if set.failed = err; err == nil {
		set.keys, set.at = keys, set.tried
	}
	k.set.Store(&set)
}

// ask makes one request. Its errors quote nothing of the answer.
func (k *remoteKeys) ask(ctx context.Context) ([]publicKey, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, k.url, nil)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Accept", "application/jwk-set+json, application/json")
	r.Header.Set("User-Agent", "semel")
	// Only the issuer's own address may answer: redirects aren't followed, and the
	// environment's proxy isn't used.
	answer, err := k.client.Do(r)
	if err != nil {
		return nil, err
	}
	if answer.Status != http.StatusOK {
		return nil, fmt.Errorf("the status is %d", answer.Status)
	}
	return checkKeys(parseJWKS(answer.Body))
}

// KeyState is the state of an issuer's keys that are fetched from a URL.
type KeyState struct {
	// Issuer is the iss of the tokens.
	Issuer string
	// Keys is the number of usable keys. If it is 0, tokens of this issuer are refused
	// with ErrUnavailable.
	Keys int
	// Fetched is when the keys were fetched; zero if never.
	Fetched time.Time
	// Err is the error of the last fetch, nil if it succeeded. Until is how long the keys
	// stay valid if no other fetch succeeds.
	Err   error
	Until time.Time
}

// String is a short text without secrets.
func (s KeyState) String() string {
	switch {
	case s.Fetched.IsZero() && s.Err == nil:
		return fmt.Sprintf("%s: not fetched yet", s.Issuer)
	case s.Keys == 0:
		return fmt.Sprintf("%s: no keys, its tokens are refused: %v", s.Issuer, s.Err)
	case s.Err != nil:
		return fmt.Sprintf("%s: %d keys of %s stay valid until %s, because the last fetch failed: %v", s.Issuer, s.Keys,
			s.Fetched.UTC().Format(time.RFC3339), s.Until.UTC().Format(time.RFC3339), s.Err)
	}
	return fmt.Sprintf("%s: %d keys of %s", s.Issuer, s.Keys, s.Fetched.UTC().Format(time.RFC3339))
}

// KeyStates returns the states of all keys that are fetched from URLs, by issuer.
func (a *Authenticator) KeyStates() []KeyState {
	var list []KeyState
	for name, is := range a.issuers {
		if is.remote == nil {
			continue
		}
		set := is.remote.set.Load()
		s := KeyState{Issuer: name, Keys: len(is.remote.current()), Fetched: set.at, Err: set.failed}
		if !set.at.IsZero() {
			s.Until = set.at.Add(keepKeys)
		}
		list = append(list, s)
	}
	slices.SortFunc(list, func(a, b KeyState) int { return strings.Compare(a.Issuer, b.Issuer) })
	return list
}

// RefreshEvery is how often to call [Authenticator.Refresh].
const RefreshEvery = retryEvery

// Refresh fetches the keys that are due: never fetched, failed last time, or 15 minutes old.
// Call it when the service starts, and then every [RefreshEvery]; it takes a few seconds at
// most. [Authenticator.KeyStates] shows failures. Without Refresh, keys are fetched when tokens
// need them.
func (a *Authenticator) Refresh(ctx context.Context) {
	var all sync.WaitGroup
	for _, is := range a.issuers {
		if is.remote == nil {
			continue
		}
		every := refreshEvery
		if is.remote.set.Load().failed != nil {
			every = retryEvery
		}
		all.Go(func() { is.remote.fetch(ctx, every) })
	}
	all.Wait()
}

// Inherit takes over the keys that another authenticator has fetched from the same URLs,
// so that a reload works while the issuer is down. Call it before the first use.
func (a *Authenticator) Inherit(from *Authenticator) {
	for _, is := range a.issuers {
		for _, old := range from.issuers {
			if is.remote != nil && old.remote != nil && is.remote.url == old.remote.url {
				is.remote = old.remote
			}
		}
	}
}
