package config

import (
	"cmp"
	"slices"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/semelhttp"
	"github.com/semelhq/semel/internal/service/auth"
)

// Config has all settings. The comments of the fields, and of the
// structs in them, are the descriptions in the schema.
// The json tag is the name in YAML and JSON. The other tags are: default, the value if
// nothing is written; enum, the allowed values; range, the smallest and the largest
// value; required, for a setting without a default; flag, the command line flag that sets
// it; secret, for a value that is never printed; empty, for a list that differs from none
// when it is empty.
//
// An environment variable can set every setting that isn't in a list. Its name is SEMEL_
// and the path in capitals: SEMEL_STORE_URL sets store.url.
//
// Don't change a Config after you have loaded it.
type Config struct {
	// Listener for the traffic that is guarded and for the execution API.
	Listen Listener `json:"listen,omitzero"`
	// Listener for operators.
	Admin Admin `json:"admin,omitzero"`
	// Where records are.
	Store Store `json:"store,omitzero"`
	// Who may call, and as whom.
	Auth Auth `json:"auth,omitzero"`
	// Who may use the execution API on the data listener. verified: callers found by auth, and the default where that has any. open: every program on this machine, which is the default without auth and needs a loopback listener, no dispatch and no evidence. off: nobody.
	API string `json:"api,omitzero" enum:"off,verified,open"`
	// Kinds of calls and how they are protected. Defaults to one operation named default.
	Operations []Operation `json:"operations,omitempty"`
	// What the proxy guards and where it leads.
	Routes  []Route `json:"routes,omitempty"`
	Servers `yaml:",inline"`
	// Limits that keep the service from being overloaded.
	Limits Limits `json:"limits,omitzero"`
	// How much callers may have stored.
	Quotas Quotas `json:"quotas,omitzero"`
	// Commands that are accepted at /v1/commands.
	Commands Commands `json:"commands,omitzero"`
	// Webhooks of other services to receive.
	Webhooks []Webhook `json:"webhooks,omitempty"`
	// Inboxes for the activities of servers that speak ActivityPub.
	ActivityPub []ActivityPub `json:"activitypub,omitempty"`
	// Sessions, mandates, payments and shared data, for back ends that speak HTTP.
	Commerce Commerce `json:"commerce,omitzero"`
	// Where records go before they are purged.
	Archive Archive `json:"archive,omitzero"`
	// The tamper-evident log of what happened to calls.
	Evidence Evidence `json:"evidence,omitzero"`
	// Where the messages of completed calls are delivered.
	Dispatch Dispatch `json:"dispatch,omitzero"`
	// How fast expired records are removed.
	Purge     Purge `json:"purge,omitzero"`
	Telemetry `yaml:",inline"`
}

// Listener is an address for the guarded traffic.
type Listener struct {
	// Host and port. Port 0 picks a free one; an empty host means all addresses.
	Address string `json:"address" default:"127.0.0.1:8480" flag:"listen"`
	// Host names, beside localhost, under which the execution API and commands answer on a loopback address: the names that a proxy in front passes on. Routes answer to all names.
	Hosts []string `json:"hosts,omitempty" format:"host"`
	// Certificates. Without them the listener speaks plain HTTP.
	TLS TLS `json:"tls,omitzero"`
	// Addresses or networks of the proxies in front, such as 10.0.0.0/8. If anybody else sends Forwarded, X-Forwarded-For and the like, these are removed.
	TrustedProxies []string `json:"trusted_proxies,omitempty"`
}

// Admin is an address for the requests of operators.
type Admin struct {
	// Host and port. Port 0 picks a free one. An address that is not loopback needs token_file or callers in auth.
	Address string `json:"address" default:"127.0.0.1:8481" flag:"admin"`
	// File with a bearer token that makes its bearer an admin of all tenants, on this listener only. Without it, and without a caller in auth who can have a role, every program on this machine is one if address is loopback, and otherwise nobody is.
	TokenFile string `json:"token_file,omitzero" flag:"admin-token-file"`
	// Certificates. Without them the listener speaks plain HTTP.
	TLS TLS `json:"tls,omitzero"`
}

