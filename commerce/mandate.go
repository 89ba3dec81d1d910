package commerce

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store"
)

// Buyer is the verified user that a mandate belongs to. No other user can pay or order with
// it.
type Buyer struct{ Tenant, User string }

// Mandate is the commitment of a user, to a cart or to an intent.
type Mandate struct {
	// ID names the mandate, and contains the time when it was issued. It has letters, digits
	// and "-._~%+", and is longer than the session by about 85 bytes.
	ID string
	// Session has the cart; empty for an intent.
	Session string
	// Hash is that of the cart or the intent.
	Hash string
	// ExpiresAt is when it ends, by the store's clock. While it is being made it may end up
	// to as much later as that takes.
	ExpiresAt time.Time
	// Data is the mandate itself, such as a signed document. Don't change it.
	Data []byte
}

// Codes of refusals that are recorded with the refused call; see [Mandates.Require].
const (
	CodeMandateExpired = "mandate_expired"
	CodeMandateUnknown = "mandate_unknown"
)

// ErrMandateExpired says that a mandate can be neither paid nor ordered any more.
var ErrMandateExpired = errors.New("commerce: the mandate has expired: make a new one")

// Bounds and defaults of mandates.
const (
	CartLifetime   = 30 * time.Minute // MAP-CART.2
	IntentLifetime = semel.DefaultWindow
	// MaxIntent bounds an intent, in bytes.
	MaxIntent = 256 << 10
)

// MandateOptions configure [NewMandates]. All fields are optional.
type MandateOptions struct {
	// Cart and Intent name the operations. They default to commerce.cart_mandate and
	// commerce.intent_mandate.
	Cart, Intent string
	// CartLifetime and IntentLifetime are how long mandates are valid; the constants of these
	// names by default.
	CartLifetime, IntentLifetime time.Duration
	// Lease is how long a mandate that was being made waits for its node after a crash, and
	// its callers with it. Defaults to [semel.DefaultLease].
	Lease time.Duration
}

// Mandates makes mandates, each once, and finds them. All methods may be called
// concurrently, on any number of nodes.
type Mandates struct {
	engine       *semel.Engine
	cart, intent semel.Operation
}

// NewMandates registers the operations of mandates with an engine.
func NewMandates(engine *semel.Engine, opts MandateOptions) (*Mandates, error) {
	declare := func(name string, lifetime time.Duration) semel.Operation {
		// A mandate that nobody got binds nobody, so a node that died is no reason to wait
		// for an operator.
		return semel.Operation{Name: name, Window: lifetime, Lease: opts.Lease, InFlight: semel.WaitInFlight, Effects: []string{}, OnFailure: semel.RetryFailure}
	}
	m := &Mandates{
		engine: engine,
		cart:   declare(cmp.Or(opts.Cart, "commerce.cart_mandate"), cmp.Or(opts.CartLifetime, CartLifetime)),
		intent: declare(cmp.Or(opts.Intent, "commerce.intent_mandate"), cmp.Or(opts.IntentLifetime, IntentLifetime)),
	}
	return m, engine.Register(m.cart, m.intent)
}

// Make makes a mandate's data, such as a signed document; nil makes none. It must have no
// effect on other systems: after a crash it runs again, for the same mandate. If it fails, the
// next call makes the mandate.
type Make func(ctx context.Context, m Mandate) ([]byte, error)

// Cart returns the mandate of a cart in a session, which make makes if there is none
// (MAP-CART.1). Two carts with the same lines in another order are one. When the mandate has
// expired, the same cart gets a new one, with another ID.
func (m *Mandates) Cart(ctx context.Context, b Buyer, session string, c Cart, make Make) (Mandate, error) {
	hash, err := c.Hash()
	if session == "" { // with which it would be an intent
		err = errors.Join(errors.New("commerce: the mandate of a cart needs a session"), err)
	}
	if err != nil {
		return Mandate{}, err
	}
	return m.once(ctx, b, Mandate{Session: session, Hash: hash}, make)
}

