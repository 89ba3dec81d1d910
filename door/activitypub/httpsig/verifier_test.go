package httpsig_test

import (
	"crypto"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/semelhq/semel/door/activitypub/httpsig"
)

var forms = []string{httpsig.FormRFC9421, httpsig.FormCavage}

func TestWhoSigned(t *testing.T) {
	c, h := newClock(), newHome(t)
	v := newVerifier(t, c, newKeys(c))
	for name, key := range map[string]crypto.Signer{"rsa": rsaKey(), "p256": p256Key(t), "ed25519": edKey()} {
		id := h.actor(t, name, key)
		for _, form := range forms {
			t.Run(name+" "+form, func(t *testing.T) {
				who, err := v.Verify(signed(t, c, form, id, key), []byte(activity))
				if want := (httpsig.Signer{Actor: h.URL + "/users/" + name, KeyID: id, Form: form}); err != nil || who != want {
					t.Errorf("got %+v, %v", who, err)
				}
			})
		}
		if n := h.count("/users/" + name); n != 1 {
			t.Errorf("%s was fetched %d times", name, n)
		}
	}
	t.Run("a GET without a body needs no digest", func(t *testing.T) {
		for _, form := range forms {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://inbox.example/notes/1", nil)
			must(t, err)
			must(t, httpsig.Sign(r, nil, httpsig.SignOptions{KeyID: h.actor(t, "rsa", rsaKey()), Key: rsaKey(), Form: form, Now: c.now}))
			_, err = v.Verify(arrive(r), nil)
			must(t, err)
			_, err = v.Verify(arrive(r), []byte("x"))
			wantCode(t, err, httpsig.SignatureWeak)
		}
	})
}

