// Package decimal writes numbers in the layout of ECMAScript's Number::toString.
package decimal

import (
	"bytes"
	"strconv"
)

// minPlain and MaxPlain are the positions of the decimal point between which ECMAScript writes no
// exponent: 0.000001 to 21 digits before the point.
const minPlain, MaxPlain = -5, 21

// AppendFloat appends the ECMAScript text of f, a finite positive number.
func AppendFloat(dst []byte, f float64) []byte {
	// strconv gives the shortest digits, and the closest of these, as
	// ECMAScript asks; only the layout differs.
	var buf [32]byte
	b := strconv.AppendFloat(buf[:0], f, 'e', -1, 64) // d.ddde±dd
	e := bytes.LastIndexByte(b, 'e')
	point := 0
	for _, c := range b[e+2:] {
		point = point*10 + int(c-'0')
	}
	if b[e+1] == '-' {
		point = -point
	}
	digits := b[:1]
	if e > 1 {
		digits = append(digits, b[2:e]...)
	}
	return Append(dst, digits, point+1)
}

// Append appends 0.ddd times ten to the power of point in the layout of ECMAScript's
// Number::toString. The digits have no zero at either end.
func Append(dst, digits []byte, point int) []byte {
	const zeros = "000000000000000000000" // MaxPlain
	switch n := len(digits); {
	case n <= point && point <= MaxPlain:
		dst = append(dst, digits...)
		return append(dst, zeros[:point-n]...)
	case 0 < point && point <= MaxPlain:
		dst = append(dst, digits[:point]...)
		dst = append(dst, '.')
		return append(dst, digits[point:]...)
	case minPlain <= point && point <= 0:
		dst = append(dst, "0."...)
		dst = append(dst, zeros[:-point]...)
		return append(dst, digits...)
	}
	dst = append(dst, digits[0])
	if len(digits) > 1 {
		dst = append(dst, '.')
		dst = append(dst, digits[1:]...)
	}
	dst = append(dst, 'e')
	if point > 0 {
		dst = append(dst, '+')
	}
	return strconv.AppendInt(dst, int64(point-1), 10)
}