// Intent returns the mandate of an intent of a user, which make makes if there is none
// (MAP-CART.3). The intent is JSON: white space, the order of members and the spelling of
// numbers don't matter.
func (m *Mandates) Intent(ctx context.Context, b Buyer, intent []byte, make Make) (Mandate, error) {
	if len(intent) > MaxIntent {
		return Mandate{}, fmt.Errorf("commerce: the intent has more than %d bytes", MaxIntent)
	}
	print, err := semel.FingerprintJSON(intent)
	if err != nil {
		return Mandate{}, fmt.Errorf("commerce: the intent: %w", err)
	}
	_, hash, _ := strings.Cut(print.String(), ":")
	return m.once(ctx, b, Mandate{Hash: hash}, make)
}

// once makes a mandate, or returns the existing one.
func (m *Mandates) once(ctx context.Context, b Buyer, want Mandate, make Make) (Mandate, error) {
	call, op, err := m.call(b, want)
	if err != nil {
		return Mandate{}, err
	}
	ans, err := m.engine.Do(ctx, call, func(ctx context.Context, x semel.Execution) (semel.Result, error) {
		if make == nil {
			return semel.Result{}, nil
		}
		rec := x.(*semel.Attempt).Record()
		made := want
		made.ID, made.ExpiresAt = idOf(want, rec.Origin), rec.StartedAt.Add(op.Window).Time()
		data, err := make(ctx, made)
		return semel.Result{Data: data}, err
	})
	if err != nil {
		return Mandate{}, err
	}
	return mandateOf(want, ans.Record), nil
}

// call is the call that makes a mandate, and its operation.
func (m *Mandates) call(b Buyer, want Mandate) (semel.Call, *semel.Operation, error) {
	op, f, values := &m.cart, CartMandate, Values{"session_id": want.Session, "cart_hash": want.Hash}
	if want.Session == "" {
		op, f, values = &m.intent, IntentMandate, Values{"user_id": b.User, "intent_hash": want.Hash}
	}
	call := semel.Call{Tenant: b.Tenant, Principal: b.User, Operation: op.Name}
	key, err := f.Key(values)
	if b.User == "" {
		err = errors.Join(errors.New("commerce: a mandate needs a user"), err)
	}
	key.Name(&call)
	return call, op, err
}

// idOf is the ID of a mandate: when it was first claimed, as the fence has it, its hash, and
// its session. So it names the record, and shows whether the mandate is over even when
// that is purged. No two mandates of one cart share a fence.
func idOf(m Mandate, origin int64) string {
	return strconv.FormatInt(origin, 36) + "." + m.Hash + "." + url.QueryEscape(m.Session)
}

func mandateOf(want Mandate, rec *semel.Record) Mandate {
	want.ID, want.ExpiresAt, want.Data = idOf(want, rec.Origin), rec.ExpiresAt.Time(), rec.Result.Data
	return want
}

// parseID is the reverse of idOf.
func parseID(id string) (m Mandate, origin int64, ok bool) {
	parts := strings.SplitN(id, ".", 3)
	if len(parts) != 3 {
		return m, 0, false
	}
	origin, err := strconv.ParseInt(parts[0], 36, 64)
	session, err2 := url.QueryUnescape(parts[2])
	m = Mandate{ID: id, Session: session, Hash: parts[1]}
	return m, origin, err == nil && err2 == nil && idOf(m, origin) == id
}

