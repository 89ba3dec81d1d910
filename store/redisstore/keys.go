package redisstore

import (
	"crypto/sha256"
	"strconv"
	"time"

	"github.com/semelhq/semel"
)

// What is kept, all under a prefix, which is "semel" as a rule:
//
//	semel:format           the format of all of this, see formatVersion
//	semel:{TAG}:r:DIGEST   a head, and the record as recordcodec writes it
//	semel:{TAG}:born       stream: digests by their places
//	semel:{TAG}:due        sorted set: digests by a time, see index.go
//	semel:{TAG}:indexed    the last place that the due index has taken in
//	semel:~NAME            a value on its way, within a transaction, see stage.go
//
// The head is a place and, in 16 digits, NextAt in microseconds.
//
// The digest of an identity has 32 bytes. A place is the name of a stream's entry,
// written with 27 digits so that it sorts as text: when the identity was first
// stored, as far as callers agree about that. It is kept, unlike the record's own
// time, until the record is purged. It is in a stream because a sorted set takes
// the server three times as long.
//
// The digest chooses the shard, and each shard has a TAG, so that a
// record and its entries are in one slot of a Cluster.
const (
	shardCount    = 64
	formatVersion = "2"
	digestLen     = sha256.Size
	placeLen      = 11 + 1 + 15
	dueLen        = 16
	headLen       = placeLen + dueLen
	revisionAt    = headLen + 1 // after the format of the record
	slotCount     = 16384
)

// keyspace names the keys.
type keyspace struct {
	prefix string
	format string
	staged string // the beginning of the keys of values on their way
	shards [shardCount]shard
}

// shard is the names of one shard's keys.
type shard struct {
	tag       string
	records   string // the beginning of the keys of its records
	due, born string
	indexed   string
}

func newKeyspace(prefix string) keyspace {
	k := keyspace{prefix: prefix, format: prefix + ":format", staged: prefix + ":~"}
	for i, tag := range tags() {
		base := prefix + ":{" + tag + "}:"
		k.shards[i] = shard{tag: tag, records: base + "r:", due: base + "due", born: base + "born", indexed: base + "indexed"}
	}
	return k
}

// tags are numbers whose slots divide all slots evenly: shard i has the smallest
// one in the i-th of as many equal ranges. So each of n masters that have equal
// ranges has its share.
func tags() (list [shardCount]string) {
	for n, left := 0, shardCount; left > 0; n++ {
		tag := strconv.Itoa(n)
		if at := &list[int(slot(tag))*shardCount/slotCount]; *at == "" {
			*at, left = tag, left-1
		}
	}
	return list
}

// slot is that of a hash tag: CRC-16/XMODEM, as the Cluster specification has it.
func slot(tag string) uint16 {
	var crc uint16
	for i := range len(tag) {
		crc ^= uint16(tag[i]) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	return crc % slotCount
}

// appendPlace appends the place of what is first stored at an instant: seconds,
// and nanoseconds with two bytes of the digest, which keep most of those apart
// that are stored at the same time. What is added to them makes both parts as long
// for every instant there is.
func appendPlace(b []byte, at semel.Instant, digest *[digestLen]byte) []byte {
	const second = int64(time.Second)
	sec, nanos := int64(at)/second, int64(at)%second
	if nanos < 0 {
		sec, nanos = sec-1, nanos+second
	}
	b = strconv.AppendInt(b, 2e10+sec, 10)
	b = append(b, '-')
	return strconv.AppendInt(b, 1e14+(nanos<<16|int64(digest[1])<<8|int64(digest[2])), 10)
}

// validPlace reports whether s has the form of a place.
func validPlace(s string) bool {
	for i := range len(s) {
		if dash := i == 11; dash != (s[i] == '-') || !dash && (s[i] < '0' || s[i] > '9') {
			return false
		}
	}
	return len(s) == placeLen
}

// shard is the one that the record of an identity is in.
func (k *keyspace) shard(digest *[digestLen]byte) *shard { return &k.shards[shardOf(digest)] }

func shardOf(digest *[digestLen]byte) int { return int(digest[0] % shardCount) }

// find is where the record of an identity is.
func (k *keyspace) find(digest *[digestLen]byte) (*shard, string) {
	sh := k.shard(digest)
	return sh, sh.records + string(digest[:])
}

// neverDue is when a record is due whose NextAt is not set.
const neverDue = "9999999999999999"

// dueAt orders instants in the due index: microseconds, rounded down, which a
// sorted set's score holds exactly until the year 2255, and in the right order
// after that. What is before 1970 counts as 1970.
func dueAt(at semel.Instant) int64 { return max(0, int64(at)/1000) }

// appendDue appends a record's NextAt as its head has it, so that texts compare as
// the instants do.
func appendDue(b []byte, at semel.Instant) []byte {
	if at == 0 {
		return append(b, neverDue...)
	}
	const base = 1e16 // no instant has as many digits
	start := len(b)
	b = strconv.AppendInt(b, base+dueAt(at), 10)
	return append(b[:start], b[start+1:]...)
}
