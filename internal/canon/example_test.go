package canon_test

import (
	"fmt"

	"github.com/semelhq/semel/internal/canon"
)

func ExampleCanonicalize() {
	body := []byte(`{"ref": "caf\u00e9", "id": 9007199254740993, "amount": 1.50}`)
	for _, mode := range []canon.Mode{canon.JCS, canon.Exact} {
		text, err := canon.Canonicalize(body, mode)
		fmt.Printf("%s %v\n", text, err)
	}
	_, err := canon.Canonicalize([]byte(`{"amount": 1, "amount": 2}`), canon.Exact)
	fmt.Println(err)
	// Output:
	// {"amount":1.5,"id":9007199254740992,"ref":"café"} <nil>
	// {"amount":1.5,"id":9007199254740993,"ref":"café"} <nil>
	// invalid JSON at byte 14: duplicate member name
}

func ExampleAppend() {
	buffer := []byte("v1 ")
	buffer, err := canon.Append(buffer, []byte(` [ 1e3, "\/" ] `), canon.JCS)
	fmt.Printf("%s %v\n", buffer, err)
	// Output: v1 [1000,"/"] <nil>
}

func ExampleAppendString() {
	text, err := canon.AppendString(nil, "two\nlines")
	fmt.Printf("%s %v\n", text, err)
	// Output: "two\nlines" <nil>
}
