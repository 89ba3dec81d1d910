//go:build !race

package service_test

import (
	"encoding/base64"
	"fmt"
	"maps"

	"strings"
	"testing"

	"github.com/semelhq/semel/door/ids/whatsapp"
)

// webhookSources are all that are built in, with the file of the secret.
var webhookSources = map[string]string{
	"acp": "secret", "adyen": "hex", "adyen-header": "hex", "github": "secret", "paddle": "secret", "shopify": "secret", "shopify-events": "secret",
	"slack": "secret", "square": "secret", "standard-webhooks": "base64", "standard-webhooks-ed25519": "public", "stripe": "secret", "svix": "base64", "whatsapp": "secret",
}

// repeat is a body of about size bytes: head, what item makes again and again with commas
// between, and tail.
func repeat(size int, head string, item func(i int) string, tail string) string {
	return repeated(size, ",", head, item, tail)
}

func repeated(size int, between, head string, item func(i int) string, tail string) string {
	var b strings.Builder
	b.WriteString(head)
	for i := 0; b.Len() < size; i++ {
		if i > 0 {
			b.WriteString(between)
		}
		b.WriteString(item(i))
	}
	b.WriteString(tail)
	return b.String()
}

func the(item string) func(int) string { return func(int) string { return item } }

// signs are characters that need no escape, the last in order first.
const signs = "~}|{zyxwvutsrqponmlkjihgfedcbaZYXWVUTSRQPONMLKJIHGFEDCBA@?>=;:987654321"

// short is the i-th of the shortest names, no two alike, in the order that costs most to
// put right.
func short(length, i int) string {
	name := make([]byte, length)
	for at := range name {
		name[len(name)-1-at] = signs[i%len(signs)]
		i /= len(signs)
	}
	return string(name)
}

// names are members of an object, no two alike.
func names(i int) string { return `"` + short(3, i) + `":0` }

// objects are objects of few hundred members with names as short as can be.
func objects(members int) func(int) string {
	return the(repeat(7*members, "{", func(i int) string { return `"` + short(2, i) + `":0` }, "}"))
}

// nested is a value of about size bytes: objects in objects, all of them with many members.
func nested(size, members, length int) string {
	level := repeat(members*(length+5), "", func(i int) string { return `"` + short(length, i) + `":0` }, "")
	depth := min(size/(len(level)+6), 900)
	return strings.Repeat(`{"0":`, depth) + "0" + strings.Repeat(","+level+"}", depth)
}

// values are values that are costly to read, by what they are made of.
func values(size int) map[string]string {
	return map[string]string{
		"members":       repeat(size, "{", names, "}"),
		"large numbers": repeat(size, "[", the("1e20"), "]"),
		"numbers":       repeat(size, "[", the("1"), "]"),
		"empty objects": repeat(size, "[", the("{}"), "]"),
		"pairs":         repeat(size, "[", the(`{"b":0,"a":0}`), "]"),
		"large objects": repeat(size-20_000, "[", objects(2000), "]"),
		"nested":        nested(size, 1500, 2),
		"nested deeper": nested(size, 70, 1),
		"a string":      `"` + strings.Repeat(`\u00e9`, size/6) + `"`,
		"escaped names": repeat(size, "{", func(i int) string { return `"\u0061` + short(3, i) + `":0` }, "}"),
		"broken":        repeat(size, "[", the("{}"), ""),
	}
}

// worst are those of the values that are read in the most different ways.
func worst(size int) map[string]string {
	all := values(size)
	maps.DeleteFunc(all, func(made, _ string) bool {
		return made != "members" && made != "nested" && made != "empty objects" && made != "escaped names"
	})
	return all
}

