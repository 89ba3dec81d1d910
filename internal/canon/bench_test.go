package canon

import (
	"fmt"
	"strings"
	"testing"
)

// body1KiB is an order as a shop would post it, 1,024 bytes long.
var body1KiB = func() []byte {
	const head = `{
  "order_id": "ord_01JABCDEFGH", "customer": {"id": 48151623, "email": "zoé@example.com",
    "name": "Zoé \"Z\" Müller", "address": {"street": "Rue de l'Église 12", "zip": "75001", "city": "Paris"}},
  "currency": "EUR", "total": 129.95, "tax_rate": 0.19, "created_at": "2026-05-04T10:15:30Z",
  "items": [
    {"variant": "sku-1001-blue", "quantity": 2, "price": 19.99, "gift": false},
    {"variant": "sku-2040-red", "quantity": 1, "price": 49.99, "gift": true},
    {"variant": "sku-0007", "quantity": 4, "price": 9.995, "gift": null}
  ],
  "shipping": {"method": "express", "cost": 0, "estimate_days": [1, 2], "insured": true},
  "metadata": {"campaign": "spring\n2026", "ref": "https:\/\/example.com\/r?a=1&b=2", "score": 0.8437219}, "note": "`
	const tail = `"}`
	return []byte(head + strings.Repeat("n", 1024-len(head)-len(tail)) + tail)
}()

func benchmark(b *testing.B, in []byte, mode Mode) {
	b.ReportAllocs()
	b.SetBytes(int64(len(in)))
	var out []byte
	for b.Loop() {
		var err error
		if out, err = Append(out[:0], in, mode); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkBody1KiB(b *testing.B) {
	b.Run("JCS", func(b *testing.B) { benchmark(b, body1KiB, JCS) })
	b.Run("Exact", func(b *testing.B) { benchmark(b, body1KiB, Exact) })
}

func BenchmarkMembers40000(b *testing.B) {
	const count = 40_000
	document := func(index func(i int) int) []byte {
		in := []byte("{")
		for i := range count {
			in = fmt.Appendf(in, `"k%05d":"v",`, index(i))
		}
		in[len(in)-1] = '}'
		return in
	}
	// 15,013 and 40,000 have no common factor, so all names occur once.
	b.Run("scrambled", func(b *testing.B) {
		benchmark(b, document(func(i int) int { return i * 15_013 % count }), JCS)
	})
	b.Run("reversed", func(b *testing.B) {
		benchmark(b, document(func(i int) int { return count - 1 - i }), JCS)
	})
	b.Run("in order", func(b *testing.B) {
		benchmark(b, document(func(i int) int { return i }), JCS)
	})
	b.Run("with long common beginnings", func(b *testing.B) {
		in := document(func(i int) int { return i * 15_013 % count })
		in = []byte(strings.ReplaceAll(string(in), `"k`, `"`+strings.Repeat("k", 100)))
		benchmark(b, in, JCS)
	})
}

func BenchmarkNumbers(b *testing.B) {
	for _, literal := range []string{"42", "19.99", "1757000000123456", "0.30000000000000004", "9007199254740993.25"} {
		in := []byte("[" + strings.Repeat(literal+",", 999) + literal + "]")
		b.Run(literal+"/JCS", func(b *testing.B) { benchmark(b, in, JCS) })
		b.Run(literal+"/Exact", func(b *testing.B) { benchmark(b, in, Exact) })
	}
}

func BenchmarkHostile(b *testing.B) {
	filler := strings.Repeat("x", 1<<20)
	nested := strings.Repeat(`{"b":`, MaxDepth) + `"` + filler + `"` + strings.Repeat(`,"a":0}`, MaxDepth)
	b.Run("1 MiB below 1,000 levels to sort", func(b *testing.B) { benchmark(b, []byte(nested), JCS) })
	b.Run("number of 1 MiB", func(b *testing.B) { benchmark(b, []byte("0."+strings.Repeat("7", 1<<20)), JCS) })
	b.Run("exact number of 1 MiB", func(b *testing.B) { benchmark(b, []byte("0."+strings.Repeat("7", 1<<20)), Exact) })
	b.Run("1 MiB of escapes", func(b *testing.B) {
		benchmark(b, []byte(`"`+strings.Repeat(`\u0001`, 1<<20/6)+`"`), JCS)
	})
}
