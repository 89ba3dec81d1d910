package shield

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"time"
)

// Provider says how a provider takes its idempotency key, and what its answers prove.
// The zero value takes no key.
type Provider struct {
	// Name is for people.
	Name string
	// Header is the header that takes the key; empty for none.
	Header string
	// Field is the member of the body that takes the key: of a JSON object, or of
	// a form. Empty for none.
	Field string
	// MaxKey is the longest key that the provider takes, in bytes. At least 22, which
	// makes collisions practically impossible. Zero: 255.
	MaxKey int
	// UUID says that the key must be a UUID.
	UUID bool
	// Quoted sends the key in the header as a structured field: in quotes.
	Quoted bool
	// Window is how long the provider remembers a key. The window of the operation,
	// and every pause before the same request is sent again, should be shorter.
	// Zero: unknown.
	Window time.Duration
	// Judge says what an answer proves. Defaults to [Judge].
	Judge func(r *Response) Verdict
}

// Stripe takes keys of up to 255 bytes and remembers them for a day at least.
func Stripe() Provider {
	return Provider{Name: "Stripe", Header: "Idempotency-Key", MaxKey: 255, Window: 24 * time.Hour}
}

// Adyen takes keys of up to 64 bytes and remembers them for 31 days.
func Adyen() Provider {
	return Provider{Name: "Adyen", Header: "Idempotency-Key", MaxKey: 64, Window: 31 * 24 * time.Hour}
}

// ACP is a merchant of the Agentic Commerce Protocol.
func ACP() Provider {
	return Provider{Name: "ACP", Header: "Idempotency-Key", MaxKey: 255, Window: 24 * time.Hour}
}

// UCP is a business of the Universal Commerce Protocol. Its keys are UUIDs.
func UCP() Provider {
	return Provider{Name: "UCP", Header: "Idempotency-Key", UUID: true, Window: 24 * time.Hour}
}

// IETF is a service with the Idempotency-Key header of the IETF draft, a string in
// quotes.
func IETF() Provider {
	return Provider{Name: "IETF", Header: "Idempotency-Key", MaxKey: 255, Quoted: true}
}

// minKey is the length at which a key in base64url still has 128 bits.
const minKey = 22

// Validate reports faults in the declaration.
func (p *Provider) Validate() error {
	if p.MaxKey != 0 && p.MaxKey < minKey {
		return fmt.Errorf("shield: provider %s: MaxKey is %d, less than %d", p.Name, p.MaxKey, minKey)
	}
	if p.UUID && p.MaxKey != 0 && p.MaxKey < 36 {
		return fmt.Errorf("shield: provider %s: a UUID does not fit into %d bytes", p.Name, p.MaxKey)
	}
	return nil
}

// Key is the provider's key for an effect with the key effectKey in the ledger: the same key,
// or if the provider wouldn't take that, another one derived from it. It depends only on the
// two, so with the ledger you can find the request at the provider, even if its answer was
// lost.
func (p *Provider) Key(effectKey string) string {
	limit := p.MaxKey
	if limit == 0 {
		limit = 255
	}
	if !p.UUID && len(effectKey) <= limit {
		return effectKey
	}
	sum := sha256.Sum256([]byte("semel-provider-key-1\x00" + effectKey))
	if !p.UUID {
		text := base64.RawURLEncoding.EncodeToString(sum[:])
		return text[:min(limit, len(text))]
	}
	b := sum[:16]
	b[6], b[8] = b[6]&0x0f|0x80, b[8]&0x3f|0x80 // UUID version 8: custom content
	h := hex.EncodeToString(b)
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}
