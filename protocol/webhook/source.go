package webhook

import (
	"cmp"
	"embed"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/semelhq/semel/internal/strictyaml"
)

// Source is how one sender signs and repeats its webhooks. Make one by [Load] or
// [Builtin]; it is not changed afterwards.
//
// A text with braces is a template. {header:NAME} is a header, {body} the bytes of the
// body, {body:PATH} a value in it, such as {body:data.id}, {signature:LABEL} an entry of a
// signature such as t=1,v1=2, {url} the address that the sender posts to, and {digest} a
// digest of the event. A question mark behind a place makes a missing value empty.
type Source struct {
	// Name of the source, which is part of every key: webhook:NAME:ID.
	Name string `json:"name" required:"true"`
	// Where the sender documents its webhooks.
	About string `json:"about,omitzero"`
	// How deliveries are signed.
	Signature Signature `json:"signature" required:"true"`
	// How bodies may be compressed that were signed before. Deliveries without that Content-Encoding are taken as they are.
	Decode string `json:"decode,omitzero" enum:"gzip,deflate"`
	// When a delivery was signed. Without it an old one can't be told from a new one.
	Timestamp Timestamp `json:"timestamp,omitzero"`
	// What events a delivery has.
	Events []EventRule `json:"events" required:"true"`
	// The request by which the sender asks whether this is the right address.
	Handshake Handshake `json:"handshake,omitzero"`
	// Which events are about a payment, and what they mean to it.
	Payment PaymentRule `json:"payment,omitzero"`
	// Body of the answer to a delivery that was accepted.
	Answer string `json:"answer,omitzero"`
	// How long the sender repeats a delivery, or lets somebody repeat it. An event is recognised for at least that long.
	Horizon strictyaml.Duration `json:"horizon" required:"true" range:"1m,365d"`
	// How long the sender waits for an answer.
	Patience strictyaml.Duration `json:"patience" default:"5s" range:"1s,10m"`
	// Headers that handlers get, beside Content-Type. A name that ends in * stands for all with that prefix.
	Headers []string `json:"headers,omitempty"`

	signed, stamp template
	key           place  // of the signature
	free          string // a place of signed
	rules         []rule
}

// Signature says how deliveries are signed.
type Signature struct {
	// Place of the signature: {header:NAME}, or {body:PATH} where each event has its own.
	In string `json:"in" required:"true"`
	// How signatures stand there: one alone; labels, such as t=1,v1=2; list, such as v1,a v1,b.
	Form string `json:"form" default:"one" enum:"one,labels,list"`
	// What stands before the signature, such as sha256=; for labels and list its label, such as v1.
	Prefix string `json:"prefix,omitzero"`
	// What stands between labels: a comma, which is the default, or a semicolon, as in ts=1;h1=2.
	Separator string `json:"separator,omitzero"`
	// How it is made.
	Algorithm string `json:"algorithm" default:"hmac-sha256" enum:"hmac-sha256,ed25519"`
	// How it is written.
	Encoding string `json:"encoding" required:"true" enum:"hex,base64"`
	// What is signed.
	Signed string `json:"signed" default:"{body}"`
	// The one place of signed whose value may have what stands between the others, where each event has a signature of its own.
	Free string `json:"free,omitzero"`
	// How the sender writes a secret, or its public key: as it is used, or encoded.
	Secret string `json:"secret" default:"text" enum:"text,hex,base64"`
	// What may stand before an encoded secret, such as whsec_.
	SecretPrefix string `json:"secret_prefix,omitzero"`
}

// Timestamp says when a delivery was signed.
type Timestamp struct {
	// Place of the time, in seconds since 1970.
	In string `json:"in,omitzero" required:"true"`
	// How far it may be from now, in either direction, up to a day. Defaults to 5m.
	Tolerance strictyaml.Duration `json:"tolerance,omitzero"`
}

