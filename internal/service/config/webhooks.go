package config

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/dispatch"
	"github.com/semelhq/semel/door/judge"
	"github.com/semelhq/semel/door/webhook"
	"github.com/semelhq/semel/internal/extract"
	"github.com/semelhq/semel/internal/service/auth"
)

// Webhook receives the webhooks of one sender. A signature is its only credential; see
// [webhook.Receiver].
type Webhook struct {
	// Path that the sender posts to, such as /webhooks/shopify. No route can hide it.
	Path string `json:"path" required:"true"`
	// How the sender signs and names its events: acp, adyen, adyen-header, github, gitlab, hubspot, intercom, paddle, paypal, paystack, sendgrid, shopify, shopify-events, slack, square, standard-webhooks, standard-webhooks-ed25519, stripe, svix, telegram, twilio or whatsapp, or a YAML file that says so.
	Source string `json:"source" required:"true"`
	// Name of the receiver, which distinguishes its events from all others. Defaults to the name of the source.
	Name string `json:"name,omitzero"`
	// File with the secret, the public key or the certificate, as the sender shows it; two while one replaces the other.
	SecretFiles []string `json:"secret_files" required:"true"`
	// File with the token that the sender sends to verify the address, where it does.
	VerifyTokenFile string `json:"verify_token_file,omitzero"`
	// Address that the sender posts to, where it signs that.
	URL string `json:"url,omitzero"`
	// What the sender calls that address, where it signs that, such as PayPal's webhook id.
	Endpoint string `json:"endpoint,omitzero"`
	// ack answers when the events are durable, and posts them to the upstream afterwards. sync posts them while the sender waits, who delivers again after a failure.
	Mode webhook.Mode `json:"mode" default:"ack" enum:"ack,sync"`
	// With ack, events with the same value here, such as {body:data.object.customer}, are posted in the order in which they came, each after the one before it was accepted or parked. Others are posted in any order.
	Order     string `json:"order,omitzero"`
	Accepting `yaml:",inline"`
	// With sync, whether an event without an answer of its upstream is held until it is settled, or posted again.
	OnAbandoned semel.AfterAbandon `json:"on_abandoned,omitzero" enum:"hold,retry"`
	// With sync, the meaning of the upstream's answers where it differs from the usual one.
	Answers Answers `json:"answers,omitzero"`
	// Whether an event with the id of another content is parked until you replay or discard it, or dropped.
	OnConflict webhook.AfterConflict `json:"on_conflict" default:"park" enum:"park,drop"`
	// How long an event is recognised. Defaults to 7d, or as long as the sender repeats itself if that is longer.
	Window Duration `json:"window,omitzero"`
	// Largest body of a delivery.
	MaxBody Size `json:"max_body" default:"4MiB" range:"1KiB,64MiB"`
	// What events mean to payments: card for the usual life of a card payment, or a YAML file with another. Without it nothing is checked.
	Payments string `json:"payments,omitzero"`
	// Where the body of an event has the reference of a payment of commerce, such as data.object.metadata.reference. Events that say whether the buyer was charged settle that payment before the upstream gets them; needs payments and commerce.charge_url.
	Settles string `json:"settles,omitzero"`
}

var webhookDoors = doorSection{
	derive: deriveWebhooks, validate: (*validator).webhooks,
	mounts: func(c *Config) (list []mount) {
		for door, w := range items("webhooks", c.Webhooks) {
			list = append(list, webhookAt(door, w.Path))
		}
		return list
	},
	accepts: "webhooks", reserved: func(name string) bool { return strings.HasPrefix(name, webhook.OperationPrefix) },
}

func webhookAt(door, path string) mount {
	return mount{door: door, path: door + ".path", paths: []string{path}, is: "the webhook of " + door, hint: "give the webhook a path of its own"}
}

