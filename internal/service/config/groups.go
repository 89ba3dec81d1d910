package config

import (
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/semelhttp"
	"github.com/semelhq/semel/internal/reconcile"
	"github.com/semelhq/semel/internal/strictyaml"
)

// Groups of settings that several sections have. A section embeds the ones that it needs.

// Servers are offered over the protocol that they speak themselves.
type Servers struct {
	// Services that are offered over Forrst, with its idempotency extension.
	Forrst []Forrst `json:"forrst,omitempty"`
	// Agents that are offered over A2A, each message once.
	A2A []A2A `json:"a2a,omitempty"`
	// Servers with tools that are offered over MCP, each call once.
	MCP []MCP `json:"mcp,omitempty"`
}

// Callers says who may call a door that doesn't verify its callers by a signature.
type Callers struct {
	// Callers without a credential: loopback accepts those on this machine that no proxy passed on, share accepts all, refuse none. Defaults to loopback, and to refuse where auth knows callers.
	Anonymous semelhttp.Anonymous `json:"anonymous,omitzero" enum:"loopback,share,refuse"`
	// What tells callers apart where auth finds none: names of headers, or cookie: and the name of a cookie; all together count. authorization:Credential and its kind name the part of a credential that is signed anew for each try: write it only if something in front verifies the signature. Defaults to what usually authenticates, such as Authorization, Cookie and X-Api-Key, and what the profile of a route adds. A service over Forrst accepts others beside auth only if this names what the upstream verifies.
	Credential []string `json:"credential,omitempty" single:"true"`
}

// Forwarding says how calls are forwarded to an upstream that answers them.
type Forwarding struct {
	// How long the upstream may take.
	Timeout Duration `json:"timeout" default:"1m" range:"1ms,24h"`
	// Connections to the upstream at once over HTTP/1.1. Further requests wait for one.
	UpstreamConnections int `json:"upstream_connections" default:"1000" range:"1,1048576"`
	// The meaning of the upstream's answers where it differs from the usual one.
	Answers Answers `json:"answers,omitzero"`
	// Header in which the upstream gets a key that is the same in all attempts at one call.
	EffectHeader string `json:"effect_header,omitzero" format:"header"`
	// Header in which the upstream gets the tenant of the caller. What callers send in it is removed.
	TenantHeader string `json:"tenant_header,omitzero" format:"header"`
	// Header in which the upstream gets who the caller is. What callers send in it is removed.
	PrincipalHeader string `json:"principal_header,omitzero" format:"header"`
	// Forward the caller's bearer token from auth.tokens to the upstream. Without it only Semel sees that token. JWTs are always forwarded.
	ForwardCredential bool `json:"forward_credential,omitzero"`
}

// Reconciling says whom to ask what happened to a held call.
type Reconciling struct {
	// Where to ask what happened to a held call.
	ReconcileURL string `json:"reconcile_url,omitzero" secret:"url" format:"http"`
	// Which vendor, or which database, to ask what happened to a held call.
	Reconcile reconcile.Settings `json:"reconcile,omitzero"`
	// Pause between two questions about the same held call.
	ReconcileEvery Duration `json:"reconcile_every" default:"1m" range:"1s,365d"`
}

// asks reports whether there is somebody to ask.
func (r *Reconciling) asks() bool { return r.ReconcileURL != "" || r.Reconcile.On() }

// Remembering says how long calls stay known.
type Remembering struct {
	// How long Semel knows a call, at least window. Between the two its answer is gone, and a repetition is still recognised: it doesn't run, and gets result_not_kept where it asks for the answer. Defaults to window, and to 90d for tool calls over MCP.
	Remember Duration `json:"remember,omitzero" range:"0s,3650d"`
}

