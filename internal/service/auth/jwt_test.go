package auth_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/semelhq/semel/internal/service/auth"
	"github.com/semelhq/semel/internal/strictyaml"
)

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// keys are made once, because RSA keys take long.
var keys = sync.OnceValue(func() (k struct {
	rsa, otherRSA *rsa.PrivateKey
	p256, p384    *ecdsa.PrivateKey
	ed            ed25519.PrivateKey
}) {
	k.rsa = must(rsa.GenerateKey(rand.Reader, 2048))
	k.otherRSA = must(rsa.GenerateKey(rand.Reader, 2048))
	k.p256 = must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	k.p384 = must(ecdsa.GenerateKey(elliptic.P384(), rand.Reader))
	_, ed, err := ed25519.GenerateKey(rand.Reader)
	k.ed = must(ed, err)
	return k
})

func b64(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

// jwk writes a public key as a JSON Web Key.
func jwk(kid string, public crypto.PublicKey) map[string]any {
	w := map[string]any{"kid": kid, "use": "sig"}
	switch k := public.(type) {
	case *rsa.PublicKey:
		w["kty"], w["n"], w["e"] = "RSA", b64(k.N.Bytes()), b64(big.NewInt(int64(k.E)).Bytes())
	case *ecdsa.PublicKey:
		point := must(k.Bytes())
		size := len(point) / 2
		w["kty"], w["crv"], w["x"], w["y"] = "EC", k.Curve.Params().Name, b64(point[1:1+size]), b64(point[1+size:])
	case ed25519.PublicKey:
		w["kty"], w["crv"], w["x"] = "OKP", "Ed25519", b64(k)
	}
	return w
}

func writeFile(t *testing.T, data []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func writeJWKS(t *testing.T, list ...map[string]any) string {
	t.Helper()
	return writeFile(t, must(json.Marshal(map[string]any{"keys": list})))
}

func publicPEM(public crypto.PublicKey) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: must(x509.MarshalPKIXPublicKey(public))})
}

const issuerName = "https://issuer.example"

// goodClaims are the claims of a token that is accepted for an hour.
func goodClaims() jwt.MapClaims {
	return jwt.MapClaims{
		"iss": issuerName, "aud": "semel", "sub": "shop", "tenant": "acme", "roles": []string{"billing", "operator", "viewer"},
		"exp": time.Now().Add(time.Hour).Unix(),
	}
}

