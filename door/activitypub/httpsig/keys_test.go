package httpsig_test

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"math/big"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel/door/activitypub/httpsig"
)

// multibase writes an Ed25519 key as a publicKeyMultibase.
func multibase(key crypto.Signer) string {
	const digits = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
	n := new(big.Int).SetBytes(append([]byte{0xed, 0x01}, key.Public().(ed25519.PublicKey)...))
	var text []byte
	for base, d := big.NewInt(58), new(big.Int); n.Sign() > 0; {
		n.DivMod(n, base, d)
		text = append([]byte{digits[d.Int64()]}, text...)
	}
	return "z" + string(text)
}

// TestKeyDocuments has the forms in which servers publish keys.
func TestKeyDocuments(t *testing.T) {
	h := newHome(t)
	key, other := edKey(), edKey()
	at := func(path string) string { return h.URL + path }
	pemOf := func(id, owner string) object {
		return object{"id": id, "owner": owner, "publicKeyPem": written(t, key)}
	}
	multi := func(id, owner string, key crypto.Signer) object {
		return object{"id": id, "type": "Multikey", "controller": owner, "publicKeyMultibase": multibase(key)}
	}
	alice, main := at("/alice"), at("/alice#main-key")
	pkcs1 := pem.EncodeToMemory(&pem.Block{Type: "RSA PUBLIC KEY", Bytes: x509.MarshalPKCS1PublicKey(&rsaKey().PublicKey)})
	small := string(pem.EncodeToMemory(&pem.Block{Type: "RSA PUBLIC KEY", Bytes: x509.MarshalPKCS1PublicKey(&rsa.PublicKey{N: new(big.Int).Lsh(big.NewInt(1), 1023), E: 65537})}))
	p384, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	must(t, err)
	for name, test := range map[string]struct {
		id     string
		docs   map[string]object
		public crypto.Signer
		want   httpsig.Code
	}{
		"an actor with one": {id: main, public: key, docs: map[string]object{"/alice": {"id": alice, "publicKey": pemOf(main, alice)}}},
		"an actor with several": {id: main, public: key, docs: map[string]object{
			"/alice": {"id": alice, "publicKey": []any{pemOf(at("/alice#old"), alice), pemOf(main, alice)}},
		}},
		"PKCS #1": {id: main, public: rsaKey(), docs: map[string]object{
			"/alice": {"id": alice, "publicKey": object{"id": main, "owner": alice, "publicKeyPem": string(pkcs1)}},
		}},
		"a Multikey": {id: at("/alice#ed"), public: key, docs: map[string]object{
			"/alice": {"id": alice, "publicKey": pemOf(main, alice), "assertionMethod": []any{"https://x.example/1", multi(at("/alice#ed"), alice, key)}},
		}},
		"a key's own document, with its owner naming it": {id: at("/keys/1"), public: key, docs: map[string]object{
			"/keys/1": pemOf(at("/keys/1"), alice),
			"/alice":  {"id": alice, "publicKey": at("/keys/1")},
		}},
		"a key's own document, with its owner repeating it": {id: at("/keys/1"), public: key, docs: map[string]object{
			"/keys/1": pemOf(at("/keys/1"), alice),
			"/alice":  {"id": alice, "publicKey": pemOf(at("/keys/1"), alice)},
		}},
		"a Multikey's own document": {id: at("/keys/2"), public: key, docs: map[string]object{
			"/keys/2": multi(at("/keys/2"), alice, key),
			"/alice":  {"id": alice, "assertionMethod": at("/keys/2")},
		}},
		"an actor served as its key": {id: at("/alice/main-key"), public: key, docs: map[string]object{
			"/alice/main-key": {"id": alice, "publicKey": pemOf(at("/alice/main-key"), alice)},
			"/alice":          {"id": alice, "publicKey": pemOf(at("/alice/main-key"), alice)},
		}},

		"the owner does not list it": {id: at("/keys/1"), want: httpsig.KeyRefused, docs: map[string]object{
			"/keys/1": pemOf(at("/keys/1"), alice), "/alice": {"id": alice, "publicKey": pemOf(main, alice)},
		}},
		"the owner lists another": {id: at("/keys/2"), want: httpsig.KeyRefused, docs: map[string]object{
			"/keys/2": multi(at("/keys/2"), alice, other), "/alice": {"id": alice, "publicKey": pemOf(at("/keys/2"), alice)},
		}},
		"the owner is another": {id: at("/keys/1"), want: httpsig.KeyRefused, docs: map[string]object{
			"/keys/1": pemOf(at("/keys/1"), alice), "/alice": {"id": at("/bob"), "publicKey": at("/keys/1")},
		}},
		"a document of another id": {id: main, want: httpsig.KeyRefused, docs: map[string]object{"/alice": {"id": at("/bob"), "publicKey": pemOf(main, alice)}}},
		"the owner lists it as another's": {id: at("/keys/1"), want: httpsig.KeyRefused, docs: map[string]object{
			"/keys/1": pemOf(at("/keys/1"), alice), "/alice": {"id": alice, "publicKey": pemOf(at("/keys/1"), at("/bob"))},
		}},
		"the owner is gone": {id: at("/keys/1"), want: httpsig.KeyGone, docs: map[string]object{"/keys/1": pemOf(at("/keys/1"), alice)}},
		"a document that claims to be another's": {id: at("/upload#main-key"), want: httpsig.KeyRefused, docs: map[string]object{
			"/upload": {"id": alice, "publicKey": pemOf(at("/upload#main-key"), alice)}, "/alice": {"id": alice, "publicKey": pemOf(main, alice)},
		}},
		"a key that is its own owner": {id: at("/keys/1"), want: httpsig.KeyRefused, docs: map[string]object{"/keys/1": pemOf(at("/keys/1"), at("/keys/1"))}},
		"an owner elsewhere": {id: main, want: httpsig.KeyRefused, docs: map[string]object{
			"/alice": {"id": alice, "publicKey": pemOf(main, "https://elsewhere.example/alice")},
		}},
		"no owner":               {id: main, want: httpsig.KeyRefused, docs: map[string]object{"/alice": {"id": alice, "publicKey": object{"id": main, "publicKeyPem": written(t, key)}}}},
		"no such key":            {id: at("/alice#x"), want: httpsig.KeyGone, docs: map[string]object{"/alice": {"id": alice, "publicKey": pemOf(main, alice)}}},
		"no document":            {id: main, want: httpsig.KeyGone},
		"named only":             {id: main, want: httpsig.KeyRefused, docs: map[string]object{"/alice": {"id": alice, "publicKey": main}}},
		"a short key":            {id: main, want: httpsig.KeyRefused, docs: map[string]object{"/alice": {"id": alice, "publicKey": object{"id": main, "owner": alice, "publicKeyPem": small}}}},
		"another curve":          {id: main, want: httpsig.KeyRefused, docs: map[string]object{"/alice": {"id": alice, "publicKey": object{"id": main, "owner": alice, "publicKeyPem": written(t, p384)}}}},
		"two keys in one":        {id: main, want: httpsig.KeyRefused, docs: map[string]object{"/alice": {"id": alice, "publicKey": object{"id": main, "owner": alice, "publicKeyPem": written(t, key) + written(t, other)}}}},
		"no PEM":                 {id: main, want: httpsig.KeyRefused, docs: map[string]object{"/alice": {"id": alice, "publicKey": object{"id": main, "owner": alice, "publicKeyPem": "x"}}}},
		"no key in the PEM":      {id: main, want: httpsig.KeyRefused, docs: map[string]object{"/alice": {"id": alice, "publicKey": object{"id": main, "owner": alice, "publicKeyPem": strings.ReplaceAll(written(t, key), "PUBLIC KEY", "CERTIFICATE")}}}},
		"no base58":              {id: main, want: httpsig.KeyRefused, docs: map[string]object{"/alice": {"id": alice, "assertionMethod": object{"id": main, "type": "Multikey", "controller": alice, "publicKeyMultibase": "z0OIl"}}}},
		"another base":           {id: main, want: httpsig.KeyRefused, docs: map[string]object{"/alice": {"id": alice, "assertionMethod": object{"id": main, "type": "Multikey", "controller": alice, "publicKeyMultibase": "u7QE"}}}},
		"a long multibase":       {id: main, want: httpsig.KeyRefused, docs: map[string]object{"/alice": {"id": alice, "assertionMethod": object{"id": main, "type": "Multikey", "controller": alice, "publicKeyMultibase": "z" + strings.Repeat("2", 200)}}}},
		"a Multikey of no type":  {id: main, want: httpsig.KeyRefused, docs: map[string]object{"/alice": {"id": alice, "assertionMethod": object{"id": main, "controller": alice, "publicKeyMultibase": multibase(key)}}}},
		"names in capitals":      {id: main, want: httpsig.KeyGone, docs: map[string]object{"/alice": {"ID": alice, "PublicKey": pemOf(main, alice)}}},
		"an id that is a number": {id: main, want: httpsig.KeyGone, docs: map[string]object{"/alice": {"id": 1, "publicKey": []any{1, nil, []any{}}}}},
	} {
		t.Run(name, func(t *testing.T) {
			h.mu.Lock()
			clear(h.docs)
			h.mu.Unlock()
			for path, doc := range test.docs {
				h.has(path, doc)
			}
			got, err := newKeys(newClock()).Get(t.Context(), test.id)
			if test.want != "" {
				wantCode(t, err, test.want)
				return
			}
			must(t, err)
			if equal := test.public.Public().(interface{ Equal(crypto.PublicKey) bool }); !equal.Equal(got.Public) || got.ID != test.id || got.Owner != alice {
				t.Errorf("got %+v", got)
			}
		})
	}
}

