package dashboard

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
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
	// maxSessions bounds their memory. When there are more, the oldest end.
	maxSessions = 1024
)

type session struct {
	header        [sha256.Size]byte // digest of the other half
	authorization string
	until         time.Time
}

// sessions are those of one process.
type sessions struct {
	path string // of the cookie
	now  func() time.Time
	mu   sync.Mutex
	open map[[sha256.Size]byte]session // by digest of the cookie
}

func newSessions(prefix string) *sessions {
	return &sessions{path: prefix + "/", now: time.Now, open: map[[sha256.Size]byte]session{}}
}

// begin opens a session, sets its cookie, and returns the half for the header.
func (s *sessions) begin(w http.ResponseWriter, r *http.Request, authorization string) (header string) {
	cookie, header := rand.Text(), rand.Text()
	now := s.now()
	s.mu.Lock()
	if len(s.open) >= maxSessions {
		s.makeRoom(now)
	}
	s.open[sha256.Sum256([]byte(cookie))] = session{sha256.Sum256([]byte(header)), authorization, now.Add(sessionTime)}
	s.mu.Unlock()
	s.setCookie(w, r, cookie, int(sessionTime/time.Second))
	return header
}

// makeRoom forgets the sessions that are over, or the oldest one.
func (s *sessions) makeRoom(now time.Time) {
	var oldest [sha256.Size]byte
	first := true
	for name, open := range s.open {
		if open.until.Before(now) {
			delete(s.open, name)
		} else if first || open.until.Before(s.open[oldest].until) {
			oldest, first = name, false
		}
	}
	if len(s.open) >= maxSessions {
		delete(s.open, oldest)
	}
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

// end ends the session of a request.
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

// signedIn reports whether a request has a session.
func signedIn(r *http.Request) bool { return r.Context().Value(signedInKey{}) != nil }

// resume gives a request the token of its session, as if it had brought it. One that has
// a token of its own keeps that.
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
