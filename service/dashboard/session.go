package dashboard

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"maps"
	"net/http"
	"sync"
	"time"
)

// A session keeps the token that its user signed in with, so that they don't type it for
// each page. Its secret has two halves, and a request needs both:
//
//   - a cookie, HttpOnly and SameSite=Strict: no script can read it, so nothing that gets
//     into the page can carry the session away
//   - a header, which the page's script sends from the origin's own storage: a browser
//     sends it for no other page, so no other site can act in the user's name. Browsers send
//     cookies to every port of a host, so another program on this machine may see the first
//     half, and it is worth nothing alone
//
// The token itself is in neither: it's in this process only, and goes with it. A cookie
// alone never authenticates a request.
const (
	sessionCookie = "semel_session"
	sessionHeader = "Semel-Session"
	// sessionTime is how long a session lasts: a working day.
	sessionTime = 12 * time.Hour
	// maxSessions bounds their memory. When there are more, the oldest one of the tenant
	// with the most ends, so that no tenant can sign out the operators of another.
	maxSessions = 1024
	// maxOfOne bounds the sessions of one user, as for several browsers. When there are
	// more, their oldest one ends.
	maxOfOne = 16
)

type user struct{ tenant, principal string }

type session struct {
	header        [sha256.Size]byte // digest of the other half
	authorization string
	of            user
	until         time.Time
}

type sessions struct {
	path string // of the cookie
	now  func() time.Time
	mu   sync.Mutex
	open map[[sha256.Size]byte]session // by digest of the cookie
}

// begin opens a session, sets its cookie, and returns the half for the header.
func (s *sessions) begin(w http.ResponseWriter, r *http.Request, authorization string, of user) (header string) {
	cookie, header := rand.Text(), rand.Text()
	now := s.now()
	s.mu.Lock()
	s.makeRoom(now, of)
	s.open[sha256.Sum256([]byte(cookie))] = session{sha256.Sum256([]byte(header)), authorization, of, now.Add(sessionTime)}
	s.mu.Unlock()
	s.setCookie(w, r, cookie, int(sessionTime/time.Second))
	return header
}

// makeRoom ends the sessions that are over, and the oldest of whoever has too many.
func (s *sessions) makeRoom(now time.Time, of user) {
	maps.DeleteFunc(s.open, func(_ [sha256.Size]byte, open session) bool { return open.until.Before(now) })
	own, tenants := 0, map[string]int{}
	for _, open := range s.open {
		tenants[open.of.tenant]++
		if open.of == of {
			own++
		}
	}
	switch {
	case own >= maxOfOne:
		s.endOldest(func(u user) bool { return u == of })
	case len(s.open) >= maxSessions:
		most := of.tenant
		for tenant, n := range tenants {
			if n > tenants[most] {
				most = tenant
			}
		}
		s.endOldest(func(u user) bool { return u.tenant == most })
	}
}

func (s *sessions) endOldest(of func(user) bool) {
	var oldest [sha256.Size]byte
	var until time.Time
	for name, open := range s.open {
		if of(open.of) && (until.IsZero() || open.until.Before(until)) {
			oldest, until = name, open.until
		}
	}
	delete(s.open, oldest)
}

func (s *sessions) setCookie(w http.ResponseWriter, r *http.Request, value string, age int) {
	http.SetCookie(w, &http.Cookie{
		Name: sessionCookie, Value: value, Path: s.path, MaxAge: age,
		HttpOnly: true, SameSite: http.SameSiteStrictMode, Secure: r.TLS != nil,
	})
}

// find returns the session of a request that has both halves of it.
func (s *sessions) find(r *http.Request) (name [sha256.Size]byte, found session, ok bool) {
	cookie, err := r.Cookie(sessionCookie)
	if err != nil {
		return name, found, false
	}
	name = sha256.Sum256([]byte(cookie.Value))
	header := sha256.Sum256([]byte(r.Header.Get(sessionHeader)))
	s.mu.Lock()
	defer s.mu.Unlock()
	found, ok = s.open[name]
	if ok && !s.now().Before(found.until) {
		delete(s.open, name)
		ok = false
	}
	return name, found, ok && subtle.ConstantTimeCompare(header[:], found.header[:]) == 1
}

func (s *sessions) end(w http.ResponseWriter, r *http.Request) {
	if name, _, ok := s.find(r); ok {
		s.mu.Lock()
		delete(s.open, name)
		s.mu.Unlock()
	}
	s.setCookie(w, r, "", -1)
	w.WriteHeader(http.StatusNoContent)
}

type signedInKey struct{}

// resume gives a request the token of its session, unless it brought one.
func (s *sessions) resume(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") == "" {
			if _, found, ok := s.find(r); ok {
				r = r.Clone(context.WithValue(r.Context(), signedInKey{}, true))
				r.Header.Set("Authorization", found.authorization)
			}
		}
		next.ServeHTTP(w, r)
	})
}
