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
// after the last condition of the write. What writes first is refused whole where
// memory is full; once a script has written, the server lets it go on.
var (
	// scriptWrite makes writes, one after the other, and answers each: with its
	// revision where it was made, and otherwise with the value that is there, nil, or
	// the error that kept it from being made.
	//
	// To claim is to store a record where there is none. A place that is not above all
	// earlier ones, because the clocks of callers differ by a little or their calls have
	// overtaken each other, becomes the next one. Such a place does not tell when the
	// record was stored, so it gets its due entry at once.
	//
	// To update is to replace the record that has the expected revision, which keeps its
	// place. The value has the place that the record's own time gives, which is the
	// right one as a rule: to put it right afterwards, if it is not, costs less than to
	// put every value together here. Only a record that is due earlier than before needs
	// another due entry.
	//
	// KEYS: of each record, due, born. ARGV: of each value, expected revision or "", ""
	// where the due entry of a claim can wait.
	scriptWrite = newScript(`local function claim(key, due, born, value, index)
	local old = redis.pcall('SET', key, value, 'NX', 'GET')
	if old then return old end
	local d = string.sub(key, -32)
	local added = redis.pcall('XADD', born, string.sub(value, 1, 27), '', d)
	if type(added) == 'table' and added.err then
		local info = redis.call('XINFO', 'STREAM', born)
		for i = 1, #info, 2 do
			if info[i] == 'last-generated-id' then
				local high, low = string.match(info[i + 1], '(%d+)-(%d+)')
				added = redis.call('XADD', born, high .. string.format('-%.0f', tonumber(low) + 1), '', d)
				redis.call('SETRANGE', key, 0, added)
			end
		end
		index = string.sub(value, 28, 43) ~= '` + neverDue + `'
	end
	if index then redis.call('ZADD', due, string.sub(value, 28, 43), d) end
	return string.sub(value, 45, 60)
end
local function update(key, due, value, expect)
	local head = redis.pcall('GETRANGE', key, 0, 59)
	if type(head) == 'table' then return head end
	if string.sub(head, 45) ~= expect then return redis.call('GET', key) end
	local set = redis.pcall('SET', key, value)
	if set.err then return set end
	local place = string.sub(head, 1, 27)
	if string.sub(value, 1, 27) ~= place then redis.call('SETRANGE', key, 0, place) end
	local at = string.sub(value, 28, 43)
	if at < string.sub(head, 28, 43) then redis.call('ZADD', due, at, string.sub(key, -32)) end
	return string.sub(value, 45, 60)
end
local answers = {}
for i = 1, #ARGV, 3 do
	local expect = ARGV[i + 1]
	if expect == '' then
		answers[#answers + 1] = claim(KEYS[i], KEYS[i + 1], KEYS[i + 2], ARGV[i], ARGV[i + 2] ~= '')
	else
		answers[#answers + 1] = update(KEYS[i], KEYS[i + 1], ARGV[i], expect)
	end
end
return answers`)

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
