package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/client"
	"github.com/semelhq/semel/internal/service/auth"
)

// mistakenLines are command lines with a mistake in each: in a flag, a file, a URL, a token, a
// name, or in the state of what they want to change. TestMistakes says what the names in capitals
// are.
const mistakenLines = `
dmeo
xyzzy
records lst
migrate down --store postgres://u@h/db
version --jsno
version now
records list --limit many
records list --limit 0
records list --all --limit 3
records list state:hold
records list colour:red
records list (held
records list --url 127.0.0.1:8481
records list --url DEAD
records list --url OTHER
SEMEL_TOKEN= records list --url ADMIN
SEMEL_TOKEN=wrong records list --url ADMIN
records list --url ADMIN --token-file none
records list --url ADMIN --token-file empty
SEMEL_TOKEN=the-shops-token records list --url ADMIN
SEMEL_TOKEN=the-viewers-token records settle order-2 --outcome aborted --reason r --yes --url ADMIN
SEMEL_TOKEN=the-shops-token top --once --url ADMIN
SEMEL_TOKEN=the-viewers-token store accept-clock --yes --url ADMIN
records list --url ADMIN --store pebble:x
records list --context prod
records list --store pebble:none
records list --store pebble:token
records list --store memory:
records list --store mongodb://h/db
records list --store postgres://u@127.0.0.1:1/db
records list --store postgres://u@h/db?sslmode=maybe
records list --store redis://127.0.0.1:1
records list --config none.yaml
records get
records get nothing --url ADMIN
records get --operation pay --key nope --url ADMIN
records get order-1 order-2
records settle order-2 --reason r --yes --url ADMIN
records settle order-2 --outcome done --reason r --yes --url ADMIN
records settle order-2 --outcome completed --yes --url ADMIN
records settle order-2 --outcome completed --reason r --url ADMIN
records settle order-1 --outcome completed --reason r --yes --url ADMIN
records settle order-2 --effect charge --reason r --yes --url ADMIN
records settle order-2 --effect charge=refuted --reason r --yes --url ADMIN
records settle order-2 --outcome completed --result-file none --reason r --yes --url ADMIN
records release order-1 --reason r --yes --url ADMIN
records purge order-2 --reason r --yes --url ADMIN
messages show order-1 --url ADMIN
messages show msg_none --url ADMIN
messages list --state sent --url ADMIN
why
why nothing --url ADMIN
why order-1 --url OTHER
explain in_flite
explain 799
proxy
proxy 127.0.0.1:3000
proxy http://127.0.0.1:1 --answers 503
proxy http://127.0.0.1:1 --jwt-issuer https://i
proxy http://127.0.0.1:1 --listen 8480
serve --store sqlite:x
serve --store memory: --listen TAKEN --admin 127.0.0.1:0
serve semel.yaml
healthcheck --url DEAD
healthcheck --timeout soon
top --window 2h --url ADMIN
tail decision:executed --url ADMIN
evidence keygen --origin example.com/log
evidence keygen --origin example.com/log --out evidence.key
evidence keygen --rotate token --out new.key
evidence verify
evidence verify --keys evidence.pub none.jsonl
archive verify none
migrate up --store pebble:x
store new-epoch --store pebble:x
reconcile payments --export none.csv --url ADMIN
key derive --version a@1 --inputs token
key derive --template pay:{order_id}
webhook verify --source githb --secret-file token body
context use none
`

