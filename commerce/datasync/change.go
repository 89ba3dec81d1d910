package datasync

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/canon"
	"github.com/semelhq/semel/internal/jsonscan"
	"github.com/semelhq/semel/store"
)

// Bounds of a change.
const (
	// MaxVersion is the highest version. Every reader of JSON keeps it exactly.
	MaxVersion = 1<<53 - 1
	// MaxContent is the longest canonical form of a content, in bytes.
	MaxContent = 64 << 10
	maxChange  = MaxContent + 16<<10 // of the text of a change
	maxOrigin  = 64
)

// Ref names an entity.
type Ref struct {
	// Tenant owns the data. Set it yourself: the other side doesn't send it.
	Tenant string `json:"-"`
	// Entity is one of Options.Entities, such as "user".
	Entity string `json:"entity"`
	// ID names the entity on both sides, in up to 256 bytes.
	ID string `json:"id"`
}

// Change is one version of an entity, as one side has made it.
type Change struct {
	Ref
	// Version is from 1 to MaxVersion.
	Version int64 `json:"version"`
	// Time is the time of the change, in milliseconds, by the clock of its origin.
	Time time.Time `json:"time"`
	// Origin is the side that made it: its Options.Origin.
	Origin string `json:"origin"`
	// Content is the entity's whole new state, as JSON; null if it was deleted.
	Content json.RawMessage `json:"content"`
}

// ParseChange reads a change from the other side, in the form that [Change.Encode]
// writes. Each member must be there once, by its exact name, and no other. The error has
// [semel.CodeInvalidCall].
func ParseChange(tenant string, text []byte) (Change, error) {
	if len(text) > maxChange {
		return Change{}, invalid("the change has more than %d bytes", maxChange)
	}
	if err := canon.Check(text, canon.Exact); err != nil {
		return Change{}, invalid("%v", err)
	}
	names := map[string]bool{"entity": true, "id": true, "version": true, "time": true, "origin": true, "content": true}
	for name := range jsonscan.Members(text) {
		if !names[string(name)] {
			return Change{}, invalid("a change has no member %.32q", name)
		}
		delete(names, string(name)) // none is there twice in strict JSON
	}
	for name := range names {
		return Change{}, invalid("the change has no member %s", name)
	}
	var c Change
	if err := json.Unmarshal(text, &c); err != nil {
		return Change{}, invalid("the change has a member of another type")
	}
	c.Tenant = tenant
	return c, nil
}

// Encode is the change for the other side, as JSON.
func (c Change) Encode() ([]byte, error) { return encode(c) }

// Key names the change among all of them, as an idempotency key for a receiver that
// wants one.
func (c Change) Key() string { return key(c.Ref, c.Version) + ":" + escape(c.Origin) }

// validate refuses a change that can't be kept, and brings it into its one form.
func (c *Change) validate() error {
	if c.Version < 1 || c.Version > MaxVersion {
		return invalid("the version %d isn't from 1 to %d", c.Version, int64(MaxVersion))
	}
	if c.Origin == "" || len(c.Origin) > maxOrigin || !store.ValidText(c.Origin) {
		return invalid("the origin must have 1 to %d bytes of UTF-8 without NUL", maxOrigin)
	}
	c.Time = c.Time.UTC()
	if c.Time.UnixMilli() <= 0 || c.Time.Year() > 9999 || !c.Time.Equal(c.Time.Truncate(time.Millisecond)) {
		return invalid("the time must be after 1970, and in whole milliseconds")
	}
	content, err := canon.Canonicalize(c.Content, canon.Exact)
	if err != nil {
		return invalid("the content: %v", err)
	}
	if len(content) > MaxContent {
		return invalid("the content has more than %d bytes", MaxContent)
	}
	c.Content = content
	return nil
}

// says reports whether two changes have the same content.
func (c *Change) says(content json.RawMessage) bool { return bytes.Equal(c.Content, content) }

// compare orders all changes of an entity, the one that wins last. Both sides order them
// alike.
func compare(a, b *Change) int {
	x, y := sha256.Sum256(a.Content), sha256.Sum256(b.Content)
	return cmp.Or(a.Time.Compare(b.Time), cmp.Compare(a.Version, b.Version), cmp.Compare(a.Origin, b.Origin), bytes.Compare(x[:], y[:]))
}

// encode is JSON that keeps the text of contents.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}

// Reasons to refuse a change. Errors wrap them.
var (
	// ErrVersion: a Put doesn't follow the version that is there (optimistic locking).
	// Read the state, and edit that.
	ErrVersion = errors.New("datasync: the entity has another version")
	// ErrAhead: the time of a received change is too far ahead of the store's clock. The
	// clock of its origin is wrong; with it the change would win against all others.
	ErrAhead = errors.New("datasync: the change comes from the future")
	// ErrFull: a version has too many different contents already. Somebody must decide.
	ErrFull = errors.New("datasync: the version has too many different contents")
)

func invalid(format string, args ...any) error {
	return &semel.Error{Code: semel.CodeInvalidCall, Message: "datasync: " + fmt.Sprintf(format, args...)}
}
