package redisstore

import (
	"crypto/sha256"
	"strconv"

	"github.com/semelhq/semel"
)

// What is kept, all under a prefix, which is "semel" as a rule:
//
//	semel:format           the format of all of this, see formatOf
//	semel:{TAG}:r:DIGEST   a head, and the record as recordcodec writes it
//	semel:{TAG}:new        stream: digests and places that no index has yet, see index.go
//	semel:{TAG}:born       sorted set: digests by their places, see search.go
//	semel:{TAG}:due        sorted set: digests by a time, see index.go
//	semel:~NAME            a value on its way, within a transaction, see stage.go
//	semel:clock            how far the clock has come, see clock.go
//
// The head is NextAt in microseconds, in 16 digits. The digest of an identity has 32
// bytes. A place is when the identity was first stored, as the record had it then, written
// like a head; it is kept until the record is purged.
//
// In a Cluster the digest chooses the shard, and each shard has a TAG, so that a record
// and its entries are in one slot. A single server has one shard, so that all claims of a
// batch share one entry of the stream.
const (
	clusterShards = 64
	formatVersion = "3"
	digestLen     = sha256.Size
	headLen       = 16
	placeLen      = 16
	slotCount     = 16384
)

// keyspace names the keys.
type keyspace struct {
	prefix string
	format string
	staged string // the beginning of the keys of values on their way
	clock  string
	shards []shard
}

// shard is the names of one shard's keys.
type shard struct {
	index          int
	tag            string
	records        string // the beginning of the keys of its records
	due, born, new string
}

func newKeyspace(prefix string, cluster bool) keyspace {
	k := keyspace{prefix: prefix, format: prefix + ":format", staged: prefix + ":~", clock: prefix + ":clock"}
	names := []string{"0"}
	if cluster {
		names = tags()
	}
	for i, tag := range names {
		base := prefix + ":{" + tag + "}:"
		k.shards = append(k.shards, shard{index: i, tag: tag, records: base + "r:", due: base + "due", born: base + "born", new: base + "new"})
	}
	return k
}

// formatOf is the mark of data in so many shards: another number would look for records
// where they are not.
func formatOf(shards int) string { return formatVersion + "/" + strconv.Itoa(shards) }

// tags are numbers whose slots divide all slots evenly: shard i has the smallest
// one in the i-th of as many equal ranges. So each of n masters that have equal
// ranges has its share.
func tags() []string {
	list := make([]string, clusterShards)
	for n, left := 0, clusterShards; left > 0; n++ {
		tag := strconv.Itoa(n)
		if at := &list[int(slot(tag))*clusterShards/slotCount]; *at == "" {
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

// shard is the one that the record of an identity is in.
func (k *keyspace) shard(digest *[digestLen]byte) *shard {
	return &k.shards[int(digest[0])%len(k.shards)]
}

// find is where the record of an identity is.
func (k *keyspace) find(digest *[digestLen]byte) (*shard, string) {
	sh := k.shard(digest)
	return sh, sh.records + string(digest[:])
}

// neverDue is when a record is due whose NextAt is not set.
const neverDue = "9999999999999999"

// appendDue appends a record's NextAt as its head has it, so that texts compare as
// the instants do.
func appendDue(b []byte, at semel.Instant) []byte {
	if at == 0 {
		return append(b, neverDue...)
	}
	return appendPlace(b, at)
}

// appendPlace appends an instant in 16 digits, as [micros] has it.
func appendPlace(b []byte, at semel.Instant) []byte {
	const base = 1e16 // no instant has as many digits
	start := len(b)
	b = strconv.AppendInt(b, base+micros(at), 10)
	return append(b[:start], b[start+1:]...)
}

// micros orders instants in the indexes: microseconds, rounded down, which a
// sorted set's score holds exactly until the year 2255, and in the right order
// after that. What is before 1970 counts as 1970.
func micros(at semel.Instant) int64 { return max(0, int64(at)/1000) }
