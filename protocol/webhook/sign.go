package webhook

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"
)

// Sign signs a delivery as the sender would at a time, for tests and for senders of test
// deliveries. It replaces the signature, and the time if there is one; url is the address
// that the delivery is posted to, if the sender signs it. Deliveries with ed25519, whose
// private key only the sender has, can't be signed.
func (s *Source) Sign(d *Delivery, secret, url string, at time.Time) error {
	key, err := s.Signature.key(secret)
	if err != nil {
		return fmt.Errorf("webhook: the secret of %s: %w", s.Name, err)
	}
	if s.Signature.Algorithm != "hmac-sha256" {
		return errors.New("webhook: only the sender can sign with " + s.Signature.Algorithm)
	}
	seconds := strconv.FormatInt(at.Unix(), 10)
	v := &view{delivery: d, body: bodyNode(d.Body), url: url, labels: map[string]string{}}
	if len(s.stamp) == 1 {
		switch p := s.stamp[0].place; p.kind {
		case "header":
			d.Header.Set(p.name, seconds)
		case "signature":
			v.labels[p.name] = seconds
		}
	}
	if s.perEvent() {
		return s.signEvents(v, key)
	}
	signature, err := s.sign(v, key)
	if err != nil {
		return err
	}
	for label, value := range v.labels {
		signature = label + "=" + value + s.Signature.Separator + signature
	}
	d.Header.Set(s.key.name, signature)
	return nil
}

// sign is one signature, as it is written.
func (s *Source) sign(v *view, key []byte) (string, error) {
	signed, err := v.fill(s.signed)
	if err != nil {
		return "", fmt.Errorf("webhook: sign: %w", err)
	}
	h := hmac.New(sha256.New, key)
	h.Write([]byte(signed))
	text := base64.StdEncoding.EncodeToString(h.Sum(nil))
	g := &s.Signature
	if g.Encoding == "hex" {
		text = hex.EncodeToString(h.Sum(nil))
	}
	switch g.Form {
	case "labels":
		return g.Prefix + "=" + text, nil
	case "list":
		return g.Prefix + "," + text, nil
	}
	return g.Prefix + text, nil
}

// signEvents puts a signature into each event of the body.
func (s *Source) signEvents(v *view, key []byte) error {
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
			signature, err := s.sign(v, key)
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

// put sets the text at a path, and makes the objects on the way that are missing.
func put(body any, path []step, items []int, text string) bool {
	for i, s := range path {
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
