package session_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/commerce/session"
	"github.com/semelhq/semel/internal/rig/clause"
	"github.com/semelhq/semel/internal/rig/pgtest"
	"github.com/semelhq/semel/store"
	"github.com/semelhq/semel/store/memstore"
	"github.com/semelhq/semel/store/pgstore"
)

var (
	phone  = session.Owner{Tenant: "shop", User: "u1", Device: "phone"}
	laptop = session.Owner{Tenant: "shop", User: "u1", Device: "laptop"}
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// pass lets time pass in a bubble.
func pass(d time.Duration) { <-time.After(d) }

func keyring(t *testing.T, ids ...string) *session.Keyring {
	t.Helper()
	var keys []session.Key
	for _, id := range ids {
		keys = append(keys, session.Key{ID: id, Secret: bytes.Repeat([]byte(id[:1]), 32)})
	}
	r, err := session.NewKeyring(keys...)
	must(t, err)
	return r
}

// node is a manager on an engine of its own.
func node(t *testing.T, st semel.Store, opts session.Options) *session.Manager {
	t.Helper()
	e, err := semel.New(st, nil)
	must(t, err)
	t.Cleanup(func() { _ = e.Close(context.Background()) })
	if opts.Keys == nil {
		opts.Keys = keyring(t, "k1")
	}
	m, err := session.New(e, opts)
	must(t, err)
	return m
}

// tokens makes tokens that all differ, and counts them.
type tokens struct{ made atomic.Int64 }

func (c *tokens) login(o session.Owner) session.Login {
	return session.Login{
		Owner: o, Verify: func(context.Context) error { return nil },
		Token: func(_ context.Context, s session.Session) ([]byte, error) {
			return fmt.Appendf(nil, "token-%d\x00of-%s", c.made.Add(1), s.ID), nil
		},
	}
}

func login(t *testing.T, m *session.Manager, l session.Login) session.Session {
	t.Helper()
	s, err := m.Login(t.Context(), l)
	must(t, err)
	return s
}

func same(t *testing.T, got, want session.Session) {
	t.Helper()
	if got.ID != want.ID || !bytes.Equal(got.Token, want.Token) || !got.ExpiresAt.Equal(want.ExpiresAt) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func another(t *testing.T, got, old session.Session) {
	t.Helper()
	if got.ID == old.ID || bytes.Equal(got.Token, old.Token) {
		t.Errorf("got %+v again", got)
	}
}

func TestOneActiveSession(t *testing.T) {
	clause.Proves(t, "MAP-SESS.1", "MAP-SESS.3")
	for name, c := range map[string]struct {
		// end ends the session; ended is false if it stays active.
		end   func(t *testing.T, m *session.Manager, s session.Session)
		stays bool
	}{
		"while it is active, the token comes back":     {func(*testing.T, *session.Manager, session.Session) {}, true},
		"a moment before it expires, too":              {func(*testing.T, *session.Manager, session.Session) { pass(time.Hour - time.Nanosecond) }, true},
		"after it has expired a login makes a new one": {func(*testing.T, *session.Manager, session.Session) { pass(time.Hour) }, false},
		"after a logout a login makes a new one": {func(t *testing.T, m *session.Manager, s session.Session) {
			must(t, m.End(t.Context(), s, "u1", "logout"))
		}, false},
		"after it was revoked by an admin":                     {func(t *testing.T, m *session.Manager, s session.Session) { revoke(t, m, s.Owner) }, false},
		"the end of another device's session doesn't touch it": {func(t *testing.T, m *session.Manager, s session.Session) { revoke(t, m, laptop) }, true},
		"the end of a session that never was doesn't touch it": {func(t *testing.T, m *session.Manager, s session.Session) {
			s.ID = "x"
			must(t, m.End(t.Context(), s, "u1", "?"))
		}, true},
		"ending it twice is as ending it once": {func(t *testing.T, m *session.Manager, s session.Session) {
			must(t, m.End(t.Context(), s, "u1", "logout"))
			must(t, m.End(t.Context(), s, "u1", "logout"))
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				st := memstore.New()
				m := node(t, st, session.Options{Lifetime: time.Hour})
				var c0 tokens
				login(t, m, c0.login(laptop))
				first := login(t, m, c0.login(phone))
				c.end(t, m, first)
				found, err := m.Find(t.Context(), phone)
				if c.stays {
					must(t, err)
					same(t, found, first)
					same(t, login(t, node(t, st, session.Options{Lifetime: time.Hour}), c0.login(phone)), first)
					return
				}
				if !errors.Is(err, semel.ErrNotFound) {
					t.Errorf("an ended session is found: %v", err)
				}
				second := login(t, m, c0.login(phone))
				another(t, second, first)
				must(t, m.End(t.Context(), first, "u1", "a late logout"))
				same(t, login(t, m, c0.login(phone)), second)
			})
		})
	}
}

