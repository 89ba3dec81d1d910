package webhook

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	neturl "net/url"
	"strings"
	"time"
)

// Sign signs a delivery as the sender would at a time, for tests and for senders of test
// deliveries. It replaces the signature, and the time if there is one; url is the address that
// the delivery is posted to, if the sender signs it. It can't sign with a private key, which
// only the sender has.
func (s *Source) Sign(d *Delivery, secret, url string, at time.Time) error {
	g := &s.Signature
	key, err := g.key(secret)
	if err != nil {
		return fmt.Errorf("webhook: the secret of %s: %w", s.Name, err)
	}
	if key.raw == nil {
		return errors.New("webhook: only the sender can sign with " + g.Algorithm)
	}
	return s.signWith(d, url, "", at, func(signed []byte) ([]byte, error) {
		if g.Algorithm == "token" {
			return key.raw, nil
		}
		return g.mac(key.raw, signed), nil
	})
}

// signWith is Sign with a function that makes a signature.
func (s *Source) signWith(d *Delivery, url, endpoint string, at time.Time, make func(signed []byte) ([]byte, error)) error {
	if name := s.Signature.BodySHA256; name != "" {
		if d.Query = ""; len(d.Body) > 0 && !isForm(d.Header) {
			d.Query = name + "=" // whatever the body is
		}
	}
	v := s.view(d, url, endpoint)
	if v.hashed {
		_, d.Query, _ = strings.Cut(v.url, "?")
	}
	v.labels = map[string]string{}
	if len(s.stamp) == 1 {
		switch p := s.stamp[0].place; p.kind {
		case "header":
			d.Header.Set(p.name, s.Timestamp.format(at))
		case "signature":
			v.labels[p.name] = s.Timestamp.format(at)
		}
	}
	if s.perEvent() {
		return s.signEvents(v, make)
	}
	signature, err := s.sign(v, make)
	if err != nil {
		return err
	}
	for label, value := range v.labels {
		signature = label + "=" + value + s.Signature.Separator + signature
	}
	if s.key.kind == "query" {
		d.Query = neturl.Values{s.key.name: {signature}}.Encode()
	} else {
		d.Header.Set(s.key.name, signature)
	}
	return nil
}

// sign returns one signature in its written form.
func (s *Source) sign(v *view, make func(signed []byte) ([]byte, error)) (string, error) {
	signed, err := v.bytes(s.signed)
	if err != nil {
		return "", fmt.Errorf("webhook: sign: %w", err)
	}
	sum, err := make(signed)
	if err != nil {
		return "", err
	}
	g := &s.Signature
	text := string(sum)
	switch g.Encoding {
	case "base64":
		text = base64.StdEncoding.EncodeToString(sum)
	case "hex":
		text = hex.EncodeToString(sum)
	}
	return g.form(text), nil
}

// signEvents puts a signature into each event of the body.
func (s *Source) signEvents(v *view, make func(signed []byte) ([]byte, error)) error {
	dec := json.NewDecoder(bytes.NewReader(v.delivery.Body))
	dec.UseNumber()
	var body any
	if err := dec.Decode(&body); err != nil {
		return fmt.Errorf("webhook: sign: %w", err)
	}
	for i := range s.rules {
		c := collector{most: maxEvents}
		for _, at := range c.collect(v.body, s.rules[i].each, nil) {
			v.items = at.items
			signature, err := s.sign(v, make)
			if err != nil {
				return err
			}
			if !put(body, s.key.path, at.index, signature) {
				return errors.New("webhook: sign: an event is not an object")
			}
		}
	}
	signed, err := json.Marshal(body)
	v.delivery.Body = signed
	return err
}

// put sets the text at a path, and makes missing objects on the way.
func put(body any, path []step, items []int, text string) bool {
	for i, s := range path {
		if s.name != "" {
			object, ok := body.(map[string]any)
			if !ok {
				return false
			}
			if i == len(path)-1 {
				object[s.name] = text
				return true
			}
			if object[s.name] == nil {
				object[s.name] = map[string]any{}
			}
			body = object[s.name]
		}
		if s.each {
			list, ok := body.([]any)
			if !ok || items[0] >= len(list) {
				return false
			}
			body, items = list[items[0]], items[1:]
		}
	}
	return false
}
