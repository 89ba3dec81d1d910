package enginetest

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/rig/clause"
	"github.com/semelhq/semel/store/memstore"
)

func TestDerivedKeys(t *testing.T) {
	clause.Proves(t, "IDS-VII.3", "IDS-VII.5")
	derive := func(version, text string) string {
		t.Helper()
		key, err := semel.DeriveKey(version, json.RawMessage(text))
		must(t, err)
		return key
	}
	want := derive("v1", `{"a":1,"b":[true,null,"é"]}`)
	if len(want) != 64 || strings.ToLower(want) != want {
		t.Errorf("the key is %q", want)
	}
	for _, same := range []string{`{"b":[true,null,"\u00e9"],"a":1.0}`, " {\n\"a\" : 10e-1, \"b\":[true,null,\"é\"] } "} {
		if got := derive("v1", same); got != want {
			t.Errorf("%s has another key", same)
		}
	}
	if got, err := semel.DeriveKey("v1", map[string]any{"b": []any{true, nil, "é"}, "a": 1}); err != nil || got != want {
		t.Errorf("the same inputs as Go values have key %s, %v", got, err)
	}
	for _, other := range []string{`{"a":1,"b":[null,true,"é"]}`, `{"a":1}`, `{"a":"1","b":[true,null,"é"]}`, `{"a":1,"b":[true,null,"é"],"c":null}`} {
		if derive("v1", other) == want {
			t.Errorf("%s has the same key", other)
		}
	}
	if derive("v2", `{"a":1,"b":[true,null,"é"]}`) == want {
		t.Error("another version has the same key")
	}
	if derive("v1", `9007199254740993`) == derive("v1", `9007199254740992`) {
		t.Error("two numbers that binary64 can't tell apart have one key")
	}
	for _, bad := range []string{``, `{"a":1,"a":1}`, `{"a":1}x`, `"\ud800"`} {
		_, err := semel.DeriveKey("v1", json.RawMessage(bad))
		wantCode(t, err, semel.CodeInvalidCall)
	}
	_, err := semel.DeriveKey("v1", func() {})
	wantCode(t, err, semel.CodeInvalidCall)
}

func TestKeyTime(t *testing.T) {
	// The example of RFC 9562, A.6.
	at, ok := semel.KeyTime("017F22E2-79B0-7CC3-98C4-DC0C0C07398F")
	if want := time.Date(2022, 2, 22, 19, 22, 22, 0, time.UTC); !ok || !at.Equal(want) {
		t.Errorf("got %v, %v", at, ok)
	}
	for _, key := range []string{"", "k", "017F22E2-79B0-4CC3-98C4-DC0C0C07398F", "017F22E2-79B0-7CC3-18C4-DC0C0C07398F", "017F22E2x79B0-7CC3-98C4-DC0C0C07398F", "017F22E2-79B0-7CC3-98C4-DC0C0C07398G"} {
		if _, ok := semel.KeyTime(key); ok {
			t.Errorf("%q has a time", key)
		}
	}
}

func TestFingerprints(t *testing.T) {
	ab := semel.FingerprintOf(semel.SchemeRaw, []byte("a"), []byte("b"))
	for name, other := range map[string]semel.Fingerprint{
		"parts joined":   semel.FingerprintOf(semel.SchemeRaw, []byte("ab")),
		"parts shifted":  semel.FingerprintOf(semel.SchemeRaw, []byte("ab"), nil),
		"another scheme": semel.FingerprintOf(semel.SchemeJSON, []byte("a"), []byte("b")),
		"none":           {},
	} {
		if other == ab {
			t.Errorf("%s: equal", name)
		}
	}
	text, err := ab.MarshalText()
	must(t, err)
	var back semel.Fingerprint
	if must(t, back.UnmarshalText(text)); back != ab {
		t.Errorf("%s came back as %s", ab, back)
	}
	bin, err := ab.AppendBinary(nil)
	must(t, err)
	back = semel.Fingerprint{}
	if must(t, back.UnmarshalBinary(bin)); back != ab {
		t.Errorf("%x came back as %s", bin, back)
	}
	for _, bad := range []string{"x", "1:", "1:zz", "999:" + strings.Repeat("0", 64), "1:00"} {
		if back.UnmarshalText([]byte(bad)) == nil {
			t.Errorf("%q was read", bad)
		}
	}
	one, err := semel.FingerprintJSON([]byte(`{"a":1,"b":2}`))
	must(t, err)
	two, err := semel.FingerprintJSON([]byte(`{ "b": 2.0, "a": 1 }`))
	must(t, err)
	if one != two {
		t.Error("one meaning, two fingerprints")
	}
	_, err = semel.FingerprintJSON([]byte(`{"a":1,"a":2}`))
	wantCode(t, err, semel.CodeInvalidCall)
}