func revoke(t *testing.T, m *session.Manager, o session.Owner) {
	t.Helper()
	s, err := m.Find(t.Context(), o)
	must(t, err)
	must(t, m.End(t.Context(), s, "admin", "stolen"))
}

// errBusy is the error of a store that didn't get to a call in time.
var errBusy error = &semel.Error{Code: semel.CodeStoreUnavailable}

func TestLoginsAtOnceShareASession(t *testing.T) {
	clause.Proves(t, "MAP-SESS.1", "MAP-SESS.3")
	run := func(t *testing.T, takes time.Duration, nodes []*session.Manager) {
		var c tokens
		slow := c.login(phone)
		quick := slow.Token
		slow.Token = func(ctx context.Context, s session.Session) ([]byte, error) {
			pass(takes)
			return quick(ctx, s)
		}
		for round := range 3 {
			sessions := make([]session.Session, 100)
			var wg sync.WaitGroup
			for i := range sessions {
				wg.Go(func() {
					var err error
					if sessions[i], err = nodes[i%len(nodes)].Login(t.Context(), slow); err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
			for _, s := range sessions {
				same(t, s, sessions[0])
			}
			if n := c.made.Load(); n != int64(round+1) {
				t.Fatalf("%d tokens were made for %d sessions", n, round+1)
			}
			// All devices log out at once, on all nodes; each ends this session only.
			for i := range 10 {
				wg.Go(func() {
					err := errBusy
					for errors.Is(err, errBusy) { // ten at once may wait too long for a lock on a busy machine
						err = nodes[i%len(nodes)].End(t.Context(), sessions[0], "u1", "logout")
					}
					if err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
		}
	}
	t.Run("on three engines on one store", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			st := memstore.New()
			run(t, time.Second, []*session.Manager{node(t, st, session.Options{}), node(t, st, session.Options{}), node(t, st, session.Options{})})
		})
	})
	t.Run("on three nodes on PostgreSQL", func(t *testing.T) {
		server := pgtest.Shared(t)
		db := server.URL(server.Database(t))
		var nodes []*session.Manager
		for range 3 {
			st, err := pgstore.Open(t.Context(), db, &pgstore.Options{Migrate: true})
			must(t, err)
			t.Cleanup(func() { _ = st.Close() })
			nodes = append(nodes, node(t, st, session.Options{}))
		}
		run(t, 0, nodes)
	})
}

// hooked is a store that lets a test act just before a record is read.
type hooked struct {
	*memstore.Store
	before func()
}

func (s *hooked) Get(ctx context.Context, id semel.ID) (*semel.Record, error) {
	if s.before != nil {
		s.before()
	}
	return s.Store.Get(ctx, id)
}

func TestTheEndOfAnOldSessionNeverEndsANewerOne(t *testing.T) {
	clause.Proves(t, "MAP-SESS.3")
	for reads := 1; reads <= 2; reads++ {
		t.Run(fmt.Sprintf("made just before its read %d", reads), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				st := &hooked{Store: memstore.New()}
				m, other := node(t, st, session.Options{}), node(t, st.Store, session.Options{})
				var c tokens
				old := login(t, m, c.login(phone))
				var newer session.Session
				n := 0
				st.before = func() {
					if n++; n == reads {
						must(t, other.End(t.Context(), old, "u1", "logout"))
						newer = login(t, other, c.login(phone))
					}
				}
				must(t, m.End(t.Context(), old, "u1", "logout"))
				another(t, newer, old)
				same(t, login(t, m, c.login(phone)), newer)
			})
		})
	}
	t.Run("made at the same time", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			st := memstore.New()
			a, b := node(t, st, session.Options{}), node(t, st, session.Options{})
			var c tokens
			for range 50 {
				old := login(t, a, c.login(phone))
				var wg sync.WaitGroup
				newer := old
				wg.Go(func() {
					for ; newer.ID == old.ID; newer = login(t, b, c.login(phone)) {
						pass(100 * time.Millisecond)
					}
				})
				for _, m := range []*session.Manager{a, b, a} {
					wg.Go(func() { must(t, m.End(t.Context(), old, "u1", "logout")) })
				}
				wg.Wait()
				found, err := a.Find(t.Context(), phone)
				must(t, err)
				same(t, found, newer)
				must(t, a.End(t.Context(), newer, "u1", "logout"))
			}
		})
	})
}