// TestAnswersOfKeyServers has what a server may answer for a key.
func TestAnswersOfKeyServers(t *testing.T) {
	h := newHome(t)
	id := h.actor(t, "alice", edKey())
	good := h.docs["/users/alice"]
	answer := func(status int, kind, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", kind)
			w.WriteHeader(status)
			_, _ = w.Write([]byte(body))
		}
	}
	typed := func(kind string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			good(&fixedType{w, kind}, r)
		}
	}
	const json = "application/activity+json"
	for name, test := range map[string]struct {
		do   http.HandlerFunc
		want httpsig.Code
	}{
		"a document":              {good, ""},
		"of JSON-LD":              {typed(`application/ld+json; profile="https://www.w3.org/ns/activitystreams"`), ""},
		"of a charset":            {typed(json + "; charset=utf-8"), ""},
		"of another JSON-LD":      {typed("application/ld+json"), httpsig.KeyRefused},
		"of JSON":                 {typed("application/json"), httpsig.KeyRefused},
		"of no type":              {typed(""), httpsig.KeyRefused},
		"gone":                    {answer(410, json, ""), httpsig.KeyGone},
		"not found":               {answer(404, json, ""), httpsig.KeyGone},
		"signed requests only":    {answer(401, json, ""), httpsig.KeyRefused},
		"a redirect":              {func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/other", http.StatusFound) }, httpsig.KeyRefused},
		"too many requests":       {answer(429, json, ""), httpsig.KeyUnavailable},
		"an error":                {answer(500, json, ""), httpsig.KeyUnavailable},
		"no JSON":                 {answer(200, json, "<html>"), httpsig.KeyRefused},
		"no object":               {answer(200, json, "[]"), httpsig.KeyRefused},
		"nothing":                 {answer(200, json, "null"), httpsig.KeyRefused},
		"a member twice":          {answer(200, json, `{"id":1,"id":2}`), httpsig.KeyRefused},
		"too long":                {answer(200, json, strings.Repeat(" ", 1<<20)), httpsig.KeyRefused},
		"a connection that broke": {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, httpsig.KeyUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			h.does("/users/alice", test.do)
			_, err := newKeys(newClock()).Get(t.Context(), id)
			if test.want == "" {
				must(t, err)
			} else {
				wantCode(t, err, test.want)
			}
		})
	}
}

