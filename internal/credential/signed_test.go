package credential

import (
	"net/http"
	"testing"
)

// tries are two tries of a call by one signer, and one by another.
type tries struct{ one, again, other http.Header }

func authorized(one, again, other string) tries {
	return tries{http.Header{authorization: {one}}, http.Header{authorization: {again}}, http.Header{authorization: {other}}}
}

func signedInput(keyID, nonce string) http.Header {
	return http.Header{
		signatureHeader: {"sig1=:" + nonce + "=:"},
		signatureInput:  {`cdn=("@path";req "a, ()");created=1, sig1=("@method" "content-digest");nonce="` + nonce + `";keyid="` + keyID + `"`},
	}
}

// signedTries has a credential of each way of signing, as its specification shows it.
var signedTries = map[string]tries{
	"SigV4": authorized(
		"AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20261125/us-east-1/execute-api/aws4_request, SignedHeaders=host;x-amz-date, Signature=0a",
		"AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20261126/us-east-1/execute-api/aws4_request,SignedHeaders=host;x-amz-date,Signature=0b",
		"AWS4-HMAC-SHA256 Credential=AKIDOTHER/20261125/us-east-1/execute-api/aws4_request, SignedHeaders=host;x-amz-date, Signature=0a"),
	"SigV4A": authorized(
		"AWS4-ECDSA-P256-SHA256 Credential=AKIDEXAMPLE/20261125/s3/aws4_request, SignedHeaders=host, Signature=3045",
		"aws4-ecdsa-p256-sha256 Credential=AKIDEXAMPLE/20261126/s3/aws4_request, SignedHeaders=host, Signature=3046",
		"AWS4-ECDSA-P256-SHA256 Credential=AKIDOTHER/20261125/s3/aws4_request, SignedHeaders=host, Signature=3045"),
	"SigV2": authorized("AWS AKIAIOSFODNN7EXAMPLE:frJIUN8DYpKDtOLCwo//yllqDzg=", "AWS AKIAIOSFODNN7EXAMPLE:qgk2+6Sv9/oM7G3qLEjTH1a1l1g=", "AWS AKIDOTHER:frJIUN8DYpKDtOLCwo//yllqDzg="),
	"GOOG4": authorized(
		"GOOG4-RSA-SHA256 Credential=a@b.iam.gserviceaccount.com/20261125/auto/storage/goog4_request, SignedHeaders=host, Signature=1",
		"GOOG4-RSA-SHA256 Credential=a@b.iam.gserviceaccount.com/20261126/auto/storage/goog4_request, SignedHeaders=host, Signature=2",
		"GOOG4-RSA-SHA256 Credential=c@b.iam.gserviceaccount.com/20261125/auto/storage/goog4_request, SignedHeaders=host, Signature=1"),
	"TC3": authorized(
		"TC3-HMAC-SHA256 Credential=AKIDz8krbsJ5/2026-11-25/cvm/tc3_request, SignedHeaders=content-type;host, Signature=72",
		"TC3-HMAC-SHA256 Credential=AKIDz8krbsJ5/2026-11-26/cvm/tc3_request, SignedHeaders=content-type;host, Signature=73",
		"TC3-HMAC-SHA256 Credential=AKIDother/2026-11-25/cvm/tc3_request, SignedHeaders=content-type;host, Signature=72"),
	"SharedKey": authorized("SharedKey myaccount:ctzMq410TV3wS7upTBcunJTDLEJwMAZuFPfr0mrrA08=", "SharedKey myaccount:x=", "SharedKey other:x="),
	"Azure's HMAC": authorized(
		"HMAC-SHA256 Credential=0-l9-s0:a/b=&SignedHeaders=x-ms-date;host;x-ms-content-sha256&Signature=a=",
		"HMAC-SHA256 Credential=0-l9-s0:a/b=&SignedHeaders=x-ms-date;host;x-ms-content-sha256&Signature=b=",
		"HMAC-SHA256 Credential=0-l9-s0:a/c=&SignedHeaders=x-ms-date;host;x-ms-content-sha256&Signature=a="),
	"EdgeGrid": authorized(
		"EG1-HMAC-SHA256 client_token=akab-1;access_token=akab-2;timestamp=20261125T10:00:00+0000;nonce=1;signature=a=",
		"EG1-HMAC-SHA256 client_token=akab-1;access_token=akab-2;timestamp=20261125T10:00:01+0000;nonce=2;signature=b=",
		"EG1-HMAC-SHA256 client_token=akab-1;access_token=akab-3;timestamp=20261125T10:00:00+0000;nonce=1;signature=a="),
	"Hawk": authorized(
		`Hawk id="dh37fgj492je", ts="1353832234", nonce="j4h3g2", ext="some-app-ext-data, id=x", mac="6R4rV5iE="`,
		`Hawk id="dh37fgj492je", ts="1353832235", nonce="k5h3g2", mac="7R4rV5iE="`,
		`Hawk id="other", ts="1353832234", nonce="j4h3g2", mac="6R4rV5iE="`),
	"OAuth 1.0a": authorized(
		`OAuth realm="Photos, all",oauth_consumer_key="dpf43f3p2l4k3l03",oauth_token="t1",oauth_nonce="a",oauth_signature="x%3D"`,
		`OAuth realm="Photos, all",oauth_nonce="b",oauth_consumer_key="dpf43f3p2l4k3l03",oauth_token="t1",oauth_signature="y%3D"`,
		`OAuth realm="Photos, all",oauth_consumer_key="dpf43f3p2l4k3l03",oauth_token="t2",oauth_nonce="a",oauth_signature="x%3D"`),
	"Digest": authorized(
		`Digest username="Mufasa", realm="a@b", uri="/x", nonce="1", nc=00000001, cnonce="c", qop=auth, response="8ca5"`,
		`Digest username="Mufasa", realm="a@b", uri="/x", nonce="1", nc=00000002, cnonce="d", qop=auth, response="753f"`,
		`Digest username="Scar", realm="a@b", uri="/x", nonce="1", nc=00000001, cnonce="c", qop=auth, response="8ca5"`),
	"Signature": authorized(
		`Signature keyId="rsa-1",algorithm="hs2019",created=1,headers="(request-target)",signature="a="`,
		`Signature keyId="rsa-1",algorithm="hs2019",created=2,headers="(request-target)",signature="b="`,
		`Signature keyId="rsa-2",algorithm="hs2019",created=1,headers="(request-target)",signature="a="`),
	"a draft's Signature": {
		http.Header{signatureHeader: {`keyId="rsa-1",signature="a="`}}, http.Header{signatureHeader: {`keyId="rsa-1",signature="b="`}},
		http.Header{signatureHeader: {`keyId="rsa-2",signature="a="`}},
	},
	"HTTP Message Signatures": {signedInput("k1", "1"), signedInput("k1", "2"), signedInput("k2", "1")},
}