func TestALoginThatFails(t *testing.T) {
	wrong := errors.New("wrong password")
	t.Run("by its proof leaves nothing, and gets no token of an active session", func(t *testing.T) {
		st := memstore.New()
		m := node(t, st, session.Options{})
		var c tokens
		bad := c.login(phone)
		bad.Verify = func(context.Context) error { return wrong }
		if s, err := m.Login(t.Context(), bad); err != wrong || s.Token != nil || st.Len() != 0 {
			t.Fatalf("%+v, %v; %d records", s, err, st.Len())
		}
		login(t, m, c.login(phone))
		if s, err := m.Login(t.Context(), bad); err != wrong || s.Token != nil {
			t.Fatalf("%+v, %v", s, err)
		}
	})
	for name, fails := range map[string]error{
		"by its token, for any reason, lets the next one run": wrong,
		"with an error that is marked as rejected":            semel.Rejected("no", wrong),
		"with an error that is marked as a failure":           semel.Failure(wrong),
		"with an error that is marked as unknown":             semel.Unknown(wrong),
	} {
		t.Run(name, func(t *testing.T) {
			m := node(t, memstore.New(), session.Options{})
			var c tokens
			bad := c.login(phone)
			bad.Token = func(context.Context, session.Session) ([]byte, error) { return []byte("half a token"), fails }
			if s, err := m.Login(t.Context(), bad); !errors.Is(err, wrong) || s.Token != nil {
				t.Fatalf("%+v, %v", s, err)
			}
			if s := login(t, m, c.login(phone)); !strings.HasPrefix(string(s.Token), "token-1") {
				t.Errorf("%+v", s)
			}
		})
	}
	t.Run("in front of others lets one of them make the token", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			st := memstore.New()
			m := node(t, st, session.Options{})
			var c tokens
			bad := c.login(phone)
			bad.Token = func(context.Context, session.Session) ([]byte, error) { pass(time.Second); return nil, wrong }
			var wg sync.WaitGroup
			wg.Go(func() {
				if _, err := m.Login(t.Context(), bad); !errors.Is(err, wrong) {
					t.Error(err)
				}
			})
			synctest.Wait()
			for range 10 {
				wg.Go(func() { login(t, m, c.login(phone)) })
			}
			wg.Wait()
			if n := c.made.Load(); n != 1 {
				t.Errorf("%d tokens were made", n)
			}
		})
	})
	t.Run("as its process died lets the next one run after the lease", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			st := &mortal{Store: memstore.New()}
			const lease = 5 * time.Second
			dying, m := node(t, st, session.Options{Lease: lease}), node(t, st.Store, session.Options{Lease: lease})
			var c tokens
			var started session.Session
			last := c.login(phone)
			last.Token = func(_ context.Context, s session.Session) ([]byte, error) {
				started = s
				st.dead.Store(true)
				return []byte("nobody gets it"), nil
			}
			began := time.Now()
			var wg sync.WaitGroup
			wg.Go(func() {
				if _, err := dying.Login(t.Context(), last); err == nil {
					t.Error("a dead process has answered")
				}
			})
			synctest.Wait()
			for range 10 {
				s := login(t, m, c.login(phone))
				if took := time.Since(began); s.ID != started.ID || took < lease || took > lease+time.Second {
					t.Errorf("%+v after %v; the first try was %+v", s, took, started)
				}
			}
			if n := c.made.Load(); n != 1 {
				t.Errorf("%d tokens were made", n)
			}
			wg.Wait()
		})
	})
}