// EventRule finds events in a delivery.
type EventRule struct {
	// Path of the events, with [] behind each list on the way, such as entry[].changes[]. In other places of this rule the same path with [] leads to the item that the event is in. Empty: the whole body is one event.
	Each string `json:"each,omitzero"`
	// What identifies an event, together with scope.
	ID []string `json:"id" required:"true" single:"true"`
	// What identifies an event that has no id.
	Fallback []string `json:"fallback,omitempty" single:"true"`
	// What tells an event from another that has its id and differs in content. Without it, or where it is empty, that is a conflict.
	Apart []string `json:"apart,omitempty" single:"true"`
	// Accept only what no rule before has found an event in.
	Rest bool `json:"rest,omitzero"`
	// Within what the id is unique, such as a shop. It is not part of the key.
	Scope []string `json:"scope,omitempty" single:"true"`
	// Kind of event, such as orders/create.
	Type string `json:"type,omitzero"`
	// Paths in the event that may differ from one delivery of it to the next.
	Ignore []string `json:"ignore,omitempty" single:"true"`
}

// Handshake is a request by which the sender asks whether this is the right address: a GET,
// or a POST that is signed like a delivery.
type Handshake struct {
	// Parameter of the GET with the token that only the owner knows.
	Token string `json:"token,omitzero"`
	// What tells the POST from a delivery, such as {body:type}=url_verification.
	Posted string `json:"posted,omitzero"`
	// Where the value is that is the answer: a parameter of the GET, or a place of the POST, such as {body:challenge}.
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
	looseKind bool // the kind is neither signed nor part of the identity
	ignore    [][]step
}

//go:embed sources/*.yaml
var files embed.FS

// Sources are the names of the sources that are built in, sorted.
func Sources() []string {
	entries, err := files.ReadDir("sources")
	if err != nil {
		panic(err) // it is embedded
	}
	var names []string
	for _, e := range entries {
		names = append(names, strings.TrimSuffix(e.Name(), ".yaml"))
	}
	return names
}

// Builtin returns a source that is built in.
func Builtin(name string) (*Source, error) {
	data, err := files.ReadFile(path.Join("sources", name+".yaml"))
	if err != nil || !sourceName.MatchString(name) {
		hint := cmp.Or(strictyaml.DidYouMean(name, Sources()), "the sources are "+strings.Join(Sources(), ", "))
		return nil, fmt.Errorf("webhook: there is no source %q; %s", name, hint)
	}
	return Load(name+".yaml", data)
}

// Text returns the file of a source that is built in, to begin one of your own with.
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

