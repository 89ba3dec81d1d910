package activitypub

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store"
)

// Activity is an activity in the inbox of one actor.
type Activity struct {
	// Delivery identifies the activity in this inbox: it is the same whenever the
	// handler gets it.
	Delivery string
	// Tenant is that of the inbox.
	Tenant string
	// ID is the activity's own, and Type is what it is, such as "Follow".
	ID, Type string
	// Actor is who did it: the actor who signed the request, or whom an unsigned one
	// names. Empty if nobody is named.
	Actor string
	// Signed tells whether Actor is proved.
	Signed bool
	// Inbox is the name of the actor whose inbox it is in. Empty for an activity that
	// came to the shared inbox and names none of the server's actors, such as one to
	// the followers of somebody.
	Inbox string
	// Body is the activity as it came first, in JSON. Don't change it.
	Body json.RawMessage
	// Correlation is what the sender calls this request in logs, or the activity's id.
	Correlation string
	// ReceivedAt is when it was taken.
	ReceivedAt time.Time

	content semel.Fingerprint // of Body, without proofs
	print   semel.Fingerprint // of the content, and who says so
	to      []string          // who is named
	origin  string            // of the id
	foreign bool              // the id is of another server than the actor
}

// maxID is the longest id of an activity or an actor, in bytes.
const maxID = 2048

// fault is a problem with an activity, as its sender is told.
type fault struct {
	status int
	name   string // of the type of the error (Vultron's EH-05-001)
	err    error
	after  time.Duration // when to try again, if it makes sense
}

func (f *fault) Error() string { return f.err.Error() }

func malformed(format string, args ...any) error {
	return &fault{status: http.StatusBadRequest, name: "ValidationError", err: fmt.Errorf(format, args...)}
}

func unprocessable(format string, args ...any) error {
	return &fault{status: http.StatusUnprocessableEntity, name: "UnprocessableActivity", err: fmt.Errorf(format, args...)}
}

// parse reads an activity and checks its shape (VUL-01-001). With an error that isn't
// about its id, the activity has its id.
func parse(body []byte) (*Activity, error) {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(body, &members); err != nil || members == nil {
		return &Activity{}, malformed("the body isn't a JSON object")
	}
	a := &Activity{Body: body}
	id, err := text(members["id"])
	if err != nil || id == "" {
		return a, malformed("the activity has no id, which has to be a URI")
	}
	if a.origin, err = originOf(id); err != nil {
		return a, malformed("the id of the activity isn't a full URI: %v", err)
	}
	a.ID = id
	// Duplicate names would mean one thing here and another to the next reader.
	if a.content, err = semel.FingerprintJSON(body); err != nil {
		return a, malformed("the body isn't strict JSON: a name may come twice in one object, or text isn't UTF-8")
	}
	if a.Type, err = text(members["type"]); err != nil || a.Type == "" {
		return a, malformed("the activity has no type")
	}
	if raw := members["actor"]; !missing(raw) {
		if a.Actor = reference(raw); a.Actor == "" {
			return a, malformed("the actor of the activity isn't a full URI, or an object with one as its id")
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
	for _, name := range []string{"to", "cc", "bto", "bcc", "audience"} {
		to, err := recipients(members[name])
		if err != nil {
			return a, malformed("the member %s %v", name, err)
		}
		a.to = append(a.to, to...)
	}
	_, proof := members["proof"]
	_, signature := members["signature"]
	if proof || signature {
		a.content, err = withoutProofs(members)
	}
	return a, err
}

// required are the members without which an activity means nothing.
var required = map[string][]string{
	"Create": {"object"}, "Accept": {"object"}, "Reject": {"object"},
	"Add": {"object", "target"}, "Remove": {"object", "target"},
}

// withoutProofs is the fingerprint of a body without what senders prove it by: that
// changes whenever it is made.
func withoutProofs(members map[string]json.RawMessage) (semel.Fingerprint, error) {
	delete(members, "proof")
	delete(members, "signature")
	content, err := json.Marshal(members)
	if err != nil {
		return semel.Fingerprint{}, err
	}
	return semel.FingerprintJSON(content)
}

// saidBy completes the fingerprint: neither the same id with another content nor the same
// id from another server is the same activity (VUL-01-002).
func (a *Activity) saidBy(origin string) {
	a.print = semel.FingerprintOf(store.SchemeJSON, []byte(origin), []byte(a.content.String()))
}

// originOf is the scheme and the host of a full URI; empty for one without a host, such as
// urn:uuid:….
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
	return strings.ToLower(u.Scheme + "://" + u.Host), nil
}

func missing(raw json.RawMessage) bool {
	return len(raw) == 0 || bytes.Equal(raw, []byte("null"))
}

func text(raw json.RawMessage) (string, error) {
	var s string
	if len(raw) == 0 {
		return "", nil
	}
	err := json.Unmarshal(raw, &s)
	return s, err
}

// reference is a URI, or the id of an object that is there instead.
func reference(raw json.RawMessage) string {
	if s, err := text(raw); err == nil {
		return s
	}
	var object struct {
		ID string `json:"id"`
	}
	if json.Unmarshal(raw, &object) != nil {
		return ""
	}
	return object.ID
}

// maxRecipients bounds who is named by one activity: each is looked at.
const maxRecipients = 1000

// recipients are the URIs of one that is named, or a list.
func recipients(raw json.RawMessage) ([]string, error) {
	if missing(raw) {
		return nil, nil
	}
	list := []json.RawMessage{raw}
	if bytes.HasPrefix(bytes.TrimSpace(raw), []byte("[")) {
		list = nil
		if err := json.Unmarshal(raw, &list); err != nil {
			return nil, errors.New("isn't a list that can be read")
		}
	}
	if len(list) > maxRecipients {
		return nil, fmt.Errorf("names more than %d", maxRecipients)
	}
	var uris []string
	for _, item := range list {
		uri := reference(item)
		if uri == "" {
			return nil, errors.New("names somebody without a URI")
		}
		uris = append(uris, uri)
	}
	return uris, nil
}
