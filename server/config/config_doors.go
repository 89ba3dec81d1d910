package config

import (
	"github.com/semelhq/semel"
	"github.com/semelhq/semel/protocol/webhook"
	"github.com/semelhq/semel/transport/semelhttp"
)

// Forrst is a service that is offered over Forrst; see [forrst.Service].
type Forrst struct {
	// Path of the service on the data listener, such as /forrst. No route can hide it.
	Path string `json:"path" required:"true"`
	// Where calls go, once each and without the idempotency extension: an http or https URL that speaks Forrst.
	Upstream string `json:"upstream" required:"true" format:"http"`
	// Functions that can be called.
	Functions []ForrstFunction `json:"functions" required:"true"`
	// Name of the service in its capabilities.
	Service string `json:"service" default:"semel"`
	// URNs of extensions that the upstream understands. Those that change what a call does or returns, such as urn:forrst:ext:dry-run, are refused otherwise.
	Extensions []string `json:"extensions,omitempty" format:"urn"`
	// Longest time that a request may ask to have its result kept.
	MaxTTL Duration `json:"max_ttl" default:"30d" range:"1s,3650d"`
	// What a conflict shows of the first arguments. plain is a SHA-256, by which arguments that are easy to guess can be found out.
	ArgumentsHash string `json:"arguments_hash" default:"keyed" enum:"keyed,plain"`
	// File with the secret of keyed hashes, at least 16 bytes. With the same secret, all nodes show the same hash of equal arguments. By default each node makes one when it starts.
	HashKeyFile string `json:"hash_key_file,omitzero"`
	// Callers without a credential: loopback accepts those on this machine that no proxy passed on, share accepts all, refuse none. Defaults to loopback, and to refuse where auth knows callers.
	Anonymous semelhttp.Anonymous `json:"anonymous,omitzero" enum:"loopback,share,refuse"`
	// What tells callers apart where auth finds none: names of headers, or cookie: and the name of a cookie; all together count. Defaults to what usually authenticates, such as Authorization, Cookie and X-Api-Key. Where auth knows callers, others are accepted only if this names what the upstream verifies.
	Credential []string `json:"credential,omitempty" single:"true"`
	// Largest request.
	MaxBody Size `json:"max_body" default:"1MiB" range:"1,1GiB"`
	// How long the upstream may take.
	Timeout Duration `json:"timeout" default:"1m" range:"1ms,24h"`
	// Connections to the upstream at once over HTTP/1.1. Further requests wait for one.
	UpstreamConnections int `json:"upstream_connections" default:"1000" range:"1,1048576"`
	// Header in which the upstream gets a key that is the same in all attempts at one call.
	EffectHeader string `json:"effect_header,omitzero" format:"header"`
	// Header in which the upstream gets the tenant of the caller.
	TenantHeader string `json:"tenant_header,omitzero" format:"header"`
	// Header in which the upstream gets who the caller is.
	PrincipalHeader string `json:"principal_header,omitzero" format:"header"`
	// Send the upstream the bearer token by which auth.tokens knew the caller. Without it that is Semel's alone; JWTs are always sent on.
	ForwardCredential bool `json:"forward_credential,omitzero"`
}

// ForrstFunction is a function that can be called over Forrst.
type ForrstFunction struct {
	// Name of the function, such as payments.charge.
	Name string `json:"name" required:"true"`
	// Versions that can be called, such as 1.0.0.
	Versions []string `json:"versions" required:"true"`
	// Name of the operation. One of class I0 only reads and takes no key. Defaults to default where there is an operation of that name.
	Operation string `json:"operation,omitzero"`
	// Whether a request must have a key. Without one a request is a call of its own.
	Key semelhttp.KeyRule `json:"key" default:"required" enum:"required,optional"`
	// JSON Schemas of the arguments. Calls that do not fit are refused and not sent to the upstream.
	Arguments []ForrstArguments `json:"arguments,omitempty"`
}

// ForrstArguments is the JSON Schema of a function's arguments.
type ForrstArguments struct {
	// File with the schema in JSON, of draft 2020-12 unless it names another.
	File string `json:"file" required:"true"`
	// Version of the function that it is for. Defaults to all that no other schema names.
	Version string `json:"version,omitzero"`
}

