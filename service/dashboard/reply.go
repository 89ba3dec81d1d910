package dashboard

import (
	"net/http"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/door"
	"github.com/semelhq/semel/internal/problem"
)

func reply(w http.ResponseWriter, doc any) {
	problem.WriteAs(w, http.StatusOK, "application/json", doc)
}

type refusal struct {
	Title  string     `json:"title"`
	Status int        `json:"status"`
	Detail string     `json:"detail"`
	Code   semel.Code `json:"code"`
}

// refuse answers with what a code means at every door, and a sentence for people.
func refuse(w http.ResponseWriter, code semel.Code, detail string) {
	m, _ := door.Lookup(code)
	if code == door.CodeUnauthorized {
		w.Header().Set("WWW-Authenticate", `Bearer realm="semel"`)
	}
	problem.Write(w, m.Status, refusal{m.Title, m.Status, detail, code})
}