type fixedType struct {
	http.ResponseWriter
	kind string
}

func (w *fixedType) Write(p []byte) (int, error) {
	w.Header()["Content-Type"] = []string{w.kind}
	return w.ResponseWriter.Write(p)
}

// TestWhatIsNotFetched: strangers choose the ids of keys.
func TestWhatIsNotFetched(t *testing.T) {
	h := newHome(t)
	id := h.actor(t, "alice", edKey())
	port := h.URL[strings.LastIndex(h.URL, ":"):]
	refused := func(t *testing.T, opts httpsig.KeysOptions, ids ...string) {
		t.Helper()
		for _, id := range ids {
			_, err := httpsig.NewKeys(opts).Get(t.Context(), id)
			wantCode(t, err, httpsig.KeyRefused)
			if err != nil && (strings.Contains(err.Error(), "127.0.0.1") || strings.Contains(err.Error(), "dial")) {
				t.Errorf("the error tells of the network: %v", err)
			}
		}
	}
	t.Run("addresses that are not public, whatever they are called, and names that nobody has", func(t *testing.T) {
		answers := map[string]bool{}
		for _, id := range []string{
			"https://127.0.0.1" + port + "/a", "https://localhost" + port + "/a", "https://[::ffff:127.0.0.1]" + port + "/a",
			"https://169.254.169.254/latest", "https://10.0.0.1/a", "https://[::1]/a", "https://[fd00::1]/a", "https://no-such-host.invalid/a",
		} {
			_, err := httpsig.NewKeys(httpsig.KeysOptions{}).Get(t.Context(), id)
			wantCode(t, err, httpsig.KeyUnavailable)
			answers[err.Error()] = true
		}
		if len(answers) != 1 {
			t.Errorf("the answers tell which names there are: %v", answers)
		}
	})
	t.Run("what is not https", func(t *testing.T) { refused(t, httpsig.KeysOptions{}, id, "http://a.example/b") })
	t.Run("what is no URL of a document", func(t *testing.T) {
		refused(t, httpsig.KeysOptions{AllowPrivate: true}, "", "main-key", "acct:a@b.example", "ftp://a.example/b", "file:///etc/passwd", "https:///a",
			"https://u:p@a.example/b", "https://a.example/"+strings.Repeat("a", 2<<10), "https://a.example/%zz", "did:key:z6Mk", "//a.example/b",
			"https://bl\u00f6cked.example/a", "https://bl%C3%B6cked.example/a")
	})
	t.Run("hosts that are not allowed", func(t *testing.T) {
		var asked []string
		opts := httpsig.KeysOptions{AllowPrivate: true, Allow: func(host string) bool {
			asked = append(asked, host)
			return host != "blocked.example"
		}}
		refused(t, opts, "https://Blocked.Example./a", "https://blocked.example../a", "https://blocked.example:8443/a")
		if _, err := httpsig.NewKeys(opts).Get(t.Context(), id); err != nil || asked[len(asked)-1] != "127.0.0.1" {
			t.Errorf("%v, asked for %q", err, asked)
		}
	})
	if n := h.count("/users/alice"); n != 1 {
		t.Errorf("it was fetched %d times", n)
	}
	t.Run("a host that is blocked later", func(t *testing.T) {
		var blocked atomic.Bool
		keys := httpsig.NewKeys(httpsig.KeysOptions{AllowPrivate: true, Allow: func(string) bool { return !blocked.Load() }})
		_, err := keys.Get(t.Context(), id)
		must(t, err)
		blocked.Store(true)
		_, err = keys.Get(t.Context(), id)
		wantCode(t, err, httpsig.KeyRefused)
	})
}

