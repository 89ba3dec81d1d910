package redisstore

import (
	"context"
	"crypto/sha1"
	"encoding/hex"

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

// A value begins with its head, the place of its identity and when it is due, 27
// and 16 digits, and the record follows; in its encoding the revision follows the
// format's one byte. A digest is the end of a record's key.
//
// A script that writes nothing has nothing to undo, and one that writes does so
// after the last condition of the write. What writes first is refused whole where
// memory is full; once a script has written, the server lets it go on.
var (
	// scriptWrite makes writes, one after the other. It answers the token that it is
	// given, so that an answer to another call can't be taken for this one's, and then of
	// each write that was not made its number and why: the value that is there, nil where
	// there is none, or the error that kept it from being made.
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
	// Lua copies each text that it is given and hashes all of it, which takes as long for
	// a value of 1 KiB as to store it. So there is another way to give it values, see
	// [stage.eval]. Numbers as arguments of commands would be printed as floats.
	//
	// KEYS: of each write, record and due; of a claim, born; and the value's, if it is
	// staged. ARGV: a token, and "staged" or ""; then of each write: place, due, expected
	// revision or, of a claim, "now" if its due entry can't wait and "" if it can; and the
	// value, if it is not staged.
	scriptWrite = newScript(`local call, pcall, sub = redis.call, redis.pcall, string.sub
local staged = ARGV[2] == 'staged'
local function claim(key, due, born, place, at, now, value)
	if staged then
		if call('RENAMENX', value, key) == 0 then return pcall('GET', key) end
	else
		local old = pcall('SET', key, value, 'NX', 'GET')
		if old then return old end
	end
	local digest = sub(key, -32)
	local added = pcall('XADD', born, place, '', digest)
	if type(added) == 'table' and added.err then
		local info = call('XINFO', 'STREAM', born)
		for i = 1, #info, 2 do
			if info[i] == 'last-generated-id' then
				local high, low = string.match(info[i + 1], '(%d+)-(%d+)')
				added = call('XADD', born, high .. string.format('-%.0f', tonumber(low) + 1), '', digest)
				call('SETRANGE', key, '0', added)
			end
		end
		now = at ~= '` + neverDue + `'
	end
	if now then call('ZADD', due, at, digest) end
end
local function update(key, due, place, at, expect, value)
	local head = pcall('GETRANGE', key, '0', '59')
	if type(head) == 'table' then return head end
	if sub(head, 45) ~= expect then return call('GET', key) end
	if staged then
		call('RENAME', value, key)
	else
		local set = pcall('SET', key, value)
		if set.err then return set end
	end
	local old = sub(head, 1, 27)
	if place ~= old then call('SETRANGE', key, '0', old) end
	if at < sub(head, 28, 43) then call('ZADD', due, at, sub(key, -32)) end
end
local answers, k, a, n = {ARGV[1]}, 1, 3, 1
while a < #ARGV do
	local key, due, place, at, expect = KEYS[k], KEYS[k + 1], ARGV[a], ARGV[a + 1], ARGV[a + 2]
	k, a = k + 2, a + 3
	local is_claim, born, value, instead = #expect < 16
	if is_claim then born, k = KEYS[k], k + 1 end
	if staged then value, k = KEYS[k], k + 1 else value, a = ARGV[a], a + 1 end
	if is_claim then
		instead = claim(key, due, born, place, at, expect ~= '', value)
	else
		instead = update(key, due, place, at, expect, value)
	end
	if instead ~= nil then
		answers[#answers + 1] = n
		answers[#answers + 1] = instead
	end
	n = n + 1
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
	local at = redis.call('GETRANGE', KEYS[i], '27', '42')
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
	local head = redis.call('GETRANGE', KEYS[i], '0', '59')
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
func eval(ctx context.Context, c rueidis.CoreClient, sc *script, keys, args []string) rueidis.RedisResult {
	res := c.Do(ctx, sc.byDigest(c.B(), keys, args))
	if isUnknownScript(res.Error()) {
		res = c.Do(ctx, sc.byText(c.B(), keys, args))
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
	e, ok := rueidis.IsRedisErr(err)
	return ok && e.IsNoScript()
}
