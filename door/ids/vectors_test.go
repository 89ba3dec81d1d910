package ids

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"maps"
	"math/big"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/gowebpki/jcs"

	"github.com/semelhq/semel/internal/rig/clause"
)

// vectorFile is testdata/vectors.json, which is published: other implementations are
// checked against it. It never changes for a version of the key; vectors are added.
type vectorFile struct {
	Version  string   `json:"version"`
	About    string   `json:"about"`
	Registry string   `json:"registry"`
	Vectors  []vector `json:"vectors"`
}

type vector struct {
	Name string `json:"name"`
	// Envelope is the text as it is sent; EnvelopeHex its bytes where they are no
	// UTF-8.
	Envelope    string `json:"envelope,omitempty"`
	EnvelopeHex string `json:"envelope_hex,omitempty"`
	// Registered says that the registry of the file applies.
	Registered bool     `json:"registered,omitempty"`
	Canonical  string   `json:"canonical,omitempty"`
	Key        string   `json:"key,omitempty"`
	Stripped   []string `json:"stripped,omitempty"`
	// Same names a vector before this one with the same key. All others differ.
	Same  string `json:"same,omitempty"`
	Error Reason `json:"error,omitempty"`
}

func (v *vector) text(t testing.TB) []byte {
	if v.EnvelopeHex == "" {
		return []byte(v.Envelope)
	}
	text, err := hex.DecodeString(v.EnvelopeHex)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// derive is what the package makes of a vector.
func (v *vector) derive(t testing.TB, reg *Registry) (*Derivation, error) {
	c, err := ParseCommand(v.text(t))
	if err != nil {
		return nil, err
	}
	if v.Registered {
		return reg.Derive(c)
	}
	return Derive(c)
}

func vectorRegistry(t testing.TB) *Registry {
	t.Helper()
	data, err := os.ReadFile("testdata/vectors.yaml")
	if err != nil {
		t.Fatal(err)
	}
	reg, err := Load(data, LoadOptions{File: "vectors.yaml"})
	if err != nil {
		t.Fatal(err)
	}
	return reg
}

func readVectors(t testing.TB) vectorFile {
	t.Helper()
	data, err := os.ReadFile("testdata/vectors.json")
	if err != nil {
		t.Fatal(err)
	}
	var file vectorFile
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&file); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestVectors checks the package against the published vectors.
func TestVectors(t *testing.T) {
	clause.Proves(t, "IDS-VII.1", "IDS-VII.2", "IDS-VII.3", "IDS-VII.4", "IDS-VII.5", "IDS-VII.6", "IDS-XV.1")
	reg := vectorRegistry(t)
	if *update {
		writeVectors(t, reg)
	}
	file := readVectors(t)
	if len(file.Vectors) < 60 || file.Version != KeyVersion {
		t.Fatalf("%d vectors of version %s", len(file.Vectors), file.Version)
	}
	for _, v := range file.Vectors {
		t.Run(v.Name, func(t *testing.T) {
			d, err := v.derive(t, reg)
			if v.Error != "" {
				if e, ok := errors.AsType[*Error](err); !ok || e.Reason != v.Error {
					t.Fatalf("the error is %v, want %s", err, v.Error)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var stripped []string
			for _, s := range d.Stripped {
				stripped = append(stripped, s.Path)
			}
			if string(d.Canonical) != v.Canonical || d.Key != v.Key || !slices.Equal(stripped, v.Stripped) {
				t.Errorf("got  %s\n     %s %q\nwant %s\n     %s %q", d.Canonical, d.Key, stripped, v.Canonical, v.Key, v.Stripped)
			}
		})
	}
}

// TestVectorsStandAlone checks the file without the package: by the standard
// library's SHA-256 and by a canonicaliser of this test's own, so that a mistake of
// the package is not simply written down and found again.
func TestVectorsStandAlone(t *testing.T) {
	clause.Proves(t, "IDS-VII.2", "IDS-VII.3", "IDS-VII.5", "IDS-XV.1")
	keys := map[string]string{} // name by key
	byName := map[string]vector{}
	for _, v := range readVectors(t).Vectors {
		t.Run(v.Name, func(t *testing.T) {
			if _, twice := byName[v.Name]; twice {
				t.Fatal("there are two vectors of this name")
			}
			byName[v.Name] = v
			if v.Error != "" {
				if v.Canonical != "" || v.Key != "" {
					t.Error("it is refused and has a key")
				}
				return
			}
			sum := sha256.Sum256([]byte(v.Canonical))
			if v.Key != "ids1:"+hex.EncodeToString(sum[:]) {
				t.Errorf("the SHA-256 is %x", sum)
			}
			tree := mustDecode(t, v.Canonical)
			if again := canonicalByHand(tree); again != v.Canonical {
				t.Errorf("the canonical form is %s", again)
			}
			if !strings.Contains(v.Name, "binary64") {
				if again, err := jcs.Transform([]byte(v.Canonical)); err != nil || string(again) != v.Canonical {
					t.Errorf("RFC 8785 has %s, %v", again, err)
				}
			}
			if !v.Registered {
				if want := canonicalByHand(inputsByHand(mustDecode(t, v.Envelope).(map[string]any))); want != v.Canonical {
					t.Errorf("the envelope gives %s", want)
				}
			}
			first, seen := keys[v.Key]
			if v.Same != "" && byName[v.Same].Key != v.Key || v.Same == "" && seen {
				t.Errorf("it has the key of %q and should have that of %q", first, v.Same)
			}
			if !seen {
				keys[v.Key] = v.Name
			}
		})
	}
}

func mustDecode(t *testing.T, text string) any {
	t.Helper()
	dec := json.NewDecoder(strings.NewReader(text))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		t.Fatal(err)
	}
	return v
}

// inputsByHand picks the key inputs of an envelope that no registry declares.
func inputsByHand(envelope map[string]any) map[string]any {
	in := map[string]any{"args": map[string]any{}}
	for _, name := range []string{"tenant_id", "intent", "args", "command_kind", "effective_actor_id", "actor_id"} {
		if v, given := envelope[name]; given {
			in[name] = v
		}
	}
	if in["effective_actor_id"] != nil {
		delete(in, "actor_id")
	}
	dropNames(in["args"], []string{"timestamp", "nonce", "messageId", "request_token", "sent_at", "wamid"})
	return in
}

func dropNames(v any, names []string) {
	switch x := v.(type) {
	case map[string]any:
		for _, name := range names {
			delete(x, name)
		}
		for _, item := range x {
			dropNames(item, names)
		}
	case []any:
		for _, item := range x {
			dropNames(item, names)
		}
	}
}

// canonicalByHand is RFC 8785 in a few lines, with exact decimals.
func canonicalByHand(v any) string {
	switch x := v.(type) {
	case map[string]any:
		var parts []string
		names := slices.SortedFunc(maps.Keys(x), func(a, b string) int {
			return slices.Compare(utf16.Encode([]rune(a)), utf16.Encode([]rune(b)))
		})
		for _, name := range names {
			parts = append(parts, quoteByHand(name)+":"+canonicalByHand(x[name]))
		}
		return "{" + strings.Join(parts, ",") + "}"
	case []any:
		var parts []string
		for _, item := range x {
			parts = append(parts, canonicalByHand(item))
		}
		return "[" + strings.Join(parts, ",") + "]"
	case string:
		return quoteByHand(x)
	case json.Number:
		return numberByHand(string(x))
	case bool:
		return strconv.FormatBool(x)
	}
	return "null"
}

func quoteByHand(s string) string {
	b := []byte{'"'}
	for _, r := range s {
		switch short := strings.IndexRune("\b\t\n\f\r\"\\", r); {
		case short >= 0:
			b = append(b, '\\', "btnfr\"\\"[short])
		case r < 0x20:
			b = append(b, `\u00`...)
			b = append(b, "0123456789abcdef"[r>>4], "0123456789abcdef"[r&15])
		default:
			b = append(b, string(r)...)
		}
	}
	return string(append(b, '"'))
}

// numberByHand writes digits as ECMAScript lays them out.
func numberByHand(text string) string {
	value, _ := new(big.Rat).SetString(text)
	if value.Sign() == 0 {
		return "0"
	}
	sign := ""
	if value.Sign() < 0 {
		sign = "-"
		value.Neg(value)
	}
	// The value is digits × 10^exponent, without zeros at the end of the digits.
	exponent, ten := 0, big.NewRat(10, 1)
	for !value.IsInt() {
		value.Mul(value, ten)
		exponent--
	}
	digits := value.Num().String()
	exponent += len(digits) - len(strings.TrimRight(digits, "0"))
	digits = strings.TrimRight(digits, "0")
	n, k := exponent+len(digits), len(digits)
	switch {
	case k <= n && n <= 21:
		return sign + digits + strings.Repeat("0", n-k)
	case 0 < n && n <= 21:
		return sign + digits[:n] + "." + digits[n:]
	case -6 < n && n <= 0:
		return sign + "0." + strings.Repeat("0", -n) + digits
	}
	mantissa := digits[:1]
	if k > 1 {
		mantissa += "." + digits[1:]
	}
	plus := ""
	if n-1 > 0 {
		plus = "+"
	}
	return sign + mantissa + "e" + plus + strconv.Itoa(n-1)
}
