package httpsig

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha512"
	"testing"
)

// TestAlgorithmsOfRSA has the algorithms that [Sign] doesn't use.
func TestAlgorithmsOfRSA(t *testing.T) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	text := []byte("date: now")
	sum := sha512.Sum512(text)
	long, err := rsa.SignPKCS1v15(rand.Reader, key, crypto.SHA512, sum[:])
	if err != nil {
		t.Fatal(err)
	}
	pss, err := rsa.SignPSS(rand.Reader, key, crypto.SHA512, sum[:], &rsa.PSSOptions{SaltLength: rsa.PSSSaltLengthEqualsHash})
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name, form string
		signature  []byte
		want       Code
	}{
		{"rsa-sha512", FormCavage, long, ""},
		{hs2019, FormCavage, long, ""},
		{"", FormCavage, long, ""},
		{hs2019, FormCavage, pss, ""},
		{"rsa-sha256", FormCavage, long, SignatureWrong},
		{"rsa-pss-sha512", FormRFC9421, pss, ""},
		{"", FormRFC9421, pss, ""},
		{"rsa-v1_5-sha256", FormRFC9421, pss, SignatureWrong},
		{"", FormRFC9421, long, SignatureWrong}, // RFC 9421 has no name for it
		{"rsa-sha512", FormRFC9421, long, AlgorithmRefused},
		{"rsa-pss-sha512", FormCavage, pss, AlgorithmRefused},
		{hs2019, FormRFC9421, pss, AlgorithmRefused},
		{"none", FormRFC9421, nil, AlgorithmRefused},
	} {
		if err := check(&key.PublicKey, test.name, test.form, text, test.signature); test.want == "" && err != nil || test.want != "" && !hasCode(err, test.want) {
			t.Errorf("%q in %s: %v, want %q", test.name, test.form, err, test.want)
		}
	}
}
