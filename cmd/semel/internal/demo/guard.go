package demo

import (
	"fmt"
	"os"
	"path/filepath"
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
// about it.
const configuration = commonConfiguration + `operations:
  - name: payments.charge
    class: I3
    shields: [S4]
    financial: true
    lease: 2s
    on_abandoned: hold
    reconcile_url: %[1]s/outcome
    reconcile_every: 1s
routes:
  - match: POST /charges
    upstream: %[1]s
    operation: payments.charge
    key: required
    mode: %[2]s
`

// writeConfiguration writes the file with which 'semel serve' guards a payment
// service, or, unguarded, lets everything through.
func writeConfiguration(dir, provider string, unguarded bool) error {
	mode := "enforce"
	if unguarded {
		mode = "off"
	}
	return os.WriteFile(filepath.Join(dir, configName), fmt.Appendf(nil, configuration, provider, mode), 0o600)
}
