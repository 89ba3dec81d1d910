// Package ids judges implementations of RFC-WF-0010 that take commands over HTTP. It is the outside
// system of three commands, so it counts effects where they happen.
package ids

import (
	_ "embed"

	"github.com/semelhq/semel/internal/check"
)

//go:embed requirements.yaml
var requirements []byte

// Kit is the kit of the document.
var Kit = check.Kit{
	Requirements: requirements,
	Short:        "Judge an implementation of RFC-WF-0010, which takes commands",
	Long: `Deliver commands to an implementation of RFC-WF-0010 in the ways in which its clause XIII
says that they come, and say for each sentence whether it is kept, and on which clause
it rests.

URL is where envelopes are posted. The implementation has three commands of the entity
idstest: charge, whose idempotency_key the caller may choose, slow, and confirmed, which
asks for a confirmation first. Each sends its envelope by POST to the address of
--provider, where the check counts effects.`,
	Example: `  semel check ids http://127.0.0.1:8480/v1/commands --header "Authorization: Bearer $TOKEN"`,
	Flags: []check.Flag{
		check.ProviderFlag,
		{Name: "tenant", Default: "acme", Usage: "tenant of the credential"},
		{Name: "actor", Default: "alice", Usage: "actor of the credential"},
		{Name: "evidence", Usage: "`URL` that has the evidence of the command in place of {command_id}"},
	},
	Start: start,
}