// TLS names the files of a listener's certificates.
type TLS struct {
	// PEM file of the certificate and its chain.
	Cert string `json:"cert,omitzero" with:"key,the file of the private key"`
	// PEM file of the private key.
	Key string `json:"key,omitzero" with:"cert,the file of the certificate"`
	// PEM file of the authorities for client certificates. Needed by auth.mtls.
	ClientCA string `json:"client_ca,omitzero"`
}

// Store says where records are.
type Store struct {
	// pebble: and a directory, a postgres, redis, redis-cluster or redis-sentinel URL, or memory: which forgets everything when the service stops.
	URL string `json:"url" default:"pebble:./semel-data" flag:"store" secret:"url"`
	// File with the URL, for a URL with a password.
	URLFile string `json:"url_file,omitzero"`
	// strict refuses to start on a store that may lose a written record by its settings.
	Profile string `json:"profile" default:"standard" enum:"standard,strict"`
	// Schema of the tables in PostgreSQL.
	Schema string `json:"schema" default:"semel"`
	// Bring the schema up to date at the start. Otherwise run semel migrate up.
	Migrate bool `json:"migrate,omitzero"`
	// Prefix of all keys in Redis.
	Prefix string `json:"prefix" default:"semel"`
	// Accept that a failover of Redis may lose records, and that calls may then be executed twice.
	AcceptLoss bool `json:"accept_loss,omitzero"`
}

// The values of [Config].API.
const (
	APIOff      = "off"
	APIVerified = "verified"
	APIOpen     = "open"
)

// Who may call is declared by the package that finds it out.
type (
	Auth          = auth.Settings
	JWT           = auth.JWT
	TrustedHeader = auth.TrustedHeader
)

// OneTenant reports whether all calls are in the default tenant, whoever makes them.
func (c *Config) OneTenant() bool {
	other := func(tenant string) bool { return cmp.Or(tenant, c.Auth.DefaultTenant) != c.Auth.DefaultTenant }
	return !slices.ContainsFunc(c.Auth.Tokens, func(t auth.Token) bool { return other(t.Tenant) }) &&
		!slices.ContainsFunc(c.Auth.MTLS, func(m auth.ClientCert) bool { return other(m.Tenant) }) &&
		!slices.ContainsFunc(c.Auth.JWT, func(j JWT) bool { return j.TenantClaim != "" || other(j.Tenant) }) &&
		c.Auth.TrustedHeader.Tenant == "" &&
		!slices.ContainsFunc(c.Webhooks, func(w Webhook) bool { return other(w.Tenant) }) &&
		!slices.ContainsFunc(c.ActivityPub, func(a ActivityPub) bool { return other(a.Tenant) }) &&
		!slices.ContainsFunc(c.Commands.WhatsApp.Numbers, func(n WhatsAppNumber) bool { return other(n.Tenant) })
}

// OpenAdmin reports whether every program on this machine is an admin: the admin listener
// is on loopback, and the configuration names no operator. Callers that it names don't
// change that, because nobody could settle a held call otherwise.
func (c *Config) OpenAdmin() bool {
	return c.Admin.TokenFile == "" && !c.Auth.Operators() && loopback(c.Admin.Address)
}