func TestContradictoryOperationsAreRefusedAllAtOnce(t *testing.T) {
	clause.Proves(t, "IDS-VI.1", "IDS-VI.2", "IDS-VI.4", "IDS-VIII.3", "IDS-VIII.4", "IDS-XI.1")
	ok := func(context.Context, semel.Call, semel.Record) error { return nil }
	for want, op := range map[string]semel.Operation{
		"Name must have":               {},
		"class I2 needs a Window":      {Name: "op", Class: semel.Windowed},
		"class I3 needs at least one":  {Name: "op", Class: semel.Shielded},
		`Class is "I9"`:                {Name: "op", Class: "I9"},
		`OnFailure is "maybe"`:         {Name: "op", OnFailure: "maybe"},
		`OnAbandoned is "maybe"`:       {Name: "op", OnAbandoned: "maybe"},
		`InFlight is "maybe"`:          {Name: "op", InFlight: "maybe"},
		`Share is "all"`:               {Name: "op", Share: "all"},
		`Shields is "S9"`:              {Name: "op", Shields: []semel.Shield{"S9"}},
		"shorter than the 24h0m0s":     {Name: "op", Financial: true, Window: time.Hour},
		"Window 1ms is outside":        {Name: "op", Window: time.Millisecond},
		"Lease 1ms is outside":         {Name: "op", Lease: time.Millisecond},
		"Share tenant needs Authorize": {Name: "op", Share: semel.ShareTenant},
		"shield S4 needs Reconcile":    {Name: "op", Shields: []semel.Shield{semel.ShieldReconcile}},
		"shield S3 needs Effects":      {Name: "op", Class: semel.Shielded, Shields: []semel.Shield{semel.ShieldLedger}},
		"PerRecord needs":              {Name: "op", PerRecord: semel.Rate{PerSecond: 1}},
		"a name in Effects":            {Name: "op", Effects: []string{""}},
		"MaxWait is negative":          {Name: "op", MaxWait: -1},
		"MaxResult is negative":        {Name: "op", MaxResult: -1},
	} {
		if err := op.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: got %v, want %q", op, err, want)
		}
	}
	many := semel.Operation{Class: "I9", Lease: 1, OnFailure: "x"}
	if got := len(many.Validate().(interface{ Unwrap() []error }).Unwrap()); got != 4 {
		t.Errorf("%d problems reported, not 4: %v", got, many.Validate())
	}
	for _, good := range []semel.Operation{
		{Name: "op"},
		{Name: "op", Class: semel.Windowed, Window: time.Minute},
		{Name: "op", Class: semel.Shielded, Shields: []semel.Shield{semel.ShieldLedger}, Effects: []string{"charge"}},
		{Name: "op", Financial: true, Window: 24 * time.Hour},
		{Name: "op", Share: semel.ShareTenant, Authorize: ok},
	} {
		must(t, good.Validate())
	}
	e, err := semel.New(memstore.New(), &semel.Options{Operations: []semel.Operation{{Name: "kept"}}})
	must(t, err)
	if op, _ := e.Internal().Operation("kept"); op.Class != semel.Strict {
		t.Errorf("a mutation without a class is %s", op.Class)
	}
	err = e.Register(semel.Operation{Name: "new"}, semel.Operation{Name: "new"})
	if _, there := e.Internal().Operation("new"); !errors.Is(err, &semel.Error{Code: semel.CodeInvalidOperation}) || there {
		t.Errorf("half of a registration was kept: %v", err)
	}
	if _, err := semel.New(nil, nil); err == nil {
		t.Error("an engine without a store")
	}
}