// compile parses the templates, and checks what they mean together.
func (s *Source) compile(rep *strictyaml.Report) {
	parse := func(at, text string) template {
		t, err := parseTemplate(text)
		if err != nil {
			rep.Add(at, err.Error(), "")
		}
		return t
	}
	all := func(at string, texts []string) (list []template) {
		for i, text := range texts {
			list = append(list, parse(fmt.Sprintf("%s[%d]", at, i), text))
		}
		return list
	}
	if s.Name != "" && !sourceName.MatchString(s.Name) {
		rep.Add("name", fmt.Sprintf("%q is not a name", s.Name), "write small letters, digits and -")
	}
	s.signed, s.stamp = parse("signature.signed", s.Signature.Signed), parse("timestamp.in", s.Timestamp.In)
	if t := parse("signature.in", s.Signature.In); len(t) == 1 && t[0].place != nil && slices.Contains([]string{"header", "json"}, t[0].place.kind) {
		s.key = *t[0].place
	} else if s.Signature.In != "" {
		rep.Add("signature.in", "a signature stands in one header, or at one place in the body", "write {header:NAME} or {body:PATH}")
	}
	if s.Signature.Form != "one" && s.Signature.Prefix == "" {
		rep.Add("signature.prefix", "the label of signatures is missing", "write such as v1")
	}
	if g := &s.Signature; g.Form == "labels" {
		if g.Separator = cmp.Or(g.Separator, ","); g.Separator != "," && g.Separator != ";" {
			rep.Add("signature.separator", fmt.Sprintf("%q is neither , nor ;", g.Separator), "")
		}
	} else if g.Separator != "" {
		rep.Add("signature.separator", "only labels have one", "leave it out")
	}
	if t := &s.Timestamp.Tolerance; s.stamp != nil {
		*t = cmp.Or(*t, defaultTolerance)
		if *t < 0 || time.Duration(*t) > 24*time.Hour {
			rep.Add("timestamp.tolerance", fmt.Sprintf("%v is not between 0s and 1d", *t), "")
		}
	}
	if s.stamp != nil && !s.covers(s.stamp) {
		rep.Add("timestamp.in", "the time is not signed, so anybody could change it", "leave timestamp out")
	}
	for i := range s.Events {
		e, at := &s.Events[i], fmt.Sprintf("events[%d]", i)
		r := rule{
			id: all(at+".id", e.ID), scope: all(at+".scope", e.Scope), kind: parse(at+".type", e.Type),
			fallback: all(at+".fallback", e.Fallback), apart: all(at+".apart", e.Apart),
		}
		r.looseKind = !s.covers(r.kind) && !slices.Contains(slices.Concat(e.ID, e.Scope), e.Type)
		var err error
		if e.Each != "" {
			if r.each, err = parsePath(e.Each); err != nil {
				rep.Add(at+".each", err.Error(), "")
			}
		}
		for k, text := range e.Ignore {
			ignored, err := parsePath(text)
			if err != nil || slices.ContainsFunc(ignored, func(s step) bool { return s.each }) {
				rep.Add(fmt.Sprintf("%s.ignore[%d]", at, k), fmt.Sprintf("%q is not a path without lists", text), "")
			}
			r.ignore = append(r.ignore, ignored)
		}
		for k, list := range [][]template{r.id, r.scope, {r.kind}, r.fallback, r.apart} {
			if uses(list, "signature") {
				rep.Add(at+"."+[]string{"id", "scope", "type", "fallback", "apart"}[k], "a signature is another in each delivery", "name what is the same in all")
			}
		}
		for k, list := range [][]template{r.id, r.scope, {r.kind}, r.fallback, r.apart, s.itemTemplates()} {
			if !fits(list, r.each) {
				name := []string{"id", "scope", "type", "fallback", "apart", "each"}[k]
				rep.Add(at+"."+name, "a path has a list that each does not go through", "write the lists as in each")
			}
		}
		if e.Rest && (e.Each == "" || i == 0) {
			rep.Add(at+".rest", "there is nothing that could be left", "write each, behind another rule")
		}
		s.rules = append(s.rules, r)
	}
	if t := parse("signature.free", s.Signature.Free); t != nil {
		within := func(seg segment) bool {
			return len(t) == 1 && t[0].place != nil && seg.place != nil && seg.place.text == t[0].place.text
		}
		if i := slices.IndexFunc(s.signed, within); i < 0 || !s.perEvent() {
			rep.Add("signature.free", "it is not a place of what is signed for each event", "write one of signature.signed")
		} else {
			s.free = t[0].place.text
		}
	}
	switch h := &s.Handshake; {
	case h.Token+h.Posted+h.Challenge == "":
	case (h.Token == "") == (h.Posted == ""):
		rep.Add("handshake", "it is either a GET with a token or a POST", "write token or posted")
	case h.Posted != "":
		mark, value, ok := strings.Cut(h.Posted, "}=")
		if !ok || value == "" || s.perEvent() {
			rep.Add("handshake.posted", "it doesn't say what a signed request has", "write such as {body:type}=url_verification")
			break
		}
		h.mark, h.value, h.challenge = parse("handshake.posted", mark+"}"), value, parse("handshake.challenge", h.Challenge)
		if !hasPlace(h.mark) || !hasPlace(h.challenge) || !s.covers(h.mark) || !s.covers(h.challenge) {
			rep.Add("handshake", "what makes it one, and its challenge, are not places that are signed", "write such as {body:type}=url_verification and {body:challenge}")
		}
	}
	p := &s.Payment
	p.kind, p.id = parse("payment.kind", p.Kind), parse("payment.id", p.ID)
	for i := range p.Events {
		e, at := &p.Events[i], fmt.Sprintf("payment.events[%d]", i)
		if e.id = parse(at+".id", e.ID); e.id == nil && p.id == nil {
			rep.Add(at+".id", "nothing says which payment it is", "write an id here, or in payment")
		}
	}
}

