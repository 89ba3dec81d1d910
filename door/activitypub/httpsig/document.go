package httpsig

import (
	"bytes"
	"crypto"
	"errors"
	"net/http"
	"slices"

	"github.com/semelhq/semel/internal/body"
	"github.com/semelhq/semel/internal/canon"
	"github.com/semelhq/semel/internal/jsonscan"
)

// document is an actor's document, or a key's, in strict JSON.
type document []byte

// accept is the Accept header for such a document.
const accept = `application/activity+json, application/ld+json; profile="` + body.ActivityStreams + `"`

// readDocument reads an answer. Its type must be right: otherwise a file that somebody uploaded
// to a server could pass for an actor.
func readDocument(header http.Header, text []byte) (document, error) {
	if !body.IsActivity(header) {
		return nil, errors.New("the document's type is not that of ActivityPub")
	}
	if canon.Check(text, canon.Exact) != nil {
		return nil, errors.New("the document is not JSON, or ambiguous")
	}
	if !isObject(text) {
		return nil, errors.New("the document is not a JSON object")
	}
	return text, nil
}

func isObject(value []byte) bool {
	return bytes.HasPrefix(bytes.TrimLeft(value, " \t\r\n"), []byte("{"))
}

// text returns a member that is a string, or "".
func (d document) text(name string) string {
	s, _ := jsonscan.Text(jsonscan.Member(d, name))
	return s
}

// each returns the values of a member, which may be a single value or an array: strings and
// objects.
func (d document) each(name string) (ids []string, objects []document) {
	member := jsonscan.Member(d, name)
	values := [][]byte{member}
	if bytes.HasPrefix(member, []byte("[")) {
		values = slices.Collect(jsonscan.Items(member))
	}
	for _, v := range values {
		if id, is := jsonscan.Text(v); is {
			ids = append(ids, id)
		} else if isObject(v) {
			objects = append(objects, v)
		}
	}
	return ids, objects
}

// A claim is a document's statement about a key.
type claim struct {
	owner  string
	public crypto.PublicKey // nil if it only gives the key's name
}

// key reads a document that is a key, or a key within an actor's document.
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

// lists finds a key in the lists of an actor's document: publicKey, and assertionMethod of
// FEP-521a. It returns nil if there is none.
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
