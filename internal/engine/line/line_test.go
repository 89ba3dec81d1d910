package line

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/semelhq/semel/store"
)

func caller(number uint64, network byte) *Caller {
	return &Caller{Key: store.ID{Key: "k"}, Number: number, BoundTo: string(rune('a' + number)), Network: [16]byte{network}}
}

func TestTheNetworkThatHadItsTurnGoesToTheEnd(t *testing.T) {
	var l Lines
	if !l.Claim(caller(1, 1)) || l.Claim(caller(2, 1)) || l.Free(caller(2, 1)) || !l.Free(caller(1, 2)) {
		t.Error("the first has no turn, or another has it, too")
	}
	second, third := l.Join(caller(2, 1), 0), l.Join(caller(3, 2), 0)
	l.End(caller(1, 1), 0)
	if !<-third || len(second) != 0 || !l.Claim(caller(3, 2)) {
		t.Error("the next turn isn't that of the other network")
	}
	if l.Leave(caller(2, 1)); l.Len() != 1 {
		t.Errorf("%d lines while one has its turn", l.Len())
	}
	if l.End(caller(3, 2), 0); !l.Over(caller(2, 1)) || l.Len() != 0 {
		t.Error("the line stays when nobody is in it")
	}
	if l.Join(caller(2, 1), 0) != nil {
		t.Error("somebody waits where there is no line")
	}
}

func TestAFullLineTakesFromTheNetworkWithMost(t *testing.T) {
	var l Lines
	l.Claim(caller(0, 0))
	var last <-chan bool
	for n := range uint64(Max) {
		last = l.Join(caller(n+1, 1), 0)
	}
	if l.Join(caller(20, 1), 0) != nil {
		t.Error("a network has more than all places")
	}
	if l.Join(caller(21, 2), 0) == nil || <-last {
		t.Error("another network got no place, or the newest of the first kept it")
	}
}

func TestAnUnusedTurnPassesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l Lines
		l.Claim(caller(1, 1))
		slow, next := l.Join(caller(2, 2), 0), l.Join(caller(3, 3), 0)
		l.End(caller(1, 1), 0)
		began := time.Now()
		if !<-slow || !<-next || time.Since(began) != lasts {
			t.Errorf("it passed on after %v", time.Since(began))
		}
		if l.Claim(caller(2, 2)) || !l.Claim(caller(3, 3)) {
			t.Error("it didn't pass on to the next")
		}
	})
}