func TestHowKeysAreAskedFor(t *testing.T) {
	h := newHome(t)
	id := h.actor(t, "alice", edKey())
	good := h.docs["/users/alice"]
	h.does("/users/alice", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Signature") == "" || r.URL.Fragment != "" ||
			r.Header.Get("Accept") != `application/activity+json, application/ld+json; profile="https://www.w3.org/ns/activitystreams"` {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		good(w, r)
	})
	own := edKey()
	sign := func(r *http.Request) error {
		return httpsig.Sign(r, nil, httpsig.SignOptions{KeyID: "https://self.example/actor#main-key", Key: own, Form: httpsig.FormCavage})
	}
	_, err := httpsig.NewKeys(httpsig.KeysOptions{AllowPrivate: true, Sign: sign}).Get(t.Context(), id)
	must(t, err)
	broken := func(*http.Request) error { return errors.New("the key of this server is lost") }
	_, err = httpsig.NewKeys(httpsig.KeysOptions{AllowPrivate: true, Sign: broken}).Get(t.Context(), id)
	wantCode(t, err, httpsig.KeyUnavailable)
}

func TestHowLongKeysAreKept(t *testing.T) {
	c, h := newClock(), newHome(t)
	id := h.actor(t, "alice", edKey())
	good := h.docs["/users/alice"]
	keys := newKeys(c)
	fetched := func(want int) {
		t.Helper()
		if n := h.count("/users/alice"); n != want {
			t.Fatalf("it was fetched %d times, want %d", n, want)
		}
	}
	get := func(want httpsig.Code) {
		t.Helper()
		_, err := keys.Get(t.Context(), id)
		if want == "" {
			must(t, err)
		} else {
			wantCode(t, err, want)
		}
	}
	get("")
	c.pass(time.Hour - time.Second)
	get("")
	fetched(1)
	h.does("/users/alice", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) })
	c.pass(time.Second)
	get(httpsig.KeyUnavailable) // an old key is not good enough
	get(httpsig.KeyUnavailable)
	fetched(2)
	h.does("/users/alice", http.NotFound)
	c.pass(15 * time.Second)
	get(httpsig.KeyGone)
	h.does("/users/alice", good)
	c.pass(time.Minute - time.Second)
	get(httpsig.KeyGone)
	fetched(3)
	c.pass(time.Second)
	get("")
	fetched(4)
}

