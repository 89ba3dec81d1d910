package redisstore

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"strings"

	"github.com/redis/rueidis"
)

// script is one that servers keep by the digest of its text.
type script struct{ text, sha string }

func newScript(text string) *script {
	sum := sha1.Sum([]byte(text)) // the name that the protocol asks for
	return &script{text, hex.EncodeToString(sum[:])}
}

// byDigest is the command that runs it on a server that knows it.
func (sc *script) byDigest(b rueidis.Builder, keys, args []string) rueidis.Completed {
	return b.Evalsha().Sha1(sc.sha).Numkeys(int64(len(keys))).Key(keys...).Arg(args...).Build()
}

// byText is the one that runs it on any, which then knows it.
func (sc *script) byText(b rueidis.Builder, keys, args []string) rueidis.Completed {
	return b.Eval().Script(sc.text).Numkeys(int64(len(keys))).Key(keys...).Arg(args...).Build()
}

// A value begins with its head, when it is due in 16 digits, and the record follows; in
// its encoding the revision follows the format's one byte. A digest is the end of a
// record's key.
//
// A script that writes nothing has nothing to undo, and one that writes does so
// after the last condition of the write. What writes first is refused whole where
// memory is full; once a script has written, the server lets it go on.
var (
	// scriptWrite makes writes, one after the other. It answers the token that it is
	// given, how many writes it has made, and of each other one its number and why: the
	// value that is there, nil where there is none, or the error that kept it from being
	// made, which keeps no other from it. So nothing has to be inferred: made and named
	// ones are all that were sent.
	//
	// To claim is to store a record where there is none. All claims that were made get
	// one entry of the stream, of their digests and places; where it can't be added, they
	// are taken back, or nobody would find those records. So no run has an update of a
	// record that it claims itself, see [batcher.take]: it would be taken back too. To
	// update is to replace the record that has the expected revision. Only a record that
	// is due earlier than before needs another due entry. Where the due index is something
	// else and can't be written, [Store.Due] can't read it either, and says so; nothing
	// else keeps ZADD from it, for a server refuses the first change of a script or none.
	//
	// A write that nothing else keeps from being made is too late at its deadline, by the
	// server's clock, which is read once, and only where there are deadlines.
	//
	// Whatever a command refuses is an answer to its write: an error raised in the middle
	// would end the script, and leave claims without their entry. What is left of "call"
	// can't be refused: it reads a text that is there, or deletes.
	//
	// Lua copies each text that it is given and hashes all of it, which takes as long for
	// a value of 1 KiB as to store it. So there is another way to give it values, see
	// [stage.eval]. Numbers as arguments of commands would be printed as floats.
	//
	// KEYS, all of one shard and so of one slot: due, new; then of each write its record
	// and, if it is staged, the value's.
	// ARGV: a token; then of each write the expected revision and when it is due, or of a
	// claim "", and its place and when it is due, unless that can wait; the value, "" if it
	// is staged; and the deadline in microseconds, "" for none.
	scriptWrite = newScript(`local call, pcall, sub = redis.call, redis.pcall, string.sub
local due, new = KEYS[1], KEYS[2]
local others, made, numbers, arrived = {}, {}, {}, {}
local now
local function late(deadline)
	if deadline == '' then return end
	if not now then
		local t = call('TIME')
		now = t[1] * 1000000 + t[2]
	end
	return now >= tonumber(deadline)
end
local too_late = {err = '` + tooLate + `'}
local function claim(key, at, value, staged, deadline)
	if late(deadline) then return pcall('GET', key) or too_late end
	if staged then
		local named = pcall('RENAMENX', staged, key)
		if named == 0 then return pcall('GET', key) end
		if named ~= 1 then return named end
	else
		local old = pcall('SET', key, value, 'NX', 'GET')
		if old then return old end
	end
	local digest = sub(key, -32)
	if #at > 16 then
		pcall('ZADD', due, sub(at, 17), digest)
		at = sub(at, 1, 16)
	end
	made[#made + 1] = key
	arrived[#made] = digest .. at
end
local function update(key, expect, at, value, staged, deadline)
	local head = pcall('GETRANGE', key, '0', '32')
	if type(head) == 'table' then return head end
	if sub(head, 18) ~= expect then return call('GET', key) end
	if late(deadline) then return too_late end
	local set
	if staged then set = pcall('RENAME', staged, key) else set = pcall('SET', key, value) end
	if set.err then return set end
	if at < sub(head, 1, 16) then pcall('ZADD', due, at, sub(key, -32)) end
end
local function not_made(n, instead)
	others[#others + 1] = n
	others[#others + 1] = instead
end
local k, n = 2, 0
for a = 2, #ARGV, 4 do
	local expect, at, value, deadline = ARGV[a], ARGV[a + 1], ARGV[a + 2], ARGV[a + 3]
	local key, staged, instead
	k, n = k + 1, n + 1
	key = KEYS[k]
	if value == '' then
		k = k + 1
		staged = KEYS[k]
	end
	if expect == '' then
		instead = claim(key, at, value, staged, deadline)
		if instead == nil then numbers[#made] = n end
	else
		instead = update(key, expect, at, value, staged, deadline)
	end
	if instead ~= nil then not_made(n, instead) end
end
if #made > 0 then
	local added = pcall('XADD', new, '*', '', table.concat(arrived))
	if added.err then
		for i, key in ipairs(made) do
			call('DEL', key)
			not_made(numbers[i], added)
		end
	end
end
return {ARGV[1], n - #others / 2, unpack(others)}`)

	// scriptIndex gives records the due entries that they ought to have, and those that
	// come from the stream their places: the latest, for a record may have been purged and
	// stored anew since. What has no head that can be read is left where it is, or due at
	// once if it comes from the stream, so that whoever reads it next tells of it.
	//
	// KEYS: due, born, new, records. ARGV, if they come from the stream: of how many
	// entries; the names of those; and the places of the records.
	scriptIndex = newScript(`local due, born, new, entries = KEYS[1], KEYS[2], KEYS[3], tonumber(ARGV[1] or 0)
local add, drop, places = {}, {}, {}
for i = 4, #KEYS do
	local at = redis.pcall('GETRANGE', KEYS[i], '0', '15')
	local d = string.sub(KEYS[i], -32)
	if type(at) == 'table' or at ~= '' and not string.match(at, '^` + strings.Repeat("%d", headLen) + `$') then
		at = entries > 0 and '0' or nil
	end
	if at == '' or at == '` + neverDue + `' then
		drop[#drop + 1] = d
	elseif at then
		add[#add + 1] = at
		add[#add + 1] = d
	end
	if at and at ~= '' and entries > 0 then
		places[#places + 1] = ARGV[entries + i - 2]
		places[#places + 1] = d
	end
end
if #add > 0 then redis.call('ZADD', due, unpack(add)) end
if #drop > 0 then redis.call('ZREM', due, unpack(drop)) end
if #places > 0 then redis.call('ZADD', born, 'GT', unpack(places)) end
if entries > 0 then redis.call('XDEL', new, unpack(ARGV, 2, entries + 1)) end`)

	// scriptPurge deletes the records that have the given revisions, with their entries,
	// and returns how many. What is no record has none.
	// KEYS: due, born, records. ARGV: their revisions.
	scriptPurge = newScript(`local n = 0
for i = 3, #KEYS do
	if redis.pcall('GETRANGE', KEYS[i], '17', '32') == ARGV[i - 2] then
		redis.call('UNLINK', KEYS[i])
		redis.call('ZREM', KEYS[1], string.sub(KEYS[i], -32))
		redis.call('ZREM', KEYS[2], string.sub(KEYS[i], -32))
		n = n + 1
	end
end
return n`)

	// scriptForget removes the entries of a record that is gone without them: somebody
	// else has deleted it, or the server has evicted it.
	// KEYS: due, born, record.
	scriptForget = newScript(`if redis.call('EXISTS', KEYS[3]) == 1 then return end
redis.call('ZREM', KEYS[1], string.sub(KEYS[3], -32))
redis.call('ZREM', KEYS[2], string.sub(KEYS[3], -32))`)

	// scriptCome notes how far the clock has come, see clock.go.
	// KEYS: the note. ARGV: microseconds.
	scriptCome = newScript(`if tonumber(ARGV[1]) > tonumber(redis.call('GET', KEYS[1]) or '0') then
	redis.call('SET', KEYS[1], ARGV[1])
end`)
)

