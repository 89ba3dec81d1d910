package pgstore

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/semelhttp"
	"github.com/semelhq/semel/internal/rig/clause"
	"github.com/semelhq/semel/internal/rig/pgtest"
	"github.com/semelhq/semel/store"
)

// mapRow is a row of the map's table.
type mapRow struct {
	id, key, operation, status string
	request, response          *string
	created, updated           time.Time
	expires                    *time.Time
	user, session              *string
}

// mapRows reads the view by the map's names, and by key.
func mapRows(t *testing.T, database string) map[string]mapRow {
	t.Helper()
	rows, err := pgtest.Shared(t).Conn(t, database).Query(t.Context(), `SELECT id, idempotency_key, operation_type, request_payload::text, response_payload::text, status,
		created_at, updated_at, expires_at, user_id, session_id FROM semel.idempotency_log`)
	noError(t, err)
	defer rows.Close()
	found := map[string]mapRow{}
	for rows.Next() {
		var r mapRow
		noError(t, rows.Scan(&r.id, &r.key, &r.operation, &r.request, &r.response, &r.status, &r.created, &r.updated, &r.expires, &r.user, &r.session))
		found[r.key] = r
	}
	noError(t, rows.Err())
	return found
}

func orNULL(s *string) string {
	if s == nil {
		return "NULL"
	}
	return *s
}

// TestTableOfTheMap: the view idempotency_log has the columns of the map, and what it says of
// calls is true, also where the page says that it differs from the map; the indexes are those of
// the table below it.
func TestTableOfTheMap(t *testing.T) {
	clause.Proves(t, "MAP-TABLE.1", "MAP-TABLE.2", "MAP-TABLE.4")
	page, err := os.ReadFile("../../docs/commerce.md")
	noError(t, err)
	for _, row := range []string{"| `id` and `user_id` are numbers | ids are text", "| `idempotency_key` is unique in the table | a key is unique within its ", "| `request_payload` is kept | only a fingerprint is, unless the operation has `keep_payload: true` |"} {
		if !strings.Contains(string(page), row) {
			t.Errorf("the page doesn't say %q", row)
		}
	}
	st, database := open(t, Options{})
	var defs string
	noError(t, pgtest.Shared(t).Conn(t, database).QueryRow(t.Context(), "SELECT string_agg(indexdef, ';') FROM pg_indexes WHERE schemaname = 'semel' AND tablename = 'semel_records'").Scan(&defs))
	for _, columns := range []string{"(key,", "(user_id, session_id)", "(expires_at)"} {
		if !strings.Contains(defs, columns) {
			t.Errorf("no index on %s in %s", columns, defs)
		}
	}
	engine, err := semel.New(st, &semel.Options{Operations: []semel.Operation{{Name: "pay", Window: time.Hour, KeepPayload: true, MaxResult: 64}, {Name: "secret"}}})
	noError(t, err)
	ans, err := engine.Begin(t.Context(), semel.Call{
		Tenant: "shop", Principal: "web", Operation: "pay", Key: "order-1", Attributes: store.Attributes{"user_id": "ann", "session_id": "sess_1"},
		Payload: []byte(`{"amount":12.50}`),
	})
	noError(t, err)
	began := mapRows(t, database)["order-1"]
	if began.operation != "pay" || began.status != "processing" || orNULL(began.user) != "ann" || orNULL(began.session) != "sess_1" || began.response != nil || orNULL(began.request) != `{"amount": 12.50}` || began.expires != nil {
		t.Errorf("while it runs: %+v", began)
	}
	noError(t, ans.Attempt.Complete(t.Context(), semel.Result{Data: []byte(`{"paid":true}`)}))
	ended := mapRows(t, database)["order-1"]
	if ended.id != began.id || ended.status != "completed" || orNULL(ended.request) != orNULL(began.request) || orNULL(ended.response) != `{"paid": true}` || !ended.created.Equal(began.created) ||
		ended.updated.Before(began.updated) || ended.expires == nil || !ended.expires.Equal(ended.updated.Add(time.Hour)) {
		t.Errorf("when it is done: %+v, and before %+v", ended, began)
	}
	for key, call := range map[string]semel.Call{
		"isn't JSON":      {Operation: "pay", Payload: []byte("<p>")},
		"may not be kept": {Operation: "secret", Payload: []byte("{}")},
		"is too long":     {Operation: "pay", Payload: []byte(`"` + strings.Repeat("x", 64) + `"`)},
		"isn't there":     {Operation: "pay"},
	} {
		call.Key = key
		_, err := engine.Begin(t.Context(), call)
		noError(t, err)
		if row := mapRows(t, database)[key]; row.key != key || row.request != nil {
			t.Errorf("a payload that %s is %s", key, orNULL(row.request))
		}
	}
	another, err := engine.Begin(t.Context(), semel.Call{Tenant: "shop", Principal: "app", Operation: "pay", Key: "order-1"})
	if err != nil || another.Decision != semel.Execute {
		t.Errorf("another caller with the key gets %s, %v", another.Decision, err)
	}
}