func TestHowManyKeysAreKept(t *testing.T) {
	c, h := newClock(), newHome(t)
	keys := httpsig.NewKeys(httpsig.KeysOptions{AllowPrivate: true, Now: c.now, MaxKeys: 2})
	var ids []string
	for _, name := range []string{"a", "b", "c"} {
		ids = append(ids, h.actor(t, name, edKey()))
	}
	get := func(which ...int) {
		for _, i := range which {
			_, err := keys.Get(t.Context(), ids[i])
			must(t, err)
		}
	}
	get(0, 1, 0)
	for _, made := range []string{"/x", "/y", "/z"} { // don't displace keys
		_, err := keys.Get(t.Context(), h.URL+made)
		wantCode(t, err, httpsig.KeyGone)
	}
	get(2, 0) // displaces b, the one that was not used for longest
	if h.count("/users/a") != 1 || h.count("/users/b") != 1 {
		t.Error("a key was displaced too early")
	}
	get(1)
	if h.count("/users/b") != 2 {
		t.Error("nothing was displaced")
	}
}

// TestOneFetchForAll: those who ask at the same time share a fetch, also if the first of
// them goes away.
func TestOneFetchForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var fetches, at, most atomic.Int32
		key := edKey()
		body := func(id string) string {
			return `{"id":"` + id + `","publicKey":{"id":"` + id + `#k","owner":"` + id + `","publicKeyPem":"` + strings.ReplaceAll(written(t, key), "\n", `\n`) + `"}}`
		}
		keys := httpsig.NewKeys(httpsig.KeysOptions{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
			fetches.Add(1)
			if n := at.Add(1); n > most.Load() {
				most.Store(n)
			}
			defer at.Add(-1)
			select {
			case <-time.After(time.Second):
				return answerOf(body(r.URL.String())), nil
			case <-r.Context().Done():
				return nil, r.Context().Err()
			}
		})})
		gone, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		var all sync.WaitGroup
		all.Go(func() {
			_, err := keys.Get(gone, "https://a.example/alice#k")
			wantCode(t, err, httpsig.KeyUnavailable)
		})
		synctest.Wait()
		for range 50 {
			all.Go(func() {
				_, err := keys.Get(t.Context(), "https://a.example/alice#k")
				must(t, err)
			})
		}
		all.Wait()
		if n := fetches.Load(); n != 1 {
			t.Errorf("%d fetches", n)
		}
		for i := range 16 { // of one host, eight at once
			all.Go(func() {
				_, err := keys.Get(t.Context(), "https://a.example/"+strings.Repeat("x", i+1)+"#k")
				must(t, err)
			})
		}
		all.Wait()
		if n := most.Load(); n != 8 {
			t.Errorf("%d fetches of one host at once", n)
		}
	})
}

