package pgstore

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/semelhq/semel"
)

func TestConns(t *testing.T) {
	s, _ := open(t, Options{MaxConns: 2})
	c := &s.commits.conns
	c.keep = time.Hour
	out := func() int { return int(s.writes.Stat().AcquiredConns()) }
	wantNone := func(t *testing.T) {
		t.Helper()
		if len(c.free) != 0 || len(c.taken) != 0 || out() != 0 {
			t.Errorf("%d are kept, %d known, %d out of the pool", len(c.free), len(c.taken), out())
		}
	}
	n := 0
	write := func(t *testing.T) {
		t.Helper()
		n++
		put(t, s, numbered(fmt.Sprint("key-", n), 1), semel.Revision{})
	}

	t.Run("one that was used is kept for the next write", func(t *testing.T) {
		write(t)
		if len(c.free) != 1 || out() != 1 {
			t.Fatalf("%d are kept, %d are out of the pool", len(c.free), out())
		}
		kept := c.free[0]
		write(t)
		if len(c.free) != 1 || c.free[0] != kept {
			t.Error("the next write took another one")
		}
	})
	t.Run("those that nobody uses go back to the pool", func(t *testing.T) {
		c.expire()
		wantNone(t)
	})
	t.Run("one that was out for long goes back after its use", func(t *testing.T) {
		conn, err := c.take()
		if err != nil {
			t.Fatal(err)
		}
		c.expire()
		if out() != 1 {
			t.Error("one that is in use was given back")
		}
		c.taken[conn] = time.Now().Add(-c.keep)
		c.giveBack(conn)
		wantNone(t)
	})
	t.Run("a broken one is not kept", func(t *testing.T) {
		conn, err := c.take()
		if err != nil {
			t.Fatal(err)
		}
		lineOf(conn.Conn().PgConn()).letGo()
		if _, err := conn.Exec(t.Context(), "SELECT"); err == nil {
			t.Error("a line that was let go answers")
		}
		c.giveBack(conn)
		if len(c.free) != 0 || len(c.taken) != 0 {
			t.Errorf("%d are kept, %d known", len(c.free), len(c.taken))
		}
		write(t)
	})
	t.Run("none is kept for longer than it may be", func(t *testing.T) {
		c.expire()
		c.keep = time.Millisecond
		defer func() { c.keep = time.Hour }()
		write(t)
		for end := time.Now().Add(10 * time.Second); out() > 0; runtime.Gosched() {
			if time.Now().After(end) {
				t.Fatal("it is still out of the pool")
			}
		}
	})
	t.Run("none is kept after Close", func(t *testing.T) {
		write(t)
		conn, err := c.take()
		if err != nil {
			t.Fatal(err)
		}
		c.close()
		c.giveBack(conn)
		wantNone(t)
	})
}
