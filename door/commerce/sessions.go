package commerce

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/base64"
	"net/http"
	"strings"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/commerce/session"
	"github.com/semelhq/semel/store"
)

// sessionDocument is a session in the form for callers.
type sessionDocument struct {
	ID     string `json:"id"`
	User   string `json:"user"`
	Device string `json:"device"`
	// Token isn't in lists.
	Token     string    `json:"token,omitempty"`
	StartedAt time.Time `json:"started_at"`
	ExpiresAt time.Time `json:"expires_at"`
}

func documentOf(s session.Session) sessionDocument {
	return sessionDocument{sessionID(s), s.User, s.Device, string(s.Token), s.StartedAt.UTC(), s.ExpiresAt.UTC()}
}

// sessionID returns the session's own id with its device, because the two lead to the record.
// It has only letters, digits and "-._", and so does the id of a mandate in it.
func sessionID(s session.Session) string {
	return s.ID + "." + base64.RawURLEncoding.EncodeToString([]byte(s.Device))
}

// random makes a token that nobody can guess.
func random(context.Context, session.Session) ([]byte, error) { return []byte(rand.Text()), nil }

// beginSession begins a session, or returns the active one of the user and device (MAP-SESS.1).
// The caller proves who the user is: by their own credential, or by that of a program that acts
// for them and has checked the password.
func (q *request) beginSession() (any, error) {
	var in struct {
		User       string           `json:"user"`
		Device     string           `json:"device"`
		Attributes store.Attributes `json:"attributes"`
	}
	if err := q.read(&in); err != nil {
		return nil, err
	}
	user, err := q.user(in.User)
	if err != nil {
		return nil, err
	}
	login := session.Login{
		Owner: session.Owner{Tenant: q.caller.Tenant, User: user, Device: in.Device}, Attributes: in.Attributes,
		Verify: func(context.Context) error { return nil },
		Token: func(ctx context.Context, s session.Session) ([]byte, error) {
			s.ID = sessionID(s)
			token, err := q.opts.Token(ctx, s)
			q.status = http.StatusCreated
			return token, err
		},
	}
	s, err := q.sessions.Login(q.r.Context(), login)
	if err != nil {
		return nil, err
	}
	return documentOf(s), nil
}

// listSessions lists the active sessions of a user, a page at a time.
func (q *request) listSessions() (any, error) {
	user, err := q.owner("cursor")
	if err != nil {
		return nil, err
	}
	list, next, err := q.sessions.List(q.r.Context(), q.caller.Tenant, user, q.r.URL.Query().Get("cursor"))
	docs := []sessionDocument{}
	for _, s := range list {
		docs = append(docs, documentOf(s))
	}
	return struct {
		Sessions []sessionDocument `json:"sessions"`
		Next     string            `json:"next,omitempty"`
	}{docs, next}, err
}

// named returns the session in the address, with only its owner and id.
func (q *request) named() (session.Session, error) {
	user, err := q.owner("reason")
	if err != nil {
		return session.Session{}, err
	}
	id, encoded, _ := strings.Cut(q.r.PathValue("id"), ".")
	device, err := base64.RawURLEncoding.DecodeString(encoded)
	if err != nil || len(device) == 0 {
		return session.Session{}, semel.ErrNotFound
	}
	return session.Session{Owner: session.Owner{Tenant: q.caller.Tenant, User: user, Device: string(device)}, ID: id}, nil
}

// getSession returns an active session.
func (q *request) getSession() (any, error) {
	want, err := q.named()
	if err != nil {
		return nil, err
	}
	found, err := q.sessions.Find(q.r.Context(), want.Owner)
	if err == nil && found.ID != want.ID {
		err = semel.ErrNotFound // the user has logged in again since then
	}
	return documentOf(found), err
}

// endSession ends a session. If it is over already, nothing changes.
func (q *request) endSession() (any, error) {
	s, err := q.named()
	if err != nil {
		return nil, err
	}
	return nil, q.sessions.End(q.r.Context(), s, q.caller.Principal, cmp.Or(q.r.URL.Query().Get("reason"), "logout"))
}