// hosts is a server of keys for any actor of any host, on a transport.
type hosts struct {
	sync.Mutex
	key     crypto.Signer
	fetches map[string]int // by host
	slow    map[string]time.Duration
}

func (h *hosts) RoundTrip(r *http.Request) (*http.Response, error) {
	h.Lock()
	h.fetches[r.URL.Host]++
	wait := h.slow[r.URL.Host]
	if wait == 0 && strings.HasSuffix(r.URL.Host, ".slow.example") {
		wait = h.slow["slow.example"]
	}
	h.Unlock()
	select {
	case <-time.After(wait):
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
	der, err := x509.MarshalPKIXPublicKey(h.key.Public())
	if err != nil {
		return nil, err
	}
	id := r.URL.String()
	text := strings.ReplaceAll(string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})), "\n", `\n`)
	return answerOf(`{"id":"` + id + `","publicKey":{"id":"` + id + `#k","owner":"` + id + `","publicKeyPem":"` + text + `"}}`), nil
}

func (h *hosts) count(host string) int {
	h.Lock()
	defer h.Unlock()
	return h.fetches[host]
}

// TestOthersAreNotKeptWaiting: whoever has keys fetched from slow servers, one or many of
// them, keeps out neither hosts that are new nor those that delivered before.
func TestOthersAreNotKeptWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &hosts{key: edKey(), fetches: map[string]int{}, slow: map[string]time.Duration{"slow.example": 4 * time.Second}}
		c := newClock()
		keys := httpsig.NewKeys(httpsig.KeysOptions{Transport: h, Now: c.now})
		v := newVerifier(t, c, keys)
		verify := func(from, id string) error {
			r := signed(t, c, httpsig.FormCavage, id, h.key)
			r.RemoteAddr = from
			_, err := v.Verify(r, []byte(activity))
			return err
		}
		must(t, verify("192.0.2.1:1", "https://friend.example/alice#k"))
		var all sync.WaitGroup
		var mu sync.Mutex
		codes := map[bool]int{}
		attack := func(from, id string) {
			all.Go(func() {
				err := verify(from, id)
				mu.Lock()
				defer mu.Unlock()
				codes[err == nil]++
				if err != nil {
					wantCode(t, err, httpsig.KeyUnavailable)
				}
			})
		}
		// One slow server, by way of many senders.
		for i := range 300 {
			attack("198.51.100."+strconv.Itoa(i%250)+":1", "https://slow.example/"+strconv.Itoa(i)+"#k")
		}
		synctest.Wait()
		if codes[false] != 300-16 {
			t.Errorf("%d were refused at once, want all but 16", codes[false])
		}
		// One sender, by way of many slow servers.
		for i := range 100 {
			attack("203.0.113.9:1", "https://h"+strconv.Itoa(i)+".slow.example/a#k")
		}
		synctest.Wait()
		if codes[false] != 300-16+100-16 {
			t.Errorf("%d were refused at once, want all but 16 of each", codes[false])
		}
		must(t, verify("192.0.2.7:1", "https://new.example/bob#k"))
		// Many senders, by way of many slow servers.
		for i := range 400 {
			attack("198.51.100."+strconv.Itoa(i%250)+":1", "https://m"+strconv.Itoa(i)+".slow.example/a#k")
		}
		synctest.Wait()
		if err := verify("192.0.2.8:1", "https://newer.example/bob#k"); err == nil {
			t.Error("hosts that are new have more than their half")
		}
		must(t, verify("192.0.2.8:1", "https://friend.example/carol#k"))
		all.Wait()
		// That it was busy isn't remembered.
		must(t, verify("192.0.2.8:1", "https://newer.example/bob#k"))
	})
}