func sign(t *testing.T, alg, kid string, key any, claims jwt.MapClaims, header map[string]any) string {
	t.Helper()
	token := jwt.NewWithClaims(jwt.GetSigningMethod(alg), claims)
	if kid != "" {
		token.Header["kid"] = kid
	}
	for name, value := range header {
		if token.Header[name] = value; value == nil {
			delete(token.Header, name)
		}
	}
	text, err := token.SignedString(key)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func jwtSettings(path string, algorithms ...string) auth.JWT {
	return auth.JWT{
		Issuer: issuerName, Audience: "semel", Algorithms: algorithms, KeysFile: path,
		TenantClaim: "tenant", PrincipalClaim: "sub", RolesClaim: "roles", Leeway: strictyaml.Duration(30 * time.Second),
	}
}

var jwtShop = auth.Identity{Tenant: "acme", Principal: "shop", Roles: auth.Operator, Rights: []string{"billing"}, Method: auth.MethodJWT}

func TestJWTKeys(t *testing.T) {
	k := keys()
	path := writeJWKS(t, jwk("rsa", &k.rsa.PublicKey), jwk("p256", &k.p256.PublicKey), jwk("p384", &k.p384.PublicKey), jwk("ed", k.ed.Public()),
		map[string]any{"kty": "future", "kid": "f"}, map[string]any{"kty": "EC", "crv": "secp256k1", "kid": "k1"}, map[string]any{"kty": "OKP", "crv": "X25519", "kid": "x"})
	all := newAuth(t, auth.Settings{JWT: []auth.JWT{jwtSettings(path, "RS256", "PS384", "ES256", "ES384", "EdDSA")}})
	signers := map[string]struct {
		kid string
		key any
	}{"RS256": {"rsa", k.rsa}, "PS384": {"rsa", k.rsa}, "ES256": {"p256", k.p256}, "ES384": {"p384", k.p384}, "EdDSA": {"ed", k.ed}}
	t.Run("RSA, ECDSA and Ed25519 keys of a key set verify", func(t *testing.T) {
		for alg, s := range signers {
			wantIdentity(t, all, request(bearer(sign(t, alg, s.kid, s.key, goodClaims(), nil))), jwtShop)
			wantIdentity(t, all, request(bearer(sign(t, alg, "", s.key, goodClaims(), nil))), jwtShop)
		}
	})
	t.Run("PEM keys and certificates verify tokens of any kid", func(t *testing.T) {
		data := append(publicPEM(k.ed.Public()), pem.EncodeToMemory(&pem.Block{Type: "RSA PUBLIC KEY", Bytes: x509.MarshalPKCS1PublicKey(&k.rsa.PublicKey)})...)
		data = append(data, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate(t, k.p256, &x509.Certificate{}).Raw})...)
		a := newAuth(t, auth.Settings{JWT: []auth.JWT{jwtSettings(writeFile(t, data), "RS256", "ES256", "EdDSA")}})
		for _, alg := range []string{"RS256", "ES256", "EdDSA"} {
			wantIdentity(t, a, request(bearer(sign(t, alg, "any", signers[alg].key, goodClaims(), nil))), jwtShop)
		}
	})
	t.Run("a key does not serve under another's kid, nor another key under its own", func(t *testing.T) {
		two := newAuth(t, auth.Settings{JWT: []auth.JWT{jwtSettings(writeJWKS(t, jwk("a", &k.rsa.PublicKey), jwk("b", &k.otherRSA.PublicKey)), "RS256")}})
		wantIdentity(t, two, request(bearer(sign(t, "RS256", "b", k.otherRSA, goodClaims(), nil))), jwtShop)
		wantIdentity(t, two, request(bearer(sign(t, "RS256", "", k.otherRSA, goodClaims(), nil))), jwtShop)
		wantBad(t, two, request(bearer(sign(t, "RS256", "a", k.otherRSA, goodClaims(), nil))), "signature")
		wantBad(t, two, request(bearer(sign(t, "RS256", "c", k.rsa, goodClaims(), nil))), "unverifiable")
		wantBad(t, two, request(bearer(sign(t, "RS256", "", k.rsa, goodClaims(), map[string]any{"kid": 1}))), "malformed")
	})
	t.Run("the algorithm must be allowed and be the key's", func(t *testing.T) {
		wantBad(t, all, request(bearer(sign(t, "RS512", "rsa", k.rsa, goodClaims(), nil))), "signature")
		only := jwk("rsa", &k.rsa.PublicKey)
		only["alg"] = "PS256"
		a := newAuth(t, auth.Settings{JWT: []auth.JWT{jwtSettings(writeJWKS(t, only), "RS256", "PS256")}})
		wantIdentity(t, a, request(bearer(sign(t, "PS256", "rsa", k.rsa, goodClaims(), nil))), jwtShop)
		wantBad(t, a, request(bearer(sign(t, "RS256", "rsa", k.rsa, goodClaims(), nil))), "unverifiable")
	})
	t.Run("a key embedded in the token or named by address is not used", func(t *testing.T) {
		embedded := map[string]any{"jwk": jwk("x", &k.otherRSA.PublicKey), "jku": "https://evil.example/keys", "x5c": []string{"AA"}}
		wantBad(t, all, request(bearer(sign(t, "RS256", "", k.otherRSA, goodClaims(), embedded))), "signature")
	})
	t.Run("key files that can't be right are refused", func(t *testing.T) {
		weak := jwk("w", &rsa.PublicKey{N: new(big.Int).SetBit(big.NewInt(1), 1023, 1), E: 65537})
		even := jwk("w", &rsa.PublicKey{N: k.rsa.N, E: 65536})
		huge := jwk("w", &rsa.PublicKey{N: new(big.Int).SetBit(big.NewInt(1), 9000, 1), E: 65537})
		secret := jwk("s", &k.rsa.PublicKey)
		secret["d"] = "AQAB"
		offCurve := jwk("o", &k.p256.PublicKey)
		offCurve["x"] = b64(make([]byte, 32))
		enc := jwk("e", &k.rsa.PublicKey)
		enc["use"] = "enc"
		ops := jwk("e", &k.rsa.PublicKey)
		ops["key_ops"] = []string{"encrypt"}
		private := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: must(x509.MarshalPKCS8PrivateKey(k.rsa))})
		for what, path := range map[string]string{
			"between 2048 and 8192":    writeJWKS(t, weak),
			"modulus too large":        writeJWKS(t, huge),
			"exponent":                 writeJWKS(t, even),
			"keys[0] is secret":        writeJWKS(t, secret),
			"keys[1] is secret":        writeJWKS(t, jwk("a", &k.rsa.PublicKey), map[string]any{"kty": "oct", "k": "c2VjcmV0"}),
			"keys[0]: ":                writeJWKS(t, offCurve),
			"another key has the kid":  writeJWKS(t, jwk("a", &k.rsa.PublicKey), jwk("a", &k.otherRSA.PublicKey)),
			"no public key":            writeJWKS(t, enc, ops),
			"neither a JSON":           writeFile(t, []byte("secret words")),
			"neither a JSON Web":       writeFile(t, append(publicPEM(&k.rsa.PublicKey), "trailing"...)),
			`block "PRIVATE KEY"`:      writeFile(t, private),
			"unexpected end":           writeFile(t, []byte("{")),
			"no key for any of the al": writeJWKS(t, jwk("a", &k.p384.PublicKey)),
		} {
			_, err := auth.New(auth.Settings{JWT: []auth.JWT{jwtSettings(path, "RS256", "ES256")}})
			if err == nil || !strings.Contains(err.Error(), what) || strings.Contains(err.Error(), "secret words") {
				t.Errorf("%v; want %q", err, what)
			}
		}
	})
}

