package canon

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"math"
	"slices"
	"strconv"
	"testing"

	"github.com/semelhq/semel/internal/rig/clause"
)

// oracleSums are the published SHA-256 figures for the first lines of the
// number test of RFC 8785's reference material. A line is the bits of a
// binary64 in hexadecimal, a comma, its ECMAScript text, and a line feed.
var oracleSums = map[int]string{
	1_000:     "be18b62b6f69cdab33a7e0dae0d9cfa869fda80ddc712221570f9f40a5878687",
	10_000:    "b9f7a8e75ef22a835685a52ccba7f7d6bdc99e34b010992cbc5864cd12be6892",
	100_000:   "22776e6d4b49fa294a0d0f349268e5c28808fe7e0cb2bcbe28f63894e494d4c7",
	1_000_000: "49415fee2c56c77864931bd3624faad425c3c577d6d74e89a83bc725506dad16",
}

func TestNumbersMatchThePublishedOracle(t *testing.T) {
	clause.Proves(t, "IDS-VII.3")
	lines := 1_000_000
	if testing.Short() {
		lines = 10_000
	}
	sum := sha256.New()
	var literal, line, again []byte
	written := 0
	for f := range oracleNumbers {
		// Seventeen digits denote the same binary64, but are hardly ever the
		// shortest text.
		literal = strconv.AppendFloat(literal[:0], f, 'e', 16, 64)
		line = strconv.AppendUint(line[:0], math.Float64bits(f), 16)
		line = append(line, ',')
		start := len(line)
		var err error
		if line, err = Append(line, literal, JCS); err != nil {
			t.Fatalf("%s: %v", literal, err)
		}
		// The shortest text is a decimal too, and then the two modes agree.
		for _, mode := range []Mode{JCS, Exact} {
			again, err = Append(again[:0], line[start:], mode)
			if err != nil || string(again) != string(line[start:]) {
				t.Fatalf("mode %d: %s became %s, %v", mode, line[start:], again, err)
			}
		}
		line = append(line, '\n')
		sum.Write(line)
		written++
		if want, ok := oracleSums[written]; ok {
			if got := hex.EncodeToString(sum.Sum(nil)); got != want {
				t.Errorf("first %d lines have SHA-256 %s, want %s", written, got, want)
			}
		}
		if written == lines {
			break
		}
	}
	if written != lines {
		t.Errorf("%d lines checked, want %d", written, lines)
	}
}

// oracleNumbers yields the oracle's numbers: some at the edges of the formats,
// then the first 2,000 normal numbers, then what the 64-bit little-endian words
// of a chain of SHA-256 sums spell, without end. The chain starts with the sum
// of 32 zero bytes.
func oracleNumbers(yield func(float64) bool) {
	for _, f := range oracleEdges() {
		if !yield(f) {
			return
		}
	}
	const firstNormal = 1 << 52
	for i := range uint64(2000) {
		if !yield(math.Float64frombits(firstNormal + i)) {
			return
		}
	}
	var block [sha256.Size]byte
	for {
		block = sha256.Sum256(block[:])
		for word := range slices.Chunk(block[:], 8) {
			f := math.Float64frombits(binary.LittleEndian.Uint64(word))
			if f == 0 || math.IsNaN(f) || math.IsInf(f, 0) {
				continue
			}
			if !yield(f) {
				return
			}
		}
	}
}

func oracleEdges() []float64 {
	thirds := []float64{
		3.3333333333333335e21, 3.333333333333333e20, 3.3333333333333336e19,
		3.333333333333334e18, 3.333333333333334e17, 3.333333333333334e16,
		3333333333333334, 333333333333333.4, 33333333333333.344, 3333333333333.334,
		333333333333.33344, 33333333333.33334, 3333333333.333334, 333333333.3333334,
		33333333.333333336, 3333333.3333333335, 333333.3333333333, 33333.333333333336,
		3333.333333333333, 333.3333333333333, 33.333333333333336, 3.3333333333333335,
		0.3333333333333333, 0.03333333333333333, 0.0033333333333333335,
		0.0003333333333333333, 3.3333333333333335e-5, 3.3333333333333333e-6,
		3.3333333333333335e-7, 3.3333333333333334e-8, 3.3333333333333334e-9,
		3.333333333333333e-10, 3.3333333333333335e-11, 3.333333333333333e-12,
		3.3333333333333334e-13, 3.3333333333333334e-14, 3.3333333333333332e-15,
		3.333333333333333e-16, 3.3333333333333335e-17, 3.3333333333333333e-18,
		3.3333333333333334e-19, 3.333333333333333e-20, 3.3333333333333333e-21,
		3.333333333333333e-22, 3.3333333333333333e-23, 3.3333333333333334e-24,
		3.3333333333333335e-25, 3.333333333333333e-26, 3.333333333333333e-27,
		3.3333333333333338e-28,
	}
	const smallest = math.SmallestNonzeroFloat64
	edges := []float64{0, math.Copysign(0, -1), smallest, -smallest}
	for _, f := range thirds {
		edges = append(edges, -f)
	}
	edges = append(edges, thirds...)
	return append(edges,
		10, 5, 0.5, 0.05, 0.005, 0.0005, 5e-5, 5e-6, 5e-7, 5e-8, 5e-9,
		// A last digit that wanders out of reach.
		5.06e-6, 5.006e-6, 5.0006e-6, 5.00006e-6, 5.000006e-6, 5.0000006e-6,
		5.00000006e-6, 5.000000006e-6, 5.0000000006e-6, 5.00000000006e-6,
		5.000000000006e-6, 5.0000000000006e-6, 5.00000000000006e-6,
		5.000000000000006e-6, 5e-6,
		// Around 1 and around 0.3.
		1, -1, -0.9999999999999993, -0.9999999999999994, 0.9999999999999993,
		0.9999999999999994, 0.9999999999999996, 0.9999999999999998,
		-0.9999999999999999, -0.9999999999999999, 0.9999999999999999,
		0.9999999999999999, 0.29999999999999993, 0.3, 0.30000000000000004,
		// The smallest normal, subnormals next to it, the largest.
		0x1p-1022, 0x0.ffffffffffffdp-1022, 0x0.fffffffffffffp-1022,
		math.MaxFloat64, -math.MaxFloat64,
		// Where integers stop being exact, and where the layout changes.
		0x1p53, -0x1p53, 0x1p68,
		9.999999999999997e22, 1e23, 1.0000000000000001e23,
		9.999999999999997e20, 9.999999999999999e20, 1e21,
		9.999999999999997e-7, 1e-6,
		333333333.3333332, 333333333.33333325, 333333333.3333333,
		333333333.3333334, 333333333.33333343,
		-3.3333333333333333e-6, 1424953923781206.2,
	)
}
