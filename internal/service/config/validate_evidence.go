package config

import (
	"net/url"
	"time"

	"github.com/semelhq/semel/evidence"
)

func (v *validator) evidence() {
	e := &v.c.Evidence
	if e.KeepOpenings != 0 && e.KeepOpenings < Duration(time.Hour) {
		v.bad("evidence.keep_openings", "", "%v is less than 1h", e.KeepOpenings)
	}
	if e.AuditEvery != 0 && e.AuditEvery < Duration(time.Minute) {
		v.bad("evidence.audit_every", "", "%v is less than 1m", e.AuditEvery)
	}
	if v.c.KeepsEvidence() && e.KeyFile == "" {
		v.bad("evidence.key_file", "make one with semel evidence keygen", "an operation keeps evidence, and there are no keys to sign it")
	}
	if v.c.Commands.Registry != "" {
		if !v.c.Commands.WhatsApp.On() && !v.c.Auth.Configured() { // WhatsApp identifies its senders without auth
			v.bad("commands.registry", "configure auth", "commands need known callers, and nothing says how to identify them")
		}
		if e.KeyFile == "" {
			v.bad("evidence.key_file", "make one with semel evidence keygen", "commands keep evidence, and there are no keys to sign it")
		}
	}
	for at, w := range items("evidence.witnesses", e.Witnesses) {
		if u, err := url.Parse(w.URL); w.URL != "" && (err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "") {
			v.bad(at+".url", "", "%q is not an http or https URL", w.URL)
		}
		if _, err := evidence.ParseCosignerKey(w.Key); w.Key != "" && err != nil {
			v.bad(at+".key", "", "this is not the key of a witness: name, hash and base64 with + between them")
		}
	}
}