// Operation declares a kind of call and how it is protected; see
// [semel.Operation] for what the settings mean.
type Operation struct {
	// Name of the operation, with its version where it has one, such as payments.charge@2.
	Name string `json:"name" required:"true" unique:"write a version to make it another, such as NAME@2"`
	// I0 only reads, I1 is strict, I2 is bounded by its window, I3 has effects that need shields.
	Class semel.Class `json:"class" default:"I1" enum:"I0,I1,I2,I3"`
	// The operation moves money: the window is at least 24h and defaults to 7d, failures are replayed unless on_failure says otherwise, and records are archived unless archive says otherwise.
	Financial bool `json:"financial,omitzero"`
	// How long Semel keeps an outcome. Defaults to what the profile of its routes says, else 24h, or 7d if financial.
	Window Duration `json:"window,omitzero" range:"1s,3650d"`
	// How long a silent holder keeps the right to run the call.
	Lease   Duration `json:"lease" default:"30s" range:"10ms,24h"`
	Repeats `yaml:",inline"`
	// Who shares keys.
	Share semel.Share `json:"share" default:"principal" enum:"principal,tenant"`
	// Largest result that Semel keeps, up to 64MiB. Defaults to 256KiB on Redis, which keeps all results in memory.
	MaxResult Size `json:"max_result" default:"1MiB" range:"1,64MiB"`
	// Accept calls over the execution API too, although a route uses the operation. Otherwise the keys belong to the route.
	API bool `json:"api,omitzero"`
	// What keeps external effects from happening twice: S1 provider key, S2 outbox, S3 ledger, S4 reconciliation.
	Shields []semel.Shield `json:"shields,omitempty" enum:"S1,S2,S3,S4"`
	// Effects that attempts may begin. A name that ends in * stands for all with that prefix, and [] says that there are none.
	Effects     []string `json:"effects,omitzero" empty:"distinct"`
	Reconciling `yaml:",inline"`
	Admission   `yaml:",inline"`
	// Limit of duplicates of one call.
	PerRecord Rate `json:"per_record,omitzero"`
	// Limit of duplicates by one principal.
	PerPrincipal Rate `json:"per_principal,omitzero"`
	// Keep the bodies of requests with the records, as long as those and up to max_result, and those that were refused as conflicts up to 64KiB, so that operators can compare them. Leave it off where bodies have secrets.
	KeepPayload bool `json:"keep_payload,omitzero"`
	// Attributes of the calls of all routes of the operation; see the routes'.
	Attributes []string `json:"attributes,omitempty" pairs:"true"`
	// Keep records in the archive before they are purged. Defaults to true if financial.
	Archive bool `json:"archive,omitzero"`
	// What goes to the evidence log: changes of records; decisions on top, what every delivery got; durable, each before its answer.
	Evidence semel.EvidenceLevel `json:"evidence" default:"none" enum:"none,changes,decisions,durable"`
}

// Rate is a token bucket.
type Rate struct {
	// Duplicates per second in the long run.
	PerSecond float64 `json:"per_second,omitzero" range:"0"`
	// Duplicates at once.
	Burst int `json:"burst,omitzero" range:"0"`
}

// Route is a pattern of requests, and where the proxy sends them.
type Route struct {
	// Pattern of method, host and path as in net/http, such as POST /charges/{id}.
	Match string `json:"match" required:"true"`
	// Where requests go: an http, https or h2c URL.
	Upstream string `json:"upstream" required:"true" format:"h2c"`
	// Name of the operation. Defaults to the operation named default, if there is one.
	Operation string `json:"operation,omitzero"`
	// Contract that the statuses and shapes of the answers follow.
	Profile string `json:"profile" default:"ietf" enum:"ietf,stripe,acp,ucp,adyen,x402"`
	// enforce guards, shadow reports what would have been a duplicate, off passes everything.
	Mode      string `json:"mode" default:"enforce" enum:"enforce,shadow,off"`
	Selection `yaml:",inline"`
	// Methods that are guarded. Defaults to all but GET, HEAD, OPTIONS and TRACE.
	Methods []string `json:"methods,omitempty" enum:"POST,PUT,PATCH,DELETE"`
	Callers `yaml:",inline"`
	// Request headers that are part of the identity of a call: the same key with another value is another call. :path stands for the path. The profile's own come on top, and Host with preserve_host: always.
	ScopeHeaders []string `json:"scope_headers,omitempty" single:"true"`
	// When two bodies are the same. Defaults to what the profile says.
	Body semelhttp.BodyMode `json:"body,omitzero" enum:"auto,raw,json,form,multipart"`
	// Headers of requests that must be the same in every delivery, such as X-Api-Version.
	FingerprintHeaders []string `json:"fingerprint_headers,omitempty" format:"header"`
	// Further headers of answers that Semel keeps and replays.
	KeepHeaders []string `json:"keep_headers,omitempty" format:"header"`
	// Origins of pages in browsers that may read refusals and replays, such as https://shop.example. List only origins that the upstream lets read its answers.
	Origins []string `json:"origins,omitempty" single:"true"`
	// Largest request body.
	MaxBody Size `json:"max_body" default:"10MiB" range:"1,1TiB"`
	// Largest event stream that Semel records while it passes, so that duplicates join it and get all of it afterwards.
	MaxStream  Size `json:"max_stream" default:"4MiB" range:"1,64MiB"`
	Forwarding `yaml:",inline"`
	// What may pass without being guarded.
	Unguarded []string `json:"unguarded,omitempty" enum:"sse,upgrade,grpc"`
	// Whether the upstream gets the caller's Host header: with auto it does unless the upstream is https.
	PreserveHost string `json:"preserve_host" default:"auto" enum:"auto,always,never"`
	// Give each guarded request to an upstream that speaks HTTP/1.1 a connection of its own. Slower, but a restart of the upstream can't close a connection under a request.
	FreshConnections bool `json:"fresh_connections,omitzero"`
	// What happens while the store doesn't answer. fail_open gives up the guarantee.
	StoreDown string `json:"store_down" default:"fail_closed" enum:"fail_closed,fail_open"`
}