// worstBodies are what is posted to each door, with the credential of a caller.
func worstBodies(t *testing.T, as []string) map[string]worstBody {
	all := map[string]worstBody{}
	add := func(name, door, body string, header ...string) {
		all[name] = worstBody{door: door, body: body, header: header}
	}
	count := func(name, door, body string, header ...string) {
		all[name] = worstBody{door: door, body: body, header: header, counted: true}
	}
	for _, some := range []map[string]worstBody{hookBodies(t), apiBodies(as)} {
		maps.Copy(all, some)
	}

	kinds := []string{"Content-Type", "application/activity+json"}
	activity := func(host string) string {
		return `{"id":"https://` + host + `/SEQ","type":"Like","actor":"https://` + host + `/u",`
	}
	for made, v := range values(500_000) {
		add("inbox, "+made, "/inbox", activity("proto.example")+`"object":`+v+"}", kinds...)
	}
	for made, v := range worst(500_000) {
		add("inbox, unsigned, "+made, "/inbox", activity("a.example")+`"object":`+v+"}", kinds...)
		add("inbox, proof, "+made, "/inbox", activity("proto.example")+`"object":"x","proof":`+v+"}", kinds...)
		add("inbox, only "+made, "/inbox", v, kinds...)
	}
	add("inbox, members of its own", "/inbox", repeat(900_000, activity("proto.example")+`"object":"x",`, names, `}`), kinds...)
	add("inbox, recipients", "/inbox", repeat(900_000, activity("proto.example")+`"object":"x","to":[`, the(`"a"`), `]}`), kinds...)
	add("inbox, beside a proof", "/inbox", repeat(900_000, activity("proto.example")+`"object":"x","proof":{},"x":{`, names, `}}`), kinds...)

	const protocol = `{"protocol":{"name":"forrst","version":"0.1.0"},"id":"r"`
	call := protocol + `,"call":{"function":"pay","arguments":{}}`
	const keyed = `,"extensions":[{"urn":"urn:forrst:ext:idempotency","options":{"key":"SEQ"}}]`
	for made, v := range values(500_000) {
		add("forrst, arguments, "+made, "/forrst", protocol+keyed+`,"call":{"function":"pay","arguments":{"a":`+v+"}}}", as...)
	}
	for made, v := range worst(500_000) {
		add("forrst, extensions, "+made, "/forrst", call+`,"extensions":`+v+"}", as...)
		add("forrst, only "+made, "/forrst", v, "Authorization", "Basic made-up")
	}
	add("forrst, wrong extensions", "/forrst", repeat(1<<20-512, call+`,"extensions":[`, the(`{"urn":"x","y":1}`), `]}`), as...)
	add("forrst, members", "/forrst", repeat(1<<20-512, call+`,`, names, `}`), as...)
	add("forrst, members of a call", "/forrst", repeat(1<<20-512, protocol+`,"call":{`, names, `}}`), as...)
	add("forrst, members of the arguments", "/forrst", repeat(1<<20-512, protocol+keyed+`,"call":{"function":"pay","arguments":{`, names, `}}}`), as...)
	add("forrst, long names", "/forrst", repeat(1<<20-60_000, call+`,`, func(i int) string { return fmt.Sprintf(`"%d%s":0`, i, strings.Repeat("~", 50_000)) }, `}`), as...)

	const message = `{"message":{"messageId":"SEQ","role":"ROLE_USER","parts":`
	for made, v := range values(1 << 20) {
		add("agent, parts, "+made, "/agent/message:send", message+v+"}}", as...)
		add("agent, JSON-RPC, "+made, "/agent", `{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":`+message+v+"}}}", as...)
	}
	for made, v := range worst(1 << 20) {
		add("agent, metadata, "+made, "/agent/message:send", message+`[],"metadata":`+v+`},"metadata":`+v+"}", as...)
		add("agent, only "+made, "/agent", v, as...)
	}
	mcp := append([]string{"MCP-Protocol-Version", "2025-11-25"}, as...)
	const tool = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"pay","_meta":{"idempotency-key":"SEQ"},"arguments":`
	for made, v := range worst(4<<20 - 512) {
		add("tool, only "+made, "/mcp", v, mcp...)
		add("tool, arguments, "+made, "/mcp", tool+v+"}}", mcp...)
		add("tool, fields, "+made, "/mcp", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"refund","arguments":{"a":`+v+"}}}", mcp...)
	}
	add("agent, members of the message", "/agent/message:send", repeat(4<<20-512, message+`[],`, names, `}}`), as...)
	add("agent, members", "/agent", repeat(4<<20-512, `{"jsonrpc":"2.0","id":1,`, names, `}`), as...)

	const envelope = `{"tenant_id":"acme","actor_id":"alice","intent":{"entity":"order","action":"ship","target":`
	for made, v := range values(250 << 10) {
		all["commands, arguments, "+made] = worstBody{door: "/v1/commands", body: envelope + `"SEQ"},"args":{"a":` + v + "}}", header: as, counted: made == "escaped names"}
	}
	for made, v := range worst(250 << 10) {
		add("commands, targets, "+made, "/v1/commands", envelope+v+"}}", as...)
		add("commands, only "+made, "/v1/commands", v, as...)
	}
	add("commands, members", "/v1/commands", repeat(250<<10, envelope+`"SEQ"},`, names, `}`), as...)

	const mandates, entity = "/commerce/mandates", `{"entity":"user","id":"SEQ","version":1,"time":"2026-01-01T00:00:00Z","origin":"other","content":`
	for made, v := range values(250 << 10) {
		add("mandates, an intent, "+made, mandates, `{"intent":{"SEQ":`+v+`}}`, as...)
		add("mandates, data, "+made, mandates, `{"intent":{"a":"SEQ"},"data":`+v+`}`, as...)
	}
	for made, v := range worst(500_000) {
		add("mandates, a cart, "+made, mandates, `{"session":"SEQ","cart":`+v+`}`, as...)
		add("mandates, only "+made, mandates, v, as...)
		add("sessions, attributes, "+made, "/commerce/sessions", `{"device":"SEQ","attributes":`+v+`}`, as...)
		add("entities, "+made, "/commerce/changes", entity+v+`}`, as...)
	}
	add("mandates, lines", mandates, repeat(1<<20-512, `{"session":"SEQ","cart":{"currency":"USD","lines":[`, the(`{"variant":"a","quantity":1,"price":"1"}`), `]}}`), as...)
	add("mandates, members", mandates, repeat(1<<20-512, `{"session":"SEQ",`, names, `}`), as...)
	add("payments, members", "/commerce/payments", repeat(1<<20-512, `{"order":"SEQ",`, names, `}`), as...)
	count("mandates, as many lines as can be", mandates, repeat(97_000, `{"session":"SEQ","cart":{"currency":"USD","lines":[`, the(`{"variant":"a","quantity":1,"price":"1"}`), `]}}`), as...)

	keys := append([]string{"Idempotency-Key", "SEQ"}, as...)
	for made, v := range values(1 << 20) {
		add("route, "+made, "/pay", v, keys...)
	}
	form := append([]string{"Content-Type", "application/x-www-form-urlencoded"}, keys...)
	for made, pair := range map[string]func(int) string{
		"pairs": the("a"), "no pairs": the(""), "named": func(i int) string { return short(3, i) }, "escaped": the("%61=%62"), "values": the("a=b"),
	} {
		add("route, a form of "+made, "/pay", repeated(1<<20, "&", "", pair, ""), form...)
	}
	parts := append([]string{"Content-Type", "multipart/form-data; boundary=b"}, keys...)
	add("route, parts", "/pay", repeated(1<<20, "", "", the("--b\r\n\r\n\r\n"), "--b--"), parts...)
	add("route, headers of parts", "/pay", repeated(1<<20, "", "--b\r\n", func(i int) string { return short(3, i%300_000) + ":\r\n" }, "\r\n--b--"), parts...)
	add("route, parts with headers", "/pay", repeated(1<<20, "", "", the("--b\r\n"+strings.Repeat("A:\r\n", 250)+"\r\n\r\n"), "--b--"), parts...)
	add("route, a long part", "/pay", repeated(1<<20, "", "--b\r\n\r\n", the("\r\n--a"), "\r\n--b--"), parts...)
	count("inbox, as many recipients as can be", "/inbox", activity("proto.example")+`"object":"x","to":[`+strings.Repeat(`"https://a.example/u",`, 999)+`"https://b.example"]}`, kinds...)
	count("route, as many parts as can be", "/pay", strings.Repeat("--b\r\n"+strings.Repeat("A:\r\n", 20)+"\r\n\r\n", 1000)+"--b--", parts...)
	count("route, as many pairs as can be", "/pay", strings.Repeat("a&", 1000), form...)
	count("forrst, as many arguments as can be", "/forrst", repeat(155_000, protocol+keyed+`,"call":{"function":"pay","arguments":{`, names, `}}}`), as...)
	count("commands, as many arguments as can be", "/v1/commands", repeat(155_000, envelope+`"SEQ"},"args":{`, names, `}}`), as...)
	return all
}

