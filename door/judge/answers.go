package judge

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/semelhq/semel/internal/canon"
	"github.com/semelhq/semel/internal/selector"
	"github.com/semelhq/semel/internal/words"
)

// Answers say what one upstream's answers mean, in place of the table. Each entry is a status,
// such as "503", or a status and a condition on the answer:
//
//	302 header:Location=/sign-in*
//	200 json:/errors/0/extensions/code=THROTTLED
//
// The text after the equals sign is the whole value; a star in it stands for any text. A header
// that comes several times matches if one of its values does. The pointer (RFC 6901) leads to a
// string, a number or a boolean in the body, or with the text [] to an empty list there. The
// body has to be JSON of at most [MaxBody] bytes, as it is or packed by gzip: any other body
// doesn't match. Nor does a body that is passed through, such as a stream.
//
// Entries with a condition come first; otherwise unknown comes before final, and final before
// not executed.
type Answers struct {
	// NotExecuted prove that nothing was done: the next delivery runs. Everybody who can give
	// such an answer has to keep that promise, even after the program has begun.
	NotExecuted []string `json:"not_executed,omitempty" numbers:"true"`
	// Unknown are answers that prove nothing: the call is held.
	Unknown []string `json:"unknown,omitempty" numbers:"true"`
	// Final are refusals for good: every duplicate gets the same answer.
	Final []string `json:"final,omitempty" numbers:"true"`
}

// MaxBody is how much of an answer's body is examined, in bytes, packed and unpacked.
const MaxBody = 64 << 10

// Named are validated [Answers]. Nil has none. It is never changed.
type Named struct {
	entries []entry // in order of precedence
}

// entry is one of [Answers].
type entry struct {
	text    string
	status  int
	where   *selector.Condition // nil: there is none
	verdict Verdict
}

// Any reports whether there is an entry.
func (a Answers) Any() bool { return len(a.NotExecuted)+len(a.Unknown)+len(a.Final) > 0 }

// Mistake is a fault of an entry, with the list and the position of that entry.
type Mistake struct {
	List string
	At   int
	Why  string
}

// Error says where it is, and what is wrong.
func (m Mistake) Error() string { return fmt.Sprintf("%s[%d]: %s", m.List, m.At, m.Why) }

// Check lists the mistakes in the answers.
func (a Answers) Check() []Mistake {
	_, mistakes := a.parse()
	return mistakes
}

// Parse validates the answers. The error lists everything that is wrong, each as a [Mistake].
// Without any answers it returns nil.
func (a Answers) Parse() (*Named, error) {
	n, mistakes := a.parse()
	var errs []error
	for _, m := range mistakes {
		errs = append(errs, m)
	}
	return n, errors.Join(errs...)
}

func (a Answers) parse() (*Named, []Mistake) {
	n := &Named{}
	var wrong []Mistake
	for _, list := range [...]struct {
		name    string
		entries []string
		verdict Verdict
	}{{"unknown", a.Unknown, Unknown}, {"final", a.Final, Rejected}, {"not_executed", a.NotExecuted, Aborted}} {
		for i, text := range list.entries {
			e, err := parseEntry(text)
			e.verdict = list.verdict
			if err == nil && slices.ContainsFunc(n.entries, func(other entry) bool { return other.text == e.text }) {
				err = fmt.Errorf("%q is there twice", e.text)
			}
			if err != nil {
				wrong = append(wrong, Mistake{list.name, i, err.Error()})
				continue
			}
			n.entries = append(n.entries, e)
		}
	}
	slices.SortStableFunc(n.entries, func(a, b entry) int { return bare(&a) - bare(&b) })
	if len(n.entries) == 0 {
		n = nil
	}
	return n, wrong
}

// Must is Parse for answers written in your program. It panics if one is wrong.
func (a Answers) Must() *Named {
	n, err := a.Parse()
	if err != nil {
		panic("judge: " + err.Error())
	}
	return n
}

// bare sorts entries without a condition to the end.
func bare(e *entry) int {
	if e.where == nil {
		return 1
	}
	return 0
}

