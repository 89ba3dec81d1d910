package semelhttp

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/internal/selector"
)

// parseSequence parses where the number of a call is: one place, or none.
func (rt *Route) parseSequence() ([]selector.Selector, error) {
	if rt.Sequence == "" {
		return nil, nil
	}
	s, err := selector.Parse(rt.Sequence, selector.Keys)
	return []selector.Selector{s}, err
}

// checkSequence refuses a number where the operation has none, and the reverse.
func (rt *Route) checkSequence(op *semel.Operation) error {
	switch {
	case op.Sequenced && rt.Sequence == "":
		return fmt.Errorf("semelhttp: operation %q is sequenced, so its route needs Sequence", op.Name)
	case !op.Sequenced && rt.Sequence != "":
		return fmt.Errorf("semelhttp: the route has Sequence, and operation %q isn't sequenced", op.Name)
	}
	return nil
}

// number is the number of the call that a request delivers. A fault is a sentence for the
// caller.
func (p *picks) number(in *selector.Input) (n uint64, fault string) {
	if len(p.sequence) == 0 {
		return 0, ""
	}
	text, found, err := p.sequence[0].Find(in)
	if err == nil && !found {
		err = errors.New("is missing")
	}
	if err == nil {
		n, err = parseNumber(text)
	}
	if err != nil {
		return 0, fmt.Sprintf("The number of the call in %s %s. Nothing was executed.", p.sequence[0], err)
	}
	return n, ""
}

// parseNumber reads a number of a sequence. Each has one spelling, so that no two programs
// on the way can read it as different ones.
func parseNumber(text string) (uint64, error) {
	n, err := strconv.ParseUint(text, 10, 64)
	switch {
	case errors.Is(err, strconv.ErrRange):
		return 0, errors.New("is above 18446744073709551615")
	case err != nil, n == 0, strings.HasPrefix(text, "0"):
		return 0, errors.New("isn't a whole number from 1, written in digits without a sign or zeros before it")
	}
	return n, nil
}