// Find returns a mandate of a buyer by its ID. [ErrMandateExpired] means that its time is
// over by the store's clock, which the ID shows also when the record is purged.
// [semel.ErrNotFound] means that the buyer has no such mandate. Any other error is the
// store's.
func (m *Mandates) Find(ctx context.Context, b Buyer, id string) (Mandate, error) {
	want, origin, ok := parseID(id)
	if !ok {
		return Mandate{}, semel.ErrNotFound
	}
	call, op, err := m.call(b, want)
	record := call.ID(semel.SharePrincipal)
	if err != nil || record.Validate() != nil {
		return Mandate{}, semel.ErrNotFound // no mandate has such a session or user
	}
	rec, err := m.engine.Lookup(ctx, record)
	switch {
	case err == nil && rec.Origin == origin && rec.State == semel.Completed:
		return mandateOf(want, &rec), nil
	case err != nil && !errors.Is(err, semel.ErrNotFound):
		return Mandate{}, err
	}
	now, err := m.engine.Internal().Store().Now(ctx)
	if err != nil {
		return Mandate{}, &semel.Error{Code: semel.CodeStoreUnavailable, Err: err}
	}
	// The fence is the store's time in microseconds, see [store.NextFence].
	if over := time.UnixMicro(origin).Add(op.Window); over.After(now.Time()) {
		return Mandate{}, semel.ErrNotFound
	}
	return want, ErrMandateExpired
}

// End ends a mandate before its time, because its user has withdrawn it: nothing can be paid
// or ordered with it any more, and the same cart gets a new one, with another ID. who ends it
// and the reason go to Events and to the evidence. The errors are those of [Mandates.Find], to
// which an ended mandate is unknown. End may take about a second after the mandate was made.
func (m *Mandates) End(ctx context.Context, b Buyer, id, who, reason string) error {
	found, err := m.Find(ctx, b, id)
	if err != nil {
		return err
	}
	call, _, err := m.call(b, found)
	if err != nil {
		return err
	}
	rec, err := m.engine.Lookup(ctx, call.ID(semel.SharePrincipal))
	switch {
	case err != nil:
		return err
	case idOf(found, rec.Origin) != id: // one that was made meanwhile
		return semel.ErrNotFound
	}
	// A crash before this write leaves the mandate valid, and a caller without an answer, who
	// ends it again. The fence keeps a mandate that was made meanwhile.
	err = m.engine.Purge(ctx, rec.ID, semel.Removal{Fence: rec.Fence, Who: who, Reason: reason})
	if errors.Is(err, &semel.Error{Code: semel.CodeIllegalTransition}) {
		if _, now := m.Find(ctx, b, id); now != nil {
			return now // another was faster
		}
	}
	return err
}

// Require is for handlers of calls that use a mandate, such as a payment: it refuses the
// call for good if the mandate has expired (MAP-CART.4), or if the buyer has none with this
// ID. Call it before anything else. A call that has an effect in its ledger, begun in time,
// may finish: its further attempts get the mandate, and if that is purged, one without
// Data.
func (m *Mandates) Require(ctx context.Context, x semel.Execution, b Buyer, id string) (Mandate, error) {
	found, err := m.Find(ctx, b, id)
	a, ok := x.(interface{ Effects() []store.EffectRecord })
	switch {
	case err == nil:
		return found, nil
	case errors.Is(err, ErrMandateExpired) && ok && slices.ContainsFunc(a.Effects(), func(ef store.EffectRecord) bool { return ef.State != store.EffectRefuted }):
		return found, nil
	case errors.Is(err, ErrMandateExpired):
		return found, semel.Rejected(CodeMandateExpired, err)
	case errors.Is(err, semel.ErrNotFound):
		return found, semel.Rejected(CodeMandateUnknown, errors.New("commerce: the buyer has no such mandate"))
	}
	return found, semel.Aborted(err)
}

// refusedFor makes a recorded refusal the same error for all who get it.
func refusedFor(ans *semel.Answer, err error) error {
	if rec := ans.Record; err != nil && rec != nil && rec.Failure != nil && rec.Failure.Code == CodeMandateExpired && !errors.Is(err, ErrMandateExpired) {
		return fmt.Errorf("%w (%w)", ErrMandateExpired, err)
	}
	return err
}
