// Package answer encodes HTTP answers in the form that records keep.
package answer

import (
	"encoding/binary"
	"errors"
	"net/http"
	"slices"

	"github.com/semelhq/semel/internal/canon"
	"github.com/semelhq/semel/internal/origin"
)

// A recorded answer is the data of a [store.Result]:
//
//	version   1 byte, resultVersion or streamVersion
//	status    uvarint
//	headers   each value of each kept header: its name, and the framed value
//	end       1 byte, endOfHead
//	body      the rest
//
// A name is one byte, its place in alwaysKept counted from 1, or a zero byte and the
// framed name. A framed text is preceded by its length as a uvarint.
const (
	resultVersion = 1
	streamVersion = 2 // the body is kept beside the record, and its mark is in place of it
	endOfHead     = 0xff
)

// AppendHead appends everything but the body: the headers of set that are always kept or in
// extra, in a fixed order, unless outer has the same. The headers for
// pages start with from, the page's origin.
func AppendHead(b []byte, status int, set, outer Headers, from string, extra []string) []byte {
	b = append(b, resultVersion)
	b = binary.AppendUvarint(b, uint64(status))
	for i, name := range alwaysKept {
		if i >= firstOfOrigin {
			if from == "" {
				break
			}
			if name == origin.Header {
				b = canon.Frame(append(b, byte(i+1)), from)
				continue
			}
		}
		for _, v := range set.Beyond(outer, name) {
			b = canon.Frame(append(b, byte(i+1)), v)
		}
	}
	for i, names := range [...][]string{alsoKept[:], extra} {
		for _, name := range names {
			if i > 0 && slices.Contains(alsoKept[:], name) {
				continue
			}
			for _, v := range set.Beyond(outer, name) {
				b = canon.Frame(canon.Frame(append(b, 0), name), v)
			}
		}
	}
	return append(b, endOfHead)
}

// Streamed makes the result of a streamed answer from its head and the mark of its stream.
func Streamed(head, mark []byte) []byte {
	data := slices.Concat(head, mark)
	data[0] = streamVersion
	return data
}

// MarkOf is the mark of the stream in a result; nil if there is none.
func MarkOf(data []byte) []byte {
	if r, err := Parse(data); err == nil && r.Stream {
		return r.Body
	}
	return nil
}

var errResult = errors.New("the recorded result is not an HTTP answer of a known version")

// Recorded is a parsed answer.
type Recorded struct {
	Status int
	Body   []byte
	Stream bool   // Body is the mark of a stream, see package streams
	head   []byte // the headers
	values int    // how many values they have in total
}

// Parse parses a recorded answer without copying data.
func Parse(data []byte) (r Recorded, err error) {
	if len(data) == 0 || data[0] != resultVersion && data[0] != streamVersion {
		return r, errResult
	}
	status, n := binary.Uvarint(data[1:])
	if n <= 0 || status < 100 || status > 999 {
		return r, errResult
	}
	head := data[1+n:]
	c := cursor{rest: head}
	for ; !c.end(); r.values++ {
		c.name()
		c.bytes()
	}
	if c.bad {
		return Recorded{}, errResult
	}
	r.Stream = data[0] == streamVersion
	r.Status, r.head, r.Body = int(status), head[:len(head)-len(c.rest)], c.rest
	return r, nil
}

// Others returns the names of the stored headers that aren't always kept.
func (r *Recorded) Others() (names []string) {
	c := cursor{rest: r.head}
	for range r.values {
		free := c.rest[0] == 0
		if name := c.name(); free {
			names = append(names, name)
		}
		c.bytes()
	}
	return names
}

// Set puts the stored headers that are always kept or in extra into h, and replaces the values
// there: the route says what may be replayed, whoever wrote the result. Headers for pages of
// one origin are set only if that origin asks, and h has none yet. All values share one
// allocation, with room for spare more.
func (r *Recorded) Set(h http.Header, from string, extra []string, spare int) (room []string) {
	values := make([]string, r.values+spare)
	text := string(r.head) // one copy, shared by all values
	c := cursor{rest: r.head}
	last, first := "", 0
	meant := false
	for i := range r.values {
		free := c.rest[0] == 0 // its name is written out
		name := c.name()
		size := len(c.bytes())
		end := len(text) - len(c.rest)
		values[i] = text[end-size : end]
		switch name {
		case origin.Header:
			meant = values[i] == from && len(h[origin.AllowOrigin]) == 0
			continue
		case origin.AllowOrigin, origin.AllowCredentials, origin.ExposeHeaders:
			if !meant {
				continue
			}
		default:
			if free && !slices.Contains(extra, name) && !slices.Contains(alsoKept[:], name) {
				last = ""
				continue
			}
		}
		if name != last {
			last, first = name, i
		}
		h[name] = values[first : i+1 : i+1]
	}
	return values[r.values:]
}

// cursor reads framed items. After the first item that doesn't fit it is bad and returns
// nothing more.
type cursor struct {
	rest []byte
	bad  bool
}

// end reads the end of the head, if it is next.
func (c *cursor) end() bool {
	if c.bad {
		return true
	}
	if len(c.rest) > 0 && c.rest[0] == endOfHead {
		c.rest = c.rest[1:]
		return true
	}
	return false
}

func (c *cursor) name() string {
	if len(c.rest) == 0 || int(c.rest[0]) > len(alwaysKept) {
		c.rest, c.bad = nil, true
		return ""
	}
	code := c.rest[0]
	c.rest = c.rest[1:]
	if code > 0 {
		return alwaysKept[code-1]
	}
	return string(c.bytes())
}

func (c *cursor) bytes() []byte {
	b, rest, ok := canon.Unframe(c.rest)
	c.rest, c.bad = rest, c.bad || !ok
	return b
}
