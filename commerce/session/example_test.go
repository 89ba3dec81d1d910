package session_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/semelhq/semel"
	"github.com/semelhq/semel/commerce/session"
	"github.com/semelhq/semel/store/memstore"
)

// Example logs a user in twice, out, and in again.
func Example() {
	ctx := context.Background()
	st := memstore.New()
	defer st.Close()
	engine, err := semel.New(st, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer engine.Close(ctx)
	secret := make([]byte, 32)
	_, _ = rand.Read(secret)
	passwordIs := func(password string) error {
		if password != "correct horse" {
			return errors.New("wrong password")
		}
		return nil
	}

	// snippet: Login
	keys, err := session.NewKeyring(session.Key{ID: "2026-11", Secret: secret})
	if err != nil {
		panic(err)
	}
	sessions, err := session.New(engine, session.Options{Keys: keys, Lifetime: 12 * time.Hour})
	if err != nil {
		panic(err)
	}
	login := func(password string) (session.Session, error) {
		return sessions.Login(ctx, session.Login{
			Owner:  session.Owner{User: "user_12345", Device: "phone"},
			Verify: func(context.Context) error { return passwordIs(password) },
			Token: func(_ context.Context, s session.Session) ([]byte, error) {
				return []byte(rand.Text()), nil // or a JWT with s.ID and s.ExpiresAt
			},
		})
	}
	// end snippet

	first, err := login("correct horse")
	if err != nil {
		fmt.Println(err)
		return
	}
	again, err := login("correct horse")
	fmt.Println("the same token:", string(again.Token) == string(first.Token), err)
	_, err = login("a guess")
	fmt.Println(err)

	// snippet: End
	err = sessions.End(ctx, first, "user_12345", "logout")
	// end snippet
	fmt.Println("logged out:", err)
	next, err := login("correct horse")
	fmt.Println("another token:", string(next.Token) != string(first.Token), err)

	// Output:
	// the same token: true <nil>
	// wrong password
	// logged out: <nil>
	// another token: true <nil>
}
