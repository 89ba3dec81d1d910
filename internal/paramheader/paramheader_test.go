package paramheader

import (
	"net/http"
	"testing"
)

func TestEncode(t *testing.T) {
	for text, want := range map[string]string{"refund": "refund", "é": "=?base64?w6k=?=", "": "", "a\nb": "=?base64?YQpi?=", " a": "=?base64?IGE=?=", "=?base64?YQ==?=": "=?base64?PT9iYXNlNjQ/WVE9PT89?="} {
		got := Encode(text)
		if back, ok := Decode(got); got != want || back != text || !ok {
			t.Errorf("%q became %q, and %q again", text, got, back)
		}
	}
}

func TestCompare(t *testing.T) {
	list := In([]byte(`{"properties":{"a":{"properties":{"b":{"x-mcp-header":"Order"}}}}}`))
	for value, want := range map[string]string{"": "The argument a.b has no header Mcp-Param-Order.", "o-1": "", "o-2": "The header Mcp-Param-Order and the body differ."} {
		header := http.Header{}
		if value != "" {
			header.Set(Prefix+"Order", value)
		}
		if got := Compare(header, []byte(`{"a":{"b":"o-1"}}`), list); got != want {
			t.Errorf("%q: %s", value, got)
		}
	}
}