// TestTheArchiveHasTheNamesOfTheMap: what left the log is found in the archive by the names that
// it had there, and each member of its identity has its own.
func TestTheArchiveHasTheNamesOfTheMap(t *testing.T) {
	clause.Proves(t, "MAP-EXP.6", "CORE-ID.3")
	st, database := open(t, Options{})
	engine, err := semel.New(st, &semel.Options{Operations: []semel.Operation{{Name: "pay", KeepPayload: true}}})
	noError(t, err)
	rows := func(view string) (text string) {
		noError(t, pgtest.Shared(t).Conn(t, database).QueryRow(t.Context(), `SELECT coalesce(string_agg(concat_ws(' ', idempotency_key, operation_type, request_payload, response_payload, status,
			created_at <= updated_at, updated_at < expires_at, user_id, session_id, tenant, principal, coalesce(scope, 'NULL')), '; ' ORDER BY idempotency_key), '') FROM semel.`+view).Scan(&text))
		return text
	}
	for _, call := range []semel.Call{
		{Key: "order-1", Scope: "session=s1", Attributes: store.Attributes{"user_id": "ann", "session_id": "s1"}},
		{Key: "order-2"},
	} {
		call.Tenant, call.Principal, call.Operation, call.Payload = "shop", "web", "pay", []byte(`{"amount":12}`)
		_, err := engine.Do(t.Context(), call, func(context.Context, semel.Execution) (semel.Result, error) {
			return semel.Result{Data: []byte(`{"paid":true}`)}, nil
		})
		noError(t, err)
	}
	const want = `order-1 pay {"amount": 12} {"paid": true} completed t t ann s1 shop web session=s1; order-2 pay {"amount": 12} {"paid": true} completed t t shop web NULL`
	if got := rows("idempotency_log"); got != want {
		t.Errorf("the log has\n%s, want\n%s", got, want)
	}
	page, err := st.Search(t.Context(), store.Query{})
	noError(t, err)
	noError(t, st.Archive(t.Context(), page.Records))
	pgtest.Shared(t).Exec(t, database, "DELETE FROM semel.semel_records")
	if log, archived := rows("idempotency_log"), rows("idempotency_log_archive"); log != "" || archived != want {
		t.Errorf("the log has\n%s, and the archive\n%s, want\n%s", log, archived, want)
	}
}

// TestInternalRecordsAreNotInTheTable: the table has the records that lists have.
func TestInternalRecordsAreNotInTheTable(t *testing.T) {
	clause.Proves(t, "VUL-02-006")
	st, database := open(t, Options{})
	engine, err := semel.New(st, &semel.Options{Operations: []semel.Operation{{Name: "activitypub.inbox"}}})
	noError(t, err)
	for key, scope := range map[string]string{"of the id": store.ActivityScope, "of an id without a host": store.ActivityScope + " sha256:00", "alice": "actor:alice", "activityy": "activityy", "none": ""} {
		call := semel.Call{Principal: store.ActivityPrincipal, Scope: scope, Operation: "activitypub.inbox", Key: key}
		_, err := engine.Do(t.Context(), call, func(context.Context, semel.Execution) (semel.Result, error) { return semel.Result{}, nil })
		noError(t, err)
	}
	page, err := engine.Search(t.Context(), store.Query{Operation: "activitypub.inbox"})
	noError(t, err)
	listed := map[string]bool{}
	for i := range page.Records {
		listed[page.Records[i].ID.Key] = true
	}
	rows := mapRows(t, database)
	for _, key := range []string{"alice", "activityy", "none"} {
		if _, there := rows[key]; !there || !listed[key] {
			t.Errorf("%s is in the view: %t, in the list: %t", key, there, listed[key])
		}
	}
	if len(rows) != 3 || len(listed) != 3 {
		t.Errorf("%d rows, and %d in the list", len(rows), len(listed))
	}
}