// deriveWebhooks leaves files that can't be read to the validator.
func deriveWebhooks(c *Config, origins *Origins, _ func(path, from string)) {
	for path, w := range items("webhooks", c.Webhooks) {
		w.Tenant = cmp.Or(w.Tenant, c.Auth.DefaultTenant)
		w.Evidence = cmp.Or(w.Evidence, c.acceptedEvidence())
		source, err := w.ReadSource()
		if err != nil {
			continue
		}
		w.Name = cmp.Or(w.Name, source.Name)
		if w.Window == 0 && !origins.Written(path+".window") {
			w.Window = Duration(source.Window())
		}
		if w.Mode == webhook.Sync {
			w.OnAbandoned = cmp.Or(w.OnAbandoned, semel.HoldAbandoned)
		}
	}
}

// acceptedEvidence is the default of what goes to the evidence log of what doors accept.
func (c *Config) acceptedEvidence() semel.EvidenceLevel {
	if c.Evidence.KeyFile == "" {
		return semel.EvidenceNone
	}
	return semel.EvidenceDecisions
}

// isFile reports whether the value names a file and not a built-in.
func isFile(value string) bool {
	return strings.ContainsAny(value, "/\\") || filepath.Ext(value) != ""
}

// ReadSource reads what the webhook's source names.
func (w *Webhook) ReadSource() (*webhook.Source, error) {
	if !isFile(w.Source) {
		return webhook.Builtin(w.Source)
	}
	data, err := auth.ReadFile(w.Source, maxFile)
	if err != nil {
		return nil, err
	}
	return webhook.Load(w.Source, data)
}

// machine reads what the webhook's payments names; nil for none.
func (w *Webhook) machine() (*webhook.Machine, error) {
	switch {
	case w.Payments == "":
		return nil, nil
	case w.Payments == "card":
		return webhook.CardMachine(), nil
	case !isFile(w.Payments):
		return nil, fmt.Errorf("there is no machine %q: write card, or the name of a YAML file", w.Payments)
	}
	data, err := auth.ReadFile(w.Payments, maxFile)
	if err != nil {
		return nil, err
	}
	return webhook.LoadMachine(w.Payments, data)
}

// Verifier is how deliveries to the webhook are verified, with the secrets from its files.
func (w *Webhook) Verifier() (webhook.VerifierOptions, error) {
	source, err := w.ReadSource()
	if err != nil {
		return webhook.VerifierOptions{}, err
	}
	secrets, err := ReadSecrets(w.SecretFiles)
	return webhook.VerifierOptions{Source: source, Secrets: secrets, URL: w.URL, Endpoint: w.Endpoint}, err
}

// Receiver is the webhook for its receiver. The server adds Handle.
func (w *Webhook) Receiver() (opts webhook.Options, err error) {
	opts = webhook.Options{
		Name: w.Name, Tenant: w.Tenant, Mode: w.Mode, OnAbandoned: w.OnAbandoned, OnConflict: w.OnConflict, Lease: time.Duration(w.Lease), Window: time.Duration(w.Window), Remember: time.Duration(w.Remember),
		MaxBody: int64(w.MaxBody), Evidence: w.Evidence, Order: w.Order, Attributes: Pairs(w.Attributes),
	}
	if opts.VerifierOptions, err = w.Verifier(); err != nil {
		return opts, err
	}
	if opts.Payments, err = w.machine(); err == nil && w.VerifyTokenFile != "" {
		opts.VerifyToken, err = readSecret(w.VerifyTokenFile)
	}
	return opts, err
}

func (v *validator) webhooks() {
	names := map[string]string{}
	for at, w := range items("webhooks", v.c.Webhooks) {
		v.answers(at, w.Answers)
		v.plainPath(at+".path", w.Path, "/webhooks/whatsapp")
		if first, twice := names[w.Name]; twice && w.Name != "" {
			v.bad(at+".name", "write a name, such as "+w.Name+"-2", "%s has the name %q too, so their events would be the same", first, w.Name)
		}
		names[w.Name] = at
		v.secrets(at+".upstream_secret_files", w.UpstreamSecretFiles)
		if w.Mode != webhook.Sync && w.OnAbandoned != "" {
			v.bad(at+".on_abandoned", "leave it out, or write mode: sync", "an event that was acknowledged is always posted again")
		}
		if w.Mode != webhook.Sync && judge.Answers(w.Answers).Any() {
			v.bad(at+".answers", "leave it out, or write mode: sync", "an event that was acknowledged is posted again until it is taken")
		}
		if w.Mode == webhook.Sync && w.Order != "" {
			v.bad(at+".order", "leave it out, or write mode: ack", "with sync an event is posted while its sender waits, in whatever order they come")
		}
		if w.Settles != "" && (w.Payments == "" || v.c.Commerce.ChargeURL == "") {
			v.bad(at+".settles", "add payments: card, and charge_url to commerce", "without payments of commerce there is nothing to settle")
		}
		v.attributes(at, webhook.Name, w.Attributes)
		v.remembering(at, w.Remember, w.Window)
		v.receiver(at, w)
	}
}