// KeyTemplate makes keys from the content of requests; see [semelhttp.KeyTemplate].
type KeyTemplate struct {
	// Name of a format of commerce, such as order, which has a template and a scope.
	Format string `json:"format,omitzero" enum:"session,session_nonce,session_update,cart_mandate,intent_mandate,payment,order,webhook,payment_webhook,sync,sync_user,sync_product"`
	// Template of your own in place of a format, such as order:{order_id}.
	Template string `json:"template,omitzero"`
	// What the keys of your template are unique in, such as session; it is part of the identity of a call.
	Scope string `json:"scope,omitzero"`
	// The field that names the scope, such as session_id.
	ScopeField string `json:"scope_field,omitzero"`
	// Where a request has the value of each field: header:NAME, query:NAME, form:FIELD, json:/POINTER, hash:/POINTER for the digest of any value, or cart:/POINTER for the hash of a cart.
	Values []string `json:"values,omitempty" pairs:"true"`
}

// Fingerprint says which parts of a JSON body are compared.
type Fingerprint struct {
	// JSON pointers to the parts that are compared. Defaults to all.
	Only []string `json:"only,omitempty" single:"true"`
	// JSON pointers to parts that aren't.
	Ignore []string `json:"ignore,omitempty" single:"true"`
}

// Limits are the bounds of the whole service.
type Limits struct {
	// Largest header of a request, 4KiB to 1MiB.
	HeaderBytes Size `json:"header_bytes" default:"32KiB" range:"4KiB,1MiB"`
	// Longest time for the header of a request.
	ReadHeaderTimeout Duration `json:"read_header_timeout" default:"5s" range:"100ms,1h" most:"read_timeout"`
	// Longest time without a byte of a request's body. As long as it comes as fast as rate demands, it may take any time.
	ReadTimeout Duration `json:"read_timeout" default:"1m" range:"100ms,24h"`
	// Longest time that a connection waits for its next request.
	IdleTimeout Duration `json:"idle_timeout" default:"2m" range:"100ms,24h"`
	// Connections at once, per listener, and as many requests at once on all of them together: any more get 503. One connection of HTTP/2 has up to 100.
	Connections int `json:"connections" default:"10000" range:"1,1048576"`
	// Bytes per second that a caller must send of a body, and read of an answer, up to 1MiB; 0 means any pace.
	Rate Size `json:"rate" default:"1KiB" range:"0,1MiB"`
	// How long a caller may be slower than the rate.
	RateGrace Duration `json:"rate_grace" default:"10s" range:"100ms,24h"`
	// Bytes of requests in flight, of all tenants.
	TotalBytes Size `json:"total_bytes" default:"1GiB" range:"1MiB,1TiB"`
	// Bytes of requests in flight, of one tenant. Callers that nobody has verified count as one tenant of their own.
	TenantBytes Size `json:"tenant_bytes" default:"256MiB" range:"1MiB,1TiB" most:"total_bytes"`
	// Bytes of requests in flight, of one principal, or of one address where nobody has verified the caller.
	PrincipalBytes Size `json:"principal_bytes" default:"64MiB" range:"1MiB,1TiB"`
	// How long the service still accepts requests when it stops, while readiness says that it does. Set it to what your load balancer needs to notice.
	ShutdownDelay Duration `json:"shutdown_delay" default:"0s" range:"0s,1h"`
	// How long requests in flight may take when the service stops.
	ShutdownGrace Duration `json:"shutdown_grace" default:"30s" range:"0s,24h"`
}

