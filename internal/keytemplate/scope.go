package keytemplate

import (
	"crypto/sha256"
	"encoding/base64"
	"strings"
)

// maxScopeText is the longest readable scope, in bytes; a digest replaces a longer one.
const maxScopeText = 96

// AppendScope adds a name and its value to a scope, such as session=s1, joined as in a query.
// It escapes anything that could be taken for a part of that, so no value can imitate another
// name. See Scope of semel.Call.
func AppendScope(scope, name, value string) string {
	const digits = "0123456789ABCDEF"
	var b strings.Builder
	if b.WriteString(scope); scope != "" {
		b.WriteByte('&')
	}
	b.WriteString(name)
	b.WriteByte('=')
	for i := range len(value) {
		c := value[i]
		if plain(c) || strings.IndexByte("/:@", c) >= 0 {
			b.WriteByte(c)
			continue
		}
		b.WriteByte('%')
		b.WriteByte(digits[c>>4])
		b.WriteByte(digits[c&15])
	}
	return b.String()
}

// FitScope returns a scope that fits into an identity: unchanged, or its digest if it is long.
func FitScope(scope string) string {
	if len(scope) <= maxScopeText {
		return scope
	}
	sum := sha256.Sum256([]byte(scope))
	return "sha256:" + base64.RawURLEncoding.EncodeToString(sum[:]) // no other scope looks like this: they all have an equals sign
}
