package demo

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/semelhq/semel/evidence"
)

// configName is the file that configures the guard, in the demo's directory.
const configName = "semel.yaml"

// commonConfiguration is what a demo's Semel has, whatever it guards.
const commonConfiguration = `listen: {address: 127.0.0.1:0}
admin: {address: 127.0.0.1:0}
store: {url: "pebble:./store"}
limits: {shutdown_grace: 1s}
purge: {interval: 1s}
archive: {dir: ./archive}
`

// configuration is what you would write to guard the payment service. The lease is
// short, so that a killed process is noticed soon; the pauses are the shortest allowed,
// and leave a held charge visible for a moment before Semel asks the payment service
// about it. Charges are all that the story needs; the other operations, and messages, are there
// for the troubles that the dashboard shows afterwards.
const configuration = commonConfiguration + `auth: {tokens: [{name: worker, sha256: %[3]s}]}
evidence: {key_file: %[4]q}
operations:
  - name: payments.charge
    class: I3
    shields: [S4]
    financial: true
    lease: 2s
    on_abandoned: hold
    reconcile_url: %[1]s/outcome
    reconcile_every: 1s
    evidence: decisions
    keep_payload: true
  - {name: payments.refund, financial: true, on_abandoned: hold, evidence: decisions}
  - {name: carts.create, on_failure: retry, evidence: changes}
  - {name: shop.deliver, class: I3, shields: [S3], effects: ["*"], lease: 1h, evidence: changes}
routes:
  - match: POST /charges
    upstream: %[1]s
    operation: payments.charge
    key: required
    anonymous: loopback
    mode: %[2]s
  - {match: POST /refunds, upstream: %[1]s, operation: payments.refund, anonymous: loopback, mode: %[2]s}
  - {match: POST /carts, upstream: %[1]s, operation: carts.create, anonymous: loopback, mode: %[2]s}
dispatch:
  destinations:
    - {name: mail, operations: [shop.deliver], url: %[1]s/hooks/mail, allow_private: true}
    - {name: warehouse, operations: [shop.deliver], url: %[1]s/hooks/warehouse, max_tries: 1, allow_private: true}
`

// writeConfiguration writes the files with which 'semel serve' guards a payment
// service, or, unguarded, lets everything through. The digest is that of the token with which
// a worker calls the execution API.
func writeConfiguration(dir, provider, digest string, unguarded bool) error {
	mode := "enforce"
	if unguarded {
		mode = "off"
	}
	keys, err := evidence.GenerateKeys("semel.demo")
	if err != nil {
		return err
	}
	keyFile := filepath.Join(dir, "evidence.key")
	if err := os.WriteFile(keyFile, keys.Text(), 0o600); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, configName), fmt.Appendf(nil, configuration, provider, mode, digest, keyFile), 0o600)
}
