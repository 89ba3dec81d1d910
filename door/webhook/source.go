package webhook

import (
	"cmp"
	"embed"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"strings"
	"time"

	"github.com/semelhq/semel/internal/strictyaml"
)

// Source is how one sender signs and repeats its webhooks. Make one by [Load] or [Builtin]; it
// doesn't change afterwards.
//
// A text with braces is a template. {header:NAME} is a header, {query:NAME} a parameter of the
// address, {body} the bytes of the body, {body:PATH} a value in it, such as {body:data.id} or
// {body:[].id}, {form:NAME} a value of a form, {signature:LABEL} an entry of a signature such
// as t=1,v1=2, and {digest} a digest of the event. {url} is the address that the sender posts
// to, {url:decoded} the same with the percent signs resolved that HubSpot resolves, {endpoint}
// the sender's own name for that address, {form} all names and values of a form, sorted, with
// nothing between them, and {crc32} the decimal CRC-32 of the body. A question mark after a
// place makes a missing value empty.
type Source struct {
	// Name of the source, which is part of every key: webhook:NAME:ID.
	Name string `json:"name" required:"true"`
	// Where the sender documents its webhooks.
	About string `json:"about,omitzero"`
	// How deliveries are signed.
	Signature Signature `json:"signature" required:"true"`
	// How bodies may be compressed. Deliveries without that Content-Encoding stay as they are.
	Decode string `json:"decode,omitzero" enum:"gzip,deflate"`
	// The sender compresses first and signs the bytes that it sends, rather than the decoded ones.
	SignsCompressed bool `json:"signs_compressed,omitzero"`
	// When a delivery was signed. Without it an old one can't be told from a new one.
	Timestamp Timestamp `json:"timestamp,omitzero"`
	// What events a delivery has.
	Events []EventRule `json:"events" required:"true"`
	// The request in which the sender asks whether this is the right address.
	Handshake Handshake `json:"handshake,omitzero"`
	// Which events are about a payment, and which transitions they are.
	Payment PaymentRule `json:"payment,omitzero"`
	// Business names of an event, such as the number of an order, so that people can find its record.
	Attributes []Attribute `json:"attributes,omitempty"`
	// Body of the answer to a delivery that was accepted, and its Content-Type.
	Answer     string `json:"answer,omitzero"`
	AnswerType string `json:"answer_type" default:"text/plain; charset=utf-8"`
	// How long the sender repeats a delivery, or lets somebody repeat it. An event is recognised for at least that long.
	Horizon strictyaml.Duration `json:"horizon" required:"true" range:"1m,365d"`
	// How long the sender waits for an answer.
	Patience strictyaml.Duration `json:"patience" default:"5s" range:"1s,10m"`
	// Headers that handlers get, beside Content-Type. A name that ends in * stands for all with that prefix.
	Headers []string `json:"headers,omitempty"`

	signed, stamp template
	key           place  // of the signature
	free          string // a place in signed
	rules         []rule
}

// Signature says how deliveries are signed.
type Signature struct {
	// Place of the signature: {header:NAME}, {query:NAME}, or {body:PATH} if each event has its own.
	In string `json:"in" required:"true"`
	// How signatures are written there: one alone; labels, such as t=1,v1=2; list, such as v1,a v1,b.
	Form string `json:"form" default:"one" enum:"one,labels,list"`
	// Text before the signature, such as sha256=; for labels and list its label, such as v1.
	Prefix string `json:"prefix,omitzero"`
	// Text between labels: a comma, which is the default, or a semicolon, as in ts=1;h1=2.
	Separator string `json:"separator,omitzero"`
	// How the sender makes it. A token is the secret itself: it proves who sent a delivery, but nothing about its content.
	Algorithm string `json:"algorithm" default:"hmac-sha256" enum:"hmac-sha256,hmac-sha1,hmac-sha512,ed25519,ecdsa-p256-sha256,rsa-sha256,token"`
	// How it is written: hex or base64; text for a token.
	Encoding string `json:"encoding,omitzero" enum:"hex,base64,text"`
	// The signed bytes. Defaults to {body}.
	Signed string `json:"signed,omitzero"`
	// Parameter that the sender adds to the address, and signs, if the body isn't a form: its SHA-256 in hexadecimal.
	BodySHA256 string `json:"body_sha256,omitzero"`
	// The one place in signed that may contain the text between the others, if each event has a signature of its own.
	Free string `json:"free,omitzero"`
	// How the sender writes a secret, or its public key: as it is used, or encoded. Public keys and certificates may be PEM in any case.
	Secret string `json:"secret" default:"text" enum:"text,hex,base64"`
	// Optional prefix of an encoded secret, such as whsec_.
	SecretPrefix string `json:"secret_prefix,omitzero"`
}

