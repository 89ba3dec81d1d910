package activitypub_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door/activitypub"
	"github.com/semelhq/semel/store/memstore"
)

func TestOptions(t *testing.T) {
	engine, err := semel.New(memstore.New(), nil)
	if err != nil {
		t.Fatal(err)
	}
	good := activitypub.Options{
		Actors: "https://here.example/actors/{actor}", Verifier: signedBy{},
		Exists: func(context.Context, string) (bool, error) { return true, nil },
		Handle: func(context.Context, *activitypub.Activity) error { return nil },
	}
	for part, change := range map[string]func(*activitypub.Options){
		"Actors":          func(o *activitypub.Options) { o.Actors = "https://here.example/actors" },
		"whole part":      func(o *activitypub.Options) { o.Actors = "https://here.example/@{actor}" },
		"isn't a URL":     func(o *activitypub.Options) { o.Actors = "/actors/{actor}" },
		"Shared":          func(o *activitypub.Options) { o.Shared = "inbox" },
		"is the inbox of": func(o *activitypub.Options) { o.Shared = "/actors/shared/inbox" },
		"Exists":          func(o *activitypub.Options) { o.Exists = nil },
		"Handle":          func(o *activitypub.Options) { o.Handle = nil },
		"Window":          func(o *activitypub.Options) { o.Window = time.Hour },
		"MaxBody":         func(o *activitypub.Options) { o.MaxBody = 2 << 20 },
		"Policies[0]":     func(o *activitypub.Options) { o.Policies = activitypub.Policies{{Host: "Bad.example/x"}} },
		"Verifier":        func(o *activitypub.Options) { o.Verifier = nil },
		"Name":            func(o *activitypub.Options) { o.Name = "In Box" },
		"Budget":          func(o *activitypub.Options) { o.Budget = -1 },
	} {
		opts := good
		change(&opts)
		if _, err := activitypub.New(engine, opts); err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%s: %v", part, err)
		}
	}
	in, err := activitypub.New(engine, good)
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]bool{"/actors/a/inbox/": true, "/actors/a/inbox": true, "/actors//inbox": false, "/actors/a/b/inbox": false, "/inbox": false, "/actors/a": false} {
		if in.Serves(path) != want {
			t.Errorf("%s is served: %v", path, !want)
		}
	}
	if _, err := activitypub.New(nil, good); err == nil {
		t.Error("no engine")
	}
}
