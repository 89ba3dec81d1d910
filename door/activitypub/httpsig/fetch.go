package httpsig

import (
	"context"
	"crypto"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"
	"unicode"

	"github.com/semelhq/semel/safehttp"
)

// Bounds on what strangers can make this server fetch.
const (
	maxURL       = 2 << 10         // bytes of a key's id
	maxDocument  = 256 << 10       // bytes of an answer
	maxFetches   = 256             // running or waiting
	maxStrangers = maxFetches / 2  // from hosts that have never signed a delivery
	maxPerHost   = 8               // running, from one host
	maxQueued    = 2 * maxPerHost  // running or waiting, from one host or for one sender
	maxFirstByte = 5 * time.Second // until an answer begins
)

// fetcher fetches keys. It may be used concurrently.
type fetcher struct {
	client  safehttp.Client
	private bool
	allow   func(host string) bool
	sign    func(*http.Request) error
	slots   slots
}

// resolve fetches a key, and makes sure that its owner claims it: either the owner's own
// document, fetched from its own id, has the key; or the key's document names an owner of the
// same origin, and the owner's document names the key.
func (f *fetcher) resolve(ctx context.Context, id string) (*Key, error) {
	at, err := f.address(id)
	if err != nil {
		return nil, err
	}
	doc, err := f.document(ctx, at)
	if err != nil {
		return nil, err
	}
	said, err := doc.lists(id)
	listed := said != nil
	if err == nil && !listed && doc.text("id") == id {
		said, err = doc.key()
	}
	switch {
	case err != nil:
		return nil, &Error{Code: KeyRefused, Err: err}
	case said == nil:
		return nil, refuse(KeyGone, "the document of the key does not have it")
	}
	home, err := f.address(said.owner)
	if err != nil || origin(home) != origin(at) {
		return nil, refuse(KeyRefused, "the owner of the key is of another origin")
	}
	public := said.public
	if !listed || public == nil || doc.text("id") != said.owner || home.String() != at.String() {
		if public, err = f.confirm(ctx, home, id, said); err != nil {
			return nil, err
		}
	}
	return &Key{ID: id, Owner: said.owner, Public: public}, nil
}

// confirm asks the owner whether the key is theirs.
func (f *fetcher) confirm(ctx context.Context, home *url.URL, id string, said *claim) (crypto.PublicKey, error) {
	owner, err := f.document(ctx, home)
	if err != nil {
		return nil, err
	}
	listed, err := owner.lists(id)
	switch {
	case err != nil:
		return nil, &Error{Code: KeyRefused, Err: err}
	case owner.text("id") != said.owner || listed == nil || listed.owner != said.owner:
		return nil, refuse(KeyRefused, "the owner that the key names does not list it")
	case said.public == nil && listed.public == nil:
		return nil, refuse(KeyRefused, "the key is named, and nowhere to be found")
	case said.public == nil:
		return listed.public, nil
	}
	if same, ok := said.public.(interface{ Equal(crypto.PublicKey) bool }); listed.public != nil && (!ok || !same.Equal(listed.public)) {
		return nil, refuse(KeyRefused, "the owner lists another key by this id")
	}
	return said.public, nil
}

// address returns where to fetch a document: its id without the fragment, which is never sent.
// It checks that the host is allowed.
func (f *fetcher) address(id string) (*url.URL, error) {
	if len(id) > maxURL {
		return nil, refuse(KeyRefused, "the id of the key is longer than %d bytes", maxURL)
	}
	u, err := url.Parse(id)
	// A host outside ASCII has many spellings, and Allow should see only one.
	if err != nil || u.Opaque != "" || u.Hostname() == "" || !ascii(u.Host) || u.User != nil || (u.Scheme != "https" && (u.Scheme != "http" || !f.private)) {
		return nil, refuse(KeyRefused, "the id of the key is not a URL with https and a host")
	}
	if f.allow != nil && !f.allow(strings.TrimRight(strings.ToLower(u.Hostname()), ".")) {
		return nil, refuse(KeyRefused, "the host of the key is not allowed")
	}
	u.Fragment, u.RawFragment = "", ""
	return u, nil
}

func ascii(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r > unicode.MaxASCII })
}

func origin(u *url.URL) string { return u.Scheme + "://" + authority(u.Scheme, u.Host) }

// document fetches a document. The transport checks the address that it connects to; redirects
// aren't followed, because a document only counts at its id.
func (f *fetcher) document(ctx context.Context, at *url.URL) (document, error) {
	leave, err := f.slots.enter(ctx, origin(at), senderOf(ctx))
	if err != nil {
		return nil, &Error{Code: KeyUnavailable, Err: err}
	}
	defer leave()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), nil)
	if err != nil {
		return nil, refuse(KeyRefused, "the id of the key can't be asked for")
	}
	r.Header.Set("Accept", accept)
	r.Header.Set("User-Agent", "semel")
	if f.sign != nil {
		if err := f.sign(r); err != nil {
			return nil, &Error{Code: KeyUnavailable, Err: &cause{"the question for the key can't be signed", err}}
		}
	}
	answer, err := f.client.Do(r)
	switch {
	case errors.Is(err, safehttp.ErrTooLarge):
		return nil, refuse(KeyRefused, "the document of the key is longer than %d bytes", maxDocument)
	case err != nil:
		// Return the same error for private addresses, so that nobody can find out which names
		// exist in this server's network.
		return nil, &Error{Code: KeyUnavailable, Err: &cause{"the key's server can't be reached", err}}
	}
	switch status := answer.Status; {
	case status == http.StatusOK:
	case status == http.StatusNotFound, status == http.StatusGone:
		return nil, refuse(KeyGone, "the key's server answers %d", status)
	case status >= 500, status == http.StatusTooManyRequests, status == http.StatusRequestTimeout:
		return nil, refuse(KeyUnavailable, "the key's server answers %d", status)
	default:
		return nil, refuse(KeyRefused, "the key's server answers %d", status)
	}
	doc, err := readDocument(answer.Header, answer.Body)
	if err != nil {
		return nil, &Error{Code: KeyRefused, Err: err}
	}
	return doc, nil
}

// cause keeps the text of an error from the sender of the request, who could use it to explore
// this server's network.
type cause struct {
	text string
	err  error
}

func (c *cause) Error() string { return c.text }
func (c *cause) Unwrap() error { return c.err }

func newFetcher(opts *KeysOptions) *fetcher {
	base := opts.Transport
	if base == nil {
		direct := safehttp.Direct((&safehttp.Guard{Private: opts.AllowPrivate}).Control)
		direct.MaxIdleConns = maxFetches // to servers that strangers name
		base = direct
	}
	return &fetcher{
		client:  safehttp.Client{Base: prompt{base}, Timeout: opts.Timeout, MaxAnswer: maxDocument},
		private: opts.AllowPrivate, allow: opts.Allow, sign: opts.Sign,
		slots: newSlots(opts.MaxKeys),
	}
}
