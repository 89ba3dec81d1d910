package archive

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/klauspost/compress/zstd"
	"pgregory.net/rapid"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/rig/clause"
	"github.com/semelhq/semel/store"
)

func TestWrite(t *testing.T) {
	t.Run("what was written is read back, in order, also after the archive was opened again", func(t *testing.T) {
		clause.Proves(t, "MAP-EXP.3")
		dir := filepath.Join(t.TempDir(), "some", "where")
		one, two, three := batch(1, 3), batch(2, 1), batch(3, 200)
		a, err := Open(dir)
		must(t, err)
		must(t, a.Write(t.Context(), one))
		must(t, a.Write(t.Context(), two))
		must(t, a.Close())
		a, err = Open(dir)
		must(t, err)
		must(t, a.Write(t.Context(), three))
		var got []semel.Record
		must(t, Read(dir, func(rec semel.Record) error { got = append(got, rec); return nil }))
		if want := slices.Concat(one, two, three); !reflect.DeepEqual(got, want) {
			t.Errorf("%d records are read, want %d; first %+v", len(got), len(want), got[0])
		}
		must(t, Verify(dir))
		must(t, a.Close())
		must(t, a.Close())
	})
	t.Run("any tool reads the files", func(t *testing.T) {
		dir := t.TempDir()
		a, err := Open(dir)
		must(t, err)
		defer a.Close()
		must(t, a.Write(t.Context(), batch(7, 2)))
		manifest, err := os.ReadFile(filepath.Join(dir, "manifest.ndjson"))
		must(t, err)
		var entry map[string]any
		must(t, json.Unmarshal(manifest, &entry))
		if entry["file"] != "segment-00000001.ndjson.zst" || entry["records"] != 2.0 || entry["version"] != 1.0 || entry["previous"] != "" ||
			entry["first_ended"] != batch(7, 2)[0].EndedAt.String() || entry["last_ended"] != batch(7, 2)[1].EndedAt.String() {
			t.Errorf("the manifest is %s", manifest)
		}
		packed, err := os.ReadFile(filepath.Join(dir, entry["file"].(string)))
		must(t, err)
		zr, err := zstd.NewReader(nil)
		must(t, err)
		defer zr.Close()
		text, err := zr.DecodeAll(packed, nil)
		must(t, err)
		lines := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
		rec := batch(7, 2)[1]
		want := fmt.Sprintf(`{"id":%q,"tenant":"t","principal":"","idempotency_key":"7/1","operation":"op","status":"completed","disposition":"completed",`+
			`"result_base64":%q,"fence":7,"attempt":1,"created_at":%[3]q,"updated_at":%[3]q,"started_at":%[3]q,"ended_at":%[3]q,"expires_at":%[4]q,`+
			`"attempts":[{"number":1,"fence":7,"disposition":"completed","started_at":%[3]q,"ended_at":%[3]q}],"effects":[],"revision":%[5]q,"origin":7}`,
			rec.ID.Encode(), base64.StdEncoding.EncodeToString(rec.Result.Data), rec.EndedAt, rec.ExpiresAt, rec.Revision)
		if len(lines) != 2 || lines[1] != want {
			t.Errorf("the segment has %d lines; the second is\n%s\nwant\n%s", len(lines), lines[1], want)
		}
	})
	t.Run("a second archive in one directory is refused until the first is closed", func(t *testing.T) {
		dir := t.TempDir()
		a, err := Open(dir)
		must(t, err)
		if b, err := Open(dir); err == nil || !strings.Contains(err.Error(), "in use") {
			t.Errorf("%v, %v", b, err)
		}
		must(t, a.Close())
		b, err := Open(dir)
		must(t, err)
		must(t, b.Close())
	})
	t.Run("nothing is written for no records, a cancelled context or a closed archive", func(t *testing.T) {
		dir := t.TempDir()
		a, err := Open(dir)
		must(t, err)
		must(t, a.Write(t.Context(), nil))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := a.Write(ctx, batch(1, 1)); !errors.Is(err, context.Canceled) {
			t.Errorf("under a cancelled context: %v", err)
		}
		must(t, a.Close())
		if err := a.Write(t.Context(), batch(1, 1)); err == nil {
			t.Error("a closed archive takes records")
		}
		if got := keys(t, osFiles{}, dir); len(got) != 0 {
			t.Errorf("it has %q", got)
		}
	})
	t.Run("callers may write at the same time", func(t *testing.T) {
		dir := t.TempDir()
		a, err := Open(dir)
		must(t, err)
		defer a.Close()
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() {
				if err := a.Write(t.Context(), batch(i, 3)); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		must(t, Verify(dir))
		if got := keys(t, osFiles{}, dir); len(got) != 60 {
			t.Errorf("it has %d records, want 60", len(got))
		}
	})
	t.Run("reading stops at the caller's error", func(t *testing.T) {
		dir := t.TempDir()
		a, err := Open(dir)
		must(t, err)
		defer a.Close()
		must(t, a.Write(t.Context(), batch(1, 5)))
		enough, n := errors.New("enough"), 0
		if err := Read(dir, func(semel.Record) error { n++; return enough }); err != enough || n != 1 {
			t.Errorf("after %d records: %v", n, err)
		}
	})
	t.Run("a directory that is not there can't be read or verified", func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "none")
		if err := Verify(dir); !errors.Is(err, os.ErrNotExist) {
			t.Error(err)
		}
		if err := Read(dir, func(semel.Record) error { return nil }); !errors.Is(err, os.ErrNotExist) {
			t.Error(err)
		}
	})
	t.Run("a newer format is refused", func(t *testing.T) {
		dir := t.TempDir()
		must(t, os.WriteFile(filepath.Join(dir, manifestFile), []byte(`{"version":3}`+"\n"), 0o600))
		if _, err := Open(dir); err == nil || !strings.Contains(err.Error(), "version 3") {
			t.Error(err)
		}
	})
}