func TestSigners(t *testing.T) {
	all := New(append([]string{signatureHeader, signatureInput}, Usual...))
	digest := func(h http.Header) (string, bool) { return all.Digest(&http.Request{Header: h}) }
	for name, tr := range signedTries {
		one, unproved := digest(tr.one)
		again, _ := digest(tr.again)
		other, _ := digest(tr.other)
		if !unproved || one != again || one == other || !all.SignedAnew(&http.Request{Header: tr.one}) {
			t.Errorf("%s: unproved %v, the same signer %v, the other's equal %v", name, unproved, one == again, one == other)
		}
	}
	if _, unproved := digest(http.Header{"X-Api-Key": {"k"}, authorization: signedTries["SigV4"].one[authorization]}); !unproved {
		t.Error("a further credential makes a signature one that is proved")
	}
	key, _ := digest(http.Header{"X-Api-Key": {"k"}, authorization: signedTries["SigV4"].one[authorization]})
	if alone, _ := digest(signedTries["SigV4"].one); key == alone {
		t.Error("a further credential doesn't count")
	}
	// What the signer can't be read in counts whole, as ever, and so does what isn't signed.
	for _, text := range []string{
		"Bearer x", "DPoP x", "Basic eDp5", "AWS4-HMAC-SHA256 Signature=1", "AWS4-HMAC-SHA256 Credential=/2026/x, Signature=1", "AWS4-HMAC-SHA256",
		"AWS4-HMAC-SHA256 Credential=a/b, Credential=c/d", "AWS :x", "Hawk id=\"\", mac=\"x\"", "Hawk x", "OAuth oauth_token=\"t\"", "Bearer id=\"x\"",
	} {
		header := http.Header{authorization: {text}}
		one, unproved := digest(header)
		if two, _ := digest(http.Header{authorization: {text + " "}}); unproved || one == two || all.SignedAnew(&http.Request{Header: header}) {
			t.Errorf("%s: unproved %v", text, unproved)
		}
	}
}

// TestNamedSigners: a route that names the part names the same caller, who is then taken for
// proved.
func TestNamedSigners(t *testing.T) {
	sig := &http.Request{Header: signedTries["SigV4"].one}
	whole := New(Usual)
	want, _ := whole.Digest(sig)
	for _, names := range [][]string{{"authorization:Credential"}, {"Authorization:credential", "Authorization"}, {"X-Api-Key", "authorization:id", "authorization:Credential"}} {
		c := New(names)
		if got, unproved := c.Digest(sig); got != want || unproved || !c.SignedAnew(sig) {
			t.Errorf("%v: the same caller %v, unproved %v", names, got == want, unproved)
		}
	}
	part := New([]string{"authorization:Credential"})
	for _, text := range []string{"Bearer x", `Hawk id="x"`} {
		if got, _ := part.Digest(&http.Request{Header: http.Header{authorization: {text}}}); got != "" {
			t.Errorf("%s has a caller on a route that names only another's part", text)
		}
	}
	consumer := New([]string{"authorization:oauth_consumer_key"})
	oauth := signedTries["OAuth 1.0a"]
	one, unproved := consumer.Digest(&http.Request{Header: oauth.one})
	if other, _ := consumer.Digest(&http.Request{Header: oauth.other}); one != other || one == "" || unproved {
		t.Error("one part isn't all that counts")
	}
	message := New([]string{"signature-input:keyid"})
	if got, unproved := message.Digest(&http.Request{Header: signedTries["HTTP Message Signatures"].one}); got == "" || unproved {
		t.Error("the key of a message's signature names nobody")
	}
	two := http.Header{signatureInput: {`a=("@path");keyid="k1"`, `sig1=("@path");keyid="mine"`}}
	both, _ := message.Digest(&http.Request{Header: two})
	if one, _ := message.Digest(&http.Request{Header: http.Header{signatureInput: two[signatureInput][:1]}}); both == one || both == "" {
		t.Error("whoever adds a signature of another's key is taken for the other")
	}
	for _, bad := range []string{"", "cookie:", "authorization:", "authorization:Signature", "X-Api-Key:id", "signature-input:nonce"} {
		if Fault(bad) == "" {
			t.Errorf("%q names a caller", bad)
		}
	}
	for _, good := range []string{"X-Api-Key", "cookie:a:b", "proxy-authorization:username", "signature:keyId"} {
		if fault := Fault(good); fault != "" {
			t.Errorf("%q: %s", good, fault)
		}
	}
	if got := part.String(); got != "Credential in Authorization" {
		t.Errorf("people read %q", got)
	}
}