// mistakenConfigs are configurations with a mistake in each.
var mistakenConfigs = []string{
	"store: {ulr: 'memory:'}",
	"stroe: {url: 'memory:'}",
	"store: {url: 'sqlite:x'}",
	"store: {url: 'postgres://u@h/db?sslmode=maybe'}",
	"store: {url: 'redis://127.0.0.1:1/x'}",
	"store: {url: 'pebble:token/store'}",
	"listen: 127.0.0.1:8480",
	"listen: {address: 8480}",
	"listen: {address: 'localhost:http:x'}",
	"listen: {tls: {cert: a.pem}}",
	"admin: {address: 127.0.0.1:8480}\nlisten: {address: 127.0.0.1:8480}",
	"admin: {token_file: none}",
	"admin: {token_file: empty}",
	"metrics: true",
	"log: {level: verbose}",
	"log: {format: xml}",
	"limits: {body: 10 megs}",
	"operations: [{name: pay, window: soon}]",
	"operations: [{name: pay, window: -1h}]",
	"operations: [{name: pay}, {name: pay}]",
	"operations: [{name: pay, on_abandoned: never}]",
	"operations: [{nme: pay}]",
	"operations: {pay: {}}",
	"api: off\noperations: [{name: pay, evidence: durable}]",
	"routes: [{match: orders, upstream: 'http://h'}]",
	"routes: [{match: POST /orders}]",
	"routes: [{match: POST /orders, upstream: 'ftp://h'}]",
	"routes: [{match: POST /orders, upstream: 'http://h', operation: nope}]",
	"routes: [{match: POST /orders, upstream: 'http://h', key_from: ['jsn:/id']}]",
	"routes: [{match: POST /orders, upstream: 'http://h', attributes: {order: /id}}]",
	"routes: [{match: POST /a, upstream: 'http://h'}, {match: POST /a, upstream: 'http://h'}]",
	"routes: [{match: POST /orders, upstream: 'http://h', timeout: 5}]",
	"auth: {tokens: [{name: shop, sha256: abc}]}",
	"auth: {tokens: [{name: shop, roles: [root], token_file: token}]}",
	"auth: {jwt: [{issuer: 'https://i', audience: a, algorithms: [HS256], jwks_url: 'https://i/k'}]}",
	"webhooks: [{name: g, path: /w, source: githb, upstream: 'http://h', secret_files: [token]}]",
	"api: off\ndispatch: {destinations: [{name: billing, operations: [default], url: 'hook'}]}",
	"api: off\nevidence: {key_file: token}",
	"- a list",
	"store:\n\turl: 'memory:'",
}

// A mistake is a command line with a mistake, or the configuration with one that config validate
// gets, and what the reviewer of its message has decided: whether it says what is wrong, where,
// and what to do about it.
type mistake struct{ marks, line, said string }

// String is the mistake as the golden file has it.
func (m *mistake) String() string {
	return m.marks + "  " + m.line + "\n    " + strings.ReplaceAll(m.said, "\n", "\n    ") + "\n"
}

// unmarked are the marks of a message that nobody has judged yet.
const unmarked = "????  ????? ??"

// mistakesFile has the messages and the marks. Each mistake begins with the three marks, each of
// them the word or a dash in its column.
const mistakesFile = "testdata/mistakes.txt"

const mistakesHead = `# 120 deliberate mistakes, and what Semel says to each. A reviewer has marked each message: "what" if it
# says what is wrong, "where" if it names the flag, the line, the file or the address, and "do" if it says
# what to do about it, or what is allowed there. A message that changes loses its marks (????):
#
#   go test ./cmd/semel/internal/cli -run TestMistakes -update
#
# and read it as somebody who has never seen Semel, before you mark it again.

`

// markedMistakes reads the golden file.
func markedMistakes(t *testing.T) map[string]mistake {
	t.Helper()
	text, err := os.ReadFile(mistakesFile)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	known := map[string]mistake{}
	for block := range strings.SplitSeq(string(text), "\n\n") {
		head, said, ok := strings.Cut(strings.TrimSpace(block), "\n")
		if !ok || strings.HasPrefix(head, "#") || len(head) < 16 {
			continue
		}
		m := mistake{head[:14], head[16:], strings.ReplaceAll(strings.TrimPrefix(said, "    "), "\n    ", "\n")}
		known[m.line] = m
	}
	return known
}