// TestAnswersAreJSONInTheTable: whatever the headers of a recorded answer, its body is JSON in
// the view where it is JSON, and null where it isn't.
func TestAnswersAreJSONInTheTable(t *testing.T) {
	st, database := open(t, Options{})
	engine, err := semel.New(st, &semel.Options{Operations: []semel.Operation{{Name: "pay"}}})
	noError(t, err)
	header := http.Header{"Content-Type": {"application/json"}, "Location": {"/" + strings.Repeat("x", 300)}, "X-Signature": {"a", strings.Repeat("b", 130)}}
	results := map[string]semel.Result{
		"answer":       semelhttp.NewResult(201, header, []byte(`{"id":9911,"text":"ÿé"}`)),
		"bare answer":  semelhttp.NewResult(99+101, nil, []byte(`[1]`)),
		"empty answer": semelhttp.NewResult(204, header, nil),
		"page":         semelhttp.NewResult(200, http.Header{"Content-Type": {"text/html"}}, []byte("<p>")),
		"bytes":        {Data: []byte{1, 0xff, 0xfe}},
		"cut":          {Data: []byte{1}},
		"text":         {Data: []byte(`"paid"`)},
		"NUL":          {Data: []byte(`"\u0000"`)},
		"nothing":      {},
	}
	want := map[string]string{"answer": `{"id":9911,"text":"ÿé"}`, "bare answer": `[1]`, "text": `"paid"`}
	for name, res := range results {
		_, err := engine.Do(t.Context(), semel.Call{Operation: "pay", Key: name}, func(context.Context, semel.Execution) (semel.Result, error) { return res, nil })
		noError(t, err)
	}
	rows := mapRows(t, database)
	for name := range results {
		row, got := rows[name], any(nil)
		if row.response != nil {
			noError(t, json.Unmarshal([]byte(*row.response), &got))
		}
		var wanted any
		if want[name] != "" {
			noError(t, json.Unmarshal([]byte(want[name]), &wanted))
		}
		if fmt.Sprint(got) != fmt.Sprint(wanted) || row.key == "" {
			t.Errorf("%s is %s, want %s", name, orNULL(row.response), want[name])
		}
	}
}

// TestDatabaseRefusesASecondRecord writes behind the engine, as a faulty program might.
func TestDatabaseRefusesASecondRecord(t *testing.T) {
	clause.Proves(t, "MAP-TABLE.3")
	st, database := open(t, Options{})
	long := func(c string, n int) string { return strings.Repeat(c, n) }
	engine, err := semel.New(st, &semel.Options{Operations: []semel.Operation{{Name: "pay"}, {Name: long("o", 200)}}})
	noError(t, err)
	// The longest identity fits into the index; its text doesn't compress well.
	key := ""
	for i := 0; len(key) < store.MaxKeyLen-8; i++ {
		key += fmt.Sprintf("%x", i*7919)
	}
	for _, call := range []semel.Call{
		{Tenant: "shop", Principal: "ann", Operation: "pay", Key: "order-1"},
		{Tenant: "shop", Principal: "ann", Scope: "session=s1", Operation: "pay", Key: "order-1"},
		{Tenant: long("t", store.MaxNameLen), Principal: long("p", store.MaxNameLen), Scope: long("s", store.MaxScopeLen), Operation: long("o", 200), Key: key},
	} {
		_, err := engine.Do(t.Context(), call, func(context.Context, semel.Execution) (semel.Result, error) {
			return semel.Result{Data: []byte("{}")}, nil
		})
		noError(t, err)
	}
	conn := pgtest.Shared(t).Conn(t, database)
	_, err = conn.Exec(t.Context(), `INSERT INTO semel.semel_records (id, revision, record, since, held, key, operation, state, principal, tenant)
		SELECT sha256(id), revision, record, since, held, key, operation, state, principal, tenant FROM semel.semel_records WHERE key = 'order-1' LIMIT 1`)
	if e, ok := err.(*pgconn.PgError); !ok || e.Code != "23505" {
		t.Errorf("a second record under another id: %v", err)
	}
	_, err = conn.Exec(t.Context(), `INSERT INTO semel.semel_records (id, revision, record, since, held, key, operation, state, principal, tenant)
		SELECT sha256(id), revision, record, since, held, key, operation, state, principal || '2', tenant FROM semel.semel_records WHERE key = 'order-1' LIMIT 1`)
	noError(t, err)
}

// TestDocumentedSQL runs what the page about stores shows.
func TestDocumentedSQL(t *testing.T) {
	page, err := os.ReadFile("../../docs/stores.md")
	noError(t, err)
	shown := regexp.MustCompile("(?s)<!-- sql -->\n```sql\n(.*?)```").FindAllSubmatch(page, -1)
	if len(shown) == 0 {
		t.Fatal("the page shows no SQL")
	}
	_, database := open(t, Options{})
	for _, m := range shown {
		pgtest.Shared(t).Exec(t, database, string(m[1]))
	}
}
