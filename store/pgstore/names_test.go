package pgstore

import (
	"strings"
	"testing"

	"github.com/semelhq/semel/internal/paging"
	"github.com/semelhq/semel/store"
)

// TestNamesAreFoundByIndexes: a call is found by either of several names without a look at
// every record.
func TestNamesAreFoundByIndexes(t *testing.T) {
	names := []store.Query{{Key: "k"}, {Attributes: store.Attributes{"order": "9911"}}, {AttributePrefixes: store.Attributes{"order": "99"}}}
	for name, c := range map[string]struct {
		q    store.Query
		scan bool
	}{
		"either of several names":     {store.Query{Any: [][]store.Query{names}}, false},
		"of one operation":            {store.Query{Operation: "op", Any: [][]store.Query{names}}, false},
		"one has no index":            {store.Query{Any: [][]store.Query{append(names[:2:2], store.Query{Operation: "op"})}}, true},
		"one is held":                 {store.Query{Any: [][]store.Query{append(names[:2:2], store.Query{Held: true})}}, false},
		"one column says nothing of":  {store.Query{Operation: "op", Any: [][]store.Query{append(names[:2:2], store.Query{KeyPrefix: "x"})}}, true},
		"none of an empty list":       {store.Query{Any: [][]store.Query{{}}}, true},
		"two lists, one with indexes": {store.Query{Any: [][]store.Query{{{Operation: "op"}}, names}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			q := c.q
			list := searching("semel", &q, nil, paging.Bytes)
			st := list[len(list)-1]
			if scans := strings.Contains(st.sql, "UNION ALL") && !strings.Contains(st.sql, "WITH few"); scans != c.scan {
				t.Errorf("scans: %t in %s", scans, st.sql)
			}
			if last := len(st.args); last > 0 && !strings.Contains(st.sql, "$"+string(rune('0'+last))) || strings.Contains(st.sql, "$"+string(rune('1'+last))) {
				t.Errorf("%d parameters for %s", last, st.sql)
			}
		})
	}
	s, _ := open(t, Options{})
	rec := numbered("k", 1)
	rec.Attributes = store.Attributes{"order": "9911"}
	rec = put(t, s, rec, store.Revision{})
	for _, q := range []store.Query{{Any: [][]store.Query{names}}, {Any: [][]store.Query{names, {{KeyPrefix: "k"}}}, Not: []store.Query{{Key: "x"}}}} {
		page, err := s.Search(t.Context(), q)
		if noError(t, err); len(page.Records) != 1 || page.Records[0].ID != rec.ID || page.Next != "" {
			t.Errorf("%+v for %+v", page, q)
		}
	}
}
