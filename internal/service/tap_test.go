package service_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
)

// What doors tell is in the log, each with its level, its message and its attributes.
func TestTheLinesOfDoors(t *testing.T) {
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, `{"protocol":{"name":"forrst","version":"0.1.0"},"id":"req_1","result":{}}`)
	}))
	defer upstream.Close()
	s := start(t, write(t, strings.ReplaceAll(`
store: {url: 'memory:'}
auth: {default_tenant: acme, tokens: [{name: alice, sha256: 0c848abb03307b06cf70cd4e29c157dc81af5e94ab3eb1d0c59a120269572376}]}
operations: [{name: pay}, {name: try}, {name: rpc}]
forrst: [{path: /forrst, upstream: UPSTREAM, functions: [{name: charge, versions: [1.0.0], operation: rpc}]}]
routes:
  - {match: POST /pay, upstream: "http://127.0.0.1:1", operation: pay}
  - {match: POST /try, upstream: UPSTREAM, operation: try, mode: shadow}
`, "UPSTREAM", upstream.URL)))
	alice := []string{"Authorization", "Bearer alice-secret"}
	keyed := append(alice, "Idempotency-Key", "k")
	const call = `{"protocol":{"name":"forrst","version":"0.1.0"},"id":"req_%d","call":{"function":"charge","version":"1.0.0","arguments":{"n":%d}},` +
		`"extensions":[{"urn":"urn:forrst:ext:idempotency","options":{"key":"k"}}]}`
	for _, c := range []struct {
		path, body string
		header     []string
		status     int
	}{
		{"/pay", "{}", keyed, http.StatusBadGateway},
		{"/pay", "{}", keyed[2:], http.StatusUnauthorized},
		{"/try", "{}", keyed, http.StatusOK},
		{"/try", "{}", alice, http.StatusOK},
		{"/forrst", fmt.Sprintf(call, 1, 1), alice, http.StatusOK},
		{"/forrst", fmt.Sprintf(call, 2, 2), alice, http.StatusConflict},
		{"/forrst", fmt.Sprintf(call, 3, 1), nil, http.StatusUnauthorized},
		{"/forrst", "{", alice, http.StatusBadRequest},
	} {
		if status, _, text := do(t, "POST", s.data(c.path), c.body, c.header...); status != c.status {
			t.Errorf("%s %s: %d %s", c.path, c.body, status, text)
		}
	}
	for _, line := range []string{
		`level=WARN msg="upstream failed" route="POST /pay" error=.+`,
		`level=INFO msg=delivery door=http operation=pay decision="" .*code=unidentified .*status=401 .*error="the request has no credential"`,
		`level=INFO msg=delivery door=proxy operation=try .* status=200 .* call=[0-9a-f]{32} verdict=execute key_by=header:Idempotency-Key would_code=""`,
		`level=INFO msg=delivery door=proxy operation=try .* status=200 .* call="" verdict=refuse key_by="" would_code=key_missing`,
		`level=INFO msg=delivery door=forrst operation=rpc decision=execute record=\S+ attempt=1 .*status=200 request_id=req_1 .*original_request="" function=charge version=1.0.0 forrst_status=processed forrst_code=""`,
		`level=WARN msg=delivery door=forrst operation=rpc decision=conflict record=\S+ attempt=1 .*status=409 request_id=req_2 .*original_request=req_1 function=charge version=1.0.0 forrst_status=conflict forrst_code=IDEMPOTENCY_CONFLICT`,
		`level=INFO msg=delivery door=forrst operation="" .*code=UNAUTHORIZED .*status=401 .*path=/forrst`,
	} {
		if found := regexp.MustCompile(`(?m)^time=\S+ `+line+`$`).FindAllString(s.log.String(), -1); len(found) != 1 {
			t.Errorf("%d lines %s:\n%s", len(found), line, s.log)
		}
	}
	if n := strings.Count(s.log.String(), "msg=delivery door=forrst "); n != 4 {
		t.Errorf("%d lines about 4 requests over Forrst", n)
	}
}