// Timestamp says when a delivery was signed.
type Timestamp struct {
	// Place of the time.
	In string `json:"in,omitzero" required:"true"`
	// How it is written: seconds since 1970, which is the default, milliseconds, or as 2026-01-02T03:04:05Z.
	Unit string `json:"unit,omitzero" enum:"s,ms,rfc3339"`
	// How far it may be from now, in either direction, up to a day or the horizon. Defaults to 5m.
	Tolerance strictyaml.Duration `json:"tolerance,omitzero"`
}

// EventRule finds events in a delivery.
type EventRule struct {
	// Path of the events, with [] after each list on the way, such as entry[].changes[], or [] for a body that is a list. Elsewhere in this rule the same path with [] leads to the item with the event. Empty: the whole body is one event.
	Each string `json:"each,omitzero"`
	// What identifies an event, together with scope.
	ID []string `json:"id" required:"true" single:"true"`
	// What identifies an event that has no id.
	Fallback []string `json:"fallback,omitempty" single:"true"`
	// Tells an event apart from another with the same id and other content. If it is unset or empty, that is a conflict.
	Apart []string `json:"apart,omitempty" single:"true"`
	// Accept only parts in which no earlier rule has found an event.
	Rest bool `json:"rest,omitzero"`
	// The scope in which the id is unique, such as a shop. It is not part of the key.
	Scope []string `json:"scope,omitempty" single:"true"`
	// Kind of event, such as orders/create.
	Type string `json:"type,omitzero"`
	// Paths in the event that may differ from one delivery of it to the next.
	Ignore []string `json:"ignore,omitempty" single:"true"`
}

// Handshake is a request in which the sender asks whether this is the right address: a GET,
// or a POST that is signed like a delivery.
type Handshake struct {
	// Parameter of the GET with the token that only the owner knows.
	Token string `json:"token,omitzero"`
	// Tells the POST apart from a delivery, such as {body:type}=url_verification.
	Posted string `json:"posted,omitzero"`
	// Where to find the value to answer with: a parameter of the GET, or a place in the POST, such as {body:challenge}.
	Challenge string `json:"challenge,omitzero" required:"true"`

	mark, challenge template // of the POST
	value           string   // of mark
}

// rule is an EventRule with its templates parsed.
type rule struct {
	each      []step
	id, scope []template
	fallback  []template
	apart     []template
	kind      template
	looseKind bool // the kind is neither signed nor in the identity
	ignore    [][]string
}

//go:embed sources/*.yaml
var files embed.FS

// Sources returns the names of the built-in sources, sorted.
func Sources() []string {
	names, _ := fs.Glob(files, "sources/*.yaml") // the pattern is valid
	for i, name := range names {
		names[i] = strings.TrimSuffix(path.Base(name), ".yaml")
	}
	return names
}

// Builtin returns a built-in source.
func Builtin(name string) (*Source, error) {
	data, err := files.ReadFile(path.Join("sources", name+".yaml"))
	if err != nil || !sourceName.MatchString(name) {
		hint := cmp.Or(strictyaml.DidYouMean(name, Sources()), "the sources are "+strings.Join(Sources(), ", "))
		return nil, fmt.Errorf("webhook: there is no source %q; %s", name, hint)
	}
	return Load(name+".yaml", data)
}

// Text returns the file of a built-in source, as a start for your own.
func Text(name string) ([]byte, error) {
	if _, err := Builtin(name); err != nil {
		return nil, err
	}
	return files.ReadFile(path.Join("sources", name+".yaml"))
}

var sourceName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,62}[a-z0-9])?$`)

// defaultTolerance is what the libraries of most senders allow.
const defaultTolerance = strictyaml.Duration(5 * time.Minute)

// Bounds of a file.
const (
	maxFile  = 64 << 10 // bytes
	maxDepth = 16
)

// Load reads a source in YAML. The error lists everything that is wrong, with line and
// column; file is the name in it.
func Load(file string, data []byte) (*Source, error) {
	s := &Source{}
	if err := load(file, data, s, s.compile); err != nil {
		return nil, err
	}
	return s, nil
}

// DefaultWindow is how long an event is recognised, unless its sender repeats it for
// longer.
const DefaultWindow = 7 * 24 * time.Hour

// Window returns how long events of this source are recognised by default.
func (s *Source) Window() time.Duration { return max(DefaultWindow, time.Duration(s.Horizon)) }
