package cli

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/semelhq/semel/internal/rig/faultnet"
	"github.com/semelhq/semel/internal/rig/thorough"
)

// sdk is a client that people use, and the provider that it is made for.
type sdk struct {
	program  []string // as it is run in sdkDir
	packages string   // of npm, or empty
	profile  string   // or empty for the one that needs no flag
	tls      bool     // it speaks nothing else
	ownKeys  bool     // it makes keys by itself
	h2c      bool     // it offers to go on in HTTP/2
	path     string
	answer   func(id, order string) any
}

type object = map[string]any

var sdks = map[string]sdk{
	"stripe": {
		program: []string{"node", "stripe.mjs"}, packages: "stripe", profile: "stripe", ownKeys: true, path: "/v1/payment_intents",
		answer: func(id, order string) any {
			return object{"id": id, "object": "payment_intent", "amount": 1200, "currency": "eur", "status": "succeeded", "metadata": object{"order": order}}
		},
	},
	"adyen": {
		program: []string{"node", "adyen.mjs"}, packages: "@adyen/api-library", profile: "adyen", tls: true, path: "/v71/payments",
		answer: func(id, order string) any {
			return object{"pspReference": id, "resultCode": "Authorised", "merchantReference": order}
		},
	},
	"openai": {
		program: []string{"node", "openai.mjs"}, packages: "openai", path: "/v1/chat/completions",
		answer: func(id, order string) any {
			choice := object{"index": 0, "finish_reason": "stop", "message": object{"role": "assistant", "content": "done: " + order}}
			return object{"id": id, "object": "chat.completion", "created": 1, "model": "test", "choices": []any{choice}}
		},
	},
	"java": {
		// The property has the client send a POST again by itself.
		program: []string{"java", "-Djdk.httpclient.enableAllMethodRetry=true", "Charge.java"}, h2c: true, path: "/charges",
		answer: func(id, order string) any { return object{"id": id, "order": order} },
	},
}

// sdkDir has the programs that use SDKs, and their packages.
var sdkDir = filepath.Join("testdata", "sdks")

// TestSDKs has clients that people use call a provider through 'semel proxy', over
// networks that cut their connections. No call has two effects. Each gets its one
// answer, or is held because the provider fell silent after something had been sent to
// it; and whatever it got it gets again.
func TestSDKs(t *testing.T) {
	thorough.Only(t, "SDKs of providers over networks that fail")
	exe := program(t)
	for name, s := range sdks {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s.installed(t)
			r := newSDKRig(t, exe, s)
			keys := names(200)
			r.fail()
			ends := r.run(keys)
			silences := total(r.far.Cuts())
			own := map[string]string{}
			if s.ownKeys {
				own = r.run(names(100), "own keys")
			}
			r.heal()
			for key, end := range r.run(keys) {
				if end != ends[key] {
					t.Errorf("%s got %q, and later %q", key, ends[key], end)
				}
			}

			r.judge(ends, own)
			held := count(ends, "held")
			if held != silences || count(ends, "given up") > 0 {
				t.Errorf("%d calls are held, and the provider fell silent %d times", held, silences)
			}
			calls, cuts := len(ends)+len(own), r.near.Cuts()
			retries := int(r.begun.Load()) - calls
			for cut, n := range cuts {
				if cut.Place == faultnet.InRequest {
					retries -= n // the proxy saw nothing whole
				}
			}
			t.Logf("%d calls; %d retries that the proxy saw; %d effects; %d held; %d of %d with keys of the SDK given up; h2c offered %d times\n%d cuts before the proxy: %s\n%d cuts behind it: %s",
				calls, retries, r.provider.count(), held+count(own, "held"), count(own, "given up"), len(own), r.upgrades.Load(),
				total(cuts), figures(cuts), total(r.far.Cuts()), figures(r.far.Cuts()))
			if total(cuts) < calls/5 || silences < 5 || retries < calls/5 || s.h2c != (r.upgrades.Load() > 0) {
				t.Error("that was no test")
			}
		})
	}
}

// names are keys that nobody guesses.
func names(n int) []string {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = rand.Text()
	}
	return keys
}

// count is how many calls have this end.
func count(ends map[string]string, end string) int {
	n := 0
	for _, e := range ends {
		if e == end {
			n++
		}
	}
	return n
}

// total is how many exchanges were cut.
func total(cuts map[faultnet.Cut]int) int {
	n := 0
	for c := range maps.Values(cuts) {
		n += c
	}
	return n
}

// figures are cuts as people read them.
func figures(cuts map[faultnet.Cut]int) string {
	var parts []string
	for cut, n := range cuts {
		how := "reset"
		if cut.Mute {
			how = "mute"
		}
		parts = append(parts, fmt.Sprintf("%s (%s) %d", cut.Place, how, n))
	}
	slices.Sort(parts)
	return strings.Join(parts, ", ")
}

// installed skips the test where the client is not there, or fails it where it must be.
func (s sdk) installed(t *testing.T) {
	t.Helper()
	missing := ""
	if _, err := exec.LookPath(s.program[0]); err != nil {
		missing = "there is no " + s.program[0] + ": scripts/install-services installs it"
	} else if s.packages != "" {
		var pinned struct{ Dependencies map[string]string }
		var there struct{ Version string }
		readJSON(t, filepath.Join(sdkDir, "package.json"), &pinned)
		readJSON(t, filepath.Join(sdkDir, "node_modules", filepath.FromSlash(s.packages), "package.json"), &there)
		if want := pinned.Dependencies[s.packages]; there.Version != want {
			missing = fmt.Sprintf("%s %s is not there: scripts/install-sdks installs it", s.packages, want)
		}
	}
	switch {
	case missing == "":
	case os.Getenv("SEMEL_REQUIRE_SERVICES") == "1":
		t.Fatal(missing)
	default:
		t.Skip(missing)
	}
}

// readJSON reads a file into v, which it leaves alone if there is none.
func readJSON(t *testing.T, name string, v any) {
	t.Helper()
	data, err := os.ReadFile(name)
	if errors.Is(err, os.ErrNotExist) {
		return
	}
	if err == nil {
		err = json.Unmarshal(data, v)
	}
	if err != nil {
		t.Fatal(err)
	}
}
