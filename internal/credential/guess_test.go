package credential

import "testing"

func TestGuessableKeys(t *testing.T) {
	for key, want := range map[string]bool{
		"": true, "order-1": true, "order-0000000000000000001": true, "2024-11-22": true, "abcdefghijklmnopqrs": true,
		"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa1": true, "äöüäöüäöüäöüäöüäöüäöü": true,
		"0f8fad5b-d9cb-469f-a165-70867728950e": false, "0F8FAD5BD9CB469FA16570867728950E": false,
		"11111111-1111-4111-8111-111111111111": false, // it has the form
		"0f8fad5b-d9cb-469f-a165-70867728950":  false, // too short for a UUID, and long and varied all the same
		"11111111-1111-4111-8111-11111111111g": true,
		"01ARZ3NDEKTSV4RRFFQ69G5FAV":           false, "01arz3ndektsv4rrffq69g5fav": false,
		"0000000000000000000000000I": true, "80000000000000000000000000": true,
		"00000000-0000-0000-0000-000000000000": true, "00000000-0000-0000-0000-000000000001": true, "00000000-0000-4000-8000-0123456789ab": true,
		"000000000000000000000000deadbeef": true, "00000000000000000000000001": true, "01ARZ3NDEK0000000000000001": true,
		"01234567890123456789": true, "31415926535897932384626433832795": false, // the latter has the form of a UUID
		"order-00000000000001234567890": true,
		// Whoever knows the order knows these keys. All the same they are taken for
		// others: a refusal is better than a second effect.
		"payment:1002:4999:EUR:2026-11-23T12:00:00Z": false, "invoice-2026-11-23-000042": false, "urn:order:2026:11:23:00017": false,
		"abcdefghijklmnopqrst": false, "äbcdefghijäbcdefghij": false,
	} {
		if got := Guessable(key); got != want {
			t.Errorf("Guessable(%q) = %v", key, got)
		}
	}
}
