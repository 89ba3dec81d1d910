package config

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"slices"
	"strings"

	"github.com/semelhq/semel"
	model "github.com/semelhq/semel/commerce"
	"github.com/semelhq/semel/commerce/session"
	"github.com/semelhq/semel/dispatch"
	"github.com/semelhq/semel/door/commerce"
	"github.com/semelhq/semel/door/semelhttp"
)

// Commerce is the door of the idempotency map's patterns; see [commerce.Service].
type Commerce struct {
	// Path of the door on the data listener, such as /commerce. No route can hide it, or any path below it.
	Path string `json:"path,omitzero" required:"true"`
	// Files with a key each, 32 bytes in base64, that encrypt the stored tokens of sessions. The first encrypts, all decrypt. Without them there are no sessions.
	SessionKeyFiles []string `json:"session_key_files,omitempty"`
	// What makes the token of a new session: an http or https URL. Without it tokens are random.
	TokenURL string `json:"token_url,omitzero" secret:"url" format:"http"`
	// How long a session is active. Defaults to 24h.
	SessionLifetime Duration `json:"session_lifetime,omitzero" range:"100ms,365d"`
	// How long the mandate of a cart is valid. Defaults to 30m.
	CartLifetime Duration `json:"cart_lifetime,omitzero" range:"100ms,365d"`
	// How long the mandate of an intent is valid. Defaults to 24h.
	IntentLifetime Duration `json:"intent_lifetime,omitzero" range:"100ms,365d"`
	// What charges a payment, once: an http or https URL. Without it there are no payments.
	ChargeURL string `json:"charge_url,omitzero" secret:"url" format:"http"`
	// Where to ask what happened to a payment that got no answer.
	ReconcileURL string `json:"reconcile_url,omitzero" secret:"url" format:"http" with:"charge_url,what charges"`
	// Name of this side in the changes of entities. Never change it.
	Origin string `json:"origin,omitzero" with:"apply_url,what writes entities to your database"`
	// What writes the new state of an entity to your database: an http or https URL. Without it there are no entities.
	ApplyURL string `json:"apply_url,omitzero" secret:"url" format:"http" with:"send_url,the other side"`
	// The other side, which gets the changes of this one.
	SendURL string `json:"send_url,omitzero" secret:"url" format:"http" with:"origin,the name of this side"`
	// Commands that run only under a valid mandate of who they act for, each with the argument that has its id, such as order.place: mandate.
	Commands []string `json:"commands,omitempty" pairs:"true"`
	// Files with a secret each, whsec_ and base64, that sign posts to these URLs by Standard Webhooks.
	SecretFiles []string `json:"secret_files,omitempty"`
	// How long one post may take. Defaults to 15s.
	Timeout Duration `json:"timeout,omitzero" range:"100ms,365d"`
}

// On reports whether the door is configured.
func (c *Commerce) On() bool { return c.Path != "" }

// Mandates has the commands that need a mandate, each with the argument that has its id.
func (c *Commerce) Mandates() map[string]string { return Pairs(c.Commands) }

// Payments has the operations of routes that charge payments, with the callers who share them.
func (c *Config) Payments() (names []string) {
	for i := range c.Routes {
		if r := &c.Routes[i]; r.KeyTemplate.Format == model.Payment.Name {
			if op := c.operation(r.Operation); op != nil && op.Share == semel.ShareTenant {
				names = append(names, r.Operation)
			}
		}
	}
	return names
}

// Keyring reads the keys of sessions; nil if there are none. A key's id is a digest of it,
// so that all nodes call it the same.
func (c *Commerce) Keyring() (*session.Keyring, error) {
	texts, err := ReadSecrets(c.SessionKeyFiles)
	if err != nil || len(texts) == 0 {
		return nil, err
	}
	var keys []session.Key
	for _, text := range texts {
		secret, err := base64.StdEncoding.DecodeString(text)
		if err != nil || len(secret) != 32 {
			return nil, errors.New("a key isn't 32 bytes in base64")
		}
		name := sha256.Sum256(secret)
		keys = append(keys, session.Key{ID: hex.EncodeToString(name[:4]), Secret: secret})
	}
	return session.NewKeyring(keys...)
}

var commerceDoors = doorSection{
	derive: deriveCommerce, validate: (*validator).commerce,
	mounts: func(c *Config) []mount {
		return []mount{mountAt("commerce", c.Commerce.Path, "that of commerce", true)}
	},
}

func deriveCommerce(c *Config, _ *Origins, _ func(path, from string)) {
	if m := &c.Commerce; m.On() {
		m.SessionLifetime = cmp.Or(m.SessionLifetime, Duration(semel.DefaultWindow))
		m.CartLifetime, m.IntentLifetime = cmp.Or(m.CartLifetime, Duration(model.CartLifetime)), cmp.Or(m.IntentLifetime, Duration(model.IntentLifetime))
		m.Timeout = cmp.Or(m.Timeout, Duration(dispatch.DefaultTimeout))
	}
}

// commerce checks the section, and the routes that need it.
func (v *validator) commerce() {
	c := &v.c.Commerce
	for at, r := range items("routes", v.c.Routes) {
		v.requiresMandate(at, r)
	}
	if !c.On() {
		return
	}
	if len(c.Commands) > 0 && v.c.Commands.Registry == "" {
		v.bad("commerce.commands", "add commands: {registry: …}", "there are no commands without a registry")
	}
	v.plainPath("commerce.path", c.Path, "/commerce")
	if !v.c.Auth.Configured() {
		v.bad("commerce", "add callers to auth, such as a token with the right "+commerce.RightUsers, "its callers must be verified")
	}
	if _, err := c.Keyring(); err != nil {
		v.bad("commerce.session_key_files", "make one with: openssl rand -base64 32", "%v", err)
	}
	v.secrets("commerce.secret_files", c.SecretFiles)
	for at, op := range items("operations", v.c.Operations) {
		if strings.HasPrefix(op.Name, "commerce.") {
			v.bad(at+".name", "", "names like %q are those of commerce", op.Name)
		}
	}
}

// requiresMandate checks that nothing passes a route that requires a mandate unguarded, and
// that its orders are one for each mandate, whoever sends them.
func (v *validator) requiresMandate(at string, r *Route) {
	if r.RequiresMandate == "" {
		return
	}
	at += ".requires_mandate"
	op := v.c.operation(r.Operation)
	fault := routeFault(semelhttp.Route{Attributes: map[string]string{commerce.AttributeMandate: r.RequiresMandate}})
	switch {
	case fault != "":
		v.bad(at, "write such as json:/mandate", "%s", fault)
	case !v.c.Commerce.On():
		v.bad(at, "add commerce: {path: /commerce}", "there are no mandates without commerce")
	case r.Mode != "enforce" || r.Key == semelhttp.KeyOptional || r.StoreDown == "fail_open" || r.Methods != nil || len(r.Unguarded) > 0:
		v.bad(at, "leave out mode, key: optional, store_down, methods and unguarded", "requests would pass the route without a guard, and so without a mandate")
	case slices.ContainsFunc(r.Attributes, func(pair string) bool { return strings.HasPrefix(pair, commerce.AttributeMandate+"=") }):
		v.bad(at, "give the attribute another name", "the attribute %s is that of the mandate", commerce.AttributeMandate)
	case r.KeyTemplate.Format == "order" && op != nil && op.Share != semel.ShareTenant:
		v.bad(at, "write share: tenant in the operation "+r.Operation, "two callers, such as a user and their back end, could each order the mandate once")
	}
}
