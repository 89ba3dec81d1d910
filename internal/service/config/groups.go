package config

import (
	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/semelhttp"
)

// Groups of settings that several sections have. A section embeds the ones that it needs.

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

// Accepting says what becomes of items that a door accepts and posts to an upstream later.
type Accepting struct {
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
}

// UpstreamSecrets reads the files with the secrets that sign what the upstream gets.
func (a *Accepting) UpstreamSecrets() ([]string, error) {
	return readSecretFiles(a.UpstreamSecretFiles)
}
