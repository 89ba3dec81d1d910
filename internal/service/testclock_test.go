package service_test

import (
	"strings"
	"testing"

	"github.com/semelhq/semel/internal/service"
	"github.com/semelhq/semel/internal/service/auth"
)

func withTestClock(o *service.Options) { o.TestClock = true }

// A test in any language moves the clock over HTTP: windows pass, and leases end.
func TestTheTestClockMovesWindowsAndLeases(t *testing.T) {
	t.Parallel()
	s := startTraced(t, write(t, "store: {url: 'memory:'}\noperations: [{name: default, window: 24h, lease: 1m}]\n"), nil, withTestClock)
	begin := func(key string) (int, string) {
		status, _, text := do(t, "POST", s.data("/v1/operations/default/executions"), `{"payload":1}`, "Idempotency-Key", key)
		return status, text
	}
	move := func(by string, want int) {
		t.Helper()
		if status, _, text := do(t, "POST", s.admin("/test/clock?by="+by), ""); status != want || status == 200 && text != "moved\n" {
			t.Errorf("the clock moves by %q with %d: %s", by, status, text)
		}
	}
	_, text := begin("done")
	_, after, _ := strings.Cut(text, `"execution":"`)
	execution, _, _ := strings.Cut(after, `"`)
	if status, _, text := do(t, "POST", s.data("/v1/executions/"+execution+"/complete"), `{"result":{"receipt":1}}`); status != 200 {
		t.Fatalf("it completes with %d: %s", status, text)
	}
	if status, text := begin("done"); status != 200 || !strings.Contains(text, "receipt") {
		t.Errorf("within the window: %d: %s", status, text)
	}
	first, _ := begin("crashed")
	for _, bad := range []string{"", "soon", "-1h"} {
		move(bad, 400)
	}
	if status, text := begin("crashed"); status == first || strings.Contains(text, "outcome_unknown") {
		t.Errorf("a lease that nothing has ended: %d: %s", status, text)
	}
	move("2m", 200)
	if status, _, text := do(t, "GET", s.admin("/v1/records?q=state:held"), ""); status != 200 || !strings.Contains(text, "crashed") {
		t.Errorf("after the lease the call isn't held: %d: %s", status, text)
	}
	move("25h", 200)
	if status, text := begin("done"); status != first || strings.Contains(text, "receipt") {
		t.Errorf("after the window the key is no new call: %d: %s", status, text)
	}
}

// Nobody moves a clock without the option, on another store, or without being an admin of all tenants.
func TestTheTestClockIsThereOnlyWhereItWasAskedFor(t *testing.T) {
	t.Parallel()
	callers := "auth: {tokens: [{name: ada, tenant: acme, roles: [admin], sha256: " + auth.HashToken("ada") + "}, {name: root, roles: [admin], sha256: " + auth.HashToken(rootToken) + "}]}\n"
	memory := write(t, "store: {url: 'memory:'}\n"+callers)
	for _, c := range []struct {
		s                   *running
		nobody, tenant, all int
	}{
		{startTraced(t, memory, nil, withTestClock), 401, 403, 200},
		{start(t, memory), 404, 404, 404},
		{startTraced(t, write(t, "store: {url: 'pebble:"+t.TempDir()+"'}\n"+callers), nil, withTestClock), 404, 404, 404},
	} {
		for credential, want := range map[string]int{"": c.nobody, "Bearer ada": c.tenant, "Bearer " + rootToken: c.all} {
			header := []string{}
			if credential != "" {
				header = append(header, "Authorization", credential)
			}
			if status, _, text := do(t, "POST", c.s.admin("/test/clock?by=1h"), "", header...); status != want {
				t.Errorf("with %q: %d instead of %d: %s", credential, status, want, text)
			}
		}
	}
}