// hookBodies are for all kinds of webhooks.
func hookBodies(t *testing.T) map[string]worstBody {
	all := map[string]worstBody{}
	for source := range webhookSources {
		sign := func(body string, header []string) []string {
			secret := map[string]string{
				"hex": strings.Repeat("ab", 32), "secret": hookSecret, "base64": "whsec_" + base64.StdEncoding.EncodeToString([]byte(hookSecret)),
			}[webhookSources[source]]
			return signedAs(t, source, secret, body, header...)
		}
		header := []string{
			"X-GitHub-Delivery", "SEQ", "X-GitHub-Event", "push", "X-Shopify-Event-Id", "SEQ", "X-Shopify-Topic", "t", "X-Shopify-Shop-Domain", "d",
			"Shopify-Event-Id", "SEQ", "Shopify-Topic", "t", "Shopify-Shop-Domain", "d", "webhook-id", "SEQ", "svix-id", "SEQ",
		}
		for made, v := range worst(500_000) {
			event := `{"id":"SEQ","event_id":"SEQ","type":"a","event_type":"a","event":{"type":"a"},"data":{"id":"SEQ","x":` + v + `}}`
			all[source+", unsigned, "+made] = worstBody{door: "/" + source, body: v, header: header}
			if source != "standard-webhooks-ed25519" && source != "adyen" {
				all[source+", "+made] = worstBody{door: "/" + source, body: event, header: header, sign: sign}
			}
		}
	}
	add := func(name, door, body string) { all[name] = worstBody{door: door, body: body} }
	add("adyen, items that aren't", "/adyen", repeat(4<<20-512, `{"notificationItems":[`, the(`{"NotificationRequestItem":1}`), `]}`))
	add("adyen, items unsigned", "/adyen", repeat(4<<20-512, `{"notificationItems":[`, the(`{"NotificationRequestItem":{"additionalData":{"hmacSignature":"coqCmt/IZ4E3CzPvMY8zTjQVL5hYJUiBRg8UU+iCWo0="},"pspReference":"p","eventCode":"e"}}`), `]}`))
	add("adyen, numbers", "/adyen", repeat(4<<20-512, `{"notificationItems":[`, the("1"), `]}`))
	add("adyen, members", "/adyen", repeat(4<<20-512, `{"notificationItems":[],`, names, `}`))

	meta := func(body string, _ []string) []string {
		return []string{whatsapp.SignatureHeader, whatsapp.Sign(hookSecret, []byte(body))}
	}
	for _, door := range []string{"/messages", "/whatsapp"} {
		const head = `{"object":"whatsapp_business_account","entry":[`
		const messages = head + `{"changes":[{"field":"messages","value":{"metadata":{"phone_number_id":"1"},"messages":[`
		for made, body := range map[string]string{
			"entries":          repeat(900_000, head, the("{}"), "]}"),
			"no entries":       repeat(900_000, head, the("1"), "]}"),
			"changes":          repeat(900_000, head+`{"changes":[`, the("{}"), "]}]}"),
			"lists of changes": repeat(900_000, head, the(`{"changes":[1]}`), "]}"),
			"values":           repeat(900_000, head+`{"changes":[`, the(`{"field":"messages","value":{}}`), "]}]}"),
			"wrong values":     repeat(900_000, head+`{"changes":[`, the(`{"field":"messages","value":1}`), "]}]}"),
			"no messages":      repeat(900_000, messages, the("1"), "]}}]}]}"),
			"messages":         repeat(900_000, messages, func(i int) string { return fmt.Sprintf(`{"id":"SEQ.%d"}`, i) }, "]}}]}]}"),
			"statuses":         repeat(900_000, strings.Replace(messages, `"messages":[`, `"statuses":[`, 1), the("{}"), "]}}]}]}"),
			"members":          repeat(900_000, head+"],", names, "}"),
			"a long message":   repeat(60_000, messages+`{"id":"SEQ",`, names, "}]}}]}]}"),
		} {
			all[door+", "+made] = worstBody{door: door, body: body, sign: meta}
		}
		for made, v := range worst(500_000) {
			all[door+", only "+made] = worstBody{door: door, body: v, sign: meta}
		}
	}
	return all
}

