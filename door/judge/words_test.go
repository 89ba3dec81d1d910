package judge_test

import (
	"strings"
	"testing"

	"github.com/semelhq/semel/door/judge"
	"github.com/semelhq/semel/internal/rig/clause"
	"github.com/semelhq/semel/internal/words"
)

func TestWordsOfAnAnswer(t *testing.T) {
	clause.Proves(t, "IDS-IX.6")
	for name, c := range map[string]struct{ body, code, text string }{
		"a summary":                    {`{"summary":"There is no order R-9."}`, "", "There is no order R-9."},
		"a problem document":           {`{"title":"No such order","detail":"There is no order R-9.","code":"no_order"}`, "no_order", "There is no order R-9."},
		"a title only":                 {`{"title":"No such order","reason":"no_order"}`, "no_order", "No such order"},
		"the summary comes first":      {`{"detail":"b","summary":"a","error":"c"}`, "", "a"},
		"an error as text":             {`{"error":"unknown customer 17"}`, "", "unknown customer 17"},
		"an error as object":           {`{"error":{"code":"unknown_customer","message":"no customer 17"}}`, "unknown_customer", "no customer 17"},
		"the outer word counts":        {`{"code":"a","error":{"code":"b","message":"c"}}`, "a", "c"},
		"an empty one doesn't":         {`{"summary":" ","detail":"b"}`, "", "b"},
		"a code that is a sentence":    {`{"code":"no order","detail":"b"}`, "", "b"},
		"a code that is too long":      {`{"code":"` + strings.Repeat("x", 65) + `"}`, "", ""},
		"a code that is a number":      {`{"code":17}`, "", ""},
		"lines and control characters": {`{"detail":"a\n\tb\u001b[31mc\u202ed"}`, "", "a b[31mcd"},
		"a long text":                  {`{"detail":"` + strings.Repeat("ä", 300) + `"}`, "", strings.Repeat("ä", 248) + "…"},
		"a list":                       {`["a"]`, "", ""},
		"no JSON":                      {`<h1>Sorry</h1>`, "", ""},
		"two members of one name":      {`{"detail":"a","detail":"b"}`, "", ""},
		"nothing":                      {``, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			a := judge.Answer{Status: 422, Body: []byte(c.body)}
			code, text := a.Words()
			if code != c.code || text != c.text || len(text) > words.Max {
				t.Errorf("code %q, text %q", code, text)
			}
		})
	}
}