// TestWhatARequestHasFetched: one signature, nothing that can't be the actor's, and not
// for longer than ten seconds.
func TestWhatARequestHasFetched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &hosts{key: edKey(), fetches: map[string]int{}, slow: map[string]time.Duration{}}
		c := newClock()
		v := newVerifier(t, c, httpsig.NewKeys(httpsig.KeysOptions{Transport: h, Now: c.now}))
		several := signed(t, c, httpsig.FormRFC9421, "https://a.example/u#k", h.key)
		for _, host := range []string{"b", "c", "d"} {
			more := signed(t, c, httpsig.FormRFC9421, "https://"+host+".example/u#k", h.key)
			for _, name := range []string{"Signature-Input", "Signature"} {
				several.Header.Set(name, several.Header.Get(name)+", "+strings.Replace(more.Header.Get(name), "sig1=", host+"=", 1))
			}
		}
		who, err := v.VerifyActor(several, []byte(activity), "https://c.example/u")
		if err != nil || who.Actor != "https://c.example/u" {
			t.Errorf("%+v, %v", who, err)
		}
		_, err = v.VerifyActor(several, []byte(activity), "https://e.example/u")
		wantCode(t, err, httpsig.OtherSigner)
		if h.count("c.example") != 1 || len(h.fetches) != 1 {
			t.Errorf("fetched %v, want c's key only", h.fetches)
		}
		cavage := signed(t, c, httpsig.FormCavage, "https://a.example/u#k", h.key)
		_, err = v.VerifyActor(cavage, []byte(activity), "https://e.example/u")
		wantCode(t, err, httpsig.OtherSigner)
		if h.count("a.example") != 0 {
			t.Error("a key was fetched that could not be the actor's")
		}
		if _, err = v.Verify(several, []byte(activity)); err != nil || h.count("a.example") != 1 || h.count("b.example") != 0 {
			t.Errorf("%v, fetched %v, want the first only", err, h.fetches)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		// Its first byte comes just in time, the owner is asked afterwards, and others
		// wait for the same host.
		h := &hosts{key: edKey(), fetches: map[string]int{}, slow: map[string]time.Duration{"a.example": 4900 * time.Millisecond}}
		c := newClock()
		v := newVerifier(t, c, httpsig.NewKeys(httpsig.KeysOptions{Transport: h, Now: c.now}))
		var all sync.WaitGroup
		for i := range 16 {
			all.Go(func() {
				began := time.Now()
				_, _ = v.Verify(signed(t, c, httpsig.FormCavage, "https://a.example/"+strconv.Itoa(i)+"#k", h.key), []byte(activity))
				if took := time.Since(began); took > 10*time.Second {
					t.Errorf("a request was held for %v", took)
				}
			})
		}
		all.Wait()
	})
}

// TestSlowKeyServers bounds how long it takes until an answer begins.
func TestSlowKeyServers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		keys := httpsig.NewKeys(httpsig.KeysOptions{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		})})
		began := time.Now()
		_, err := keys.Get(t.Context(), "https://a.example/alice#k")
		wantCode(t, err, httpsig.KeyUnavailable)
		if took := time.Since(began); took != 5*time.Second {
			t.Errorf("it took %s", took)
		}
	})
}
