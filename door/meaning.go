package door

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/meaning"
	"github.com/semelhq/semel/store"
)

// Meaning explains a code to callers, whatever the call and the door. A door has its own words
// or status only if its protocol requires that.
type Meaning struct {
	Code semel.Code `json:"code"`
	// Status is the HTTP status.
	Status int `json:"status"`
	// Title names the refusal, Meaning says what happened, and Action what to do, whatever the
	// protocol.
	Title   string `json:"title"`
	Meaning string `json:"meaning"`
	Action  string `json:"action"`
	// Hint says what to send or read over HTTP. Optional.
	Hint string `json:"hint,omitempty"`
	// Retry is the shortest wait before sending the same call again, if the engine doesn't say.
	// Zero: sending it again makes no sense, or only the engine knows when.
	Retry time.Duration `json:"-"`
	// Effect tells a Semel in front of this one that nothing was done, or that something may
	// have been. Empty: neither. It goes into the header [EffectHeader].
	Effect string `json:"-"`
	// Foreign: the record in the way belongs to another call, so the refusal doesn't name it.
	Foreign bool `json:"-"`
	// Do is what a program or a model does next.
	Do store.Action `json:"-"`
}

// EffectHeader is the answer header that says more than the status can; package judge reads it.
const EffectHeader = "Semel-Effect"

// The values of [EffectHeader].
const (
	EffectNone    = meaning.None    // nothing was done
	EffectUnknown = meaning.Unknown // something may have been done
)

// SetEffect sets a refusal's [EffectHeader], unless there is nothing to say.
func SetEffect(header http.Header, effect string) {
	if effect != "" {
		header.Set(EffectHeader, effect)
	}
}

// Detail returns the meaning and the action in one text, for any protocol.
func (m *Meaning) Detail() string { return m.Meaning + " " + m.Action }

// HTTPAction returns the action and the hint in one text.
func (m *Meaning) HTTPAction() string { return strings.TrimSuffix(m.Action+" "+m.Hint, " ") }

// HTTPDetail returns the meaning, the action and the hint in one text.
func (m *Meaning) HTTPDetail() string { return m.Meaning + " " + m.HTTPAction() }

// Names reports whether a delivery's refusal may name the record in its answer, because that is
// the caller's own. It isn't if the record belongs to another call; a new call over its quota
// has none.
func Names(ans *semel.Answer) bool {
	code, _ := ans.Decision.Code()
	m, _ := Lookup(code)
	return !m.Foreign && (ans.Limit == "" || ans.Limit == semel.LimitDuplicates)
}

// ActionOf returns what a program or a model does after a refusal: by the table or, for a word
// that only the door's protocol has, by the HTTP status. Without a code there is no refusal.
func ActionOf(code semel.Code, status int) store.Action {
	m, known := Lookup(code)
	switch {
	case code == "":
		return ""
	case known:
		return m.Do
	case status >= 500 || status == http.StatusRequestTimeout || status == http.StatusTooManyRequests:
		return store.ActionWait
	case status == http.StatusForbidden || status == http.StatusGone:
		return store.ActionStop
	case status == http.StatusConflict:
		return store.ActionVerify
	}
	return store.ActionFixRequest
}

// Meanings lists all codes, in the order in which a call can get them.
func Meanings() []Meaning {
	list := make([]Meaning, 0, len(meaning.Table))
	for _, row := range meaning.Table {
		list = append(list, Meaning(row))
	}
	return list
}

// Lookup finds what a code means. It reports false, and returns the meaning of
// [CodeInternal], if the table doesn't have the code.
func Lookup(code semel.Code) (Meaning, bool) {
	i := slices.IndexFunc(meaning.Table, func(row meaning.Row) bool { return row.Code == code })
	if i < 0 {
		m, _ := Lookup(CodeInternal)
		return m, false
	}
	return Meaning(meaning.Table[i]), true
}
