package hub

import "testing"

func TestHub(t *testing.T) {
	var h Hub[string]
	h.Wake("a") // nobody waits
	h.WakeAll()
	a, stopA := h.Watch("a")
	other, stopOther := h.Watch("a")
	b, stopB := h.Watch("b")
	told := func(ch <-chan struct{}) bool {
		select {
		case <-ch:
			return true
		default:
			return false
		}
	}
	h.Wake("a")
	h.Wake("a") // waits for nobody who has not looked yet
	if !told(a) || !told(other) || told(b) || told(a) {
		t.Error("a change is not told to those who watch it, and once")
	}
	stopOther()
	h.WakeAll()
	if !told(a) || !told(b) || told(other) {
		t.Error("not everybody who watches is told, or one who does not")
	}
	stopA()
	stopB()
	if h.Len() != 0 {
		t.Errorf("%d keys are kept of nobody", h.Len())
	}
}
