package config

import (
	"cmp"
	"context"
	"crypto"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/semelhq/semel/door/activitypub"
	"github.com/semelhq/semel/door/activitypub/httpsig"
	"github.com/semelhq/semel/internal/service/auth"
)

// ActivityPub is the inboxes of a server's actors, to which other servers deliver
// activities; see [activitypub.Inbox].
type ActivityPub struct {
	// Name of the inbox. It keeps the activities of several inboxes apart.
	Name string `json:"name" default:"inbox" format:"inbox" unique:"write another name, or their activities would be the same"`
	// URL of an actor, with {actor} for its name, such as https://social.example/actors/{actor}. Its inbox is below it, at /inbox. No route can hide it.
	ActorsURL string `json:"actors_url" required:"true"`
	// Names of the actors that there are. An activity for another gets 404.
	Actors []string `json:"actors" required:"true" format:"actor" unique:"keep one of them"`
	// Path of the inbox that all actors share, such as /inbox. Without it there is none.
	SharedInbox string `json:"shared_inbox,omitzero"`
	// Which activities to accept from which instances: the first match counts. All others must sign their activities.
	Instances []Instance `json:"instances,omitempty"`
	// How signatures are verified.
	Signatures Signatures `json:"signatures,omitzero"`
	// Types of activities to accept, such as Follow; others get 422. If empty, all are accepted.
	Types     []string `json:"types,omitempty"`
	Accepting `yaml:",inline"`
	// How long an activity is recognised. Servers repeat a delivery for two days or more.
	Window Duration `json:"window" default:"7d" range:"2d,3650d"`
	// How long a sender waits, after its signature is verified, for an activity to be accepted or recognised. Then it gets 503 and delivers again.
	Budget Duration `json:"budget" default:"100ms" range:"10ms,1m"`
	// Largest activity.
	MaxBody Size `json:"max_body" default:"1MB" range:"1KiB,1008KiB"`
}

// Instance says what to accept from a server that delivers activities; see
// [activitypub.Policy].
type Instance struct {
	// Host of the instance, with its port if that isn't the scheme's own, or *.host for those below it, or * for all.
	Host string `json:"host" required:"true" format:"instance"`
	// Accept nothing from it, and fetch nothing from it: its requests get 403.
	Refuse bool `json:"refuse,omitzero"`
	// Whether to accept activities without a signature. With allow, whoever can reach the inbox can speak for any actor of the instance.
	Unsigned string `json:"unsigned" default:"refuse" enum:"refuse,allow"`
}

// Signatures say how the signatures of activities are verified; see [httpsig.Options].
type Signatures struct {
	// How old a signature may be.
	MaxAge Duration `json:"max_age" default:"12h" range:"1m,30d"`
	// Fetch signers' keys from addresses of this machine, of private networks and of cloud metadata too, and by http.
	AllowPrivate bool `json:"allow_private,omitzero"`
	// URL of the key that signs the requests for signers' keys, such as https://social.example/actors/alice#main-key. Some servers answer only signed requests.
	KeyID string `json:"key_id,omitzero" with:"key_file,the file of the private key"`
	// PEM file of that key: RSA, P-256 or Ed25519.
	KeyFile string `json:"key_file,omitzero" with:"key_id,the URL of the public key"`
}

var activityPubDoors = doorSection{
	derive: deriveActivityPub, validate: (*validator).activitypub,
	mounts: func(c *Config) (list []mount) {
		for door, a := range items("activitypub", c.ActivityPub) {
			list = append(list, mount{door: door, path: door, paths: a.inboxes(), serves: a.Serves, is: "an inbox of " + door, hint: "give it another path"})
		}
		return list
	},
	accepts: "activities", reserved: func(name string) bool { return strings.HasPrefix(name, activitypub.OperationPrefix) },
}

func deriveActivityPub(c *Config, _ *Origins, _ func(path, from string)) {
	for _, a := range items("activitypub", c.ActivityPub) {
		a.Tenant = cmp.Or(a.Tenant, c.Auth.DefaultTenant)
		a.Evidence = cmp.Or(a.Evidence, c.acceptedEvidence())
	}
}

// Options is the inbox for package activitypub. The server adds Verifier, Handle and Log.
func (a *ActivityPub) Options() activitypub.Options {
	return activitypub.Options{
		Name: a.Name, Tenant: a.Tenant, Actors: a.ActorsURL, Shared: a.SharedInbox,
		Exists:   func(_ context.Context, actor string) (bool, error) { return slices.Contains(a.Actors, actor), nil },
		Policies: a.Policies(), Types: a.Types, Window: time.Duration(a.Window), Remember: time.Duration(a.Remember), Budget: time.Duration(a.Budget),
		MaxBody: int64(a.MaxBody), Evidence: a.Evidence, Attributes: Pairs(a.Attributes),
	}
}

// Policies say what to accept from which instances.
func (a *ActivityPub) Policies() (list activitypub.Policies) {
	for _, i := range a.Instances {
		list = append(list, activitypub.Policy{Host: i.Host, Refuse: i.Refuse, Unsigned: i.Unsigned == "allow"})
	}
	return list
}

