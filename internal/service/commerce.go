package service

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"time"

	"github.com/semelhq/semel"
	model "github.com/semelhq/semel/commerce"
	"github.com/semelhq/semel/commerce/datasync"
	"github.com/semelhq/semel/commerce/session"
	"github.com/semelhq/semel/dispatch"
	"github.com/semelhq/semel/door"
	"github.com/semelhq/semel/door/commerce"
	"github.com/semelhq/semel/door/judge"
	"github.com/semelhq/semel/door/semelhttp"
	"github.com/semelhq/semel/door/semelproxy"
	"github.com/semelhq/semel/internal/service/auth"
	"github.com/semelhq/semel/internal/service/config"
	"github.com/semelhq/semel/safehttp"
)

// commerceDoor opens the door of the map's patterns. It has the rules of ownAPI.
func (s *Server) commerceDoor(g *generation) error {
	c := &g.cfg.Commerce
	if !c.On() {
		return nil
	}
	keys, err := c.Keyring()
	if err != nil {
		return at("commerce.session_key_files", err)
	}
	opts := commerce.Options{
		Path: c.Path, Identify: g.shopper, Challenge: auth.Challenge, Keys: keys, Origin: c.Origin, TypeBase: problemsPath, Elsewhere: g.cfg.Payments(),
		SessionLifetime: time.Duration(c.SessionLifetime), CartLifetime: time.Duration(c.CartLifetime), IntentLifetime: time.Duration(c.IntentLifetime),
	}
	if err := (&backEnd{s, c, safehttp.Direct(nil)}).configure(&opts); err != nil {
		return at("commerce", err)
	}
	service, err := commerce.New(s.engine, opts)
	if err != nil {
		return at("commerce", err)
	}
	g.mandates = &mandates{service}
	way := doorway{
		Handler: s.ownAPI(service), name: commerce.Name, setting: "commerce", form: true, paths: []string{c.Path}, serves: below(c.Path),
		declares: service.Declares,
	}
	if to := service.Destination(); to != "" {
		way.accepts = &accepted{
			destination: to, operations: []string{"semel.datasync/" + to}, work: service.Work,
			limits: dispatch.Destination{Timeout: 2*time.Duration(c.Timeout) + acceptedExtra, MinBackoff: messageMinBackoff}, // an entity is applied, and sent
		}
	}
	g.doors = append(g.doors, way)
	return nil
}

// shopper is who calls: somebody verified, always.
func (g *generation) shopper(r *http.Request) (commerce.Caller, error) {
	id, err := g.auth.Known(r)
	if errors.Is(err, auth.ErrUnavailable) {
		err = &semel.Error{Code: semel.CodeStoreUnavailable, Err: err}
	}
	return commerce.Caller{Tenant: id.Tenant, Principal: id.Principal, Rights: id.Rights}, err
}

// mandates are those that other doors require.
type mandates struct{ *commerce.Service }

// underMandate refuses a command whose user has no valid mandate with this id.
func (g *generation) underMandate(ctx context.Context, x semel.Execution, tenant, user, id string) error {
	code := g.mandates.Admit(ctx, x, commerce.Caller{Tenant: tenant, Principal: user}, user, id)
	if code == door.CodeMandateExpired {
		return semel.Rejected(string(code), model.ErrMandateExpired)
	} else if code != "" {
		return semel.Aborted(&semel.Error{Code: code})
	}
	return nil
}

// require has a route keep each call's mandate, and refuse calls with one that is over.
func (m *mandates) require(g *generation, p *semelproxy.Options, from string) {
	attributes := map[string]string{commerce.AttributeMandate: from}
	maps.Copy(attributes, p.Route.Attributes)
	p.Route.Attributes = attributes
	p.Admit = func(r *http.Request, a *semel.Attempt) *semelhttp.Refusal {
		who, _ := g.shopper(r) // nobody, if they aren't verified: such a caller has no mandate
		kept := a.Record().Attributes
		code := m.Admit(r.Context(), a, who, kept[model.AttributeUser], kept[commerce.AttributeMandate])
		if code == "" {
			return nil
		}
		why := semelhttp.RefusalOf(code, "")
		return &why
	}
}

// backEnd is the program behind the door, an upstream with several addresses.
type backEnd struct {
	s         *Server
	c         *config.Commerce
	transport *http.Transport
}