// apiBodies are for the execution API.
func apiBodies(as []string) map[string]worstBody {
	all := map[string]worstBody{}
	const executions = "/v1/operations/default/executions"
	keyed := append([]string{"Idempotency-Key", "SEQ"}, as...)
	add := func(name, door, body string, header ...string) {
		all[name] = worstBody{door: door, body: body, header: header}
	}
	for made, v := range values(500_000) {
		add("execution, payload, "+made, executions, `{"payload":`+v+"}", keyed...)
	}
	for made, v := range worst(500_000) {
		add("execution, attributes, "+made, executions, `{"attributes":`+v+"}", keyed...)
		add("execution, only "+made, executions, v, keyed...)
	}
	for made, v := range values(1 << 20) {
		add("batch, payload, "+made, "/v1/batch", `{"items":[{"begin":{"operation":"default","key":"SEQ","payload":`+v+"}}]}", as...)
		add("batch, result, "+made, "/v1/batch", `{"items":[{"complete":{"execution":"x.1","result":`+v+"}}]}", as...)
	}
	for made, v := range worst(1 << 20) {
		add("batch, only "+made, "/v1/batch", v, as...)
		add("batch, items, "+made, "/v1/batch", `{"items":`+v+"}", as...)
	}
	for made, n := range map[string]int{"some": 900, "as many as can be": 9_900} {
		add := func(name, door, body string, header ...string) {
			all[name] = worstBody{door: door, body: body, header: header, counted: true}
		}
		add("batch, "+made+" items that are empty", "/v1/batch", `{"items":[`+strings.Repeat("{},", n/2)+"{}]}", as...)
		add("batch, "+made+" items that are none", "/v1/batch", `{"items":[`+strings.Repeat("1,", n)+"1]}", as...)
		add("batch, "+made+" members", "/v1/batch", repeat(8*n, "{", names, "}"), as...)
		add("execution, "+made+" members", executions, repeat(8*n, "{", names, "}"), keyed...)
		add("execution, "+made+" attributes", executions, repeat(8*n, `{"attributes":{`, names, "}}"), keyed...)
	}

	return all
}
