package commerce

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"time"

	"github.com/semelhq/semel"
	rules "github.com/semelhq/semel/commerce"
	"github.com/semelhq/semel/door"
)

// AttributeMandate is the attribute with the id of a call's mandate.
const AttributeMandate = "mandate_id"

// mandateDocument is a mandate in the form for callers.
type mandateDocument struct {
	ID        string          `json:"id"`
	User      string          `json:"user"`
	Session   string          `json:"session,omitempty"`
	Hash      string          `json:"hash"`
	ExpiresAt time.Time       `json:"expires_at"`
	Data      json.RawMessage `json:"data,omitempty"`
}

func mandate(user string, m rules.Mandate) mandateDocument {
	if len(m.Data) > 0 && !json.Valid(m.Data) { // a Go program on the same store may have written it
		m.Data, _ = json.Marshal(string(m.Data))
	}
	return mandateDocument{m.ID, user, m.Session, m.Hash, m.ExpiresAt.UTC(), m.Data}
}

// makeMandate makes the mandate of a cart in a session, or of an intent, or returns the
// identical one (MAP-CART.1, MAP-CART.3). Its data is the first request's.
func (q *request) makeMandate() (any, error) {
	var in struct {
		User    string          `json:"user"`
		Session string          `json:"session"`
		Cart    json.RawMessage `json:"cart"`
		Intent  json.RawMessage `json:"intent"`
		Data    json.RawMessage `json:"data"`
	}
	if err := q.read(&in); err != nil {
		return nil, err
	}
	user, err := q.user(in.User)
	if err != nil {
		return nil, err
	}
	buyer := rules.Buyer{Tenant: q.caller.Tenant, User: user}
	signed := func(context.Context, rules.Mandate) ([]byte, error) {
		q.status = http.StatusCreated
		return in.Data, nil
	}
	var m rules.Mandate
	switch {
	case (in.Cart == nil) == (in.Intent == nil):
		return nil, invalid("a mandate is of a cart or of an intent: send one of the two")
	case in.Intent != nil && in.Session != "":
		return nil, invalid("the mandate of an intent belongs to no session")
	case in.Intent != nil:
		m, err = q.mandates.Intent(q.r.Context(), buyer, in.Intent, signed)
	default:
		var cart rules.Cart
		if cart, err = rules.ParseCart(in.Cart); err == nil {
			m, err = q.mandates.Cart(q.r.Context(), buyer, in.Session, cart, signed)
		}
	}
	if err != nil {
		return nil, checked(err)
	}
	q.w.Header().Set("Location", q.opts.Path+"/mandates/"+url.PathEscape(m.ID))
	return mandate(user, m), nil
}

// buyer returns the buyer of the mandate in the address.
func (q *request) buyer(others ...string) (rules.Buyer, error) {
	user, err := q.owner(others...)
	return rules.Buyer{Tenant: q.caller.Tenant, User: user}, err
}

// getMandate returns a mandate. It refuses an expired or ended one with the error that anybody
// who needs it would get.
func (q *request) getMandate() (any, error) {
	b, err := q.buyer()
	if err != nil {
		return nil, err
	}
	m, err := q.mandates.Find(q.r.Context(), b, q.r.PathValue("id"))
	if err != nil {
		return nil, err
	}
	return mandate(b.User, m), nil
}

// endMandate ends a mandate. If it is over already, or doesn't exist, nothing changes.
func (q *request) endMandate() (any, error) {
	b, err := q.buyer("reason")
	if err != nil {
		return nil, err
	}
	err = q.mandates.End(q.r.Context(), b, q.r.PathValue("id"), q.caller.Principal, q.r.URL.Query().Get("reason"))
	if errors.Is(err, rules.ErrMandateExpired) || errors.Is(err, semel.ErrNotFound) {
		err = nil
	}
	return nil, err
}

// Admit says whether another door's call, such as a route's, may run under a mandate
// (MAP-CART.4). Call it under the call's attempt, before the work. The empty code lets the call
// run; otherwise nothing may be done, and the next delivery asks again. An empty user is the
// caller.
func (s *Service) Admit(ctx context.Context, x semel.Execution, c Caller, user, id string) semel.Code {
	q := &request{Service: s, caller: c}
	user, err := q.user(user)
	if err != nil || c.Principal == "" {
		return door.CodeMandateExpired
	}
	if _, err = s.mandates.Require(ctx, x, rules.Buyer{Tenant: c.Tenant, User: user}, id); err == nil {
		return ""
	}
	if end := semel.EndingOf(err, nil, false); end.Disposition == semel.DispositionRejected {
		return door.CodeMandateExpired
	}
	return semel.CodeStoreUnavailable
}
