package redisstore

import (
	"crypto/sha256"
	"strconv"
	"strings"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store"
)

// The keys, with the default prefix:
//
//	semel:format           the number of this format
//	semel:{TAG}:r:DIGEST   a head, then the record as package codec encodes it
//	semel:{TAG}:due        sorted set: digests, scored by when the records are due
//	semel:{TAG}:created    sorted set: digests, scored by when the records were created, negated
//	semel:{TAG}:attributes sorted set without scores: a term of package terms, the record's score
//	                       by creation in 16 digits that sort as it does, and its digest
//	semel:time             what processes have noted of the clock, see clock.go
//
// The digest of an identity has 32 bytes; the first one selects the shard. Each shard has a TAG
// (a hash tag), so that a record and its index entries are in one slot of a Cluster. A single
// server has the same layout.
//
// The head is NextAt in microseconds, in 16 digits, so that heads compare as the instants do. In
// the record that follows, the first byte is the codec's format and the next 16 are the revision.
//
// In format 1 some records have no entries in the index of attributes, so searches don't use it.
// The indexes are the only difference. New servers have format 2, and [Migrate] turns format 1
// into it.
const (
	shardCount  = 64
	firstFormat = "1"
	digestLen   = sha256.Size
	headLen     = 16
)

// Format is the version of the keys that this program writes on a new server.
const Format = 2

var formatVersion = strconv.Itoa(Format)

// tags spread the shards evenly over the slots: divide all slots into 64 equal ranges, and the
// i-th tag is the smallest number with a slot in the i-th range. So masters that serve equally
// many slots serve about equally many shards.
var tags = strings.Fields(`10 18 113 342 29 21 3 122 69 61 72 162 50 58 153 43
	11 19 112 343 28 20 2 123 68 60 73 163 51 59 152 42
	12 102 111 119 133 23 1 9 173 63 70 78 52 142 49 41
	13 103 110 118 132 22 0 8 172 62 71 79 53 143 48 40`)

// shard has the names of one shard's keys.
type shard struct {
	index        int
	records      string // the prefix of its records' keys
	due, created string
	attributes   string
}

// keyspace names the keys.
type keyspace struct {
	format, time, clock string
	shards              [shardCount]shard
}

func newKeyspace(prefix string) keyspace {
	k := keyspace{format: prefix + ":format", time: prefix + ":time", clock: prefix + ":clock"}
	for i, tag := range tags {
		base := prefix + ":{" + tag + "}:"
		k.shards[i] = shard{index: i, records: base + "r:", due: base + "due", created: base + "created", attributes: base + "attributes"}
	}
	return k
}

// find returns where the record of an identity is.
func (k *keyspace) find(id semel.ID) (sh *shard, key string) {
	digest := id.Digest()
	sh = k.shard(&digest)
	return sh, sh.records + string(digest[:])
}

// shard returns the shard of an identity, by its digest.
func (k *keyspace) shard(digest *[digestLen]byte) *shard { return &k.shards[digest[0]%shardCount] }

// digestOf returns the digest in the key of a record.
func digestOf(key string) string { return key[len(key)-digestLen:] }

// neverDue is the head of a record without a NextAt.
const neverDue = "9999999999999999"

// head returns the head of a record that is due at an instant.
func head(at store.Instant) string { return string(appendHead(nil, at)) }

func appendHead(b []byte, at store.Instant) []byte {
	if at == 0 {
		return append(b, neverDue...)
	}
	return appendDigits(b, micros(at))
}

// appendDigits appends a number in 16 digits, or more from 2286 on.
func appendDigits(b []byte, n int64) []byte {
	var digits [20]byte
	text := strconv.AppendInt(digits[:0], n, 10)
	for range headLen - len(text) {
		b = append(b, '0')
	}
	return append(b, text...)
}

// micros returns an instant as a score: microseconds, rounded down. A sorted set stores them
// exactly until the year 2255, and in the right order after that. Anything before 1970
// counts as 1970.
func micros(at store.Instant) int64 { return max(0, int64(at)/1000) }