// Accepting says what becomes of items that a door accepts and posts to an upstream later.
type Accepting struct {
	Remembering `yaml:",inline"`
	// Tenant of the items. Defaults to auth.default_tenant.
	Tenant string `json:"tenant,omitzero"`
	// Where each item is posted to, once: an http or https URL.
	Upstream string `json:"upstream" required:"true" format:"http"`
	// Files with a secret each, whsec_ and base64, that sign what is posted to the upstream by Standard Webhooks.
	UpstreamSecretFiles []string `json:"upstream_secret_files,omitempty"`
	// How long the upstream may take for one item.
	Timeout Duration `json:"timeout" default:"15s" range:"100ms,10m"`
	// How long an item, after a crash during its post, waits for the upstream's answer. Then it is posted again, or with mode: sync on_abandoned decides.
	Lease Duration `json:"lease" default:"30s" range:"10ms,24h"`
	// What goes to the evidence log: changes of records; decisions on top, what every delivery got; durable, each before its answer. Defaults to decisions with evidence.key_file, else none.
	Evidence semel.EvidenceLevel `json:"evidence,omitzero" enum:"none,changes,decisions,durable"`
	// Attributes to keep with the record of an item, to find it by: json:/POINTER in the item, and for a webhook header:NAME, of those that the upstream gets, and form:FIELD. A webhook has those of its source too; one of the same name replaces the source's.
	Attributes []string `json:"attributes,omitempty" pairs:"true"`
}

// Telemetry says what the service reports about itself.
type Telemetry struct {
	// Where metrics go, beside GET /metrics of the admin listener, and what counts as a crowd.
	Metrics Metrics `json:"metrics,omitzero"`
	// Where traces go.
	Traces Traces `json:"traces,omitzero"`
	// What the service logs.
	Log Log `json:"log,omitzero"`
}

// Repeats say whether a call runs again after a failure, and what duplicates get.
type Repeats struct {
	Remembering `yaml:",inline"`
	// What the delivery after a failed attempt gets, such as one that the upstream answered with 500. Defaults to replay if financial, else to what the profile of its routes says, else to replay.
	OnFailure semel.AfterFailure `json:"on_failure,omitzero" enum:"replay,retry"`
	// What happens to an attempt without a holder when an effect is possible.
	OnAbandoned semel.AfterAbandon `json:"on_abandoned" default:"hold" enum:"hold,retry"`
	// What a duplicate gets while the first delivery runs.
	InFlight semel.InFlightRule `json:"in_flight" default:"refuse" enum:"refuse,wait"`
	// Longest wait for an outcome.
	MaxWait Duration `json:"max_wait" default:"30s" range:"1ms,1h"`
}

// Admission says which calls may run: in time, in order, and with a person's word.
type Admission struct {
	// A person confirms each call before it runs, within this time: by the token that the refusal gives to the caller over the execution API and MCP, or as an operator, by semel records confirm or in the dashboard. Unset, nobody is asked.
	Confirm Duration `json:"confirm,omitzero" range:"0s,5m"`
	// Refuse a call that was first sent before the window.
	RefuseLate bool `json:"refuse_late,omitzero"`
	// Calls of one key are a sequence and have numbers: one at a time, and none below a number that was begun.
	Sequenced bool `json:"sequenced,omitzero"`
	// A sequence leaves no number out: each waits for the one before it.
	Gapless bool `json:"gapless,omitzero"`
}

// Selection says where a route finds the key of a call, and the rest that Semel compares and keeps.
type Selection struct {
	// Whether a request must have a key. Defaults to what the profile says.
	Key semelhttp.KeyRule `json:"key,omitzero" enum:"required,optional"`
	// Header with the key.
	KeyHeader string `json:"key_header" default:"Idempotency-Key" format:"header"`
	// Where the key may be: header:NAME, query:NAME, form:FIELD or json:/POINTER. The first that is there counts, and others may not differ from it. A key has printable ASCII only, in a body too: take one with other characters by a key_template such as {number}. Defaults to key_header.
	KeyFrom []string `json:"key_from,omitempty" single:"true"`
	// How the key is made from the content of a request that has none by key_from; without key_from, of every request.
	KeyTemplate KeyTemplate `json:"key_template,omitzero"`
	// Header in which the upstream gets the key of a guarded call, such as the Idempotency-Key of a payment gateway behind a route with key_template.
	PassKey string `json:"pass_key,omitzero" format:"header"`
	// Where the number of a call is, in the form of key_from. Required if the operation is sequenced.
	Sequence string `json:"sequence,omitzero"`
	// Where the id of a mandate is, in the form of key_from. A call runs only while that mandate is valid; needs commerce. It belongs to the user in the attribute user_id, or else to the caller.
	RequiresMandate string `json:"requires_mandate,omitzero"`
	// The parts of a JSON body that are compared. A change of these makes conflicts of deliveries of earlier calls.
	Fingerprint Fingerprint `json:"fingerprint,omitzero"`
	// Attributes to keep with the record, so that people can search for it. Each is selected as in key_from, or by answer:/POINTER from the answer. The operation's own come on top.
	Attributes []string `json:"attributes,omitempty" pairs:"true"`
}

