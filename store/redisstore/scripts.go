package redisstore

import (
	"cmp"
	"context"
	"crypto/sha1"
	"encoding/hex"
	"strconv"

	"github.com/redis/rueidis"
)

// luaEntries adds or removes the entries of terms in an index of attributes. created is the
// record's score by creation; without one nothing is done, because no search would list it.
const luaEntries = `local function entries(command, key, terms, created, digest)
	if terms == '' or not created then return end
	local args, place = {}, string.format('%016d', 9007199254740991 + created)
	for i = 1, #terms, 16 do
		if command == 'ZADD' then args[#args + 1] = '0' end
		args[#args + 1] = string.sub(terms, i, i + 15) .. place .. digest
	end
	return redis.pcall(command, key, unpack(args))
end
`

// A script changes something for a write only after it has checked all its conditions. If
// memory is full, the server refuses the first change that a script makes; after a first
// change it refuses none. A whole run is one step in the append-only file and on replicas.
var (
	// scriptWrite makes writes, one after the other. It answers its token, the number of writes
	// that it made, and for each write that it did not make, the write's number and the reason:
	// the value that stood in the way, nil if there is no record, or an error, which doesn't
	// affect the other writes. So the client doesn't have to guess: every write is either
	// counted or named.
	//
	// A claim stores a record if there is none, and adds it to the indexes. If it can't add an
	// entry, it deletes the record again; otherwise nobody would ever find it. An update
	// replaces the record that has the expected revision. It adds a due entry only if the
	// record becomes due earlier, and does so before it writes the record: so an entry may be
	// too early, but never too late. scriptCorrect corrects entries that are too early.
	//
	// A write that meets its other conditions is too late at its deadline by the server's
	// clock. The script reads the clock at most once, and only if a write has a deadline.
	//
	// It uses pcall, so that an error is the result of one write: a raised error would end the
	// script without reporting the earlier writes. Where it uses call, the server can't refuse:
	// it reads an existing string, or deletes. Arguments of commands are strings, because Lua
	// would print numbers as floats.
	//
	// It adds entries of attributes before it replaces a record, and removes others afterwards:
	// there may be one too many, but none is missing.
	//
	// A key or an argument takes the server as long as a part of a command, so each write has
	// only what it needs.
	//
	// KEYS, for each write: the record, the due index, and for a claim the index by creation;
	// then, for each write that changes the index of attributes, the index by creation and that
	// one. ARGV: a token; how many writes there are; then for each the expected revision, in its
	// 16 bytes, or for a claim its score by creation, which is longer, the value, and the
	// deadline in microseconds ("" for none); then, for each write that changes the index of
	// attributes, its number, and the terms to remove and to add.
	scriptWrite = newScript(luaEntries + `local call, pcall, sub = redis.call, redis.pcall, string.sub
local too_late = {err = '` + tooLate + `'}
local now
local function late(deadline)
	if deadline == '' then return false end
	if not now then
		local t = call('TIME')
		now = t[1] * 1000000 + t[2]
	end
	return now >= tonumber(deadline)
end
local function refused(reply) return type(reply) == 'table' and reply.err and reply end
local function claim(k, created, value, deadline, index)
	local key = KEYS[k]
	if late(deadline) then return pcall('GET', key) or too_late end
	local old = pcall('SET', key, value, 'NX', 'GET')
	if old then return old end
	local at, digest, failed = sub(value, 1, 16), sub(key, -32), nil
	if at ~= '` + neverDue + `' then failed = refused(pcall('ZADD', KEYS[k + 1], at, digest)) end
	failed = failed or refused(pcall('ZADD', KEYS[k + 2], created, digest))
	failed = failed or index and refused(entries('ZADD', index[2], index[4], created, digest))
	if failed then
		call('DEL', key)
		return failed
	end
end
local function update(k, expect, value, deadline, index)
	local key, digest = KEYS[k], sub(KEYS[k], -32)
	local head = pcall('GETRANGE', key, '0', '32')
	if refused(head) then return head end
	if sub(head, 18) ~= expect then return call('GET', key) end
	if late(deadline) then return too_late end
	local at = sub(value, 1, 16)
	local failed = at < sub(head, 1, 16) and refused(pcall('ZADD', KEYS[k + 1], at, digest))
	local created = index and pcall('ZSCORE', index[1], digest)
	failed = failed or refused(created) or index and refused(entries('ZADD', index[2], index[4], created, digest))
	failed = failed or refused(pcall('SET', key, value)) or nil
	if index and not failed then entries('ZREM', index[2], index[3], created, digest) end
	return failed
end
local writes, indexes = tonumber(ARGV[2]), {}
for a = 3 * writes + 3, #ARGV, 3 do
	local k = #KEYS - 2 * (#ARGV - a + 1) / 3 + 1
	indexes[tonumber(ARGV[a])] = {KEYS[k], KEYS[k + 1], ARGV[a + 1], ARGV[a + 2]}
end
local others, n, k = {}, 0, 1
for a = 3, 3 * writes, 3 do
	local condition, instead = ARGV[a], nil
	n = n + 1
	if #condition == 16 then
		instead = update(k, condition, ARGV[a + 1], ARGV[a + 2], indexes[n])
		k = k + 2
	else
		instead = claim(k, condition, ARGV[a + 1], ARGV[a + 2], indexes[n])
		k = k + 3
	end
	if instead ~= nil then
		others[#others + 1] = n
		others[#others + 1] = instead
	end
end
return {ARGV[1], n - #others / 2, unpack(others)}`)

	// scriptCorrect moves the due entries of records of one shard that are due later to where
	// they belong. It removes the due entry of a record that is never due, and both entries of
	// one that is gone, because somebody else deleted it or the server evicted it. It answers
	// how many entries it changed. It reads the records itself, so it never writes anything
	// outdated. If a record has no readable head, it leaves the entries alone, so that Due and
	// Search report the record.
	//
	// It needs no additional memory, so it may run on a server that is full, where it makes
	// purges possible.
	//
	// KEYS: the due index, the index by creation, the records.
	scriptCorrect = newScript(`#!lua flags=allow-oom
local call, n = redis.call, 0
for k = 3, #KEYS do
	local digest, at = string.sub(KEYS[k], -32), redis.pcall('GETRANGE', KEYS[k], '0', '15')
	if at == '' then
		n = n + call('ZREM', KEYS[1], digest) + call('ZREM', KEYS[2], digest)
	elseif at == '` + neverDue + `' then
		n = n + call('ZREM', KEYS[1], digest)
	elseif type(at) == 'string' and #at == 16 and string.match(at, '^%d+$') then
		n = n + call('ZADD', KEYS[1], 'XX', 'GT', 'CH', at, digest)
	end
end
return n`)

	// scriptPurge deletes a record that has the given revision, and its entries. It answers how
	// many records it deleted.
	//
	// KEYS: the record, the due index, the index by creation; the index of attributes if the
	// record has any. ARGV: the revision; the terms.
	scriptPurge = newScript(luaEntries + `if redis.pcall('GETRANGE', KEYS[1], '17', '32') ~= ARGV[1] then return 0 end
local digest = string.sub(KEYS[1], -32)
if KEYS[4] then entries('ZREM', KEYS[4], ARGV[2], redis.call('ZSCORE', KEYS[3], digest), digest) end
redis.call('ZREM', KEYS[2], digest)
redis.call('ZREM', KEYS[3], digest)
return redis.call('UNLINK', KEYS[1])`)

	// scriptIndex adds entries of attributes of a record, if it is still there. It returns how
	// many it added.
	//
	// KEYS: the record, the index by creation, the index of attributes. ARGV: the terms.
	scriptIndex = newScript(luaEntries + `if redis.call('EXISTS', KEYS[1]) == 0 then return 0 end
local digest = string.sub(KEYS[1], -32)
return entries('ZADD', KEYS[3], ARGV[1], redis.call('ZSCORE', KEYS[2], digest), digest) or 0`)

	// scriptForget removes an entry of attributes that points to a record that is gone or was
	// stored anew. An earlier program, or somebody else, has deleted the record.
	//
	// KEYS: as for scriptIndex. ARGV: the entry; the score by creation that it has.
	scriptForget = newScript(`if redis.call('EXISTS', KEYS[1]) == 1 and redis.call('ZSCORE', KEYS[2], string.sub(KEYS[1], -32)) == ARGV[2] then return 0 end
return redis.call('ZREM', KEYS[3], ARGV[1])`)

	// scriptNote replaces a note of the clock if nobody else has.
	//
	// KEYS: the note. ARGV: the note before, "" for none; the new one.
	scriptNote = newScript(`if (redis.call('GET', KEYS[1]) or '') ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[2])
return 1`)
)

