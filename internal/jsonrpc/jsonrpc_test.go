package jsonrpc

import (
	"errors"
	"strings"
	"testing"
)

func TestRead(t *testing.T) {
	for _, c := range []struct {
		text, id string
		code     int
	}{
		{`{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":1}}`, "1", 0},
		{` {"method":"m","id":"a","jsonrpc":"2.0"}`, `"a"`, 0},
		{``, "", ParseError},
		{`{`, "", ParseError},
		{`{"jsonrpc":"2.0","id":1,"id":2,"method":"m"}`, "", ParseError},
		{`[{"jsonrpc":"2.0","id":1,"method":"m"}]`, "", InvalidRequest},
		{`7`, "", InvalidRequest},
		{`{"jsonrpc":"2.0","method":"m"}`, "", InvalidRequest},
		{`{"jsonrpc":"2.0","id":null,"method":"m"}`, "", InvalidRequest},
		{`{"jsonrpc":"2.0","id":true,"method":"m"}`, "", InvalidRequest},
		{`{"jsonrpc":"1.0","id":1,"method":"m"}`, "1", InvalidRequest},
		{`{"jsonrpc":"2.0","id":1,"method":7}`, "1", InvalidRequest},
		{`{"jsonrpc":"2.0","id":1,"method":"m","Method":"n"}`, "1", InvalidRequest},
	} {
		r, err := Read([]byte(c.text))
		e, _ := errors.AsType[*Error](err)
		if string(r.ID) != c.id || (e == nil) != (c.code == 0) || e != nil && e.Code != c.code {
			t.Errorf("%s: %s, %v", c.text, r.ID, err)
		}
		if err == nil && r.Method != "m" {
			t.Errorf("%s: %q", c.text, r.Method)
		}
	}
}

// TestReadMessage: what isn't a request is a notification, an answer, or refused.
func TestReadMessage(t *testing.T) {
	for text, want := range map[string]string{
		`{"jsonrpc":"2.0","id":1,"method":"m"}`:                       "request",
		`{"jsonrpc":"2.0","method":"m","params":{}}`:                  "notification",
		`{"jsonrpc":"2.0","id":1,"result":{}}`:                        "answer",
		`{"jsonrpc":"2.0","error":{"code":1}}`:                        "answer",
		`{"jsonrpc":"2.0","id":null,"method":"m"}`:                    "",
		`{"jsonrpc":"2.0","id":{},"result":{}}`:                       "",
		`{"jsonrpc":"2.0","id":1,"method":"m","result":{}}`:           "",
		`{"jsonrpc":"2.0","id":1,"params":{},"result":{}}`:            "",
		`{"jsonrpc":"2.0","id":1}`:                                    "",
		`{"jsonrpc":"2.0","method":"m","Method":"n"}`:                 "",
		`[{"jsonrpc":"2.0","method":"m"}]`:                            "",
		`{"jsonrpc":"2.0","id":1,"method":"m","method":"tools/call"}`: "",
	} {
		m, err := ReadMessage([]byte(text))
		got := ""
		switch {
		case err != nil:
		case m.Answers:
			got = "answer"
		case m.ID == nil:
			got = "notification"
		default:
			got = "request"
		}
		if _, requestErr := Read([]byte(text)); got != want || (requestErr == nil) != (want == "request") {
			t.Errorf("%s: %q, %v; as a request %v", text, got, err, requestErr)
		}
	}
}

func TestAnswers(t *testing.T) {
	for text, ok := range map[string]bool{
		`{"jsonrpc":"2.0","id":1,"result":{}}`:                        true,
		`{"jsonrpc":"2.0","id":1.0,"error":{"code":1},"result":null}`: true,
		`{"jsonrpc":"2.0","id":null,"error":{"code":1}}`:              true,
		`{"jsonrpc":"2.0","id":null,"result":{}}`:                     false,
		`{"jsonrpc":"2.0","id":2,"error":{"code":1}}`:                 false,
		`{"jsonrpc":"2.0","id":1}`:                                    false,
		`{"jsonrpc":"2.0","id":1,"result":{},"error":{"code":1}}`:     false,
		`{"jsonrpc":"1.0","id":1,"result":{}}`:                        false,
		`{"jsonrpc":"2.0","id":1,"result":{}}{}`:                      false,
		`[]`:                                                          false,
	} {
		if _, _, got := ReadAnswer([]byte(text), []byte("1")); got != ok {
			t.Errorf("%s: %t", text, got)
		}
	}
	text := Answer(nil, nil, []byte(`{"code":-32700}`))
	if _, failure, ok := ReadAnswer(text, []byte("1")); !ok || string(failure) != `{"code":-32700}` || !strings.Contains(string(text), `"id":null`) {
		t.Errorf("%s", text)
	}
	if result, _, ok := ReadAnswer(Answer([]byte(`"a"`), []byte(`{"x":1}`), nil), []byte(`"a"`)); !ok || string(result) != `{"x":1}` {
		t.Errorf("%s", result)
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(`{"jsonrpc":"2.0","id":1,"method":"m","params":{}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		r, err := Read(text)
		if _, ok := errors.AsType[*Error](err); err != nil && !ok {
			t.Errorf("%v", err)
		}
		if err == nil && (r.ID == nil || r.Method == "") {
			t.Errorf("%s: %+v", text, r)
		}
		_, _, _ = ReadAnswer(text, []byte("1"))
	})
}
