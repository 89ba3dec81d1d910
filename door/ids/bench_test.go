package ids

import "testing"

func BenchmarkDerive(b *testing.B) {
	reg := vectorRegistry(b)
	envelope := []byte(with(`{"reason":" Too LATE ","amount":"12.50","tags":["b","a"],"nonce":"x"}`))
	b.ReportAllocs()
	for b.Loop() {
		c, err := ParseCommand(envelope)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := reg.Derive(c); err != nil {
			b.Fatal(err)
		}
	}
}
