package activitypub

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/canon"
	"github.com/semelhq/semel/internal/jsonscan"
	"github.com/semelhq/semel/store"
)

// Activity is an activity in the inbox of one actor.
type Activity struct {
	// Delivery identifies the activity in this inbox. It stays the same whenever the handler
	// gets it.
	Delivery string
	// Tenant is the inbox's tenant.
	Tenant string
	// ID is the activity's own id, and Type its kind, such as "Follow".
	ID, Type string
	// Actor is the actor who did it: the one who signed the request, or, if it is unsigned, the
	// one it names. Empty if it names nobody.
	Actor string
	// Signed says whether a signature proves Actor.
	Signed bool
	// Inbox is the name of the actor who received it. Empty for an activity to the shared inbox
	// that names none of the server's actors, such as one to somebody's followers.
	Inbox string
	// Body is the activity as first received, in JSON. Don't change it.
	Body json.RawMessage
	// Correlation is the sender's id for this request in logs, or else the activity's id.
	Correlation string
	// ReceivedAt is when it was accepted.
	ReceivedAt time.Time

	content semel.Fingerprint // of Body, without proofs
	print   semel.Fingerprint // of the content and its origin
	to      []string          // who is named
	origin  string            // of the id
	foreign bool              // the id belongs to another server than the actor
	leaves  bool              // it deletes its own actor
}

// maxID is the longest id of an activity or an actor, in bytes.
const maxID = 2048

// senderError is an error to show to the sender.
type senderError struct {
	status int
	name   string // the name of the error's type (Vultron's EH-05-001)
	err    error
	after  time.Duration // when to try again, if it makes sense
}

func (f *senderError) Error() string { return f.err.Error() }

func malformed(format string, args ...any) error {
	return &senderError{status: http.StatusBadRequest, name: "ValidationError", err: fmt.Errorf(format, args...)}
}

func unprocessable(format string, args ...any) error {
	return &senderError{status: http.StatusUnprocessableEntity, name: "UnprocessableActivity", err: fmt.Errorf(format, args...)}
}

// parse reads an activity and checks its shape (VUL-01-001). Unless the error is about its id,
// it also returns the activity with its id.
func parse(body []byte) (*Activity, error) {
	a := &Activity{Body: body}
	if !json.Valid(body) || bytes.TrimLeft(body, " \t\r\n")[0] != '{' {
		return a, malformed("the body isn't a JSON object")
	}
	// The next reader could resolve duplicate names in another way.
	var err error
	if a.content, err = contentOf(body); err != nil {
		return a, malformed("the body isn't strict JSON: a name may come twice in one object, or text isn't UTF-8")
	}
	members := pick(body, identifying...)
	for _, name := range singular {
		members[name] = only(members[name])
	}
	id, _ := jsonscan.Text(members["id"])
	if id == "" {
		return a, malformed("the activity has no id, which has to be a URI")
	}
	if a.origin, err = originOf(id); err != nil {
		return a, malformed("the id of the activity isn't a full URI: %v", err)
	}
	a.ID = id
	if name, found := ambiguous(body, identifying...); found {
		return a, malformed("the activity has the member %q, which others read as another one", name)
	}
	if a.Type, _ = jsonscan.Text(members["type"]); a.Type == "" {
		return a, malformed("the activity has no type")
	}
	if raw := members["actor"]; !missing(raw) {
		if a.Actor, err = reference(raw); err != nil {
			return a, malformed("the actor of the activity %v", err)
		}
		if _, err := originOf(a.Actor); err != nil {
			return a, malformed("the actor of the activity isn't a full URI: %v", err)
		}
	}
	for _, name := range required[a.Type] {
		if missing(members[name]) {
			return a, unprocessable("an activity of the type %s needs the member %s", a.Type, name)
		}
	}
	for _, name := range addressing {
		to, err := recipients(members[name])
		if err != nil {
			return a, malformed("the member %s %v", name, err)
		}
		a.to = append(a.to, to...)
	}
	if a.Type == "Delete" && a.Actor != "" {
		object, err := reference(members["object"])
		a.leaves = err == nil && object == a.Actor
	}
	return a, nil
}

// The members that identify an activity, and the ones that address it.
var (
	addressing  = []string{"to", "cc", "bto", "bcc", "audience"}
	singular    = []string{"type", "actor", "object", "target"}
	identifying = slices.Concat([]string{"id"}, singular, addressing)
)

// values yields a member's values as JSON-LD reads them: its one value, or the items of its
// list. Null doesn't count as a value.
func values(raw []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		if !missing(raw) && raw[0] != '[' {
			yield(raw)
			return
		}
		for item := range jsonscan.Items(raw) {
			if !missing(item) && !yield(item) {
				return
			}
		}
	}
}

// only returns a member's value if it has just one, as JSON-LD reads it: a list of one is the same
// as its item, and an empty list the same as no member. It leaves several values as they are.
func only(raw []byte) (found []byte) {
	for item := range values(raw) {
		if found != nil {
			return raw
		}
		found = item
	}
	return found
}

