package door

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/meaning"
)

// Meaning explains a code to callers, whatever the call and the door. A door has its own words
// or status only where its protocol demands them.
type Meaning struct {
	Code semel.Code `json:"code"`
	// Status is that of HTTP.
	Status int `json:"status"`
	// Title names the refusal, Meaning says what happened, Action what to do, whatever
	// the protocol.
	Title   string `json:"title"`
	Meaning string `json:"meaning"`
	Action  string `json:"action"`
	// Hint says what to send or read over HTTP. Optional.
	Hint string `json:"hint,omitempty"`
	// Retry is how long to wait at least before sending the same call again, where the
	// engine doesn't say. Zero: sending it again makes no sense, or only the engine knows
	// when.
	Retry time.Duration `json:"-"`
	// Effect tells another Semel in front about the call: that nothing was done, that
	// something may have been, or nothing at all. It goes into the header [EffectHeader].
	Effect string `json:"-"`
	// Foreign: the record that stands in the way belongs to another call, so the refusal
	// doesn't name it.
	Foreign bool `json:"-"`
}

// EffectHeader is the header of an answer that says what its status can't; see package judge,
// which reads it.
const EffectHeader = "Semel-Effect"

// The values of [EffectHeader].
const (
	EffectNone    = meaning.None    // nothing was done
	EffectUnknown = meaning.Unknown // something may have been done
)

// SetEffect sets [EffectHeader] of a refusal, unless there is nothing to say.
func SetEffect(header http.Header, effect string) {
	if effect != "" {
		header.Set(EffectHeader, effect)
	}
}

// Detail is the meaning and the action in one text, for any protocol.
func (m *Meaning) Detail() string { return m.Meaning + " " + m.Action }

// HTTPAction is the action and the hint in one text.
func (m *Meaning) HTTPAction() string { return strings.TrimSuffix(m.Action+" "+m.Hint, " ") }

// HTTPDetail is the meaning, the action and the hint in one text.
func (m *Meaning) HTTPDetail() string { return m.Meaning + " " + m.HTTPAction() }

// Names reports whether the refusal of a delivery may name the record of its answer: that is
// the caller's own. It isn't where the record belongs to another call, and a new call over
// its quota has none.
func Names(ans *semel.Answer) bool {
	code, _ := ans.Decision.Code()
	m, _ := Lookup(code)
	return !m.Foreign && (ans.Limit == "" || ans.Limit == semel.LimitDuplicates)
}

// Meanings lists all codes, in the order in which a call can meet them.
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