func TestJWTForgeries(t *testing.T) {
	k := keys()
	public := publicPEM(&k.rsa.PublicKey)
	path := writeFile(t, public)
	a := newAuth(t, auth.Settings{Tokens: []auth.Token{shopSettings}, JWT: []auth.JWT{jwtSettings(path, "RS256")}})
	good := sign(t, "RS256", "", k.rsa, goodClaims(), nil)
	wantIdentity(t, a, request(bearer(good)), jwtShop)
	wantIdentity(t, a, request(bearer(shopToken)), shop)
	t.Run("a token without a signature is refused, however it writes none", func(t *testing.T) {
		for _, alg := range []string{"none", "None", "NONE", ""} {
			header := b64(must(json.Marshal(map[string]any{"alg": alg, "typ": "JWT"})))
			payload := strings.Split(good, ".")[1]
			wantBad(t, a, request(bearer(header+"."+payload+".")), "")
			wantBad(t, a, request(bearer(header+"."+payload+"."+strings.Split(good, ".")[2])), "")
		}
		wantBad(t, a, request(bearer(sign(t, "none", "", jwt.UnsafeAllowNoneSignatureType, goodClaims(), nil))), "signature")
		wantBad(t, a, request(bearer(good[:strings.LastIndex(good, ".")+1])), "signature")
	})
	t.Run("the public key is no secret to sign with", func(t *testing.T) {
		der := must(x509.MarshalPKIXPublicKey(&k.rsa.PublicKey))
		for _, secret := range [][]byte{public, []byte(strings.TrimSpace(string(public))), der, k.rsa.N.Bytes(), {}} {
			for _, alg := range []string{"HS256", "HS384", "HS512"} {
				wantBad(t, a, request(bearer(sign(t, alg, "", secret, goodClaims(), nil))), "signature")
			}
		}
	})
	t.Run("other words under a good signature are refused", func(t *testing.T) {
		claims := goodClaims()
		claims["sub"] = "victim"
		parts, forged := strings.Split(good, "."), strings.Split(sign(t, "RS256", "", k.otherRSA, claims, nil), ".")
		wantBad(t, a, request(bearer(parts[0]+"."+forged[1]+"."+parts[2])), "signature")
		wantBad(t, a, request(bearer(strings.Join(forged, "."))), "signature")
	})
	t.Run("what is no token is refused", func(t *testing.T) {
		for _, sent := range []string{"a.b", "a.b.c", "a.b.c.d", "...", good + ".x", good + "=", "e30.e30.e30", strings.Repeat("a", 17<<10)} {
			wantBad(t, a, request(bearer(sent)), "")
		}
	})
	t.Run("a good token in another spelling, or of any length, is refused", func(t *testing.T) {
		// Four bits of a signature's last character mean nothing.
		const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
		last := len(good) - 1
		i := strings.IndexByte(alphabet, good[last])
		wantBad(t, a, request(bearer(good[:last]+string(alphabet[i^1]))), "malformed")
		claims := goodClaims()
		claims["padding"] = strings.Repeat("x", 12<<10)
		wantBad(t, a, request(bearer(sign(t, "RS256", "", k.rsa, claims, nil))), "too long")
	})
	t.Run("extensions that must be understood, and other kinds of tokens, are refused", func(t *testing.T) {
		wantBad(t, a, request(bearer(sign(t, "RS256", "", k.rsa, goodClaims(), map[string]any{"crit": []string{"b64"}, "b64": false}))), "critical")
		for _, typ := range []any{"logout+jwt", "secevent+jwt", "dpop+jwt", 1} {
			wantBad(t, a, request(bearer(sign(t, "RS256", "", k.rsa, goodClaims(), map[string]any{"typ": typ}))), "of a type")
		}
		for _, typ := range []any{nil, "at+jwt", "jwt", "application/at+jwt"} {
			wantIdentity(t, a, request(bearer(sign(t, "RS256", "", k.rsa, goodClaims(), map[string]any{"typ": typ}))), jwtShop)
		}
	})
	t.Run("one issuer's key does not sign for another", func(t *testing.T) {
		second := jwtSettings(writeFile(t, publicPEM(&k.otherRSA.PublicKey)), "RS256")
		second.Issuer, second.TenantClaim, second.Tenant = "https://second.example", "", "second"
		both := newAuth(t, auth.Settings{JWT: []auth.JWT{jwtSettings(path, "RS256"), second}})
		claims := goodClaims()
		claims["iss"] = second.Issuer
		wantIdentity(t, both, request(bearer(sign(t, "RS256", "", k.otherRSA, claims, nil))),
			auth.Identity{Tenant: "second", Principal: "shop", Roles: auth.Operator, Rights: []string{"billing"}, Method: auth.MethodJWT})
		wantBad(t, both, request(bearer(sign(t, "RS256", "", k.rsa, claims, nil))), "signature")
		wantBad(t, both, request(bearer(sign(t, "RS256", "", k.otherRSA, goodClaims(), nil))), "signature")
	})
}