// itemTemplates are the templates of a signature that each event has for itself.
func (s *Source) itemTemplates() []template {
	if !s.perEvent() {
		return nil
	}
	return []template{{{place: &s.key}}, s.signed}
}

// perEvent reports whether each event has a signature of its own.
func (s *Source) perEvent() bool { return s.key.kind == "json" }

// fits reports whether the lists in the templates are those of each.
func fits(list []template, each []step) bool {
	for _, t := range list {
		for _, seg := range t {
			if seg.place != nil && !sharesLists(seg.place.path, each) {
				return false
			}
		}
	}
	return true
}

// uses reports whether one of the templates has a place of this kind.
func uses(list []template, kind string) bool {
	return slices.ContainsFunc(slices.Concat(list...), func(seg segment) bool { return seg.place != nil && seg.place.kind == kind })
}

func hasPlace(t template) bool {
	return slices.ContainsFunc(t, func(seg segment) bool { return seg.place != nil })
}

// covers reports whether everything in a template is signed.
func (s *Source) covers(t template) bool {
	for _, seg := range t {
		if seg.place == nil || seg.place.kind == "url" {
			continue
		}
		signed := slices.ContainsFunc(s.signed, func(by segment) bool {
			if by.place == nil {
				return false
			}
			whole := by.place.kind == "body" && (seg.place.kind == "json" || seg.place.kind == "digest")
			return whole || by.place.kind == seg.place.kind && strings.TrimSuffix(by.place.text, "?") == strings.TrimSuffix(seg.place.text, "?")
		})
		if !signed {
			return false
		}
	}
	return true
}

// Unsigned lists the parts of an event's identity that the signature doesn't cover.
// Whoever has seen one delivery of such a source can send it again under another
// identity, so keep its deliveries secret, and receive them over TLS only.
func (s *Source) Unsigned() []string {
	var list []string
	for i, r := range s.rules {
		for k, t := range slices.Concat(r.id, r.scope, r.fallback, r.apart) {
			text := slices.Concat(s.Events[i].ID, s.Events[i].Scope, s.Events[i].Fallback, s.Events[i].Apart)[k]
			if !s.covers(t) && !slices.Contains(list, text) {
				list = append(list, text)
			}
		}
	}
	return list
}

// Coarse lists the rules, such as events[0], whose identity seems to have no id of the
// event: it has its kind or its payment, so two partial refunds of one payment may share
// it. Such events differ in content, and the second one is a conflict.
func (s *Source) Coarse() []string {
	var list []string
	for i, r := range s.rules {
		if uses(r.id, "digest") {
			continue
		}
		about := []template{r.kind, s.Payment.kind, s.Payment.id}
		for _, e := range s.Payment.Events {
			about = append(about, e.id)
		}
		shared := slices.ContainsFunc(slices.Concat(r.id...), func(seg segment) bool {
			return seg.place != nil && slices.ContainsFunc(slices.Concat(about...), func(by segment) bool {
				return by.place != nil && strings.TrimSuffix(by.place.text, "?") == strings.TrimSuffix(seg.place.text, "?")
			})
		})
		if shared {
			list = append(list, fmt.Sprintf("events[%d]", i))
		}
	}
	return list
}

// DefaultWindow is how long an event is recognised, unless its sender repeats it for
// longer.
const DefaultWindow = 7 * 24 * time.Hour

// Window is how long events of this source are recognised by default.
func (s *Source) Window() time.Duration { return max(DefaultWindow, time.Duration(s.Horizon)) }
