package main

import (
	"strings"
	"testing"
)

func TestMutationsOfSQL(t *testing.T) {
	src := "package p\n\nfunc f() string {\n\treturn \"UPDATE t SET a = $1 \" + x + \" WHERE b <= $2 AND c IS NULL\"\n}\n"
	line := func(s string) string { return " => return " + s }
	compareLists(t, changes(t, src), []string{
		"f: = becomes <> in UPDATE t SET a = $1" + line(`"UPDATE t SET a <> $1 " + x + " WHERE b <= $2 AND c IS NULL"`),
		"f: <= becomes < in WHERE b <= $2 AND c IS NULL" + line(`"UPDATE t SET a = $1 " + x + " WHERE b < $2 AND c IS NULL"`),
		"f: AND becomes OR in WHERE b <= $2 AND c IS NULL" + line(`"UPDATE t SET a = $1 " + x + " WHERE b <= $2 OR c IS NULL"`),
		"f: IS NULL becomes IS NOT NULL in WHERE b <= $2 AND c IS NULL" + line(`"UPDATE t SET a = $1 " + x + " WHERE b <= $2 AND c IS NOT NULL"`),
	})
}

func TestMutationsOfLua(t *testing.T) {
	script := strings.Join([]string{
		"local n = redis.call('GET', KEYS[1])",
		"if n == ARGV[1] and not x then return 0 end",
		"call('SET', KEYS[1], n, 'NX', 'GET')",
		"made[#made + 1] = n",
		"return made",
	}, "\n")
	src := "package p\n\nvar s = new(`" + script + "`)\n"
	first, second, third, fourth := "local n = redis.call('GET', KEYS[1])", "if n == ARGV[1] and not x then return 0 end", "call('SET', KEYS[1], n, 'NX', 'GET')", "made[#made + 1] = n"
	compareLists(t, changes(t, src), []string{
		"s: == becomes ~= in " + second + " => if n ~= ARGV[1] and not x then return 0 end",
		"s: and becomes or in " + second + " => if n == ARGV[1] or not x then return 0 end",
		"s: drop not in " + second + " => if n == ARGV[1] and x then return 0 end",
		"s: drop 'NX', in " + third + " => call('SET', KEYS[1], n, 'GET')",
		"s: + becomes - in " + fourth + " => made[#made - 1] = n",
		"s: 1 becomes 2 in " + first + " => var s = new(`local n = redis.call('GET', KEYS[2])",
		"s: drop the line " + second + " => ",
		"s: 1 becomes 2 in " + second + " => if n == ARGV[2] and not x then return 0 end",
		"s: 0 becomes 1 in " + second + " => if n == ARGV[1] and not x then return 1 end",
		"s: drop the line " + third + " => ",
		"s: 1 becomes 2 in " + third + " => call('SET', KEYS[2], n, 'NX', 'GET')",
		"s: drop the line " + fourth + " => ",
		"s: 1 becomes 2 in " + fourth + " => made[#made + 2] = n",
	})
}