func TestJWTClaims(t *testing.T) {
	k := keys()
	path := writeFile(t, publicPEM(k.ed.Public()))
	settings := jwtSettings(path, "EdDSA")
	a := newAuth(t, auth.Settings{JWT: []auth.JWT{settings}})
	// token has these claims changed; nil removes one.
	token := func(t *testing.T, changes ...any) string {
		claims := goodClaims()
		for i := 0; i < len(changes); i += 2 {
			if claims[changes[i].(string)] = changes[i+1]; changes[i+1] == nil {
				delete(claims, changes[i].(string))
			}
		}
		return sign(t, "EdDSA", "", k.ed, claims, nil)
	}
	refused := func(t *testing.T, reason string, changes ...any) {
		t.Helper()
		wantBad(t, a, request(bearer(token(t, changes...))), reason)
	}
	t.Run("tokens are valid from nbf to exp, give or take the leeway", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			now := time.Now().Unix()
			wantIdentity(t, a, request(bearer(token(t, "exp", now-29, "nbf", now+30))), jwtShop)
			refused(t, "expired", "exp", now-30)
			refused(t, "not valid yet", "nbf", now+31)
			short := token(t, "exp", now+60)
			wantIdentity(t, a, request(bearer(short)), jwtShop)
			<-time.After(90 * time.Second)
			wantBad(t, a, request(bearer(short)), "expired")
		})
	})
	t.Run("a token that never expires is refused", func(t *testing.T) {
		refused(t, "claim", "exp", nil)
		refused(t, "claim", "exp", 0)
		for _, exp := range []any{"never", "9999999999", []int{1}, true} {
			refused(t, "", "exp", exp)
		}
	})
	t.Run("a token for another service or by another issuer is refused", func(t *testing.T) {
		wantIdentity(t, a, request(bearer(token(t, "aud", []string{"other", "semel"}))), jwtShop)
		for _, aud := range []any{"other", "Semel", "semel2", "", []string{}, []string{"other"}, 1} {
			refused(t, "", "aud", aud)
		}
		refused(t, "claim", "aud", nil)
		for _, iss := range []any{nil, "", "https://other.example", issuerName + "/", strings.ToUpper(issuerName), 1, []string{issuerName}} {
			refused(t, "issuer", "iss", iss)
		}
	})
	t.Run("a token that names nobody is refused", func(t *testing.T) {
		for _, sub := range []any{nil, "", 7, []string{"shop"}, "credential:abc", "semel.lab", "webhook", "a\x00b", strings.Repeat("x", 257)} {
			refused(t, "no principal", "sub", sub)
		}
		for _, tenant := range []any{nil, "", 7, "a\nb", strings.Repeat("x", 257)} {
			refused(t, "no tenant", "tenant", tenant)
		}
	})
	t.Run("the claims that are named are read, and no others", func(t *testing.T) {
		for _, c := range []struct {
			roles  any
			want   auth.Role
			rights []string
		}{
			{nil, auth.NoRole, nil},
			{"viewer", auth.Viewer, nil},
			{"viewer admin", auth.Admin, nil},
			{"a,operator", auth.Operator, []string{"a"}},
			{[]any{"viewer", 1, "Admin"}, auth.Viewer, []string{"Admin"}},
			{[]string{"viewer admin"}, auth.NoRole, []string{"viewer admin"}},
			{true, auth.NoRole, nil},
		} {
			want := jwtShop
			want.Roles, want.Rights = c.want, c.rights
			wantIdentity(t, a, request(bearer(token(t, "roles", c.roles))), want)
		}
		s := settings
		s.PrincipalClaim, s.RolesClaim, s.TenantClaim, s.Tenant = "https://claims.example/who", "", "", "fixed"
		b := newAuth(t, auth.Settings{JWT: []auth.JWT{s}})
		wantIdentity(t, b, request(bearer(token(t, "https://claims.example/who", "till", "", "admin"))),
			auth.Identity{Tenant: "fixed", Principal: "till", Method: auth.MethodJWT})
		wantBad(t, b, request(bearer(token(t))), "no principal")
	})
	t.Run("an issuer whose tenant is fixed names no other", func(t *testing.T) {
		s := settings
		s.Tenant = "acme"
		b := newAuth(t, auth.Settings{JWT: []auth.JWT{s}})
		wantIdentity(t, b, request(bearer(token(t))), jwtShop)
		wantIdentity(t, b, request(bearer(token(t, "tenant", nil))), jwtShop)
		for _, tenant := range []any{"zeta", "", "acme ", 7, []string{"acme"}} {
			wantBad(t, b, request(bearer(token(t, "tenant", tenant))), "tenant")
		}
	})
	t.Run("values of the claim stand for the roles that the settings say, and for no others", func(t *testing.T) {
		s := settings
		s.Roles = []auth.RoleValue{{Value: "semel-ops", Role: "operator"}, {Value: "semel-admins", Role: "admin"}, {Value: "both", Role: "viewer"}, {Value: "both", Role: "operator"}}
		b := newAuth(t, auth.Settings{JWT: []auth.JWT{s}})
		for roles, want := range map[string]auth.Identity{
			"admin":               {Rights: []string{"admin"}},
			"semel-ops billing":   {Roles: auth.Operator, Rights: []string{"billing"}},
			"semel-admins viewer": {Roles: auth.Admin, Rights: []string{"viewer"}},
			"both":                {Roles: auth.Operator},
		} {
			want.Tenant, want.Principal, want.Method = "acme", "shop", auth.MethodJWT
			wantIdentity(t, b, request(bearer(token(t, "roles", roles))), want)
		}
	})
}