// Base is the scheme and the host of the actors, under which senders reach the inbox.
func (a *ActivityPub) Base() (*url.URL, error) {
	u, err := url.Parse(strings.ReplaceAll(a.ActorsURL, "{actor}", "a"))
	if err != nil {
		return nil, err
	}
	return &url.URL{Scheme: u.Scheme, Host: u.Host}, nil
}

// Key reads the key that signs requests for keys; nil if there is none.
func (s *Signatures) Key() (crypto.Signer, error) {
	if s.KeyFile == "" {
		return nil, nil
	}
	data, err := auth.ReadFile(s.KeyFile, maxSecret)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(data)
	if block == nil {
		return nil, errors.New("it isn't a PEM file")
	}
	var key any
	switch block.Type {
	case "RSA PRIVATE KEY":
		key, err = x509.ParsePKCS1PrivateKey(block.Bytes)
	case "EC PRIVATE KEY":
		key, err = x509.ParseECPrivateKey(block.Bytes)
	default:
		key, err = x509.ParsePKCS8PrivateKey(block.Bytes)
	}
	signer, ok := key.(crypto.Signer)
	if err != nil || !ok {
		return nil, errors.New("it has no private key that can be read")
	}
	return signer, nil
}

// Serves reports whether a path is that of an inbox, of whichever actor.
func (a *ActivityPub) Serves(path string) bool {
	_, serves := a.Options().Serves(path)
	return serves
}

func (v *validator) activitypub() {
	for at, a := range items("activitypub", v.c.ActivityPub) {
		if a.ActorsURL != "" {
			v.actorsURL(at+".actors_url", a.ActorsURL)
		}
		v.plainPath(at+".shared_inbox", a.SharedInbox, "/inbox")
		v.instances(at+".instances", a.Instances)
		v.signatures(at+".signatures", &a.Signatures)
		v.secrets(at+".upstream_secret_files", a.UpstreamSecretFiles)
		v.attributes(at, activitypub.Name, a.Attributes)
		v.remembering(at, a.Remember, a.Window)
		v.inbox(at, a)
	}
}

func (v *validator) actorsURL(at, text string) {
	const hint = "write such as https://social.example/actors/{actor}"
	if err := activitypub.CheckActors(text); err != nil {
		v.bad(at, hint, "%v", err)
	} else if u, err := url.Parse(text); err == nil && (strings.HasPrefix(u.Path, "/v1/") || strings.HasPrefix(u.Path, ownPrefix)) {
		v.bad(at, hint, "paths like %q belong to the API", u.Path)
	}
}

// instances refuses what would never be asked: who writes it believes that it is in force.
func (v *validator) instances(at string, list []Instance) {
	for i, one := range list {
		item := fmt.Sprintf("%s[%d]", at, i)
		first := slices.IndexFunc(list[:i], func(before Instance) bool { return covers(before.Host, one.Host) })
		if first >= 0 && one.Host != "" {
			v.bad(item+".host", "put it before the other, or leave it out", "%s[%d] fits %s first", at, first, one.Host)
		}
		if one.Refuse && one.Unsigned == "allow" {
			v.bad(item+".unsigned", "leave one of them out", "nothing is accepted from the instance")
		}
	}
}

func (v *validator) signatures(at string, s *Signatures) {
	if s.KeyID == "" || s.KeyFile == "" {
		return
	}
	page, _, _ := strings.Cut(s.KeyID, "#")
	if mistake, hint := urlMistake(page, "https", "http"); mistake != "" {
		v.Add(at+".key_id", mistake, hint)
	}
	key, err := s.Key()
	if err != nil {
		v.bad(at+".key_file", "", "%s: %v", s.KeyFile, err)
		return
	}
	r, err := http.NewRequest(http.MethodGet, "https://social.example/", nil)
	if err == nil {
		err = httpsig.Sign(r, nil, httpsig.SignOptions{KeyID: s.KeyID, Key: key})
	}
	if err != nil {
		v.bad(at+".key_file", "", "%s", strings.TrimPrefix(err.Error(), "httpsig: "))
	}
}

// covers reports whether a pattern of hosts has all that another has.
func covers(pattern, other string) bool {
	below, wild := strings.CutPrefix(pattern, "*.")
	return pattern == "*" || pattern == other || wild && strings.HasSuffix(other, "."+below)
}

// inbox checks what the settings of an inbox mean together.
func (v *validator) inbox(at string, a *ActivityPub) {
	if v.faultyBelow(at) || a.ActorsURL == "" {
		return
	}
	opts := a.Options()
	opts.Handle, opts.Verifier = func(context.Context, *activitypub.Activity) error { return nil }, new(httpsig.Verifier) // for the server's
	if err := opts.Validate(); err != nil {
		v.bad(at, "", "%s", strings.ReplaceAll(strings.ReplaceAll(err.Error(), "activitypub: ", ""), "\n", "; "))
	}
}

func (a *ActivityPub) inboxes() (paths []string) {
	for _, actor := range a.Actors {
		if u, err := url.Parse(strings.ReplaceAll(a.ActorsURL, "{actor}", actor)); err == nil {
			paths = append(paths, u.Path+"/inbox")
		}
	}
	if a.SharedInbox != "" {
		paths = append(paths, a.SharedInbox)
	}
	return paths
}