// Commands says which commands the service takes.
type Commands struct {
	// Registry of the commands, a YAML file; see semel ids lint. Without it there are no commands.
	Registry string `json:"registry,omitzero"`
	// Commands that come as WhatsApp messages.
	WhatsApp WhatsApp `json:"whatsapp,omitzero"`
}

// WhatsApp is the webhook of a WhatsApp app. A delivery's only credential is its
// signature; see [whatsapp.Ingress].
type WhatsApp struct {
	// Path of the webhook on the data listener, such as /webhooks/whatsapp. No route can hide it.
	Path string `json:"path,omitzero" required:"true"`
	// File with the token that WhatsApp sends to verify the webhook.
	VerifyTokenFile string `json:"verify_token_file,omitzero" required:"true"`
	// Files with the app's secret, which signs deliveries: one, or two during a rotation.
	AppSecretFiles []string `json:"app_secret_files,omitempty" required:"true"`
	// Where to ask for the command that a message means: an http or https URL.
	MapperURL string `json:"mapper_url,omitzero" required:"true" secret:"url" format:"http"`
	// How long one question to the mapper may take. Defaults to 10s.
	MapperTimeout Duration `json:"mapper_timeout,omitzero"`
	// Phone numbers of the app.
	Numbers []WhatsAppNumber `json:"numbers,omitempty" required:"true"`
	// Where replies to senders are posted: an http or https URL. Without it nobody gets a reply.
	ReplyURL string `json:"reply_url,omitzero" secret:"url" format:"http"`
	// Files with a secret each, whsec_ and base64. They sign replies by Standard Webhooks.
	ReplySecretFiles []string `json:"reply_secret_files,omitempty"`
}

// WhatsAppNumber is a phone number and its tenant.
type WhatsAppNumber struct {
	// Id of the phone number, as WhatsApp gave it: digits, in quotes.
	PhoneNumberID string `json:"phone_number_id" required:"true"`
	// Tenant whose number it is. Defaults to auth.default_tenant.
	Tenant string `json:"tenant,omitzero"`
	// Rights of everybody who sends a message to this number, as the registry of commands names them.
	Rights []string `json:"rights,omitempty"`
}

// Webhook takes the webhooks of one sender, whose signature is its only credential; see
// [webhook.Receiver].
type Webhook struct {
	// Path that the sender posts to, such as /webhooks/shopify. No route can hide it.
	Path string `json:"path" required:"true"`
	// How the sender signs and names its events: shopify, shopify-events, stripe, adyen, adyen-header, github, whatsapp, square, acp, standard-webhooks, standard-webhooks-ed25519, svix, paddle or slack, or a YAML file that says so.
	Source string `json:"source" required:"true"`
	// Name of the receiver, which tells its events from those of others. Defaults to the name of the source.
	Name string `json:"name,omitzero"`
	// File with the secret, or the public key, as the sender shows it; two while one replaces the other.
	SecretFiles []string `json:"secret_files" required:"true"`
	// File with the token by which the sender asks whether this is the right address, where it does.
	VerifyTokenFile string `json:"verify_token_file,omitzero"`
	// Address that the sender posts to, where it signs that.
	URL string `json:"url,omitzero"`
	// Whose events they are. Defaults to auth.default_tenant.
	Tenant string `json:"tenant,omitzero"`
	// ack answers when the events are durable, and posts them to the upstream afterwards. sync posts them while the sender waits, who delivers again after a failure.
	Mode webhook.Mode `json:"mode" default:"ack" enum:"ack,sync"`
	// Where each event is posted to, once: an http or https URL.
	Upstream string `json:"upstream" required:"true" format:"http"`
	// Files with a secret each, whsec_ and base64, that sign what is posted to the upstream by Standard Webhooks.
	UpstreamSecretFiles []string `json:"upstream_secret_files,omitempty"`
	// How long the upstream may take for one event.
	Timeout Duration `json:"timeout" default:"15s" range:"100ms,10m"`
	// With sync, what becomes of an event whose upstream did not answer: held until it is settled, or posted again.
	OnAbandoned semel.AfterAbandon `json:"on_abandoned,omitzero" enum:"hold,retry"`
	// What becomes of an event whose id was used with another content: parked, until you replay or discard it, or dropped.
	OnConflict webhook.AfterConflict `json:"on_conflict" default:"park" enum:"park,drop"`
	// How long an event whose post was cut off by a crash waits for the upstream's answer. Then it is posted again, or with sync on_abandoned decides.
	Lease Duration `json:"lease" default:"30s" range:"10ms,24h"`
	// How long an event is recognised. Defaults to 7d, or as long as the sender repeats itself if that is longer.
	Window Duration `json:"window,omitzero"`
	// Largest body of a delivery.
	MaxBody Size `json:"max_body" default:"4MiB" range:"1KiB,64MiB"`
	// What events mean to payments: card for the usual life of a card payment, or a YAML file with another. Without it nothing is checked.
	Payments string `json:"payments,omitzero"`
	// What goes to the evidence log: changes of records; decisions on top, what every delivery got; durable, each before its answer. Defaults to decisions where evidence.key_file is given, else none.
	Evidence semel.EvidenceLevel `json:"evidence,omitzero" enum:"none,changes,decisions,durable"`
}

