package webhook

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/store"
)

// named are the attributes that a source gives the events of a delivery, in their order.
func named(t *testing.T, v vector, d *Delivery) (list []store.Attributes) {
	t.Helper()
	ver := v.verifier(t)
	events, err := ver.Verify(d)
	if err != nil {
		t.Fatal(err)
	}
	names, err := ver.source.names(nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range events {
		list = append(list, names.Of(store.Attributes{}, e.Type, e.Header, e.Body))
	}
	return list
}

// TestNamesOfTheSamples: each sample of a sender has the names that people at the business have
// in hand.
func TestNamesOfTheSamples(t *testing.T) {
	none := store.Attributes{}
	want := map[string][]store.Attributes{
		"acp":                 {{"order": "ord_1"}},
		"adyen":               {{"psp_reference": "pspReference", "original_reference": "originalReference", "merchant_reference": "reference"}},
		"adyen-authorisation": {{"psp_reference": "7914073381342284", "merchant_reference": "TestPayment-1407325143704"}},
		"adyen-header":        {{"resource": "BA1"}},
		"github":              {none},
		"github-text":         {none},
		"gitlab":              {{"commit": "da1560886d4f094c3e6c9ef40349f7d38b5d27d7"}},
		"hubspot":             {{"object": "123"}, {"object": "123"}},
		"intercom":            {{"conversation": "7"}},
		"paddle":              {{"transaction": "txn_01"}},
		"paypal":              {{"resource": "42311647XV020574X"}},
		"paystack":            {{"reference": "qTPrJoy9Bx"}},
		"sendgrid":            {{"message": "m1.filter"}, {"message": "m2.filter"}},
		"shopify":             {{"order": "820982911946154508"}},
		"shopify-events":      {{"product": "gid://shopify/Product/1"}},
		"slack":               {{"channel": "C01"}},
		"square":              {{"resource": "hYy9pRFVxpDsO1FB05SunFWUe9JZY"}},
		"stripe":              {{"payment_intent": "pi_3"}},
		"telegram":            {{"chat": "1111"}},
		"twilio":              {{"message": "SM0123456789abcdef0123456789abcdef"}},
		"twilio-json":         {{"message": "IM0123456789abcdef0123456789abcdef"}},
		"whatsapp":            {{"message": "wamid.A"}, {"message": "wamid.B"}, {"message": "wamid.C"}, {"message": "wamid.C"}},
		// Nobody knows what their bodies say; the id of the event is what there is.
		"standard-webhooks": {none}, "standard-webhooks-ed25519": {none}, "svix": {none}, "svix-bare": {none},
	}
	for _, v := range vectors {
		t.Run(v.file, func(t *testing.T) {
			got := named(t, v, v.delivery(t))
			if w := want[v.file]; len(got) != len(w) {
				t.Fatalf("%v, want %v", got, w)
			}
			for i := range got {
				if !maps.Equal(got[i], want[v.file][i]) {
					t.Errorf("event %d has %v, want %v", i, got[i], want[v.file][i])
				}
			}
		})
	}
}

// TestNamesOfOtherKinds: one name is in other places of other kinds of events.
func TestNamesOfOtherKinds(t *testing.T) {
	for name, c := range map[string]struct {
		file, body string
		header     []string
		want       store.Attributes
	}{
		"a refund at Shopify":  {"shopify", `{"id":1,"order_id":9911}`, []string{"X-Shopify-Topic", "refunds/create"}, store.Attributes{"order": "9911"}},
		"an edit at Shopify":   {"shopify", `{"order_edit":{"id":1,"order_id":9911}}`, []string{"X-Shopify-Topic", "orders/edited"}, store.Attributes{"order": "9911"}},
		"an order's name":      {"shopify", `{"id":9911,"name":"#1001","order_number":1001}`, nil, store.Attributes{"order": "9911", "order_name": "#1001", "order_number": "1001"}},
		"a customer":           {"shopify", `{"id":1,"name":"Jo"}`, []string{"X-Shopify-Topic", "customers/create"}, store.Attributes{}},
		"a charge at Stripe":   {"stripe", `{"id":"e","type":"charge.refunded","data":{"object":{"id":"ch_1","payment_intent":"pi_1","metadata":{"order_id":"9911"}}}}`, nil, store.Attributes{"charge": "ch_1", "payment_intent": "pi_1", "order": "9911"}},
		"a dispute at Stripe":  {"stripe", `{"id":"e","type":"charge.dispute.created","data":{"object":{"id":"dp_1","charge":"ch_1","payment_intent":"pi_1"}}}`, nil, store.Attributes{"charge": "ch_1", "payment_intent": "pi_1"}},
		"a push at GitHub":     {"github", `{"after":"da15","repository":{"full_name":"acme/shop"}}`, nil, store.Attributes{"repository": "acme/shop", "commit": "da15"}},
		"a request at GitHub":  {"github", `{"pull_request":{"number":17},"repository":{"full_name":"acme/shop"}}`, []string{"X-GitHub-Event", "pull_request"}, store.Attributes{"repository": "acme/shop", "pull_request": "17"}},
		"a refund at Paystack": {"paystack", `{"event":"refund.processed","data":{"id":1,"transaction_reference":"T1"}}`, nil, store.Attributes{"reference": "T1"}},
		"an order at Square":   {"square", `{"event_id":"e","type":"order.updated","data":{"id":"O1"}}`, nil, store.Attributes{"resource": "O1", "order": "O1"}},
	} {
		t.Run(name, func(t *testing.T) {
			v, _ := vectorOf(t, c.file)
			if got := named(t, v, resign(t, c.file, c.body, c.header...)); len(got) != 1 || !maps.Equal(got[0], c.want) {
				t.Errorf("%v, want %v", got, c.want)
			}
		})
	}
}

// TestAnEventIsFoundByTheNamesOfTheBusiness, also one that is parked beside another; an erasure
// takes the names with the record.
func TestAnEventIsFoundByTheNamesOfTheBusiness(t *testing.T) {
	r := newRig(t, "shopify", func(o *Options) {
		o.Mode, o.Attributes = Sync, map[string]string{"mail": "json:/email", "total": "json:/total"}
	})
	_, d := vectorOf(t, "shopify")
	r.want(d, 200)
	other := resign(t, "shopify", `{"id":820982911946154508,"email":"other@example.com"}`)
	r.want(other, 200)
	find := func(name, value string) []store.Record {
		t.Helper()
		page, err := r.engine.Search(t.Context(), store.Query{Attributes: store.Attributes{name: value}})
		if err != nil {
			t.Fatal(err)
		}
		return page.Records
	}
	found := find("mail", "jon@example.com")
	if n := len(find("order", "820982911946154508")); n != 2 || len(found) != 1 || found[0].Attributes["mail"] == "" || found[0].Attributes[store.AttributeEventID] == "" {
		t.Fatalf("%d events of the order, and %+v", n, found)
	}
	if err := r.engine.Purge(context.Background(), found[0].ID, semel.Removal{Who: "olga", Reason: "asked", EraseEvidence: true}); err != nil {
		t.Fatal(err)
	}
	if left := find("mail", "jon@example.com"); len(left) != 0 {
		t.Errorf("after the erasure: %+v", left)
	}
}

// TestThePageHasTheNames of every source, in a row of its own.
func TestThePageHasTheNames(t *testing.T) {
	page, err := os.ReadFile("../../docs/webhooks.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, source := range Sources() {
		s, err := Builtin(source)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, a := range s.Attributes {
			if name := "`" + a.Name + "`"; !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
		if row := fmt.Sprintf("| `%s` | %s |\n", source, strings.Join(names, ", ")); len(names) > 0 && !strings.Contains(string(page), row) {
			t.Errorf("docs/webhooks.md lacks %s", row)
		}
	}
}
