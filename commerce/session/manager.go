package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store"
)

// Options configure a Manager.
type Options struct {
	// Name of the operation that makes sessions. Defaults to "commerce.session".
	Name string
	// Keys encrypt the stored tokens. Required.
	Keys *Keyring
	// Lifetime of a session if the login doesn't set one. Defaults to 24 hours; 1 second to
	// ten years.
	Lifetime time.Duration
	// Lease is how long logins of a device wait if the process that made its token has
	// died. Defaults to 30 seconds.
	Lease time.Duration
	// Evidence is how much of logins and endings goes to the evidence log.
	Evidence semel.EvidenceLevel
}

// MaxToken is the longest token, in bytes.
const MaxToken = 64 << 10

// Owner is the owner of a session: a user on a device.
type Owner struct {
	// Tenant may be empty. User and Device may have up to 256 bytes each.
	Tenant, User, Device string
}

// Session is an active session.
type Session struct {
	Owner
	// ID names the session. No other session has it, not even of the same owner. It isn't
	// secret.
	ID string
	// Token is the token that the user's device presents.
	Token []byte
	// StartedAt and ExpiresAt are by the store's clock.
	StartedAt, ExpiresAt time.Time
}

// Login is one login of a user on a device.
type Login struct {
	Owner
	// Verify checks the user's proof, such as a password. Required. It is called at every
	// login, because a login while a session is active gets its token. Login returns its
	// error as it is; nothing is stored then.
	Verify func(ctx context.Context) error
	// Token makes the token of a new session, which has everything else set. Required. It may
	// have no effect outside your process: after a crash it is called again for the same
	// session. After an error nothing is recorded, and the next login calls it again. Let the
	// token be valid until Session.ExpiresAt.
	Token func(ctx context.Context, s Session) ([]byte, error)
	// Lifetime of the session if this login makes it. Defaults to Options.Lifetime.
	Lifetime time.Duration
	// Attributes are stored in plain text with a new session, such as the time of the login
	// and its nonce. They aren't part of the key: a retry has others.
	Attributes store.Attributes
}

// Manager makes and ends sessions. It has no state of its own: any number of them, on
// any number of nodes, may serve one store. Its methods may be called concurrently.
type Manager struct {
	engine *semel.Engine
	opts   Options
}

// New makes a manager and registers its operation. The store must be able to delete
// records ([store.Purger]).
func New(engine *semel.Engine, opts Options) (*Manager, error) {
	opts.Name = cmp.Or(opts.Name, "commerce.session")
	opts.Lifetime = cmp.Or(opts.Lifetime, semel.DefaultWindow)
	if opts.Keys == nil {
		return nil, errors.New("session: Keys is missing")
	}
	if engine.Internal().Store().Extras().Purge == nil {
		return nil, &semel.Error{Code: semel.CodeUnsupported, Message: "the store can't delete records, so no session could be ended"}
	}
	err := engine.Register(semel.Operation{
		Name: opts.Name, Window: opts.Lifetime, Lease: opts.Lease, Evidence: opts.Evidence, MaxResult: 2 * MaxToken,
		InFlight: semel.WaitInFlight,
		// Making a token has no effect outside, so a login runs again after its process died.
		Effects: []string{}, OnFailure: semel.RetryFailure, OnAbandoned: semel.RetryAbandoned,
	})
	if err != nil {
		return nil, fmt.Errorf("session: %w", err)
	}
	return &Manager{engine, opts}, nil
}

// maxRounds bounds how often a call starts again because a session ended meanwhile.
const maxRounds = 16

var errTooFast = &semel.Error{Code: semel.CodeStoreUnavailable, Message: "the sessions of the device end too fast, try again", RetryAfter: time.Second}

// Login returns the active session of the owner, or makes one if there is none. Of any
// number of logins at once, on any number of nodes, one makes the token and all get it.
//
// [semel.ErrInFlight] means that another login has been making the token for 30 seconds.
// [ErrSealed] means that this node can't decrypt the session's token; end the session, or add
// the key. After any other error, log in again.
func (m *Manager) Login(ctx context.Context, l Login) (Session, error) {
	if l.Verify == nil || l.Token == nil {
		return Session{}, errors.New("session: Verify or Token is missing")
	}
	if err := l.validate(); err != nil {
		return Session{}, err
	}
	if err := l.Verify(ctx); err != nil {
		return Session{}, err
	}
	for range maxRounds {
		// A crash before the claim leaves nothing, a crash before the outcome a lease, after
		// which another login makes the token, and a crash after it an active session.
		ans, err := m.engine.Do(ctx, semel.Call{
			Tenant: l.Tenant, Principal: l.User, Operation: m.opts.Name, Key: key(l.Owner), Window: l.Lifetime, Attributes: l.Attributes,
		}, func(ctx context.Context, x semel.Execution) (semel.Result, error) {
			res, err := m.make(ctx, &l, x.(*semel.Attempt).Record())
			if err != nil {
				return res, semel.Aborted(err) // a mark of the error may not block the next login
			}
			return res, nil
		})
		if err != nil {
			return Session{}, err
		}
		s, err := m.active(ctx, l.Owner, ans.Record)
		if !errors.Is(err, semel.ErrNotFound) {
			return s, err
		}
		// The record outlives the session by the time that making the token took.
		if err := m.End(ctx, s, "session", "expired"); err != nil {
			return Session{}, err
		}
	}
	return Session{}, errTooFast
}

