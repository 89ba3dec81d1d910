package safehttp

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"time"
)

// NewKey makes a key: a UUIDv7 (RFC 9562), with 74 random bits that nobody can guess. It
// has the current time, which lets a service refuse a retry that comes after the answer is
// gone; see Operation.RefuseLate of package semel.
func NewKey() string {
	var u [16]byte
	binary.BigEndian.PutUint64(u[:8], uint64(time.Now().UnixMilli())<<16)
	rand.Read(u[6:]) // never fails, as documented
	u[6] = u[6]&0x0f | 0x70
	u[8] = u[8]&0x3f | 0x80
	h := hex.EncodeToString(u[:])
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}
