package redisstore

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"strconv"

	"github.com/redis/rueidis"
)

// script is one that servers keep by the digest of its text.
type script struct{ text, sha string }

func newScript(text string) *script {
	sum := sha1.Sum([]byte(text)) // the name that the protocol asks for
	return &script{text, hex.EncodeToString(sum[:])}
}

// A value begins with its head, the place of its identity and when it is due, 27
// and 16 digits, and the record follows; in its encoding the revision follows the
// format's one byte. A digest is the end of a record's key.
//
// A script that writes nothing has nothing to undo, and one that writes does so
// after its last condition. What writes first is refused whole where memory is
// full.
var (
	// scriptClaim stores a record where there is none, and returns its
	// revision, or the value that is there. A place that is not above all
	// earlier ones, because the clocks of callers differ by a little or their
	// calls have overtaken each other, becomes the next one. Such a place does
	// not tell when the record was stored, so it gets its due entry at once.
	// KEYS: record, due, born. ARGV: value, "" where the due entry can wait.
	scriptClaim = newScript(`local old = redis.call('SET', KEYS[1], ARGV[1], 'NX', 'GET')
if old then return old end
local d = string.sub(KEYS[1], -32)
local index = ARGV[2] ~= ''
local added = redis.pcall('XADD', KEYS[3], string.sub(ARGV[1], 1, 27), '', d)
if type(added) == 'table' and added.err then
	local info = redis.call('XINFO', 'STREAM', KEYS[3])
	for i = 1, #info, 2 do
		if info[i] == 'last-generated-id' then
			local high, low = string.match(info[i + 1], '(%d+)-(%d+)')
			added = redis.call('XADD', KEYS[3], high .. string.format('-%.0f', tonumber(low) + 1), '', d)
			redis.call('SETRANGE', KEYS[1], 0, added)
		end
	end
	index = string.sub(ARGV[1], 28, 43) ~= '` + neverDue + `'
end
if index then redis.call('ZADD', KEYS[2], string.sub(ARGV[1], 28, 43), d) end
return string.sub(ARGV[1], 45, 60)`)

	// scriptUpdate replaces the record that has the expected revision, which
	// keeps its place, and returns the new revision, or the value that is
	// there, or nil. The value has the place that the record's own time gives,
	// which is the right one as a rule: to put it right afterwards, if it is
	// not, costs less than to put every value together here. Only a record that
	// is due earlier than before needs another due entry.
	// KEYS: record, due. ARGV: value, expected revision.
	scriptUpdate = newScript(`local head = redis.call('GETRANGE', KEYS[1], 0, 59)
if string.sub(head, 45) ~= ARGV[2] then return redis.call('GET', KEYS[1]) end
redis.call('SET', KEYS[1], ARGV[1])
local place = string.sub(head, 1, 27)
if string.sub(ARGV[1], 1, 27) ~= place then redis.call('SETRANGE', KEYS[1], 0, place) end
local at = string.sub(ARGV[1], 28, 43)
if at < string.sub(head, 28, 43) then redis.call('ZADD', KEYS[2], at, string.sub(KEYS[1], -32)) end
return string.sub(ARGV[1], 45, 60)`)

	// scriptIndex gives records the due entries that they ought to have. With
	// arguments it does so only if the index has come as far as the first one,
	// takes note that it has come as far as the second, and returns how far it
	// has come.
	// KEYS: due, indexed, records. ARGV: none, or two places, "" for none.
	scriptIndex = newScript(`if ARGV[1] then
	local at = redis.call('GET', KEYS[2]) or ''
	if at ~= ARGV[1] then return at end
end
local add, drop = {}, {}
for i = 3, #KEYS do
	local at = redis.call('GETRANGE', KEYS[i], 27, 42)
	local d = string.sub(KEYS[i], -32)
	if at == '' or at == '` + neverDue + `' then
		drop[#drop + 1] = d
	else
		add[#add + 1] = at
		add[#add + 1] = d
	end
end
if #add > 0 then redis.call('ZADD', KEYS[1], unpack(add)) end
if #drop > 0 then redis.call('ZREM', KEYS[1], unpack(drop)) end
if ARGV[2] then redis.call('SET', KEYS[2], ARGV[2]) end
return ARGV[2] or ''`)

	// scriptPurge deletes the records that have the given revisions, and
	// returns how many.
	// KEYS: due, born, records. ARGV: their revisions.
	scriptPurge = newScript(`local n = 0
for i = 3, #KEYS do
	local head = redis.call('GETRANGE', KEYS[i], 0, 59)
	if string.sub(head, 45) == ARGV[i - 2] then
		redis.call('UNLINK', KEYS[i])
		redis.call('ZREM', KEYS[1], string.sub(KEYS[i], -32))
		redis.call('XDEL', KEYS[2], string.sub(head, 1, 27))
		n = n + 1
	end
end
return n`)

	// scriptForget removes an index's entry of a record that is gone without
	// it: somebody else has deleted it, or the server has evicted it.
	// KEYS: record, index. ARGV: ZREM or XDEL, entry.
	scriptForget = newScript(`if redis.call('EXISTS', KEYS[1]) == 1 then return 0 end
return redis.call(ARGV[1], KEYS[2], ARGV[2])`)
)

// eval runs a script on keys of one slot. A server that does not know the script
// has not run it, so it is sent again with its text, by which the server keeps it.
// Redirections are followed by the client: they too say that nothing was run. No
// other error is a reason to send it again.
func eval(ctx context.Context, c rueidis.Client, sc *script, keys []string, args ...string) rueidis.RedisResult {
	res := c.Do(ctx, c.B().Evalsha().Sha1(sc.sha).Numkeys(int64(len(keys))).Key(keys...).Arg(args...).Build())
	if unknownScript(res) {
		res = c.Do(ctx, c.B().Eval().Script(sc.text).Numkeys(int64(len(keys))).Key(keys...).Arg(args...).Build())
	}
	return res
}

// run is one run of a script among several.
type run struct{ keys, args []string }

// evalAll is eval for many runs of a script, which share a round trip to each
// server.
func evalAll(ctx context.Context, c rueidis.Client, sc *script, runs []run) []rueidis.RedisResult {
	cmds := make([]rueidis.Completed, len(runs))
	for i, r := range runs {
		cmds[i] = c.B().Arbitrary("EVALSHA", sc.sha, strconv.Itoa(len(r.keys))).Keys(r.keys...).Args(r.args...).Build()
	}
	results := c.DoMulti(ctx, cmds...)
	for i, r := range runs {
		if unknownScript(results[i]) {
			results[i] = eval(ctx, c, sc, r.keys, r.args...)
		}
	}
	return results
}

func unknownScript(res rueidis.RedisResult) bool {
	err, ok := rueidis.IsRedisErr(res.Error())
	return ok && err.IsNoScript()
}