// TestMistakes: of 120 deliberate mistakes, at least 115 messages say what is wrong, 112 where, and
// 100 what to do.
func TestMistakes(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("its own words for files and connections are others")
	}
	known := markedMistakes(t)
	r := newMistakeRig(t)
	var text strings.Builder
	text.WriteString(mistakesHead)
	var count struct{ all, what, where, do int }
	judge := func(line, said string) {
		m := mistake{unmarked, line, said}
		if before := known[line]; before.said == said {
			m.marks = before.marks
		}
		fmt.Fprintln(&text, &m)
		count.all++
		for word, n := range map[string]*int{"what": &count.what, "where": &count.where, "do": &count.do} {
			if slices.Contains(strings.Fields(m.marks), word) {
				*n++
			}
		}
		if strings.Contains(m.marks, "?") {
			t.Errorf("nobody has judged the message of %s:\n%s", line, said)
		}
	}
	for line := range strings.Lines(strings.TrimSpace(mistakenLines)) {
		line = strings.TrimSpace(line)
		judge("semel "+line, r.run(t, line))
	}
	for _, config := range mistakenConfigs {
		write(t, "broken.yaml", config+"\n")
		judge("yaml "+strings.NewReplacer("\n", `\n`, "\t", `\t`).Replace(config), r.run(t, "config validate broken.yaml"))
	}
	t.Chdir(r.home)
	golden(t, filepath.Base(mistakesFile), text.String())
	if count.all != 120 || count.what < 115 || count.where < 112 || count.do < 100 {
		t.Errorf("of %d messages %d say what is wrong, %d where and %d what to do", count.all, count.what, count.where, count.do)
	}
}

// mistakeRig has a service with a completed call, order-1, and a held one, order-2, and two
// operators: one for all tenants, and a viewer of one.
type mistakeRig struct {
	home  string            // the directory of the test
	dir   string            // where the commands run
	names *strings.Replacer // of the words in capitals
	back  *strings.Replacer // to them
}

func newMistakeRig(t *testing.T) *mistakeRig {
	t.Helper()
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	t.Setenv("SEMEL_URL", "")
	t.Setenv("SEMEL_TOKEN", "the-roots-token")
	home, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	data, admin := serving(t, fmt.Sprintf(`
store: {url: 'memory:'}
operations: [{name: pay}]
auth:
  tokens:
    - {name: shop, tenant: acme, sha256: %s}
    - {name: eye, tenant: acme, roles: [viewer], sha256: %s}
    - {name: root, roles: [admin], sha256: %s}
`, auth.HashToken("the-shops-token"), auth.HashToken("the-viewers-token"), auth.HashToken("the-roots-token")))
	c, err := client.New(data, &client.Options{Token: "the-shops-token"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	for key, end := range map[string]error{"order-1": nil, "order-2": semel.Unknown(errors.New("the bank did not answer"))} {
		_, err := c.Do(t.Context(), semel.Call{Operation: "pay", Key: key}, func(context.Context, semel.Execution) (semel.Result, error) { return semel.Result{}, end })
		if (err == nil) != (end == nil) {
			t.Fatal(key, err)
		}
	}
	other := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(other.Close)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { taken.Close() })
	t.Chdir(t.TempDir())
	_, public, _ := semelWith(t, "", "evidence", "keygen", "--origin", "example.com/log", "--out", "evidence.key")
	for name, text := range map[string]string{"evidence.pub": public, "token": "0123456789abcdef0123456789abcdef\n", "empty": "", "body": "POST /w HTTP/1.1\r\nHost: h\r\n\r\n{}", "semel.yaml": "store: {url: 'memory:'}\n"} {
		write(t, name, text)
	}
	places := []string{"ADMIN", admin, "OTHER", other.URL, "DEAD", "http://127.0.0.1:1", "TAKEN", taken.Addr().String()}
	found := slices.Clone(places)
	slices.Reverse(found)
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	return &mistakeRig{home, dir, strings.NewReplacer(places...), strings.NewReplacer(found...)}
}

// spans are times that differ from run to run.
var spans = regexp.MustCompile(`"time":"[^"]*"`)

// run runs a command line, which may begin with a variable, and returns what it said.
func (r *mistakeRig) run(t *testing.T, line string) (said string) {
	t.Helper()
	words := strings.Fields(r.names.Replace(line))
	if name, value, ok := strings.Cut(words[0], "="); ok {
		before := os.Getenv(name)
		os.Setenv(name, value)
		defer os.Setenv(name, before)
		words = words[1:]
	}
	var out strings.Builder
	// A command that takes the mistake for none would go on.
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	code := Run(ctx, words, strings.NewReader(""), io.Writer(&out), &out)
	if code == ExitOK {
		t.Errorf("%s: exit 0, %s", line, &out)
	}
	said = strings.TrimSpace(strings.ReplaceAll(r.back.Replace(out.String()), r.dir, "DIR"))
	return fmt.Sprintf("%s\nexit %d", spans.ReplaceAllString(said, `"time":"…"`), code)
}