// tooLate is the error of a write that came after its deadline. noScript begins the error of a
// server that doesn't know a script.
const tooLate, noScript = "TOOLATE", "NOSCRIPT"

// script is a script, which servers cache by the digest of its text.
type script struct{ text, sha string }

func newScript(text string) *script {
	sum := sha1.Sum([]byte(text)) // the protocol demands SHA-1
	return &script{text, hex.EncodeToString(sum[:])}
}

// command returns the command that runs the script; see words.
func (sc *script) command(b rueidis.Builder, r *run, text bool) rueidis.Completed {
	return b.Arbitrary(sc.words(text)...).Args(strconv.Itoa(len(r.keys))).Keys(r.keys...).Args(r.args...).Build()
}

// words begin the command that runs the script: by its text, so that the server learns it, or
// by its digest, if the server already knows it.
func (sc *script) words(text bool) []string {
	if text {
		return []string{"EVAL", sc.text}
	}
	return []string{"EVALSHA", sc.sha}
}

// writeCommand returns the command that runs scriptWrite for a batch; text is as for
// [script.command]. The client keeps the memory of commands for later ones, so it takes no other.
func writeCommand(b rueidis.Builder, batch []*write, token string, text bool) rueidis.Completed {
	keys := 2 * len(batch)
	for _, w := range batch {
		if w.claims() {
			keys++
		}
		if w.changesTerms() {
			keys += 2
		}
	}
	cmd := b.Arbitrary(scriptWrite.words(text)...).Args(strconv.Itoa(keys))
	for _, w := range batch {
		if cmd = cmd.Keys(w.key, w.shard.due); w.claims() {
			cmd = cmd.Keys(w.shard.created)
		}
	}
	for _, w := range batch {
		if w.changesTerms() {
			cmd = cmd.Keys(w.shard.created, w.shard.attributes)
		}
	}
	cmd = cmd.Args(token, strconv.Itoa(len(batch)))
	for _, w := range batch {
		cmd = cmd.Args(cmp.Or(w.expect, w.created), w.value, w.deadline)
	}
	for i, w := range batch {
		if w.changesTerms() {
			cmd = cmd.Args(strconv.Itoa(i+1), w.gone, w.added)
		}
	}
	return cmd.Build()
}

// run is one run of a script.
type run struct{ keys, args []string }

// evalAll runs a script several times, in one round trip to each server, and adds up the
// numbers that it answers. If one run fails, others may have succeeded.
//
// A server that doesn't know the script hasn't run it, so evalAll sends it again as text. The
// client follows redirections, which also mean that nothing ran. After any other error it
// sends nothing again.
func (s *Store) evalAll(ctx context.Context, sc *script, runs []run) (sum int, err error) {
	c := s.link.client()
	for text := false; len(runs) > 0; text = true {
		cmds := make([]rueidis.Completed, len(runs))
		for i := range runs {
			cmds[i] = sc.command(c.B(), &runs[i], text)
		}
		answers, failed := s.ask(ctx, c, cmds...)
		if failed != nil {
			return sum, failed
		}
		var unknown []run
		for i, answer := range answers {
			n, failed := answer.AsInt64()
			if answerWord(failed) == noScript && !text {
				unknown = append(unknown, runs[i])
				continue
			}
			err = cmp.Or(failed, err)
			sum += int(n)
		}
		runs = unknown
	}
	return sum, err
}
