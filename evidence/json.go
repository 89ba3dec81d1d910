package evidence

import (
	"encoding/json"
	"fmt"

	"github.com/semelhq/semel/internal/canon"
)

// canonical is a leaf or an opening in canonical JSON (RFC 8785).
func canonical[T Artifact | Opening](v *T) []byte {
	plain, err := json.Marshal(v)
	if err == nil {
		plain, err = canon.Canonicalize(plain, canon.JCS)
	}
	if err != nil {
		panic(fmt.Sprintf("evidence: %T has no canonical form: %v", *v, err)) // nothing may be recorded without it
	}
	return plain
}
