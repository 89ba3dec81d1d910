package reconcile_test

import (
	"bytes"
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/reconcile"
	"github.com/semelhq/semel/internal/rig/clause"
	"github.com/semelhq/semel/store"
)

// settings of the transcripts, and the secrets that they show.
var settings = map[string]struct {
	with   []string
	secret string
	query  string
}{
	"stripe":  {[]string{"value={attribute:order_id}", "field=order_id"}, "sk_test_51", ""},
	"adyen":   {[]string{"link={attribute:link}", "account=Example_ECOM"}, "AQEyhmfx", ""},
	"paypal":  {[]string{"order={attribute:order}"}, "Abc:Xyz", ""},
	"shopify": {[]string{"value={attribute:order_id}", "shop=example"}, "shpat_1", ""},
	"github":  {[]string{"owner=octocat", "repository=hello", "name={attribute:tag}"}, "ghp_1", ""},
	"sql":     {[]string{"value={attribute:order_id}"}, "postgres://books", "SELECT outcome, id FROM charges WHERE order_id = $1"},
}

// vendor answers one question after another as a case of a transcript has it.
type vendor struct {
	*httptest.Server
	mu      sync.Mutex
	answers []exchange
	faults  []string
}

type exchange struct {
	question []string // lines; none: any
	status   string
	body     string
}

func (v *vendor) next(got []string) exchange {
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.answers) == 0 {
		v.faults = append(v.faults, "one question too many")
		return exchange{status: "500"}
	}
	x := v.answers[0]
	v.answers = v.answers[1:]
	for _, line := range x.question {
		if !slices.Contains(got, line) {
			v.faults = append(v.faults, "the question lacks "+line+"; it has\n"+strings.Join(got, "\n"))
		}
	}
	return x
}

func (v *vendor) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	got := []string{r.Method + " " + r.URL.RequestURI(), string(body)}
	for name := range r.Header {
		got = append(got, name+": "+r.Header.Get(name))
	}
	x := v.next(got)
	status, _ := strconv.Atoi(x.status)
	w.WriteHeader(status)
	_, _ = io.WriteString(w, x.body)
}

type play struct {
	name    string
	age     time.Duration
	answers []exchange
	want    string
}

// transcript reads the cases of a file.
func transcript(t *testing.T, name string) (list []play) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name+".txt"))
	if err != nil {
		t.Fatal(err)
	}
	var question []string
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		kind, rest, _ := strings.Cut(line, " ")
		switch kind {
		case "#", "":
		case "---":
			at := strings.LastIndexByte(rest, ' ')
			age, err := time.ParseDuration(rest[at+1:])
			if err != nil {
				t.Fatal(err)
			}
			list, question = append(list, play{name: rest[:at], age: age}), nil
		case ">":
			question = append(question, rest)
		case "<":
			p := &list[len(list)-1]
			p.answers, question = append(p.answers, exchange{question: question, status: rest}), nil
		case "=":
			list[len(list)-1].want = rest
		default:
			p := &list[len(list)-1]
			p.answers[len(p.answers)-1].body += line
		}
	}
	return list
}

func heldFor(age time.Duration) semel.Record {
	at := store.Instant(0).Add(time.Hour)
	return semel.Record{
		ID: semel.ID{Operation: "orders.pay", Key: "k-1"}, Held: true, StartedAt: at, UpdatedAt: at.Add(age),
		Attributes: store.Attributes{"order_id": "order-7", "link": "PL61C53A8B97E6915A", "order": "5O190127TN364715T", "tag": "v1.2.0"},
	}
}

func secretFile(t *testing.T, secret string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(file, []byte(secret+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestTranscripts plays what each vendor answers to a question about a held call.
func TestTranscripts(t *testing.T) {
	clause.Proves(t, "IDS-XI.S4")
	if names := reconcile.Sources(); len(names) != len(settings) {
		t.Fatalf("the sources are %v", names)
	}
	for name, set := range settings {
		for _, c := range transcript(t, name) {
			t.Run(name+"/"+c.name, func(t *testing.T) {
				v := &vendor{answers: c.answers}
				v.Server = httptest.NewServer(v)
				defer v.Close()
				s := reconcile.Settings{Source: name, With: set.with, SecretFile: secretFile(t, set.secret), Query: set.query, URL: v.URL}
				if name == "sql" {
					s.URL = ""
					books.set(v)
				}
				settler, err := reconcile.New(s)
				if err != nil {
					t.Fatal(err)
				}
				held := heldFor(c.age)
				f, err := settler.Ask(t.Context(), &held)
				got := "error"
				if err == nil {
					got = strings.TrimSpace(f.Outcome + " " + string(f.Body))
				} else if strings.Contains(err.Error(), set.secret) || strings.Contains(err.Error(), "order-7") {
					t.Errorf("the error shows what it must not: %v", err)
				}
				if got != c.want && !(len(strings.Fields(c.want)) == 1 && strings.HasPrefix(got, c.want+" ")) {
					t.Errorf("got %s, %v; want %s", got, err, c.want)
				}
				if len(v.faults) > 0 || len(v.answers) > 0 {
					t.Errorf("%d answers left; %s", len(v.answers), strings.Join(v.faults, "\n"))
				}
			})
		}
	}
}

// ledger is a database whose rows are those of a transcript.
type ledger struct {
	mu sync.Mutex
	of *vendor
}

var books = &ledger{}

func init() { sql.Register(reconcile.Driver, books) }

func (l *ledger) set(v *vendor) { l.mu.Lock(); l.of = v; l.mu.Unlock() }
func (l *ledger) Open(string) (driver.Conn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return conn{l.of}, nil
}

type conn struct{ of *vendor }

func (c conn) Prepare(string) (driver.Stmt, error) { return nil, errors.New("it is not used") }
func (c conn) Close() error                        { return nil }
func (c conn) Begin() (driver.Tx, error)           { return nil, errors.New("it can write") }
func (c conn) Commit() error                       { return nil }
func (c conn) Rollback() error                     { return nil }

func (c conn) BeginTx(_ context.Context, opts driver.TxOptions) (driver.Tx, error) {
	if !opts.ReadOnly {
		return nil, errors.New("it can write")
	}
	return c, nil
}

func (c conn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	text, _ := args[0].Value.(string)
	switch x := c.of.next([]string{query, text}); x.status {
	case "rows":
		r := &rows{}
		return r, json.NewDecoder(bytes.NewReader([]byte(x.body))).Decode(r)
	case "refusal":
		return nil, sqlError{}
	case "silence":
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return nil, errors.New("postgres://books is down: order-7")
}

// sqlError is an error of the database itself.
type sqlError struct{}

func (sqlError) Error() string    { return "column order-7 does not exist" }
func (sqlError) SQLState() string { return "42703" }

type rows struct {
	Names []string    `json:"columns"`
	Rows  [][]*string `json:"rows"`
}

func (r *rows) Columns() []string { return r.Names }
func (r *rows) Close() error      { return nil }
func (r *rows) Next(into []driver.Value) error {
	if len(r.Rows) == 0 {
		return io.EOF
	}
	for i, cell := range r.Rows[0] {
		if into[i] = nil; cell != nil {
			into[i] = *cell
		}
	}
	r.Rows = r.Rows[1:]
	return nil
}
