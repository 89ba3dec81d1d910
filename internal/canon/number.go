package canon

import (
	"bytes"
	"slices"
	"strconv"

	"github.com/semelhq/semel/internal/canon/decimal"
)

const (
	// exactDigits is how many significant digits binary64 always preserves: no two decimals of
	// that many digits share a nearest binary64, so its shortest digits are the decimal's.
	exactDigits = 15
	// exactPoint bounds the position of the decimal point for which that is true, well within
	// binary64's normal range.
	exactPoint = 300
	// floatPoint is a position of the decimal point beyond which every number overflows
	// binary64. Below its negative, every number underflows.
	floatPoint = 400
	// maxLonger is the most that a number can grow: 1e20 grows by 17 bytes.
	maxLonger = 17
	// maxCounted is where a literal's exponent stops being counted. No input has enough digits
	// to make up for more.
	maxCounted = 1 << 50
)

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

// digits returns the end of the digits in src from i on, and requires at least one.
func (p *parser) digits(i int) (end int, err error) {
	end = i
	for end < len(p.src) && isDigit(p.src[end]) {
		end++
	}
	if end == i {
		p.pos = i
		return i, p.unexpected("a digit")
	}
	return end, nil
}

// numberValue reads the number at pos and writes its canonical text.
func (p *parser) numberValue() error {
	start := p.pos
	whole := start
	if p.src[start] == '-' {
		whole++
	}
	wholeEnd, err := p.digits(whole)
	if err != nil {
		return err
	}
	if p.src[whole] == '0' && wholeEnd > whole+1 {
		return p.fail(whole+1, "number with a leading zero")
	}
	end := wholeEnd
	fraction, fractionEnd := end, end
	if end < len(p.src) && p.src[end] == '.' {
		fraction = end + 1
		if fractionEnd, err = p.digits(fraction); err != nil {
			return err
		}
		end = fractionEnd
	}
	exponent := int64(0)
	if end < len(p.src) && p.src[end]|0x20 == 'e' {
		if exponent, end, err = p.exponent(end + 1); err != nil {
			return err
		}
		// No other text can grow.
		if rest := len(p.src) - start; cap(p.text)-len(p.text) < rest+maxLonger && rest > maxFirstGrow {
			p.text = slices.Grow(p.text, rest+maxLonger*(1+p.exponentsLeft()))
		}
	}
	p.pos = end
	verbatim := exactDigits
	if p.mode == Exact {
		verbatim = decimal.MaxPlain
	}
	if end == wholeEnd && end-whole <= verbatim && p.src[whole] != '0' {
		p.text = append(p.text, p.src[start:end]...)
		return nil
	}
	return p.decimal(start, p.src[whole:wholeEnd], p.src[fraction:fractionEnd], exponent)
}

// decimal writes the canonical text of the number at start, from its digits before and after
// the point, and its exponent.
func (p *parser) decimal(start int, whole, fraction []byte, exponent int64) error {
	// The value is 0.ddd times ten to the power of point, where ddd has no zeros at either end.
	const lead = "0."
	p.number = append(p.number[:0], lead...)
	p.number = append(p.number, whole...)
	p.number = append(p.number, fraction...)
	digits := p.number[len(lead):]
	significant := bytes.TrimLeft(digits, "0")
	point := int64(len(whole)) + exponent - int64(len(digits)-len(significant))
	significant = bytes.TrimRight(significant, "0")
	if len(significant) == 0 {
		p.text = append(p.text, '0') // negative zero too
		return nil
	}
	if p.mode == Exact {
		if e := point - 1; e > MaxExponent || e < -MaxExponent {
			return p.fail(start, "number out of range")
		}
	} else if len(significant) > exactDigits || point > exactPoint || point < -exactPoint {
		n := copy(digits, significant)
		return p.binary64(start, p.src[start] == '-', p.number[:len(lead)+n], point)
	}
	if p.src[start] == '-' {
		p.text = append(p.text, '-')
	}
	p.text = decimal.Append(p.text, significant, int(point))
	return nil
}

// exponent reads the part of a number after its e.
func (p *parser) exponent(i int) (value int64, end int, err error) {
	negative := false
	if i < len(p.src) && (p.src[i] == '+' || p.src[i] == '-') {
		negative = p.src[i] == '-'
		i++
	}
	if end, err = p.digits(i); err != nil {
		return 0, i, err
	}
	for _, c := range p.src[i:end] {
		if value < maxCounted {
			value = value*10 + int64(c-'0')
		}
	}
	if negative {
		value = -value
	}
	return value, end, nil
}

// binary64 writes the text of the binary64 nearest to a number, which starts at offset start of
// src and has the magnitude of fraction ("0.ddd") times ten to the power of point.
func (p *parser) binary64(start int, negative bool, fraction []byte, point int64) error {
	// strconv loses count of exponents with more than five digits, so values far out are
	// decided here.
	point = min(max(point, -floatPoint), floatPoint)
	fraction = append(fraction, 'e')
	fraction = strconv.AppendInt(fraction, point, 10)
	p.number = fraction
	f, err := strconv.ParseFloat(string(fraction), 64)
	if err != nil {
		return p.fail(start, "number out of range")
	}
	if f == 0 {
		p.text = append(p.text, '0')
		return nil
	}
	if negative {
		p.text = append(p.text, '-')
	}
	p.text = decimal.AppendFloat(p.text, f)
	return nil
}