// receiver checks what the settings of a webhook mean together.
func (v *validator) receiver(at string, w *Webhook) {
	mistake := func(name string, err error) bool {
		if errs, ok := errors.AsType[Errors](err); ok { // of a file
			more := ""
			if len(errs) > 1 {
				more = fmt.Sprintf(", and %d more mistakes", len(errs)-1)
			}
			v.bad(at+"."+name, "", "%s%s", errs[0].Error(), more)
		} else if err != nil {
			v.bad(at+"."+name, "", "%s", strings.TrimPrefix(err.Error(), "webhook: "))
		}
		return err != nil
	}
	if w.Source != "" && !v.Faulty[at+".source"] { // whatever else is wrong
		_, err := w.ReadSource()
		mistake("source", err)
	}
	if !v.Faulty[at+".payments"] {
		_, err := w.machine()
		mistake("payments", err)
	}
	if v.faultyBelow(at) || w.Source == "" || len(w.SecretFiles) == 0 {
		return
	}
	for at, file := range items(at+".secret_files", w.SecretFiles) {
		if _, ok := secretFile(v.Report, at, *file); !ok {
			return
		}
	}
	if w.VerifyTokenFile != "" {
		if _, ok := secretFile(v.Report, at+".verify_token_file", w.VerifyTokenFile); !ok {
			return
		}
	}
	opts, err := w.Receiver()
	if err == nil {
		opts.Handle = func(context.Context, *webhook.Event) error { return nil }
		err = opts.Validate()
	}
	if err != nil {
		v.bad(at, "", "%s", strings.ReplaceAll(strings.ReplaceAll(err.Error(), "webhook: ", ""), "\n", "; "))
	}
}

// Warnings are about valid settings that you may not want, a sentence each.
func (c *Config) Warnings() (list []string) {
	for path, r := range items("routes", c.Routes) {
		g := c.Guarded(*r)
		spec := extract.Spec{Template: extract.Template{Values: g.KeyTemplate.Values}, Attributes: g.Attributes, Only: g.FingerprintOnly, Ignore: g.FingerprintIgnore}
		for _, text := range spec.Ephemeral() {
			list = append(list, path+".key_template: "+text)
		}
	}
	for path, w := range items("webhooks", c.Webhooks) {
		source, err := w.ReadSource()
		if err != nil || !isFile(w.Source) { // those that are built in were thought about
			continue
		}
		for _, rule := range source.Coarse() {
			list = append(list, fmt.Sprintf("%s.source: the identity of %s in %s has no id of the event, so two events of one kind about one thing, "+
				"such as partial refunds of a payment, share it; the second is a conflict: add the sender's id of the event, or {digest}", path, rule, w.Source))
		}
	}
	return list
}

// eventMeanings are [Config.Meanings] of the upstreams of webhooks.
func (c *Config) eventMeanings(status int) (list []Meaning) {
	for setting, w := range items("webhooks", c.Webhooks) {
		answers, _ := judge.Answers(w.Answers).Parse()
		m, v := meaning(setting, w.Path, status, dispatch.Rules(answers), "posts the event again")
		switch {
		case v == judge.Completed:
			m.Next = "is a duplicate"
		case v == judge.Unknown && w.Mode == webhook.Sync && w.OnAbandoned == semel.HoldAbandoned:
			m.Next = "is held until the call is settled"
		case v == judge.Rejected && w.Mode != webhook.Sync:
			m.Next = "is a duplicate: the event is parked"
		}
		list = append(list, m)
	}
	return list
}