// make makes the token of a new session and encrypts it.
func (m *Manager) make(ctx context.Context, l *Login, claim *semel.Record) (semel.Result, error) {
	s := m.of(l.Owner, claim)
	s.ExpiresAt = s.StartedAt.Add(claim.Policy.Window)
	token, err := l.Token(ctx, s)
	if err != nil {
		return semel.Result{}, err
	}
	if len(token) == 0 || len(token) > MaxToken {
		return semel.Result{}, fmt.Errorf("session: the token has %d bytes, not 1 to %d", len(token), MaxToken)
	}
	sealed, err := m.opts.Keys.seal(token, s.ID)
	return semel.Result{Data: []byte(sealed)}, err
}

// Find returns the active session of an owner. [semel.ErrNotFound] means that there is
// none. A token is good if the session that it names has the ID of the one found.
func (m *Manager) Find(ctx context.Context, o Owner) (Session, error) {
	if err := o.validate(); err != nil {
		return Session{}, err
	}
	rec, err := m.engine.Lookup(ctx, m.id(o))
	if err != nil {
		return Session{}, err
	}
	if rec.State != semel.Completed {
		return Session{}, semel.ErrNotFound
	}
	return m.active(ctx, o, &rec)
}

// End ends a session, because its user logged out or somebody revoked it: the next login
// makes a new one. Only the owner and the ID of the session are used. If it isn't active
// any more, even if its owner has a newer one, End does nothing. who ends it and the
// reason go to Events and to the evidence.
//
// End may take about a second after a login, so that the fences of the owner's sessions
// rise. After an error the session may still be active; end it again. A store that is
// restored from a backup has sessions again that were ended since.
func (m *Manager) End(ctx context.Context, s Session, who, reason string) error {
	if err := s.validate(); err != nil {
		return err
	}
	for range maxRounds {
		rec, err := m.engine.Lookup(ctx, m.id(s.Owner))
		if err == nil && (rec.State != semel.Completed || m.of(s.Owner, &rec).ID != s.ID) || errors.Is(err, semel.ErrNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		// A crash before this write leaves the session active, and a caller without an
		// answer, who ends it again. A crash after it leaves nothing to do. A newer session
		// has a higher fence and stays.
		err = m.engine.Purge(ctx, rec.ID, semel.Removal{Fence: rec.Fence, Who: who, Reason: reason})
		if !errors.Is(err, semel.ErrNotFound) && !errors.Is(err, &semel.Error{Code: semel.CodeIllegalTransition}) {
			return err
		}
	}
	return errTooFast
}

// List returns a user's active sessions on all devices, without their tokens, a page at a time:
// begin with an empty cursor, and go on with next until that is empty. The store must be able to
// list records ([store.Searcher]); one that indexes them in the background may leave out
// a session that began a moment ago.
func (m *Manager) List(ctx context.Context, tenant, user, cursor string) (list []Session, next string, err error) {
	if user == "" {
		return nil, "", nil // the empty user selects all
	}
	now, err := m.engine.Internal().Store().Now(ctx)
	if err != nil {
		return nil, "", &semel.Error{Code: semel.CodeStoreUnavailable, Err: err}
	}
	page, err := m.engine.Search(ctx, store.Query{Tenant: &tenant, Principal: user, Operation: m.opts.Name, State: semel.Completed, Cursor: cursor})
	for i := range page.Records {
		rec := &page.Records[i]
		device, err := url.QueryUnescape(rec.ID.Key[strings.LastIndexByte(rec.ID.Key, ':')+1:])
		if s := m.of(Owner{tenant, user, device}, rec); err == nil && now.Time().Before(s.ExpiresAt) {
			list = append(list, s)
		}
	}
	return list, page.Next, err
}

// of is the session of a record, without its token.
func (m *Manager) of(o Owner, rec *semel.Record) Session {
	// The ID is derived from the identity and the fence of the first attempt, so it is the
	// same in all attempts of one login, and another one after the session has ended.
	s := Session{Owner: o, ID: semel.EffectKey(rec, "session"), StartedAt: rec.StartedAt.Time()}
	if rec.ExpiresAt != 0 {
		// The window is counted from the end of the attempt, the lifetime from its start.
		s.ExpiresAt = rec.ExpiresAt.Add(-rec.EndedAt.Sub(rec.StartedAt)).Time()
	}
	return s
}

// active is the session of a completed record. It is [semel.ErrNotFound], with the session,
// if that has expired.
func (m *Manager) active(ctx context.Context, o Owner, rec *semel.Record) (Session, error) {
	s := m.of(o, rec)
	now, err := m.engine.Internal().Store().Now(ctx)
	if err != nil {
		return Session{}, &semel.Error{Code: semel.CodeStoreUnavailable, Err: err}
	}
	if !now.Time().Before(s.ExpiresAt) {
		return s, semel.ErrNotFound
	}
	if s.Token, err = m.opts.Keys.open(string(rec.Result.Data), s.ID); err != nil {
		return Session{}, err
	}
	return s, nil
}

func (m *Manager) id(o Owner) semel.ID {
	return semel.ID{Tenant: o.Tenant, Principal: o.User, Operation: m.opts.Name, Key: key(o)}
}

// key is the key of an owner's session: that of commerce.Session without the time, because
// there is one session at a time.
func key(o Owner) string { return "session:" + escape(o.User) + ":" + escape(o.Device) }

// escape keeps the parts of a key apart, as commerce.Format does.
func escape(part string) string { return strings.ReplaceAll(url.QueryEscape(part), "+", "%20") }

// validate refuses an owner with names that are missing or that no store can hold.
func (o *Owner) validate() error {
	if o.User == "" || o.Device == "" || max(len(o.User), len(o.Device)) > store.MaxNameLen {
		return &semel.Error{Code: semel.CodeInvalidCall, Message: fmt.Sprintf("a session needs a user and a device, of up to %d bytes each", store.MaxNameLen)}
	}
	id := semel.ID{Tenant: o.Tenant, Principal: o.User, Operation: "o", Key: key(*o)}
	return id.Validate()
}
