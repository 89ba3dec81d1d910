package enginetest

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store"
	"github.com/semelhq/semel/store/storetest/faultstore"
)

func TestSearch(t *testing.T) {
	inBubble(t, semel.Operation{}, func(t *testing.T, r *rig) {
		for i := range store.DefaultSearchLimit + 5 {
			pass(time.Millisecond)
			begin(t, r.Engine, call(fmt.Sprint("k", i))).Detach()
		}
		// No limit is the default one, and Next goes on after it.
		page, err := r.Search(t.Context(), store.Query{Operation: "op"})
		must(t, err)
		if len(page.Records) != store.DefaultSearchLimit || page.Records[0].ID != id("k54") || page.Next == "" {
			t.Fatalf("the first page has %d records, the first of %q, and goes on at %q", len(page.Records), page.Records[0].ID.Key, page.Next)
		}
		page, err = r.Search(t.Context(), store.Query{Operation: "op", Cursor: page.Next})
		must(t, err)
		if len(page.Records) != 5 || page.Records[4].ID != id("k0") || page.Next != "" {
			t.Fatalf("the second page has %d records and goes on at %q", len(page.Records), page.Next)
		}

		for _, limit := range []int{-1, store.MaxSearchLimit + 1} {
			_, err := r.Search(t.Context(), store.Query{Limit: limit})
			wantCode(t, err, semel.CodeInvalidCall)
		}
		// A wrong cursor is the caller's mistake and not the store's.
		_, err = r.Search(t.Context(), store.Query{Cursor: "garbage"})
		wantCode(t, err, semel.CodeInvalidCall)
		r.faults.Next(faultstore.Search, faultstore.NotApplied, 1)
		_, err = r.Search(t.Context(), store.Query{})
		wantCode(t, err, semel.CodeStoreUnavailable)
		if !errors.Is(err, faultstore.ErrInjected) {
			t.Errorf("the cause is lost: %v", err)
		}
	})
}

// anyID is an identity as an engine lets it in.
func anyID() *rapid.Generator[semel.ID] {
	name := func(limit int) *rapid.Generator[string] {
		return rapid.Custom(func(t *rapid.T) string {
			s := rapid.OneOf(rapid.String(), rapid.StringN(limit, limit, limit), rapid.SampledFrom([]string{"", "é", strings.Repeat("k", limit)})).Draw(t, "name")
			return strings.ReplaceAll(strings.ToValidUTF8(s[:min(len(s), limit)], "?"), "\x00", "0")
		})
	}
	return rapid.Custom(func(t *rapid.T) semel.ID {
		return semel.ID{
			Tenant: name(256).Draw(t, "tenant"), Principal: name(256).Draw(t, "principal"),
			Operation: name(256).Draw(t, "operation"), Key: "k" + name(semel.MaxKeyLen-1).Draw(t, "key"),
		}
	})
}

func TestEncodedIDs(t *testing.T) {
	t.Run("every identity is read back", func(t *testing.T) {
		rapid.Check(t, func(t *rapid.T) {
			want := anyID().Draw(t, "id")
			word := want.Encode()
			if strings.Trim(word, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_") != "" {
				t.Fatalf("%q does not fit into a URL as it is", word)
			}
			if got, err := store.DecodeID(word); err != nil || got != want {
				t.Fatalf("%+v, %v; want %+v", got, err, want)
			}
		})
	})
	t.Run("no identity can imitate another", func(t *testing.T) {
		seen := map[string]semel.ID{}
		for _, id := range []semel.ID{
			{Tenant: "ab", Principal: "c", Key: "k"}, {Tenant: "a", Principal: "bc", Key: "k"}, {Tenant: "abc", Key: "k"},
			{Principal: "abc", Key: "k"}, {Operation: "abc", Key: "k"}, {Key: "abck"},
		} {
			if other, twice := seen[id.Encode()]; twice {
				t.Errorf("%+v and %+v are both %s", id, other, id.Encode())
			}
			seen[id.Encode()] = id
		}
	})
	good := semel.ID{Tenant: "t", Operation: "op", Key: "k"}.Encode()
	raw := func(b string) string { return base64.RawURLEncoding.EncodeToString([]byte(b)) }
	for name, word := range map[string]string{
		"nothing":                         "",
		"another alphabet":                "*" + good,
		"padding":                         good + "=",
		"a line end":                      good + "\n",
		"half a word":                     good[:len(good)/2],
		"more at the end":                 raw("\x01\x01t\x00\x02op\x01k\x00"),
		"another version":                 raw("\x02\x01t\x00\x02op\x01k"),
		"no key":                          raw("\x01\x01t\x00\x02op\x00"),
		"a key with a NUL":                raw("\x01\x01t\x00\x02op\x01\x00"),
		"an operation that is not UTF-8":  raw("\x01\x01t\x00\x02o\xff\x01k"),
		"an operation that is too long":   raw("\x01\x01t\x00\x81\x02" + strings.Repeat("o", 257) + "\x01k"),
		"a length that is not the least":  raw("\x01\x81\x00t\x00\x02op\x01k"),
		"a length beyond the end":         raw("\x01\x01t\x00\x02op\x02k"),
		"a length beyond all there is":    raw("\x01\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01t"),
		"bits that no byte needs":         strings.TrimSuffix(raw("\x01\x00\x00\x02op\x01k"), "r") + "s",
		"a member that is missing":        raw("\x01\x01t\x02op\x01k"),
		"a length that does not end":      raw("\x01\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80"),
		"text that was never an identity": "order-1",
	} {
		t.Run(name+" is refused", func(t *testing.T) {
			got, err := store.DecodeID(word)
			wantCode(t, err, semel.CodeInvalidCall)
			if got != (semel.ID{}) {
				t.Errorf("%+v", got)
			}
		})
	}
}

func FuzzDecodeID(f *testing.F) {
	f.Add(semel.ID{Tenant: "t", Principal: "p", Operation: "op", Key: "k"}.Encode())
	f.Add(semel.ID{Operation: "é", Key: strings.Repeat("k", 300)}.Encode())
	f.Add("AQ")
	f.Add("")
	f.Fuzz(func(t *testing.T, word string) {
		id, err := store.DecodeID(word)
		if err != nil {
			if !errors.Is(err, &semel.Error{Code: semel.CodeInvalidCall}) || id != (semel.ID{}) {
				t.Fatalf("%+v, %v", id, err)
			}
			return
		}
		if again := id.Encode(); again != word {
			t.Fatalf("%q and %q both stand for %+v", word, again, id)
		}
	})
}
