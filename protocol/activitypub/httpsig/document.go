package httpsig

import (
	"bytes"
	"crypto"
	"encoding/json"
	"errors"
	"mime"
	"net/http"
	"slices"
	"strings"

	"github.com/semelhq/semel/internal/canon"
)

// document is an actor's document, or one of a key. Names of members are compared
// exactly, which encoding/json doesn't do for structs.
type document map[string]json.RawMessage

// activityStreams is the profile by which a document of JSON-LD is one of ActivityPub.
const activityStreams = "https://www.w3.org/ns/activitystreams"

// accept asks for such a document.
const accept = `application/activity+json, application/ld+json; profile="` + activityStreams + `"`

// readDocument reads an answer. Its type must be right: otherwise a file that somebody
// uploaded to a server would be an actor there.
func readDocument(header http.Header, body []byte) (document, error) {
	kind, params, err := mime.ParseMediaType(header.Get("Content-Type"))
	if err != nil || kind != "application/activity+json" &&
		(kind != "application/ld+json" || !slices.Contains(strings.Fields(params["profile"]), activityStreams)) {
		return nil, errors.New("the document's type is not that of ActivityPub")
	}
	strict, err := canon.Canonicalize(body, canon.Exact)
	if err != nil {
		return nil, errors.New("the document is not JSON, or ambiguous")
	}
	var d document
	if err := json.Unmarshal(strict, &d); err != nil || d == nil {
		return nil, errors.New("the document is not a JSON object")
	}
	return d, nil
}

// text is a member that is a string; otherwise "".
func (d document) text(name string) string {
	var s string
	if json.Unmarshal(d[name], &s) != nil {
		return ""
	}
	return s
}

// each are the values of a member, which may be one or an array of them: strings and
// objects.
func (d document) each(name string) (ids []string, objects []document) {
	raw := d[name]
	values := []json.RawMessage{raw}
	if bytes.HasPrefix(raw, []byte("[")) && json.Unmarshal(raw, &values) != nil {
		return nil, nil
	}
	for _, v := range values {
		var id string
		var o document
		if json.Unmarshal(v, &id) == nil {
			ids = append(ids, id)
		} else if json.Unmarshal(v, &o) == nil && o != nil {
			objects = append(objects, o)
		}
	}
	return ids, objects
}

// A claim is what a document says of a key.
type claim struct {
	owner  string
	public crypto.PublicKey // nil if it only names the key
}

// key reads a document that is a key itself, or one within an actor's.
func (d document) key() (*claim, error) {
	var c claim
	var err error
	switch {
	case d.text("publicKeyPem") != "":
		c.owner = d.text("owner")
		c.public, err = fromPEM(d.text("publicKeyPem"))
	case d.text("type") == "Multikey":
		c.owner = d.text("controller")
		c.public, err = fromMultibase(d.text("publicKeyMultibase"))
	default:
		err = errors.New("the key is none that is understood")
	}
	if err != nil {
		return nil, err
	}
	if c.owner == "" {
		return nil, errors.New("the key does not name its owner")
	}
	return &c, nil
}

// lists finds a key among those that an actor's document lists: publicKey, and
// assertionMethod of FEP-521a. It returns nil if it isn't there.
func (d document) lists(id string) (*claim, error) {
	named := false
	for _, member := range []string{"publicKey", "assertionMethod"} {
		ids, objects := d.each(member)
		named = named || slices.Contains(ids, id)
		for _, o := range objects {
			if o.text("id") == id {
				return o.key()
			}
		}
	}
	if named {
		return &claim{owner: d.text("id")}, nil
	}
	return nil, nil
}