// Quotas bound what callers have stored; see [semel.Quotas]. Each node counts by itself.
type Quotas struct {
	// Time after which a used-up quota is full again.
	Window Duration `json:"window" default:"1d" range:"1m,365d"`
	// New calls that one principal may begin; 0 means any number.
	PrincipalRecords int `json:"principal_records,omitzero" range:"0,2147483647" most:"tenant_records"`
	// Bytes that may be recorded of the calls of one principal; 0 means any number.
	PrincipalBytes Size `json:"principal_bytes,omitzero" range:"0,1TiB" most:"tenant_bytes"`
	// New calls that one tenant may begin; 0 means any number. Callers that nobody has verified count as one tenant of their own.
	TenantRecords int `json:"tenant_records,omitzero" range:"0,2147483647"`
	// Bytes that may be recorded of the calls of one tenant; 0 means any number.
	TenantBytes Size `json:"tenant_bytes,omitzero" range:"0,1TiB"`
	// Calls that may be held for callers that nobody has verified, from one address; 0 means any number. Who has more begins no new call until some are settled, or end with their window.
	UnverifiedHolds int `json:"unverified_holds,omitzero" range:"0,2147483647"`
}

// Archive says where purged records go.
type Archive struct {
	// files writes compressed files; store writes to a table beside the records, on PostgreSQL only, where it is the default unless dir is given.
	In string `json:"in" default:"files" enum:"files,store"`
	// Directory of the archive's files.
	Dir string `json:"dir" default:"./semel-archive"`
	// Whether somebody has configured it, or the store implies it. A default directory counts as none.
	configured bool
}

// Evidence configures the evidence log.
type Evidence struct {
	// File with the keys of the log, as semel evidence keygen makes it. Required if an operation keeps evidence.
	KeyFile string `json:"key_file,omitzero"`
	// File in which this node remembers the checkpoint that was signed last. A log that does not contain it, because somebody put the store back, is not signed. Needs a directory that can be written and outlives restarts. By default the name of key_file and .signed.
	SignedFile string `json:"signed_file,omitzero"`
	// Pause between two signed checkpoints, 100ms to 1h.
	Every Duration `json:"every" default:"1s" range:"100ms,1h"`
	// Directory that gets every checkpoint. It should have another owner than the store and the key.
	CheckpointDir string `json:"checkpoint_dir,omitzero"`
	// Witnesses that sign every checkpoint too.
	Witnesses []EvidenceWitness `json:"witnesses,omitempty"`
	// How long openings of entries stay, at least 1h. 0 keeps them for ever.
	KeepOpenings Duration `json:"keep_openings,omitzero"`
	// Pause between two audits, which compare all records with the log, at least 1m: a readiness check, a metric and the log say what they find. One node of a cluster is enough. Off by default.
	AuditEvery Duration `json:"audit_every,omitzero"`
}

// EvidenceWitness is a witness in the form of C2SP's tlog-witness.
type EvidenceWitness struct {
	// URL of the witness, to which /add-checkpoint is added.
	URL string `json:"url" required:"true"`
	// Public key of the witness, as name, hash and base64 with + between them.
	Key string `json:"key" required:"true"`
}

// Dispatch says where the messages of completed calls are delivered.
type Dispatch struct {
	// Receivers of messages. Messages to others wait for a node that has them.
	Destinations []Destination `json:"destinations,omitempty"`
}

