package form

import (
	"errors"
	"testing"
)

func TestRead(t *testing.T) {
	type value struct {
		N    int `json:"n"`
		List []struct {
			A string `json:"a"`
		} `json:"list,omitempty"`
	}
	type second struct {
		Form int `json:"form"`
		value
	}
	for text, want := range map[string]error{
		`{"n":1}`:                     nil,
		` {"n":1,"list":[{"a":"x"}]}`: nil,
		`{"form":2,"n":1}`:            ErrNewer,
		`{"form":2,"n":"one"}`:        ErrNewer, // it means something else now
		`{"n":1,"more":true}`:         ErrNewer,
		`{"list":[{"a":"x","b":1}]}`:  ErrNewer,
		`{"n":"one"}`:                 ErrDamaged,
		`{"n":1`:                      ErrDamaged,
		`{"n":1} {}`:                  ErrDamaged,
		`[1]`:                         ErrDamaged,
		``:                            ErrDamaged,
	} {
		if err := Read(([]byte)(text), 1, new(value)); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", text, err, want)
		}
	}
	var v second
	for text, want := range map[string]error{`{"n":1}`: nil, `{"form":2,"n":2}`: nil, `{"form":3,"n":3}`: ErrNewer} {
		if err := Read([]byte(text), 2, &v); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", text, err, want)
		}
	}
}