// formats are what the tag format of a setting may name.
var formats = map[string]strictyaml.Format{
	"actor":    pattern(`^[A-Za-z0-9._~@-]{1,100}$`, "%q is not the name of an actor", "write the name alone, such as alice"),
	"h2c":      func(text string) (mistake, hint string) { return urlMistake(text, "http", "https", "h2c") },
	"header":   pattern("^[A-Za-z0-9!#$%&'*+.^_`|~-]*$", "%q is not the name of a header", "use letters, digits and dashes"),
	"host":     pattern(hostName, "%q is not a host name", "write a name without scheme and port"),
	"http":     func(text string) (mistake, hint string) { return urlMistake(text, "http", "https") },
	"inbox":    pattern(`^[a-z0-9]+(-[a-z0-9]+)*$`, "%q is not the name of an inbox", "write small letters, digits and -"),
	"instance": pattern(instanceHost, "%q is not a host in small letters", "write such as social.example, *.example or *"),
	"urn":      pattern(`^urn:`, "%q is not a URN", "write such as urn:forrst:ext:dry-run"),
}

const (
	hostName     = `^[A-Za-z0-9]([A-Za-z0-9-]{0,62}[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]{0,62}[A-Za-z0-9])?)*$`
	instanceHost = `^(\*|(\*\.)?[a-z0-9_-]+(\.[a-z0-9_-]+)*(:[0-9]+)?|\[[0-9a-f:]+\](:[0-9]+)?)$`
)

func pattern(expression, mistake, hint string) strictyaml.Format {
	matches := regexp.MustCompile(expression).MatchString
	return func(text string) (string, string) {
		if matches(text) {
			return "", ""
		}
		return fmt.Sprintf(mistake, text), hint
	}
}

// is checks a text that no tag is about; it may be empty.
func (v *validator) is(path, format, text string) {
	if mistake, hint := formats[format](text); mistake != "" && text != "" {
		v.Add(path, mistake, hint)
	}
}

// urlMistake says why Semel can't send requests to a URL. The value itself may be a secret from
// the environment, so it is in no message.
func urlMistake(text string, schemes ...string) (mistake, hint string) {
	const such = "write such as http://127.0.0.1:9000"
	u, err := url.Parse(text)
	if err != nil {
		return "the value is not a URL", such
	}
	allowed := strings.Join(schemes, ", ")
	switch {
	case u.User != nil:
		return "a URL with a password would be written to logs", "let callers send their own credential"
	case u.Scheme == "" || u.Opaque != "":
		return fmt.Sprintf("the value has no scheme (%s)", allowed), such
	case !slices.Contains(schemes, u.Scheme):
		return fmt.Sprintf("the scheme %q is not one of %s", u.Scheme, allowed), strictyaml.DidYouMean(u.Scheme, schemes)
	case u.Hostname() == "":
		return "the value names no host", such
	case u.Fragment != "":
		return "a fragment is never sent", ""
	case u.Port() != "":
		if n, err := strconv.ParseUint(u.Port(), 10, 16); err != nil || n == 0 {
			return fmt.Sprintf("the port %q is not a number from 1 to 65535", u.Port()), ""
		}
	}
	return "", ""
}