// tooLate is the error of a write that met its deadline.
const tooLate = "TOOLATE"

// eval runs a script on keys of one slot. A server that does not know the script
// has not run it, so it is sent again with its text, by which the server keeps it.
// Redirections are followed by the client: they too say that nothing was run. No
// other error is a reason to send it again.
func eval(ctx context.Context, c rueidis.CoreClient, sc *script, keys, args []string) rueidis.RedisResult {
	res := c.Do(ctx, sc.byDigest(c.B(), keys, args))
	if isUnknownScript(res.Error()) {
		res = c.Do(ctx, sc.byText(c.B(), keys, args))
	}
	return res
}

// run is one run of a script among several.
type run struct{ keys, args []string }

// spread collects runs for records of several shards, up to so many in each.
type spread struct {
	most int
	open map[*shard]*run
	full []run
}

// of is the run that takes another record of a shard: keys names what it begins with.
func (s *spread) of(sh *shard, keys ...string) *run {
	r := s.open[sh]
	if r != nil && len(r.keys) == len(keys)+s.most {
		s.full = append(s.full, *r)
		r = nil
	}
	if r == nil {
		if s.open == nil {
			s.open = map[*shard]*run{}
		}
		r = &run{keys: keys}
		s.open[sh] = r
	}
	return r
}

// runs are all of them.
func (s *spread) runs() []run {
	for _, r := range s.open {
		s.full = append(s.full, *r)
	}
	return s.full
}

// evalAll is eval for many runs of a script, which share a round trip to each
// server.
func evalAll(ctx context.Context, c rueidis.Client, sc *script, runs []run) []rueidis.RedisResult {
	cmds := make([]rueidis.Completed, len(runs))
	for i, r := range runs {
		cmds[i] = sc.byDigest(c.B(), r.keys, r.args)
	}
	results := c.DoMulti(ctx, cmds...)
	for i, r := range runs {
		if isUnknownScript(results[i].Error()) {
			results[i] = eval(ctx, c, sc, r.keys, r.args)
		}
	}
	return results
}

func isUnknownScript(err error) bool {
	e, ok := errors.AsType[*rueidis.RedisError](err)
	return ok && e.IsNoScript()
}