// mortal is a store as a process sees it that may have died.
type mortal struct {
	*memstore.Store
	dead atomic.Bool
}

func (s *mortal) Apply(ctx context.Context, w store.Write) (*semel.Record, bool, error) {
	if s.dead.Load() {
		return nil, false, errors.New("dead")
	}
	return s.Store.Apply(ctx, w)
}

func TestLifetime(t *testing.T) {
	clause.Proves(t, "MAP-SESS.3")
	t.Run("is counted from the login, however long making the token takes", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			m := node(t, memstore.New(), session.Options{Lifetime: time.Hour})
			var c tokens
			slow := c.login(phone)
			var told time.Time
			slow.Token = func(ctx context.Context, s session.Session) ([]byte, error) {
				pass(10 * time.Minute)
				told = s.ExpiresAt
				return []byte("slow"), nil
			}
			began := time.Now()
			first := login(t, m, slow)
			if !first.ExpiresAt.Equal(began.Add(time.Hour)) || !first.ExpiresAt.Equal(told) {
				t.Errorf("it expires at %v, its token at %v", first.ExpiresAt, told)
			}
			pass(50 * time.Minute)
			if _, err := m.Find(t.Context(), phone); !errors.Is(err, semel.ErrNotFound) {
				t.Errorf("an expired session is found: %v", err)
			}
			another(t, login(t, m, c.login(phone)), first) // although the record isn't expired yet
		})
	})
	t.Run("is that of the login that makes the session", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			m := node(t, memstore.New(), session.Options{})
			var c tokens
			short, long := c.login(phone), c.login(phone)
			short.Lifetime, long.Lifetime = time.Minute, 30*24*time.Hour
			first := login(t, m, short)
			same(t, login(t, m, long), first)
			pass(time.Minute)
			if second := login(t, m, long); second.ExpiresAt.Sub(second.StartedAt) != long.Lifetime {
				t.Errorf("%+v", second)
			}
		})
	})
}

func TestWhatIsStored(t *testing.T) {
	st := memstore.New()
	m := node(t, st, session.Options{})
	var c tokens
	l := c.login(session.Owner{Tenant: "shop", User: "u:1", Device: "phone"})
	l.Attributes = store.Attributes{"intent.created_at": "2026-11-25T12:00:00Z", "intent.nonce": "a7b3"}
	s := login(t, m, l)
	rec, err := st.Get(t.Context(), semel.ID{Tenant: "shop", Principal: "u:1", Operation: "commerce.session", Key: "session:u%3A1:phone"})
	must(t, err)
	t.Run("is the token as a compact JWE", func(t *testing.T) {
		clause.Proves(t, "MAP-SESS.5")
		if bytes.Contains(rec.Result.Data, s.Token) || bytes.Count(rec.Result.Data, []byte(".")) != 4 {
			t.Errorf("%q", rec.Result.Data)
		}
	})
	t.Run("has no fingerprint of the login, so no retry conflicts", func(t *testing.T) {
		if !rec.Fingerprint.IsZero() {
			t.Error(rec.Fingerprint)
		}
		l.Attributes = store.Attributes{"intent.created_at": "later", "intent.nonce": "other"}
		same(t, login(t, m, l), s)
		if rec.Attributes["intent.nonce"] != "a7b3" {
			t.Error(rec.Attributes)
		}
	})
	t.Run("belongs to one owner, whatever the names are", func(t *testing.T) {
		for _, o := range []session.Owner{{User: "u:1", Device: "phone"}, {Tenant: "shop", User: "u", Device: "1:phone"}, {Tenant: "shop", User: "u%3A1", Device: "phone"}} {
			another(t, login(t, m, c.login(o)), s)
		}
	})
}