// Destination is a webhook that gets messages; see [dispatch.Destination].
type Destination struct {
	// Name of the destination, as the calls that send to it write it.
	Name string `json:"name" required:"true" unique:"a destination has one URL"`
	// Where messages are posted to: an http or https URL.
	URL string `json:"url" required:"true" secret:"url" format:"http"`
	// Operations that may send to it. A name that ends in * stands for all with that prefix.
	Operations []string `json:"operations" required:"true"`
	// Tenants that may send to it. If empty, all tenants.
	Tenants []string `json:"tenants,omitempty"`
	// Files with a secret each, whsec_ and base64. Messages are signed with all of them by Standard Webhooks; without any they aren't signed.
	SecretFiles []string `json:"secret_files,omitempty"`
	// How long one try may take.
	Timeout Duration `json:"timeout" default:"15s" range:"100ms,1h"`
	// Tries of this node at one time.
	Concurrency int `json:"concurrency" default:"8" range:"1,1000"`
	// Limit of the tries of this node.
	Rate TryRate `json:"rate,omitzero"`
	// Longest random pause after the first failed try. It doubles with each further one.
	MinBackoff Duration `json:"min_backoff" default:"5s" range:"1ms,24h" most:"max_backoff"`
	// Upper bound of that pause.
	MaxBackoff Duration `json:"max_backoff" default:"1h" range:"1ms,24h"`
	// Tries after which a message is parked until an operator decides.
	MaxTries int `json:"max_tries" default:"80" range:"1,10000"`
	// Age at which an undelivered message is parked after a failed try.
	MaxAge Duration `json:"max_age" default:"3d" range:"1s,365d"`
	// Allow addresses of this machine, of private networks and of cloud metadata.
	AllowPrivate bool `json:"allow_private,omitzero"`
}

// TryRate is a token bucket of tries.
type TryRate struct {
	// Tries per second in the long run.
	PerSecond float64 `json:"per_second,omitzero" range:"0"`
	// Tries at once.
	Burst int `json:"burst,omitzero" range:"0"`
}

// Purge says how expired records are removed.
type Purge struct {
	// Pause between two looks for expired records. Everything else that is due is attended to every second.
	Interval Duration `json:"interval" default:"1m" range:"1s,24h"`
}

// Metrics says where metrics go, and what counts as a crowd.
type Metrics struct {
	// URL to which metrics are pushed by OTLP over HTTP, such as http://collector:4318/v1/metrics. By default none, unless OTEL_EXPORTER_OTLP_ENDPOINT or OTEL_EXPORTER_OTLP_METRICS_ENDPOINT is set. The other variables of OpenTelemetry count as well.
	OTLP string `json:"otlp,omitzero" secret:"url" format:"http"`
	// From how many deliveries of one key at once, within a minute and with the one that runs, semel_crowded_keys_total counts the key, so that the alert SemelCrowdedKey is raised.
	Crowded int `json:"crowded" default:"11" range:"2,1000000"`
}

// Log configures the log.
type Log struct {
	// Least important level that is logged. Lines about deliveries that got their outcome, or were refused, are at info; warn leaves them out.
	Level string `json:"level" default:"info" enum:"debug,info,warn,error"`
	// auto writes text to a terminal and JSON elsewhere.
	Format string `json:"format" default:"auto" enum:"auto,text,json"`
}

// Traces says where traces go.
type Traces struct {
	// URL to which spans are pushed by OTLP over HTTP, such as http://collector:4318/v1/traces. By default none, unless OTEL_EXPORTER_OTLP_ENDPOINT or OTEL_EXPORTER_OTLP_TRACES_ENDPOINT is set. The other variables of OpenTelemetry count as well, but for those of the sampler.
	OTLP string `json:"otlp,omitzero" secret:"url" format:"http"`
	// Share of the deliveries whose callers send no trace context that are traced, from 0 to 1. Otherwise the caller's sampled flag decides.
	Ratio float64 `json:"ratio" default:"1" range:"0,1"`
}