// TestAnyRecordIsReadBack fills every exported field of a record by reflection, so
// that one that JSON does not keep is found when it is added.
func TestAnyRecordIsReadBack(t *testing.T) {
	dir := t.TempDir()
	n := 0
	rapid.Check(t, func(t *rapid.T) {
		n++
		recs := make([]semel.Record, rapid.IntRange(1, 3).Draw(t, "records"))
		for i := range recs {
			fill(t, reflect.ValueOf(&recs[i]).Elem(), "Record")
		}
		fs := newDisk()
		a, err := open(fs, dir)
		if err != nil {
			t.Fatal(err)
		}
		if err := a.Write(context.Background(), recs); err != nil {
			t.Fatal(err)
		}
		var got []semel.Record
		if err := read(fs, dir, func(rec semel.Record) error { got = append(got, rec); return nil }); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, recs) {
			t.Fatalf("written\n%#v\nread\n%#v", recs, got)
		}
		if err := verify(fs, dir); err != nil {
			t.Fatal(err)
		}
	})
}

// fill sets every exported field below v to something that an engine may write.
func fill(t *rapid.T, v reflect.Value, path string) {
	switch v.Interface().(type) {
	case semel.ID, store.Compensation: // both name a record, which has an operation and a key
		defer func() {
			for _, name := range []string{"Operation", "Key"} {
				v.FieldByName(name).SetString("x" + v.FieldByName(name).String())
			}
		}()
	case store.Revision:
		if path == "Record.HeldFrom" {
			return // of records that are processing, which aren't archived
		}
	case store.Instant:
		if rapid.Bool().Draw(t, path+" set") {
			v.SetInt(rapid.Int64().Draw(t, path))
		}
		return
	case semel.Fingerprint:
		if rapid.Bool().Draw(t, path+" set") {
			scheme := rapid.SampledFrom([]store.Scheme{semel.SchemeRaw, semel.SchemeRaw + 1}).Draw(t, path+" scheme")
			v.Set(reflect.ValueOf(semel.FingerprintOf(scheme, rapid.SliceOf(rapid.Byte()).Draw(t, path))))
		}
		return
	case semel.State:
		v.SetUint(uint64(rapid.SampledFrom([]semel.State{semel.Processing, semel.Completed, semel.Failed}).Draw(t, path)))
		return
	case store.Attributes:
		if strings.HasSuffix(path, ".Result.Attributes") {
			return // those of a stored result are the record's
		}
		texts := rapid.Map(rapid.String(), func(s string) string { return strings.ToValidUTF8(s, "?") })
		if attributes := rapid.MapOfN(texts, texts, 0, 3).Draw(t, path); len(attributes) > 0 { // none and an empty map are the same
			v.Set(reflect.ValueOf(store.Attributes(attributes)))
		}
		return
	case store.Disposition:
		v.SetUint(rapid.Uint64Range(0, uint64(semel.DispositionAbandoned)).Draw(t, path))
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(strings.NewReplacer("\x00", "").Replace(strings.ToValidUTF8(rapid.StringN(-1, -1, 200).Draw(t, path), "?")))
	case reflect.Bool:
		v.SetBool(rapid.Bool().Draw(t, path))
	case reflect.Int, reflect.Int64:
		v.SetInt(rapid.Int64().Draw(t, path))
	case reflect.Uint64:
		v.SetUint(rapid.Uint64().Draw(t, path))
	case reflect.Uint8:
		v.SetUint(uint64(rapid.Byte().Draw(t, path)))
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.IsExported() {
				fill(t, v.Field(i), path+"."+f.Name)
			}
		}
	case reflect.Array:
		for i := range v.Len() {
			fill(t, v.Index(i), path+"[]")
		}
	case reflect.Slice:
		least := 1 // an empty list and none are the same
		if v.Type().Elem().Kind() == reflect.Uint8 {
			least = 0 // an empty result and none are not
		}
		if n := rapid.IntRange(least-1, 3).Draw(t, path+" length"); n >= least {
			v.Set(reflect.MakeSlice(v.Type(), n, n))
			for i := range n {
				fill(t, v.Index(i), path+"[]")
			}
		}
	case reflect.Pointer:
		if rapid.Bool().Draw(t, path+" set") {
			v.Set(reflect.New(v.Type().Elem()))
			fill(t, v.Elem(), path)
		}
	default:
		t.Fatalf("%s is a %s, which this test does not know how to fill", path, v.Type())
	}
}
