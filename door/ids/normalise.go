package ids

import (
	"cmp"
	"encoding/json"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/semelhq/semel/internal/argschema"
)

// normalise applies the rules in the order of the declaration. Sets are sorted after
// all other rules; see sortSets.
func (e *Entry) normalise(tree map[string]any) error {
	for _, n := range e.Args.Normalise {
		steps, _ := n.Path.steps() // Load has checked it
		_, _, err := change(tree, steps, func(v any, present bool) (any, bool, error) {
			if !present {
				if len(n.Default) == 0 {
					return nil, false, nil
				}
				var err error
				if v, err = argschema.Decode(n.Default); err != nil {
					return nil, false, err // Load has checked it
				}
			}
			for _, rule := range n.Rules {
				value, ok := rule.apply(v)
				if !ok {
					return nil, false, &Error{Reason: ReasonArgs, Path: "args." + string(n.Path), Message: "it can't be normalised as " + string(rule)}
				}
				v = value
			}
			return v, true, nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// sortSets sorts the arrays that are sets, inner ones first.
func (e *Entry) sortSets(tree map[string]any) {
	var sets [][]step
	for _, n := range e.Args.Normalise {
		if slices.Contains(n.Rules, RuleSet) {
			steps, _ := n.Path.steps()
			sets = append(sets, steps)
		}
	}
	slices.SortStableFunc(sets, func(a, b []step) int { return cmp.Compare(len(b), len(a)) })
	for _, steps := range sets {
		_, _, _ = change(tree, steps, func(v any, present bool) (any, bool, error) { return asSet(v), present, nil })
	}
}

// asSet sorts the items of an array by their canonical forms and drops duplicates.
func asSet(v any) any {
	items, ok := v.([]any)
	if !ok {
		return v // the schema's business
	}
	byText := map[string]any{}
	for _, value := range items {
		text, err := write(value)
		if err != nil {
			return v // making the canonical form of the whole reports it
		}
		byText[string(text)] = value
	}
	set := make([]any, 0, len(byText))
	for _, text := range sortedNames(byText) {
		set = append(set, byText[text])
	}
	return set
}

// apply applies one rule. It leaves a value of another type unchanged; ok is false for a
// value of the right type that it can't normalise.
func (r Rule) apply(v any) (value any, ok bool) {
	text, isText := v.(string)
	if r == RuleDecimal {
		if n, isNumber := v.(json.Number); isNumber {
			text, isText = string(n), true
		}
	}
	if !isText {
		return v, true
	}
	switch r {
	case RuleTrim:
		return strings.TrimSpace(text), true
	case RuleCollapse:
		return strings.Join(strings.Fields(text), " "), true
	case RuleLower:
		return strings.ToLower(text), true
	case RuleUpper:
		return strings.ToUpper(text), true
	case RuleDecimal:
		return decimal(text)
	case RulePhone:
		return phone(text)
	}
	return v, true
}

var (
	decimalForm = regexp.MustCompile(`^([+-]?)([0-9]+)(?:\.([0-9]+))?(?:[eE]([+-]?[0-9]{1,4}))?$`)
	phoneForm   = regexp.MustCompile(`^\+[1-9][0-9]{6,14}$`)
	phoneMarks  = strings.NewReplacer(" ", "", "-", "", ".", "", "/", "", "(", "", ")", "", "\u00a0", "")
)

// decimal returns the exact value in plain digits: no exponent, no needless zeros, no plus, no
// minus before zero.
func decimal(text string) (any, bool) {
	m := decimalForm.FindStringSubmatch(text)
	if m == nil || len(text) > argschema.MaxNumber {
		return nil, false
	}
	exponent, _ := strconv.Atoi(cmp.Or(m[4], "0")) // decimalForm has checked it
	if exponent > argschema.MaxExponent || exponent < -argschema.MaxExponent {
		return nil, false
	}
	digits, point := m[2]+m[3], len(m[2])+exponent
	if point <= 0 {
		digits, point = strings.Repeat("0", 1-point)+digits, 1
	}
	if point > len(digits) {
		digits += strings.Repeat("0", point-len(digits))
	}
	whole, fraction := strings.TrimLeft(digits[:point], "0"), strings.TrimRight(digits[point:], "0")
	plain := cmp.Or(whole, "0")
	if fraction != "" {
		plain += "." + fraction
	}
	if m[1] == "-" && plain != "0" {
		plain = "-" + plain
	}
	return plain, true
}

// phone returns a number in the form of E.164. It refuses a number without a country code,
// because only the caller knows the country.
func phone(text string) (any, bool) {
	text = phoneMarks.Replace(text)
	if rest, ok := strings.CutPrefix(text, "00"); ok {
		text = "+" + rest
	}
	return text, phoneForm.MatchString(text)
}