func TestRefusals(t *testing.T) {
	m := node(t, memstore.New(), session.Options{})
	var c tokens
	long := strings.Repeat("x", 257)
	for _, o := range []session.Owner{{User: "u"}, {Device: "d"}, {User: long, Device: "d"}, {User: "u", Device: long}, {User: "u\x00", Device: "d"}, {User: "\xff", Device: "d"}} {
		if _, err := m.Login(t.Context(), c.login(o)); !errors.Is(err, &semel.Error{Code: semel.CodeInvalidCall}) {
			t.Errorf("%q: %v", o, err)
		}
		if _, err := m.Find(t.Context(), o); !errors.Is(err, &semel.Error{Code: semel.CodeInvalidCall}) {
			t.Errorf("%q: %v", o, err)
		}
		if err := m.End(t.Context(), session.Session{Owner: o}, "", ""); !errors.Is(err, &semel.Error{Code: semel.CodeInvalidCall}) {
			t.Errorf("%q: %v", o, err)
		}
	}
	for name, change := range map[string]func(*session.Login){
		"no proof":           func(l *session.Login) { l.Verify = nil },
		"nothing to make it": func(l *session.Login) { l.Token = nil },
		"an empty token": func(l *session.Login) {
			l.Token = func(context.Context, session.Session) ([]byte, error) { return nil, nil }
		},
		"a huge token": func(l *session.Login) {
			l.Token = func(context.Context, session.Session) ([]byte, error) { return make([]byte, session.MaxToken+1), nil }
		},
		"a lifetime of an hour ago": func(l *session.Login) { l.Lifetime = -time.Hour },
	} {
		t.Run(name, func(t *testing.T) {
			l := c.login(phone)
			change(&l)
			if s, err := m.Login(t.Context(), l); err == nil || s.Token != nil {
				t.Errorf("%+v, %v", s, err)
			}
		})
	}
	l := c.login(laptop)
	l.Token = func(context.Context, session.Session) ([]byte, error) {
		return bytes.Repeat([]byte{0}, session.MaxToken), nil
	}
	if s := login(t, m, l); len(s.Token) != session.MaxToken {
		t.Errorf("%d bytes", len(s.Token))
	}
	same(t, login(t, m, l), login(t, m, l))
	e, err := semel.New(memstore.New(), nil)
	must(t, err)
	if _, err := session.New(e, session.Options{}); err == nil {
		t.Error("a manager without keys")
	}
	keep, err := semel.New(keeper{memstore.New()}, nil)
	must(t, err)
	if _, err := session.New(keep, session.Options{Keys: keyring(t, "k")}); !errors.Is(err, &semel.Error{Code: semel.CodeUnsupported}) {
		t.Errorf("on a store that deletes nothing: %v", err)
	}
}

// keeper is a store that deletes nothing.
type keeper struct{ semel.Store }

func (keeper) Extras() store.Extras { return store.Extras{} }

// TestListOfSessions: a user sees their own active sessions, a page at a time, and no tokens.
func TestListOfSessions(t *testing.T) {
	m, c := node(t, memstore.New(), session.Options{}), tokens{}
	want := map[string]bool{}
	for i := range 60 {
		o := phone
		o.Device = fmt.Sprintf("device %d: 100%%", i)
		s, err := m.Login(t.Context(), c.login(o))
		must(t, err)
		if i == 0 {
			must(t, m.End(t.Context(), s, "u1", "logout"))
			continue
		}
		want[s.ID+s.Device] = true
	}
	other := phone
	other.User = "u2"
	_, err := m.Login(t.Context(), c.login(other))
	must(t, err)
	pages, cursor := 0, ""
	for more := true; more; more = cursor != "" {
		var list []session.Session
		list, cursor, err = m.List(t.Context(), "shop", "u1", cursor)
		must(t, err)
		if len(list) > store.DefaultSearchLimit {
			t.Errorf("a page has %d sessions", len(list))
		}
		for _, s := range list {
			if !want[s.ID+s.Device] || s.Token != nil {
				t.Errorf("the list has %+v", s)
			}
			delete(want, s.ID+s.Device)
		}
		pages++
	}
	if len(want) > 0 || pages != 2 {
		t.Errorf("%d pages lack %v", pages, want)
	}
	if list, _, err := m.List(t.Context(), "shop", "", ""); len(list) > 0 || err != nil {
		t.Errorf("nobody has %v, %v", list, err)
	}
}