// pick returns the members of an object with exactly these names. A struct would also accept
// others that differ by case, and a map would cost memory for everything else.
func pick(object []byte, names ...string) map[string][]byte {
	found := make(map[string][]byte, len(names))
	for name, value := range jsonscan.Members(object) {
		if slices.Contains(names, string(name)) {
			found[string(name)] = value
		}
	}
	return found
}

// ambiguous finds a member that some reader would take for one of those named: ID or @id for
// id, and as:actor or its whole URI for actor, as JSON-LD reads them. Who the actor is must not
// depend on the reader.
func ambiguous(object []byte, names ...string) (name string, found bool) {
	for name := range jsonscan.Members(object) {
		for _, one := range names {
			if string(name) != one && readAs(name, one) {
				return string(name), true
			}
		}
	}
	return "", false
}

// readAs reports whether some reader would take a member for the named one.
func readAs(name []byte, one string) bool {
	if keyword, is := bytes.CutPrefix(name, []byte("@")); is {
		return (one == "id" || one == "type") && string(keyword) == one
	}
	for _, vocabulary := range vocabularies {
		if rest, is := bytes.CutPrefix(name, []byte(vocabulary)); is {
			name = rest
			break
		}
	}
	return len(name) <= maxFolded*len(one) && strings.EqualFold(string(name), one)
}

// vocabularies begin the names that JSON-LD reads as ActivityStreams members.
var vocabularies = []string{"as:", "https://www.w3.org/ns/activitystreams#", "http://www.w3.org/ns/activitystreams#"}

// maxFolded is the most bytes of UTF-8 that an ASCII letter has in another case.
const maxFolded = 3

// required are the members that an activity needs to mean anything.
var required = map[string][]string{
	"Create": {"object"}, "Accept": {"object"}, "Reject": {"object"},
	"Add": {"object", "target"}, "Remove": {"object", "target"},
}

// contentOf returns the fingerprint of an activity without its proofs, which differ each time
// somebody signs. An error means that the body isn't strict JSON.
func contentOf(body []byte) (print semel.Fingerprint, err error) {
	proofs := 0
	for name, value := range jsonscan.Members(body) {
		if isProof(name) {
			proofs++
			err = cmp.Or(err, canon.Check(value, canon.Exact))
		}
	}
	switch {
	case err != nil || proofs > 2: // a proof appears twice
		return print, cmp.Or(err, errors.New("duplicate member name"))
	case proofs == 0:
		return semel.FingerprintJSON(body)
	}
	seen := ""
	rest := append(make([]byte, 0, len(body)), '{')
	for name, value := range jsonscan.Members(body) {
		if isProof(name) {
			if seen == string(name) {
				return print, errors.New("duplicate member name")
			}
			seen = string(name)
			continue
		}
		if len(rest) > 1 {
			rest = append(rest, ',')
		}
		if rest, err = canon.AppendString(rest, string(name)); err != nil {
			return print, err
		}
		rest = append(append(rest, ':'), value...)
	}
	return semel.FingerprintJSON(append(rest, '}'))
}

func isProof(name []byte) bool { return string(name) == "proof" || string(name) == "signature" }

// saidBy adds the origin to the fingerprint: an activity with the same id but another content,
// or from another server, isn't the same activity (VUL-01-002).
func (a *Activity) saidBy(origin string) {
	a.print = semel.FingerprintOf(store.SchemeJSON, []byte(origin), []byte(a.content.String()))
}

// originOf returns the scheme and the host of a full URI, in one spelling; empty for one
// without a host, such as urn:uuid:….
func originOf(uri string) (string, error) {
	u, err := url.Parse(uri)
	switch {
	case err != nil || strings.ContainsFunc(uri, func(r rune) bool { return r <= ' ' }):
		return "", errors.New("it can't be read")
	case u.Scheme == "" || u.Host == "" && u.Opaque == "":
		return "", errors.New("it has no scheme, or nothing after it")
	case len(uri) > maxID:
		return "", fmt.Errorf("it is longer than %d bytes", maxID)
	case u.User != nil:
		return "", errors.New("it has a user")
	case u.Host == "":
		return "", nil
	}
	return strings.ToLower(u.Scheme) + "://" + hostOf(uri), nil
}

func missing(raw []byte) bool { return len(raw) == 0 || bytes.Equal(raw, []byte("null")) }

// reference returns a URI, or the id of an object in its place.
func reference(raw []byte) (uri string, err error) {
	uri, is := jsonscan.Text(raw)
	if !is {
		if name, found := ambiguous(raw, "id"); found {
			return "", fmt.Errorf("has the member %q, which others read as its id", name)
		}
		uri, _ = jsonscan.Text(jsonscan.Member(raw, "id"))
	}
	if uri == "" {
		return "", errors.New("isn't a full URI, or an object with one as its id")
	}
	return uri, nil
}

// maxRecipients bounds how many recipients an activity can name, because each is looked at.
const maxRecipients = 1000

// recipients returns the URIs of one recipient, or a list.
func recipients(raw []byte) (uris []string, err error) {
	for item := range values(raw) {
		if len(uris) == maxRecipients {
			return nil, fmt.Errorf("names more than %d", maxRecipients)
		}
		uri, err := reference(item)
		if err != nil {
			return nil, fmt.Errorf("names somebody who %w", err)
		}
		uris = append(uris, uri)
	}
	return uris, nil
}