func parseEntry(text string) (e entry, err error) {
	e.text = strings.TrimSpace(text)
	number, rest, _ := strings.Cut(e.text, " ")
	if e.status, err = strconv.Atoi(number); err != nil || e.status < 200 || e.status >= statuses {
		return e, fmt.Errorf("%q doesn't begin with a status from 200 to 999", text)
	}
	if rest = strings.TrimSpace(rest); rest == "" {
		if e.status < 300 {
			return e, fmt.Errorf("%d says that the work was done: say by which header or part of the body it wasn't, such as %d json:/error/code=THROTTLED", e.status, e.status)
		}
		return e, nil
	}
	if _, want, _ := strings.Cut(rest, "="); want == "" {
		return e, fmt.Errorf("%q has no value after its selector: write such as %d header:Location=/sign-in*", text, e.status)
	}
	c, err := selector.ParseCondition(rest)
	e.where = &c
	return e, err
}

func (n *Named) reads(status int) bool {
	return slices.ContainsFunc(n.entries, func(e entry) bool {
		return e.status == status && e.where != nil && e.where.Source == selector.JSON
	})
}

// Reads reports whether judging an answer with this status needs its body.
func (r *Rules) Reads(status int) bool {
	return r.Answers != nil && r.Answers.reads(status) || r.Contract != nil && r.Contract.reads(status)
}

// Conditions describes the entries for a status that look at more of the answer, each with what
// it proves, for people.
func (r *Rules) Conditions(status int) (list []string) {
	for _, n := range []*Named{r.Answers, r.Contract} {
		if n == nil {
			continue
		}
		for _, e := range n.entries {
			if e.status == status && e.where != nil {
				list = append(list, e.text+": "+e.verdict.String())
			}
		}
	}
	return list
}

// headers returns the headers that the answers look at.
func (n *Named) headers() (names []string) {
	if n == nil {
		return nil
	}
	for _, e := range n.entries {
		if e.where != nil && e.where.Source == selector.Header {
			names = append(names, e.where.Name)
		}
	}
	return names
}

// of finds the entry that applies.
func (n *Named) of(a *Answer) (v Verdict, found bool) {
	in := selector.Input{Header: a.Header}
	looked := false
	for i := range n.entries {
		e := &n.entries[i]
		if e.status != a.Status {
			continue
		}
		if e.where != nil && e.where.Source == selector.JSON && !looked {
			in.JSON, looked = a.json(), true
		}
		if e.where == nil || e.where.Holds(&in) {
			return e.verdict, true
		}
	}
	return Unknown, false
}

// json returns the body in canonical form; nil if there is nothing to look into.
func (a *Answer) json() []byte {
	body := a.Body
	if len(body) == 0 || len(body) > MaxBody {
		return nil
	}
	switch coding := a.Header["Content-Encoding"]; {
	case len(coding) == 0:
	case len(coding) == 1 && strings.EqualFold(coding[0], "gzip"):
		packed, err := gzip.NewReader(bytes.NewReader(body))
		if err != nil {
			return nil
		}
		if body, err = io.ReadAll(io.LimitReader(packed, MaxBody+1)); err != nil || len(body) > MaxBody {
			return nil
		}
	default:
		return nil
	}
	text, err := canon.Canonicalize(body, canon.Exact)
	if err != nil {
		return nil
	}
	return text
}

// Words returns the program's own explanation of an answer that isn't a success: a code for
// programs, and one line of text for people. They are in the body, which has to be a JSON object,
// such as a problem document (RFC 9457). Both are empty if the body has neither.
func (a *Answer) Words() (code, text string) { return words.Of(a.json()) }

// reflected are headers that also mean something in a request, so they can't be kept from an
// upstream.
var reflected = []string{"Cache-Control", "Content-Encoding", "Content-Language", "Content-Length", "Content-Type", "Date", "Link", "Via"}

// Forbidden returns headers that a caller must not send to the program: it might repeat them in
// its answer, where they would change what that proves.
func (r *Rules) Forbidden() []string {
	names := []string{EffectHeader, "Retry-After"}
	if r.RetryHeader != "" {
		names = append(names, http.CanonicalHeaderKey(r.RetryHeader))
	}
	for _, name := range append(r.Answers.headers(), r.Contract.headers()...) {
		if !slices.Contains(reflected, name) && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}
