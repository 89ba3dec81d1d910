package ids

import (
	"context"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/rig/clause"
	"github.com/semelhq/semel/internal/strictyaml"
	"github.com/semelhq/semel/store/memstore"
)

func page(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/ids.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// rows are the rows of the first table after a text, without its head.
func rows(t *testing.T, after string) [][]string {
	t.Helper()
	_, rest, found := strings.Cut(page(t), after)
	if !found {
		t.Fatalf("the page has no %q", after)
	}
	_, table, _ := strings.Cut(rest, "|---|")
	_, table, _ = strings.Cut(table, "\n")
	table, _, _ = strings.Cut(table, "\n\n")
	var all [][]string
	for line := range strings.Lines(table) {
		cells := strings.Split(strings.Trim(line, "| \n"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		all = append(all, cells)
	}
	return all
}

var code = regexp.MustCompile("`([^`]+)`")

// names are the words in code of a cell.
func names(cell string) (all []string) {
	for _, m := range code.FindAllStringSubmatch(cell, -1) {
		all = append(all, m[1])
	}
	return all
}

// fieldPaths are the paths of a struct's members. Lists have those of their items.
func fieldPaths(t reflect.Type, prefix string) (all []string) {
	for _, f := range strictyaml.Fields(t) {
		inner := t.FieldByIndex(f.Index).Type
		for inner.Kind() == reflect.Pointer || inner.Kind() == reflect.Slice && inner != reflect.TypeFor[json.RawMessage]() {
			inner = inner.Elem()
		}
		all = append(all, prefix+f.Name)
		if inner.Kind() == reflect.Struct {
			all = append(all, fieldPaths(inner, prefix+f.Name+".")...)
		}
	}
	return all
}

func TestTheDocumentedRegistry(t *testing.T) {
	clause.Proves(t, "IDS-VI.6")
	t.Run("the example is a registry", func(t *testing.T) {
		_, rest, _ := strings.Cut(page(t), "<!-- registry -->\n```yaml\n")
		text, _, found := strings.Cut(rest, "```")
		reg, err := Load([]byte(text), LoadOptions{Bindings: &Bindings{}})
		if !found || err != nil || len(reg.Commands) != 3 {
			t.Error(err)
		}
	})
	t.Run("the table has every field, and no other", func(t *testing.T) {
		got := map[string]bool{}
		for _, row := range rows(t, "| field | means |") {
			for _, name := range names(row[0]) {
				if got[name] {
					t.Errorf("%s is there twice", name)
				}
				got[name] = true
			}
		}
		want := map[string]bool{}
		for _, name := range fieldPaths(reflect.TypeFor[Registry](), "") {
			want[strings.TrimPrefix(name, "commands.")] = true
		}
		for name := range want {
			// A section without a row of its own has one for each of its members.
			if !got[name] && !slices.ContainsFunc(slices.Collect(maps.Keys(got)), func(n string) bool { return strings.HasPrefix(n, name+".") }) {
				t.Errorf("the page has no field %s", name)
			}
		}
		for name := range got {
			if !want[name] {
				t.Errorf("there is no field %s", name)
			}
		}
	})
}

// service is a gateway with one command, and what its handler at a URL got.
func service(t *testing.T, status int) (*Gateway, func() map[string]json.RawMessage) {
	t.Helper()
	var mu sync.Mutex
	var got map[string]json.RawMessage
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		if err != nil || json.Unmarshal(body, &got) != nil {
			t.Errorf("%s, %v", body, err)
		}
		w.WriteHeader(status)
	}))
	t.Cleanup(srv.Close)
	reg, err := Load([]byte(`{version: 1, commands: [{entity: order, action: show, class: I2, window: 1h, justification: x, evidence: decisions, binding: {principal: effective_actor, acting: [retry]}, handler: {url: '`+srv.URL+`'}}]}`), LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	reg.Commands[0].Evidence = semel.EvidenceNone // the log is not what is tested here
	st := memstore.New()
	t.Cleanup(func() { _ = st.Close() })
	engine, err := semel.New(st, nil)
	if err != nil {
		t.Fatal(err)
	}
	g := &Gateway{engine: engine, opts: Options{Registry: reg}}
	op := reg.Commands[0].operation(&Bindings{}, false)
	op.Authorize = func(ctx context.Context, _ semel.Call, rec semel.Record) error {
		return authorizeReplay(ctx, &reg.Commands[0], &rec)
	}
	if err := engine.Register(op); err != nil {
		t.Fatal(err)
	}
	return g, func() map[string]json.RawMessage { mu.Lock(); defer mu.Unlock(); return got }
}

func TestTheDocumentedHandler(t *testing.T) {
	clause.Proves(t, "IDS-VI.6", "IDS-V.2")
	whole := Command{
		CommandID: "c-1", TenantID: "acme", ActorID: "alice", EffectiveActorID: "alice", Intent: Intent{Entity: "order", Action: "show"}, Args: json.RawMessage(`{"a":1}`),
		CommandKind: "kind", CorrelationID: "talk", Trace: Trace{"span_id": "1"}, SentAt: time.Unix(1, 0), ReceivedAt: time.Unix(1, 0), ConfirmationToken: "secret", StepUp: "secret",
	}
	t.Run("it gets what the page says, and no other", func(t *testing.T) {
		g, got := service(t, 200)
		if _, err := g.Execute(t.Context(), Caller{Tenant: "acme", Principal: "alice"}, whole); err != nil {
			t.Fatal(err)
		}
		var want []string
		for _, row := range rows(t, "<!-- posted -->") {
			want = append(want, names(row[0])...)
		}
		slices.Sort(want)
		if posted := slices.Sorted(maps.Keys(got())); !slices.Equal(posted, want) {
			t.Errorf("posted %q, the page has %q", posted, want)
		}
	})
	for _, row := range rows(t, "<!-- answers -->") {
		for text := range strings.SplitSeq(row[0], ", ") {
			t.Run(text, func(t *testing.T) {
				status, err := strconv.Atoi(text)
				if err != nil {
					t.Fatal(err)
				}
				g, _ := service(t, status)
				r, err := g.Execute(t.Context(), Caller{Tenant: "acme", Principal: "alice"}, whole)
				if err != nil {
					t.Fatal(err)
				}
				reason := strings.Join(names(row[2]), " ")
				if reason == "code status_" {
					reason = "status_" + text
				}
				if string(r.Status) != strings.Join(names(row[1]), " ") || r.Reason != reason {
					t.Errorf("%s, %s", r.Status, r.Reason)
				}
			})
		}
	}
}