// configure has the door ask the back end where the configuration says.
func (b *backEnd) configure(opts *commerce.Options) error {
	var errs []error
	c := b.c
	if c.TokenURL != "" {
		post := b.to(&errs, c.TokenURL, true)
		opts.Token = func(ctx context.Context, s session.Session) ([]byte, error) {
			var made struct{ Token string }
			err := post(ctx, s.Tenant, s.ID, map[string]any{"session_id": s.ID, "user": s.User, "device": s.Device, "started_at": s.StartedAt, "expires_at": s.ExpiresAt}, &made)
			return []byte(made.Token), err
		}
	}
	if c.ChargeURL != "" {
		post := b.to(&errs, c.ChargeURL, true)
		opts.Charge = func(ctx context.Context, p model.Charge) (done model.Charged, err error) {
			ask := map[string]any{"order": p.Order, "amount": p.Amount, "currency": p.Currency, "user": p.Buyer.User, "reference": p.Reference, "idempotency_key": p.Key, "mandate": p.Mandate, "signed": string(p.Signed)}
			return done, charging(post(ctx, p.Buyer.Tenant, p.Key, ask, &done))
		}
	}
	if c.ReconcileURL != "" {
		post := b.to(&errs, c.ReconcileURL, true)
		opts.Ask = func(ctx context.Context, key string) (model.Told, error) {
			var said struct {
				model.Charged
				Refused bool
			}
			err := post(ctx, "", key, map[string]any{"idempotency_key": key}, &said)
			return model.Told{Charged: said.Charged, Refused: said.Refused}, err
		}
	}
	if c.ApplyURL != "" {
		apply, send := b.to(&errs, c.ApplyURL, false), b.to(&errs, c.SendURL, false)
		opts.Apply = func(ctx context.Context, s datasync.State) error {
			return apply(ctx, s.Tenant, fmt.Sprint(s.Entity, ":", s.ID, ":", s.Version, ":", s.Sequence), commerce.StateOf(s), nil)
		}
		opts.Send = func(ctx context.Context, ch datasync.Change) error { return send(ctx, ch.Tenant, ch.Key(), ch, nil) }
	}
	return errors.Join(errs...)
}

// charging says what the error of a post proves about a charge.
func charging(err error) error {
	if err == nil {
		return nil
	}
	found := dispatch.FindingOf(err)
	switch why := errors.New(found.Why()); found.Verdict {
	case judge.Rejected:
		return semel.Rejected("declined", errors.New(err.Error())) // with the back end's words
	case judge.Aborted:
		return semel.Aborted(why)
	case judge.Failed:
		return semel.Failure(errors.New(err.Error()))
	default:
		return semel.Unknown(why)
	}
}

// money are the answers that mean something else where money moves, see package judge.
var money = judge.Answers{Final: []string{"402"}, Unknown: []string{"403"}}

// poster posts one thing once, under a key that is the same in all tries, and reads the answer.
type poster func(ctx context.Context, tenant, key string, what, answer any) error

// answerKey is the key in a try's context for what reads its answer.
type answerKey struct{}

// to makes the poster to an address. Without answers, what comes back is not read, and the status
// decides.
func (b *backEnd) to(errs *[]error, url string, answers bool) poster {
	opts := dispatch.HTTPOptions{URL: url, Answers: money, Transport: b.transport}
	if answers {
		opts.Check = func(resp *http.Response, text []byte) error {
			return json.Unmarshal(text, resp.Request.Context().Value(answerKey{}))
		}
	}
	u, err := b.s.newUpstream(opts, b.c.SecretFiles, b.c.Timeout)
	*errs = append(*errs, err)
	return func(ctx context.Context, tenant, key string, what, answer any) error {
		payload, err := json.Marshal(what)
		if err != nil {
			return err
		}
		id := sha256.Sum256([]byte(url + " " + tenant + " " + key))
		m := &semel.Message{ID: "msg_" + base64.RawURLEncoding.EncodeToString(id[:]), ContentType: "application/json", Payload: payload}
		return u.post(context.WithValue(ctx, answerKey{}, answer), semel.ID{Tenant: tenant, Operation: commerce.Name}, m, http.Header{"Idempotency-Key": {key}})
	}
}