// TestTampering changes each part that a signature must cover.
func TestTampering(t *testing.T) {
	c, h := newClock(), newHome(t)
	v := newVerifier(t, c, newKeys(c))
	key := edKey()
	id, other := h.actor(t, "alice", key), h.actor(t, "mallory", edKey())
	replace := func(field, old, by string) func(*http.Request) {
		return func(r *http.Request) {
			was := r.Header.Get(field)
			r.Header.Set(field, strings.Replace(was, old, by, 1))
			if old != "" && r.Header.Get(field) == was {
				t.Errorf("%s is %q", field, was)
			}
		}
	}
	type change struct {
		do   func(*http.Request)
		body string
		want httpsig.Code
	}
	both := map[string]change{
		"the method":                {do: func(r *http.Request) { r.Method = http.MethodPut }, want: httpsig.SignatureWrong},
		"the host":                  {do: func(r *http.Request) { r.Host = "other.example" }, want: httpsig.SignatureWrong},
		"the path":                  {do: func(r *http.Request) { r.RequestURI = "/users/b/inbox?x=1" }, want: httpsig.SignatureWrong},
		"the path, decoded":         {do: func(r *http.Request) { r.RequestURI = "/users/b/c/inbox?x=1" }, want: httpsig.SignatureWrong},
		"the query":                 {do: func(r *http.Request) { r.RequestURI = "/users/b%2Fc/inbox?x=2" }, want: httpsig.SignatureWrong},
		"no query":                  {do: func(r *http.Request) { r.RequestURI = "/users/b%2Fc/inbox" }, want: httpsig.SignatureWrong},
		"the body":                  {do: func(*http.Request) {}, body: activity + " ", want: httpsig.DigestWrong},
		"no body":                   {do: func(*http.Request) {}, body: "-", want: httpsig.DigestWrong},
		"the date":                  {do: func(r *http.Request) { r.Header.Set("Date", c.now().Add(time.Second).Format(http.TimeFormat)) }, want: httpsig.SignatureWrong},
		"no date":                   {do: func(r *http.Request) { r.Header.Del("Date") }, want: httpsig.SignatureWrong},
		"two dates":                 {do: func(r *http.Request) { r.Header.Add("Date", r.Header.Get("Date")) }, want: httpsig.SignatureMalformed},
		"the type":                  {do: replace("Content-Type", "activity", "x"), want: httpsig.SignatureWrong},
		"no type":                   {do: func(r *http.Request) { r.Header.Del("Content-Type") }, want: httpsig.SignatureWrong},
		"no signature":              {do: func(r *http.Request) { r.Header.Del("Signature"); r.Header.Del("Signature-Input") }, want: httpsig.SignatureMissing},
		"a target that is no URL":   {do: func(r *http.Request) { r.RequestURI = "*" }, want: httpsig.SignatureMalformed},
		"a signature that is large": {do: func(r *http.Request) { r.Header.Add("Signature", strings.Repeat("a", 8<<10)) }, want: httpsig.SignatureMalformed},
	}
	each := map[string]map[string]change{
		httpsig.FormRFC9421: {
			"the digest":                {do: replace("Content-Digest", ":", ":AA"), want: httpsig.DigestWrong},
			"a weak digest only":        {do: func(r *http.Request) { r.Header.Set("Content-Digest", "md5=:AAAA:") }, want: httpsig.DigestWrong},
			"a second digest":           {do: func(r *http.Request) { r.Header.Add("Content-Digest", "sha-512=:AAAA:") }, want: httpsig.DigestWrong},
			"created":                   {do: replace("Signature-Input", ";created=", ";created=1"), want: httpsig.TooNew},
			"no created":                {do: replace("Signature-Input", ";created=", ";was="), want: httpsig.SignatureWrong},
			"created is a text":         {do: replace("Signature-Input", `;created=`, `;created="x";was=`), want: httpsig.SignatureMalformed},
			"expires":                   {do: replace("Signature-Input", ";keyid", ";expires=1;keyid"), want: httpsig.TooOld},
			"another parameter":         {do: replace("Signature-Input", ";keyid", `;nonce="x";keyid`), want: httpsig.SignatureWrong},
			"another key":               {do: replace("Signature-Input", id, other), want: httpsig.SignatureWrong},
			"no key":                    {do: replace("Signature-Input", ";keyid", ";kid"), want: httpsig.SignatureMalformed},
			"another algorithm":         {do: replace("Signature-Input", `alg="ed25519"`, `alg="rsa-v1_5-sha256"`), want: httpsig.AlgorithmRefused},
			"an unknown algorithm":      {do: replace("Signature-Input", `alg="ed25519"`, `alg="hmac-sha256"`), want: httpsig.AlgorithmRefused},
			"an empty algorithm":        {do: replace("Signature-Input", `alg="ed25519"`, `alg=""`), want: httpsig.SignatureMalformed},
			"no algorithm":              {do: replace("Signature-Input", `;alg="ed25519"`, ""), want: httpsig.SignatureWrong},
			"the method not covered":    {do: replace("Signature-Input", `"@method" `, ""), want: httpsig.SignatureWeak},
			"the target not covered":    {do: replace("Signature-Input", `"@target-uri" `, ""), want: httpsig.SignatureWeak},
			"the query not covered":     {do: replace("Signature-Input", `"@target-uri"`, `"@path"`), want: httpsig.SignatureWeak},
			"the host not covered":      {do: replace("Signature-Input", `"@target-uri" "@authority"`, `"@request-target"`), want: httpsig.SignatureWeak},
			"the body not covered":      {do: replace("Signature-Input", ` "content-digest"`, ""), want: httpsig.SignatureWeak},
			"a component twice":         {do: replace("Signature-Input", `"@method"`, `"@method" "@method"`), want: httpsig.SignatureMalformed},
			"a component in capitals":   {do: replace("Signature-Input", `"date"`, `"Date"`), want: httpsig.SignatureMalformed},
			"a component of parameters": {do: replace("Signature-Input", `"date"`, `"date";sf="x"`), want: httpsig.SignatureMalformed},
			"an unknown component":      {do: replace("Signature-Input", `"date"`, `"@signature-params"`), want: httpsig.SignatureMalformed},
			"a component of no text":    {do: replace("Signature-Input", `"date"`, `1`), want: httpsig.SignatureMalformed},
			"an absent field":           {do: replace("Signature-Input", `"date"`, `"x-absent"`), want: httpsig.SignatureWrong},
			"no list":                   {do: func(r *http.Request) { r.Header.Set("Signature-Input", "sig1=1") }, want: httpsig.SignatureMalformed},
			"an empty one":              {do: func(r *http.Request) { r.Header.Set("Signature-Input", "") }, want: httpsig.SignatureMalformed},
			"not a structured field":    {do: func(r *http.Request) { r.Header.Set("Signature-Input", "sig1=(") }, want: httpsig.SignatureMalformed},
			"another label":             {do: replace("Signature-Input", "sig1", "sig2"), want: httpsig.SignatureMalformed},
			"no bytes":                  {do: func(r *http.Request) { r.Header.Set("Signature", "sig1=1") }, want: httpsig.SignatureMalformed},
			"no structured bytes":       {do: func(r *http.Request) { r.Header.Set("Signature", "sig1=:") }, want: httpsig.SignatureMalformed},
			"a short signature":         {do: func(r *http.Request) { r.Header.Set("Signature", "sig1=:AAAA:") }, want: httpsig.SignatureWrong},
			"no Signature":              {do: func(r *http.Request) { r.Header.Del("Signature") }, want: httpsig.SignatureMalformed},
			"no Signature-Input":        {do: func(r *http.Request) { r.Header.Del("Signature-Input") }, want: httpsig.SignatureMalformed},
			"many components":           {do: replace("Signature-Input", `"@method"`, strings.Repeat(`"x" `, 64)+`"@method"`), want: httpsig.SignatureMalformed},
			"many signatures": {do: func(r *http.Request) {
				r.Header.Set("Signature-Input", "a=(), b=(), c=(), d=(), "+r.Header.Get("Signature-Input"))
			}, want: httpsig.SignatureMalformed},
		},
		httpsig.FormCavage: {
			"the digest":              {do: replace("Digest", "SHA-256=", "SHA-256=A"), want: httpsig.DigestWrong},
			"a weak digest only":      {do: replace("Digest", "SHA-256", "MD5"), want: httpsig.DigestWrong},
			"a second digest":         {do: func(r *http.Request) { r.Header.Add("Digest", "SHA-512=AAAA") }, want: httpsig.DigestWrong},
			"another key":             {do: replace("Signature", id, other), want: httpsig.SignatureWrong},
			"no key":                  {do: replace("Signature", "keyId", "kid"), want: httpsig.SignatureMalformed},
			"another algorithm":       {do: replace("Signature", "hs2019", "rsa-sha256"), want: httpsig.AlgorithmRefused},
			"a weak algorithm":        {do: replace("Signature", "hs2019", "rsa-sha1"), want: httpsig.AlgorithmRefused},
			"a secret":                {do: replace("Signature", "hs2019", "hmac-sha256"), want: httpsig.AlgorithmRefused},
			"the target not covered":  {do: replace("Signature", "(request-target) ", ""), want: httpsig.SignatureWeak},
			"the host not covered":    {do: replace("Signature", " host", ""), want: httpsig.SignatureWeak},
			"the body not covered":    {do: replace("Signature", " digest", ""), want: httpsig.SignatureWeak},
			"the date not covered":    {do: replace("Signature", " date", ""), want: httpsig.SignatureWeak},
			"nothing covered by name": {do: replace("Signature", "headers", "was"), want: httpsig.SignatureWeak},
			"a field twice":           {do: replace("Signature", " host", " host Host"), want: httpsig.SignatureMalformed},
			"an absent field":         {do: replace("Signature", " host", " host x-absent"), want: httpsig.SignatureWrong},
			"many fields":             {do: replace("Signature", " host", strings.Repeat(" x", 64)), want: httpsig.SignatureMalformed},
			"created is absent":       {do: replace("Signature", " host", " (created) host"), want: httpsig.SignatureMalformed},
			"created with rsa": {do: func(r *http.Request) {
				replace("Signature", " host", " (created) host")(r)
				replace("Signature", `"hs2019"`, `"rsa-sha256",created=1`)(r)
			}, want: httpsig.SignatureMalformed},
			"expires is absent":   {do: replace("Signature", " host", " (expires) host"), want: httpsig.SignatureMalformed},
			"expires":             {do: replace("Signature", ",headers", ",expires=1,headers"), want: httpsig.TooOld},
			"expires is a text":   {do: replace("Signature", ",headers", ",expires=x,headers"), want: httpsig.SignatureMalformed},
			"expires is negative": {do: replace("Signature", ",headers", ",expires=-1,headers"), want: httpsig.SignatureMalformed},
			"a parameter twice":   {do: replace("Signature", "keyId", `keyid="x",keyId`), want: httpsig.SignatureMalformed},
			"no quotation mark":   {do: replace("Signature", `keyId="`, "keyId="), want: httpsig.SignatureMalformed},
			"a backslash":         {do: replace("Signature", `keyId="`, `keyId="\`), want: httpsig.SignatureMalformed},
			"two values":          {do: func(r *http.Request) { r.Header.Add("Signature", r.Header.Get("Signature")) }, want: httpsig.SignatureMalformed},
			"an empty signature":  {do: func(r *http.Request) { r.Header.Set("Signature", "") }, want: httpsig.SignatureMalformed},
			"no base64":           {do: replace("Signature", `signature="`, `signature="*`), want: httpsig.SignatureMalformed},
			"trailing text":       {do: func(r *http.Request) { r.Header.Set("Signature", r.Header.Get("Signature")+" x") }, want: httpsig.SignatureMalformed},
			"trailing comma":      {do: func(r *http.Request) { r.Header.Set("Signature", r.Header.Get("Signature")+",") }, want: httpsig.SignatureMalformed},
		},
	}
	for _, form := range forms {
		for _, changes := range []map[string]change{both, each[form]} {
			for name, change := range changes {
				t.Run(form+", "+name, func(t *testing.T) {
					r, body := signed(t, c, form, id, key), []byte(activity)
					switch change.body {
					case "":
					case "-":
						body = nil
					default:
						body = []byte(change.body)
					}
					change.do(r)
					who, err := v.Verify(r, body)
					wantCode(t, err, change.want)
					if who != (httpsig.Signer{}) {
						t.Errorf("it was signed by %+v", who)
					}
				})
			}
		}
	}
}

func TestTimes(t *testing.T) {
	c, h := newClock(), newHome(t)
	key := edKey()
	id := h.actor(t, "alice", key)
	for _, form := range forms {
		for name, test := range map[string]struct {
			pass time.Duration
			opts httpsig.Options
			want httpsig.Code
		}{
			"as old as may be":          {pass: 12 * time.Hour},
			"too old":                   {pass: 12*time.Hour + time.Second, want: httpsig.TooOld},
			"ahead":                     {pass: -time.Hour},
			"too far ahead":             {pass: -time.Hour - time.Second, want: httpsig.TooNew},
			"older than the option":     {pass: 2 * time.Minute, opts: httpsig.Options{MaxAge: time.Minute}, want: httpsig.TooOld},
			"ahead of a short age":      {pass: -2 * time.Minute, opts: httpsig.Options{MaxAge: time.Minute}, want: httpsig.TooNew},
			"ahead, which is allowed":   {pass: -2 * time.Hour, opts: httpsig.Options{MaxSkew: 3 * time.Hour}},
			"younger than the option":   {pass: 20 * time.Hour, opts: httpsig.Options{MaxAge: 21 * time.Hour}},
			"a day off with long hours": {pass: -24 * time.Hour, opts: httpsig.Options{MaxAge: 48 * time.Hour}, want: httpsig.TooNew},
		} {
			t.Run(form+", "+name, func(t *testing.T) {
				r := signed(t, c, form, id, key)
				later := newClock()
				later.pass(test.pass)
				test.opts.Keys, test.opts.Now = newKeys(c), later.now
				v, err := httpsig.New(test.opts)
				must(t, err)
				if _, err = v.Verify(r, []byte(activity)); test.want != "" {
					wantCode(t, err, test.want)
				} else {
					must(t, err)
				}
			})
		}
	}
}

// TestBase has a proxy in front that ends TLS and writes a host of its own.
func TestBase(t *testing.T) {
	c, h := newClock(), newHome(t)
	key := edKey()
	id := h.actor(t, "alice", key)
	v, err := httpsig.New(httpsig.Options{Keys: newKeys(c), Now: c.now, Base: &url.URL{Scheme: "https", Host: "social.example"}})
	must(t, err)
	for _, form := range forms {
		for at, ok := range map[string]bool{"https://social.example/inbox": true, "https://other.example/inbox": false} {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, at, strings.NewReader("x"))
			must(t, err)
			must(t, httpsig.Sign(r, []byte("x"), httpsig.SignOptions{KeyID: id, Key: key, Form: form, Now: c.now}))
			got := arrive(r)
			got.Host = "10.0.0.1:8080"
			if _, err = v.Verify(got, []byte("x")); ok {
				must(t, err)
			} else {
				wantCode(t, err, httpsig.SignatureWrong)
			}
		}
	}
	for _, bad := range []string{"ftp://a.example", "https://", "https://a.example/path", "https://u:p@a.example", "https://a.example?x"} {
		u, err := url.Parse(bad)
		must(t, err)
		if _, err := httpsig.New(httpsig.Options{Keys: newKeys(c), Base: u}); err == nil {
			t.Errorf("%s is a base", bad)
		}
	}
	if _, err := httpsig.New(httpsig.Options{}); err == nil {
		t.Error("there is a verifier without keys")
	}
}

// TestSeveralSignatures adds signatures by others to a request.
func TestSeveralSignatures(t *testing.T) {
	c, h := newClock(), newHome(t)
	v := newVerifier(t, c, newKeys(c))
	key := edKey()
	id := h.actor(t, "alice", key)
	with := func(input string) *http.Request {
		r := signed(t, c, httpsig.FormRFC9421, id, key)
		r.Header.Set("Signature-Input", input+", "+r.Header.Get("Signature-Input"))
		r.Header.Set("Signature", "proxy=:AAAA:, "+r.Header.Get("Signature"))
		return r
	}
	for name, input := range map[string]string{
		"weak":      `proxy=("@status");created=1;keyid="x"`,
		"malformed": `proxy=("@query-param";name="x");keyid="x"`,
		"no list":   `proxy=1`,
	} {
		t.Run(name, func(t *testing.T) {
			who, err := v.Verify(with(input), []byte(activity))
			if err != nil || who.KeyID != id {
				t.Errorf("%+v, %v", who, err)
			}
		})
	}
	t.Run("while one key can't be had, it is unknown who signed", func(t *testing.T) {
		h.does("/busy", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) })
		r := signed(t, c, httpsig.FormRFC9421, id, key)
		input := strings.Replace(r.Header.Get("Signature-Input"), id, h.URL+"/busy", 1)
		r.Header.Set("Signature-Input", `weak=();keyid="x", `+strings.Replace(input, "sig1", "busy", 1))
		r.Header.Set("Signature", "weak=:AAAA:, busy=:AAAA:")
		_, err := v.Verify(r, []byte(activity))
		wantCode(t, err, httpsig.KeyUnavailable)
	})
}
