package webhook

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/semelhq/semel/internal/strictyaml"
)

// compile parses the templates, and checks that they fit together.
func (s *Source) compile(rep *strictyaml.Report) {
	parse := func(at, text string) template {
		t, err := parseTemplate(text)
		if err != nil {
			rep.Add(at, err.Error(), "")
		}
		return t
	}
	if s.Name != "" && !sourceName.MatchString(s.Name) {
		rep.Add("name", fmt.Sprintf("%q is not a name", s.Name), "write small letters, digits and -")
	}
	s.compileSignature(rep, parse)
	for i := range s.Events {
		s.compileEvent(rep, parse, i)
	}
	s.compileFree(rep, parse)
	s.compileHandshake(rep, parse)
	p := &s.Payment
	p.kind, p.id = parse("payment.kind", p.Kind), parse("payment.id", p.ID)
	for i := range p.Events {
		e, at := &p.Events[i], fmt.Sprintf("payment.events[%d]", i)
		if e.id = parse(at+".id", e.ID); e.ID == "" {
			e.id = p.id
		}
		if e.id == nil {
			rep.Add(at+".id", "nothing says which payment it is", "write an id here, or in payment")
		}
	}
	if _, err := s.names(nil); err != nil {
		rep.Add("attributes", strings.ReplaceAll(err.Error(), "\n", "; "), "")
	}
}

// parser parses the template of a setting.
type parser func(at, text string) template

// compileSignature is compile for how and when deliveries are signed.
func (s *Source) compileSignature(rep *strictyaml.Report, parse parser) {
	g := &s.Signature
	token := g.Algorithm == "token"
	if g.Signed == "" && !token {
		g.Signed = "{body}"
	}
	if token {
		g.Encoding = cmp.Or(g.Encoding, "text")
	}
	s.signed, s.stamp = parse("signature.signed", g.Signed), parse("timestamp.in", s.Timestamp.In)
	if t := parse("signature.in", g.In); len(t) == 1 && t[0].place != nil && slices.Contains([]string{"header", "query", "json"}, t[0].place.kind) {
		s.key = *t[0].place
	} else if g.In != "" {
		rep.Add("signature.in", "a signature stands in one header or parameter, or at one place in the body", "write {header:NAME}, {query:NAME} or {body:PATH}")
	}
	switch {
	case token && (s.signed != nil || g.Encoding != "text" || s.perEvent()):
		rep.Add("signature", "a token signs nothing: it is the secret as it is, in a header or a parameter", "leave signed and encoding out")
	case !token && g.Encoding != "hex" && g.Encoding != "base64":
		rep.Add("signature.encoding", "it doesn't say how signatures are written", "write hex or base64")
	}
	if g.Form != "one" && g.Prefix == "" {
		rep.Add("signature.prefix", "the label of signatures is missing", "write such as v1")
	}
	if g.Form == "labels" {
		if g.Separator = cmp.Or(g.Separator, ","); g.Separator != "," && g.Separator != ";" {
			rep.Add("signature.separator", fmt.Sprintf("%q is neither , nor ;", g.Separator), "")
		}
	} else if g.Separator != "" {
		rep.Add("signature.separator", "only labels have one", "leave it out")
	}
	if g.BodySHA256 != "" && !uses([]template{s.signed}, "url") {
		rep.Add("signature.body_sha256", "the address is not signed, so anybody could change it", "leave it out, or write {url} in signed")
	}
	if s.SignsCompressed && s.Decode == "" {
		rep.Add("signs_compressed", "nothing says how", "write decode")
	}
	if t := &s.Timestamp.Tolerance; s.stamp != nil {
		s.Timestamp.Unit = cmp.Or(s.Timestamp.Unit, "s")
		*t = cmp.Or(*t, defaultTolerance)
		// An event is recognised until the horizon, so an older delivery is a duplicate.
		if most := max(24*time.Hour, time.Duration(s.Horizon)); *t < 0 || time.Duration(*t) > most {
			rep.Add("timestamp.tolerance", fmt.Sprintf("%v is not between 0s and %v", *t, strictyaml.Duration(most)), "")
		}
	}
	if s.stamp != nil && !s.covers(s.stamp) {
		rep.Add("timestamp.in", "the time is not signed, so anybody could change it", "leave timestamp out")
	}
}

// compileEvent is compile for a rule.
func (s *Source) compileEvent(rep *strictyaml.Report, parse parser, i int) {
	all := func(at string, texts []string) (list []template) {
		for i, text := range texts {
			list = append(list, parse(fmt.Sprintf("%s[%d]", at, i), text))
		}
		return list
	}
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
		r.ignore = append(r.ignore, strings.Split(text, "."))
	}
	for k, list := range [][]template{r.id, r.scope, {r.kind}, r.fallback, r.apart, s.itemTemplates()} {
		name := []string{"id", "scope", "type", "fallback", "apart", "each"}[k]
		if name != "each" && uses(list, "signature") {
			rep.Add(at+"."+name, "a signature is another in each delivery", "name what is the same in all")
		}
		if !fits(list, r.each) {
			rep.Add(at+"."+name, "a path has a list that each does not go through", "write the lists as in each")
		}
	}
	if e.Rest && (e.Each == "" || i == 0) {
		rep.Add(at+".rest", "there is nothing that could be left", "write each, behind another rule")
	}
	s.rules = append(s.rules, r)
}

// compileFree is compile for the one signed place that may contain the separators.
func (s *Source) compileFree(rep *strictyaml.Report, parse parser) {
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
}

// compileHandshake is compile for the handshake.
func (s *Source) compileHandshake(rep *strictyaml.Report, parse parser) {
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
}

// itemTemplates returns a signature's templates that each event has for itself.
func (s *Source) itemTemplates() []template {
	if !s.perEvent() {
		return nil
	}
	return []template{{{place: &s.key}}, s.signed}
}

// perEvent reports whether each event has a signature of its own.
func (s *Source) perEvent() bool { return s.key.kind == "json" }

// same reports whether two places are the same; either may be optional.
func (p *place) same(o *place) bool {
	return strings.TrimSuffix(p.text, "?") == strings.TrimSuffix(o.text, "?")
}

// fits reports whether each goes through every list in the templates.
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
			return whole || by.place.kind == seg.place.kind && by.place.same(seg.place)
		})
		if !signed {
			return false
		}
	}
	return true
}

// Unsigned lists the parts of an event's identity that the signature doesn't cover. Anybody who
// has seen one delivery of such a source can send it again under another identity, so keep its
// deliveries secret, and receive them only over TLS.
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

// Coarse lists the rules, such as events[0], that seem to identify events without an id: by the
// kind or the payment, so two partial refunds of one payment may share an identity. Their
// content differs, so the second one is a conflict.
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
			return seg.place != nil && slices.ContainsFunc(slices.Concat(about...), func(by segment) bool { return by.place != nil && by.place.same(seg.place) })
		})
		if shared {
			list = append(list, fmt.Sprintf("events[%d]", i))
		}
	}
	return list
}