// ActivityPub is the inboxes of a server's actors, to which other servers deliver
// activities; see [activitypub.Inbox].
type ActivityPub struct {
	// Name of the inbox, which tells its activities from those of others.
	Name string `json:"name" default:"inbox"`
	// URL of an actor, with {actor} for its name, such as https://social.example/actors/{actor}. Its inbox is below it, at /inbox. No route can hide it.
	ActorsURL string `json:"actors_url" required:"true"`
	// Names of the actors that there are. An activity for another gets 404.
	Actors []string `json:"actors" required:"true" format:"actor"`
	// Path of the inbox that all actors share, such as /inbox. Without it there is none.
	SharedInbox string `json:"shared_inbox,omitzero"`
	// What is taken from which instances; the first that fits counts. From all others what is signed is taken.
	Instances []Instance `json:"instances,omitempty"`
	// How signatures are verified.
	Signatures Signatures `json:"signatures,omitzero"`
	// Types of activities that are taken, such as Follow; others get 422. If empty, all are.
	Types []string `json:"types,omitempty"`
	// Whose activities they are. Defaults to auth.default_tenant.
	Tenant string `json:"tenant,omitzero"`
	// Where each activity is posted to, once: an http or https URL.
	Upstream string `json:"upstream" required:"true" format:"http"`
	// Files with a secret each, whsec_ and base64, that sign what is posted to the upstream by Standard Webhooks.
	UpstreamSecretFiles []string `json:"upstream_secret_files,omitempty"`
	// How long the upstream may take for one activity.
	Timeout Duration `json:"timeout" default:"15s" range:"100ms,10m"`
	// How long an activity whose post was cut off by a crash waits for the upstream's answer. Then it is posted again.
	Lease Duration `json:"lease" default:"30s" range:"10ms,24h"`
	// How long an activity is recognised. Servers repeat a delivery for two days or more.
	Window Duration `json:"window" default:"7d" range:"2d,3650d"`
	// How long a sender waits, after its signature is verified, for an activity to be taken or recognised. Then it gets 503 and delivers again.
	Budget Duration `json:"budget" default:"100ms" range:"10ms,1m"`
	// Largest activity.
	MaxBody Size `json:"max_body" default:"1MB" range:"1KiB,1008KiB"`
	// What goes to the evidence log: changes of records; decisions on top, what every delivery got; durable, each before its answer. Defaults to decisions where evidence.key_file is given, else none.
	Evidence semel.EvidenceLevel `json:"evidence,omitzero" enum:"none,changes,decisions,durable"`
}

// Instance is what is taken from a server that delivers activities; see
// [activitypub.Policy].
type Instance struct {
	// Host of the instance, with its port if that isn't the scheme's own, or *.host for those below it, or * for all.
	Host string `json:"host" required:"true" format:"instance"`
	// Take nothing from it, and fetch nothing from it: its requests get 403.
	Refuse bool `json:"refuse,omitzero"`
	// Whether what isn't signed is taken too. With allow, whoever can reach the inbox can speak for any actor of the instance.
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
