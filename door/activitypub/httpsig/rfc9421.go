package httpsig

import (
	"net/http"
	"strings"

	"github.com/dunglas/httpsfv"
)

// messageSignatures has the members of Signature-Input and Signature, by their labels.
type messageSignatures struct {
	labels []string
	inputs *httpsfv.Dictionary
	values *httpsfv.Dictionary
}

// readMessage reads the signatures of a request by RFC 9421 4.
func readMessage(header http.Header) (*messageSignatures, error) {
	inputs, err := httpsfv.UnmarshalDictionary(header["Signature-Input"])
	if err != nil {
		return nil, refuse(SignatureMalformed, "the field Signature-Input can't be read")
	}
	values, err := httpsfv.UnmarshalDictionary(header["Signature"])
	if err != nil {
		return nil, refuse(SignatureMalformed, "the field Signature can't be read")
	}
	labels := inputs.Names()
	if n := len(labels); n == 0 || n > maxSignatures {
		return nil, refuse(SignatureMalformed, "the request has %d signatures; 1 to %d are accepted", n, maxSignatures)
	}
	return &messageSignatures{labels: labels, inputs: inputs, values: values}, nil
}

// read reads one signature and makes its signature base (RFC 9421 2.5) from the values of
// its components.
func (m *messageSignatures) read(label string, component func(name string) (string, error)) (*signature, error) {
	member, _ := m.inputs.Get(label)
	input, ok := member.(httpsfv.InnerList)
	if !ok {
		return nil, refuse(SignatureMalformed, "Signature-Input is not a list of components")
	}
	member, _ = m.values.Get(label)
	item, _ := member.(httpsfv.Item)
	s := &signature{form: FormRFC9421}
	if s.value, ok = item.Value.([]byte); !ok {
		return nil, refuse(SignatureMalformed, "the field Signature has no bytes for a label of Signature-Input")
	}
	if err := s.parameters(input.Params); err != nil {
		return nil, err
	}
	if err := s.base(input, component); err != nil {
		return nil, err
	}
	return s, nil
}

// base makes the signature base of the components and parameters.
func (s *signature) base(input httpsfv.InnerList, component func(name string) (string, error)) error {
	if len(input.Items) > maxComponents {
		return refuse(SignatureMalformed, "the signature covers more than %d components", maxComponents)
	}
	var text strings.Builder
	for _, c := range input.Items {
		name, ok := c.Value.(string)
		if !ok || name == "" || name != strings.ToLower(name) || len(c.Params.Names()) > 0 {
			return refuse(SignatureMalformed, "the signature covers a component of a kind that is not supported")
		}
		if err := s.cover(name); err != nil {
			return err
		}
		value, err := component(name)
		if err != nil {
			return err
		}
		text.WriteString(`"` + name + `": ` + value + "\n")
	}
	params, err := httpsfv.Marshal(input)
	if err != nil {
		return refuse(SignatureMalformed, "Signature-Input can't be written as it was read")
	}
	text.WriteString(`"@signature-params": ` + params)
	s.text = []byte(text.String())
	return nil
}

// parameters reads the parameters that matter to a verifier. All of them are signed.
func (s *signature) parameters(p *httpsfv.Params) error {
	for _, name := range p.Names() {
		value, _ := p.Get(name)
		ok := true
		switch name {
		case "keyid":
			s.keyID, ok = value.(string)
		case "alg":
			s.algorithm, ok = value.(string)
			ok = ok && s.algorithm != ""
		case "created":
			s.created, ok = value.(int64)
			ok = ok && s.created > 0
		case "expires":
			s.expires, ok = value.(int64)
			ok = ok && s.expires > 0
		}
		if !ok {
			return refuse(SignatureMalformed, "the parameter %s can't be read", name)
		}
	}
	if s.keyID == "" {
		return refuse(SignatureMalformed, "the signature has no keyid")
	}
	return nil
}

// component returns the value of a component by RFC 9421 2.1 and 2.2.
func (q *request) component(name string) (string, error) {
	switch name {
	case "@method":
		return q.method, nil
	case "@target-uri":
		return q.scheme + "://" + q.authority + q.target, nil
	case "@authority":
		return q.authority, nil
	case "@scheme":
		return q.scheme, nil
	case "@request-target":
		return q.raw, nil
	case "@path":
		return q.path(), nil
	case "@query":
		return q.query(), nil
	}
	if strings.HasPrefix(name, "@") {
		return "", refuse(SignatureMalformed, "the signature covers a component of a kind that is not supported")
	}
	value, ok := q.field(name)
	if !ok {
		return "", absent()
	}
	return value, nil
}
