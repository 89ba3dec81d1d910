package selector_test

import (
	"net/http"
	"testing"

	"github.com/semelhq/semel/internal/selector"
)

func TestCondition(t *testing.T) {
	for _, c := range []struct {
		text, body string
		holds      bool
	}{
		{"json:/state=paid", `{"state":"paid"}`, true},
		{"json:/state=paid", `{"state":"unpaid"}`, false},
		{"json:/state=*paid", `{"state":"unpaid"}`, true},
		{"json:/more=false", `{"more":false}`, true},
		{"json:/data=[]", `{"data":[]}`, true},
		{"json:/data=[]", `{"data":[1]}`, false},
		{"json:/data=[]", `{"data":"[]"}`, false},
		{"json:/data=[]", `{"data":null}`, false},
		{"json:/data=[]", `{}`, false},
		{"json:/data=*", `{"data":[]}`, false},
		{"json:=[]", `[]`, true},
		{"json:=[]", `[0]`, false},
		{"json:=[]", ``, false},
		{"header:X-State=done", ``, true},
		{"header:X-State=[]", `[]`, false},
	} {
		cond, err := selector.ParseCondition(c.text)
		if err != nil {
			t.Fatal(c.text, err)
		}
		in := selector.Input{Header: http.Header{"X-State": {"begun", "done"}}}
		if c.body != "" {
			in.JSON = []byte(c.body)
		}
		if cond.Holds(&in) != c.holds {
			t.Errorf("%s on %s: %v", c.text, c.body, !c.holds)
		}
	}
	for _, wrong := range []string{"", "json:/a", "json:/a=", "json:=", "json:=x", "query:a=b", "a=b"} {
		if c, err := selector.ParseCondition(wrong); err == nil {
			t.Errorf("%q is %+v", wrong, c)
		}
	}
}
