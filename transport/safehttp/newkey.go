package safehttp

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"time"
)

// NewKey makes a key: a UUIDv7 (RFC 9562), whose 74 random bits nobody can guess. It has
// the time when it was made, which lets a service refuse a retry that comes after the
// answer was forgotten; see Operation.RefuseLate of package semel.
func NewKey() string {
	var u [16]byte
	binary.BigEndian.PutUint64(u[:8], uint64(time.Now().UnixMilli())<<16)
	rand.Read(u[6:]) // never fails, as documented
	u[6] = u[6]&0x0f | 0x70
	u[8] = u[8]&0x3f | 0x80
	var text [36]byte
	hex.Encode(text[0:8], u[0:4])
	hex.Encode(text[9:13], u[4:6])
	hex.Encode(text[14:18], u[6:8])
	hex.Encode(text[19:23], u[8:10])
	hex.Encode(text[24:36], u[10:16])
	text[8], text[13], text[18], text[23] = '-', '-', '-', '-'
	return string(text[:])
}
